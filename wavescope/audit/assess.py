"""Assess: how the blocks, or the tiles inside persistent blocks, of one kind of launch fill the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from wavescope.audit.capacity import Capacity, Needs, capacity, occupancy_share, peak_flop_per_ns
from wavescope.audit.launches import NULL, UNKNOWN_PART, ProfiledDevice
from wavescope.audit.names import DecodedName, decode
from wavescope.audit.operators import Gemm, gemm_of
from wavescope.audit.tiling import Tiling, tiling

Verdict = Literal[
    "many waves",
    "full waves",
    "tail-bound",
    "too few blocks",
    "persistent, hidden tiles",
    "persistent, tiles unknown",
    "not assessable",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
ASSESSED = frozenset(VERDICTS) - {"persistent, tiles unknown", "not assessable"}  # a fill is known
# A last wave that idles less than this share of the SM time is not worth a name of its own.
_SMALL_TAIL = 0.05
_MANY_WAVES = 5
# Larger grids than (2**31 - 1) * 65535 * 65535 and clusters of more than 16 CTAs cannot be launched
# (CUDA C++ Programming Guide 13, technical specifications); what is above these is damage.
_MOST_BLOCKS = 2**63 - 1
_MOST_IN_CLUSTER = 32

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Key:
    """What launches have in common that are assessed together; NULL (and None) as in Launches."""

    name: str
    device: int
    grid: Triple
    block: Triple
    cluster: Triple
    registers: int
    shared_static: int
    shared_dynamic: int
    max_active_clusters: int
    context_sms: int
    operator: str | None
    shapes: object

    @property
    def blocks(self) -> int:
        """CTAs launched, 0 where the profile has no grid."""
        return _volume(self.grid)

    @property
    def shared_bytes(self) -> int:
        """Static and dynamic shared memory a CTA, NULL where neither is known."""
        if self.shared_dynamic == NULL and self.shared_static == NULL:
            return NULL
        return max(self.shared_dynamic, 0) + max(self.shared_static, 0)


@dataclass(frozen=True)
class Assessment:
    """How one kind of launch fills the GPU; shares are of SMs x duration, NaN where unknown.

    `waves` counts places (blocks / CTAs that fit at once), `sm_rounds` counts SMs: blocks,
    or tiles of a persistent kernel, per SM that they reach.  `fill` is the share of SM time
    in use if equal units start in rounds on the SMs, `place_fill` the same by places: where
    several CTAs share an SM it takes a free place for an idle SM.  What is missing to 1 in
    `fill` is `lost_to_quantization` (partial last round), `lost_to_few_blocks` (less than
    one round) and `lost_to_clusters` (SMs that clusters of this size do not reach).
    `padding` is the share of the arithmetic outside the problem.  `math_ns` is the time the
    whole GPU needs for the issued FLOP at the datasheet's rate.  `occupancy` is the share of
    an SM's room for warps that is taken.
    """

    verdict: Verdict
    reason: str = ""
    decoded: DecodedName | None = None
    gemm: Gemm | None = None
    tiling: Tiling | None = None
    capacity: Capacity | None = None
    waves: float = float("nan")
    sm_rounds: float = float("nan")
    rounds: int = 0
    fill: float = float("nan")
    place_fill: float = float("nan")
    lost_to_quantization: float = float("nan")
    lost_to_few_blocks: float = float("nan")
    lost_to_clusters: float = float("nan")
    padding: float = float("nan")
    math_ns: float = float("nan")
    occupancy: float = float("nan")

    @property
    def can_be_disturbed(self) -> bool:
        """True where SMs that others hold can cost time: not for kernels that wait anyway, or of unknown size."""
        return self.verdict != "not assessable"

    @property
    def is_assessed(self) -> bool:
        """True where a fill could be worked out."""
        return self.verdict in ASSESSED


def assess(key: Key, profiled: ProfiledDevice | None, seen_clusters: int = 0) -> Assessment:
    """How launches of `key` fill their device.

    `seen_clusters`: see `capacity`.
    """
    decoded = decode(key.name)
    sms, why_not = sms_of(key, profiled)
    if why_not or profiled is None:
        return Assessment("not assessable", why_not, decoded)
    needs = _needs(key, decoded)
    room = capacity(needs, profiled, sms, seen_clusters)
    return replace(_in_room(key, profiled, decoded, room), occupancy=occupancy_share(needs, profiled, room, key.blocks))


def _in_room(key: Key, profiled: ProfiledDevice, decoded: DecodedName | None, room: Capacity) -> Assessment:
    """How launches of `key` fill a device that has room for so many of their CTAs."""
    if decoded and decoded.kind == "communication":
        reason = "a communication kernel: its blocks wait for other GPUs"
        return Assessment("not assessable", reason, decoded, capacity=room)
    gemm = gemm_of(key.operator, key.shapes) if decoded and decoded.kind == "gemm" else None
    cut = tiling(decoded, gemm, key.blocks, cluster_size(key, decoded)) if decoded and gemm else None
    if _is_persistent(key, decoded, room):
        return _persistent(key, decoded, gemm, cut, room, profiled)
    return _one_wave_after_another(key, decoded, gemm, cut, room, profiled)


def sms_of(key: Key, profiled: ProfiledDevice | None) -> tuple[int, str]:
    """SMs the launch could use, and in words why it cannot be assessed, empty where it can."""
    if key.blocks < 1:
        return 0, "the profile has no grid for it"
    if key.context_sms == UNKNOWN_PART:
        return 0, "it ran in a green context whose number of SMs the profile does not say"
    if key.context_sms > 0:
        return key.context_sms, ""
    if profiled is None or not profiled.sms:
        return 0, "the profile does not say which GPU it was; name it with --gpu"
    return profiled.sms, ""


def cluster_size(key: Key, decoded: DecodedName | None) -> int:
    """CTAs a cluster: as the profile says, else as the name does, else 1."""
    recorded = _volume(key.cluster, _MOST_IN_CLUSTER)
    if recorded > 0:
        return recorded
    named = (decoded.cluster if decoded else None) or 1
    return named if named <= _MOST_IN_CLUSTER else 1


def _needs(key: Key, decoded: DecodedName | None) -> Needs:
    return Needs(
        threads=_volume(key.block),
        registers=key.registers,
        shared_bytes=key.shared_bytes,
        cluster=cluster_size(key, decoded),
        max_active_clusters=key.max_active_clusters,
    )


def _is_persistent(key: Key, decoded: DecodedName | None, room: Capacity) -> bool:
    """By its name; where that does not tell, a grid of exactly one block per SM that can be reached."""
    if decoded is not None and decoded.persistent is not None:
        return decoded.persistent
    return key.blocks in (room.sms, room.reachable_sms) and key.blocks > 1


def _persistent(
    key: Key,
    decoded: DecodedName | None,
    gemm: Gemm | None,
    cut: Tiling | None,
    room: Capacity,
    profiled: ProfiledDevice,
) -> Assessment:
    waves = key.blocks / room.ctas
    if cut is None or not cut.agrees:
        reason = _why_no_tiles(key, decoded, gemm, cut)
        return Assessment("persistent, tiles unknown", reason, decoded, gemm, None, room, waves)
    clusters = key.blocks // cut.group
    rounds = -(-cut.groups // clusters)
    used = min(1.0, key.blocks / room.sms)
    in_rounds = cut.groups / (clusters * rounds)
    fill = used * in_rounds
    few = rounds == 1 and key.blocks < room.ctas
    beyond_reach = 0.0 if few else 1 - used
    if few:
        verdict: Verdict = "too few blocks"
    else:
        verdict = "persistent, hidden tiles" if rounds > 1 else "full waves"
    return Assessment(
        verdict,
        "",
        decoded,
        gemm,
        cut,
        room,
        waves,
        sm_rounds=cut.groups / clusters,
        rounds=rounds,
        fill=fill,
        place_fill=fill,
        lost_to_quantization=used * (1 - in_rounds),
        lost_to_few_blocks=1 - used if few else 0.0,
        lost_to_clusters=beyond_reach,
        padding=cut.padding,
        math_ns=_math_ns(cut, decoded, profiled, room.sms),
    )


def _why_no_tiles(key: Key, decoded: DecodedName | None, gemm: Gemm | None, cut: Tiling | None) -> str:
    if decoded is None or decoded.tile_m is None:
        return f"one block on each of {key.blocks} SMs; the name carries no tile"
    if cut is not None:
        return f"{cut.tiles} tiles of {decoded.tile_m}x{decoded.tile_n} do not explain a grid of {key.blocks} blocks"
    if gemm is None:
        return "no shapes of its operator in the profile"
    return "its tiles could not be counted"


def _one_wave_after_another(
    key: Key,
    decoded: DecodedName | None,
    gemm: Gemm | None,
    cut: Tiling | None,
    room: Capacity,
    profiled: ProfiledDevice,
) -> Assessment:
    waves = key.blocks / room.ctas
    per_sm = key.blocks / room.reachable_sms
    rounds = -(-key.blocks // room.reachable_sms)
    few = key.blocks < room.reachable_sms
    used = key.blocks / room.sms if few else room.reachable_sms / room.sms
    in_rounds = 1.0 if few else per_sm / rounds
    fill = used * in_rounds
    tail = used * (1 - in_rounds)
    place_fill = (room.reachable_sms / room.sms) * waves / max(1, -(-key.blocks // room.ctas))
    known = cut if cut is not None and cut.agrees else None
    return Assessment(
        _verdict(waves, tail),
        "",
        decoded,
        gemm,
        known,
        room,
        waves,
        sm_rounds=per_sm,
        rounds=rounds,
        fill=fill,
        place_fill=place_fill if room.ctas_per_sm else fill,
        lost_to_quantization=tail,
        lost_to_few_blocks=1 - used if few else 0.0,
        lost_to_clusters=0.0 if few else 1 - used,
        padding=known.padding if known else float("nan"),
        math_ns=_math_ns(known, decoded, profiled, room.sms),
    )


def _verdict(waves: float, tail: float) -> Verdict:
    if waves < 1:
        return "too few blocks"
    if tail >= _SMALL_TAIL:
        return "tail-bound"
    return "many waves" if waves >= _MANY_WAVES else "full waves"


def _math_ns(cut: Tiling | None, decoded: DecodedName | None, profiled: ProfiledDevice, sms: int) -> float:
    rate = peak_flop_per_ns(profiled, decoded.dtype if decoded else None, sms)
    return 2 * cut.issued_macs / rate if cut and rate else float("nan")


def _volume(extents: Triple, most: int = _MOST_BLOCKS) -> int:
    """The product of three extents; 0 where one of them is not known, or where it cannot be."""
    x, y, z = extents
    return x * y * z if min(extents) > 0 and x * y * z <= most else 0
