"""The clock that a card's power cap leaves: the more multiply-adds a cycle, the lower.

H200, 2026-11: the clock follows what a launch issues a cycle, and hardly its length, be it
20 us or 1.4 ms (gemm_sm90 and gemm_sm90_pingpong, replayed back to back).
"""

from __future__ import annotations

from wavescope.calibration_row import Calibration
from wavescope.problem import Tile

# The clock goes with FLOP a cycle to this power, negative: H200, 2026-11, 0.28 to 0.29 in 51 launches of
# 12 tiles of over 30 us; power that is clock times voltage squared, voltage going with the clock, has 1/3.
_EXPONENT = 0.3
_K_ITERS = 64  # of each tile of the endless launch that capped_tflops is the rate of


def issued_flop(tile: Tile, k_iters: int) -> int:
    """FLOP of so many k_iters of a tile."""
    return 2 * tile.m * tile.n * tile.k * k_iters


def stretch(row: Calibration, k_iters: int, ns: float, sms: int) -> float:
    """How many times as long a launch of so many k_iters takes, for the power cap, that else takes `ns`; 1 or more."""
    if row.capped_tflops == 0 or ns <= 0:
        return 1.0
    most = _most_flop_a_cycle(row) * sms * row.clock_mhz / 1e6
    rate = issued_flop(row.tile, k_iters) / ns / 1e3
    times: float = most / row.capped_tflops * (rate / most) ** _EXPONENT
    return max(1.0, times)


def capped_tflops(row: Calibration, tflops: float, mhz: float, sms: int) -> float:
    """The rate that the cap leaves whole tiles without end, where it left a launch `tflops` at a clock of `mhz`."""
    flop_a_cycle = tflops * 1e6 / (mhz * sms)
    endless: float = tflops * (_most_flop_a_cycle(row) / flop_a_cycle) ** (1 - _EXPONENT)
    return endless


def _most_flop_a_cycle(row: Calibration) -> float:
    """Of an SM that works on whole tiles without end."""
    once = row.fixed_cycles + row.epilogue_cycles + row.gap_cycles
    return row.ctas_per_sm * issued_flop(row.tile, _K_ITERS) / (row.cycles_per_k_iter * _K_ITERS + once)
