"""stall_clock: measured by some kernels, null for the others, and told apart by the span it stands on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.synthetic import Span, spans_from, trace_from
from wavescope.device import virtual_device
from wavescope.errors import IntegrityError
from wavescope.integrity import check
from wavescope.problem import Problem, Tile
from wavescope.report import csv
from wavescope.trace import NULL, RECORD_DTYPE, STALL_KERNELS, Kind, Spans, spans_of_records
from wavescope.trace_file import load, save
from wavescope.units import units_of
from wavescope.variant import Variant
from wavescope.virtual import run

NOBODY = 0xFFFFFFFF

# A CTA: a part of a tile, whose sums it leaves, waits for and adds a share of; then a whole tile.
# Cycles waited: for operands in the mac records, for room in those of the spans after them.
RECORDS = [
    (Kind.CTA, NOBODY, 0, 1000, 0),
    (Kind.MAC, 7, 0, 100, 30),
    (Kind.FIXUP, 7, 100, 120, 40),
    (Kind.WAIT, 7, 130, 150, 0),
    (Kind.FIXUP, 7, 150, 200, 0),
    (Kind.MAC, 9, 125, 800, 0),
    (Kind.EPILOGUE, 9, 800, 900, 500),
    (Kind.WAIT, NOBODY, 900, 950, 0),
]


def records() -> NDArray[Any]:
    """The device's records of RECORDS, with an unused slot between; the clock runs 3 cycles a ns."""
    made = np.zeros(len(RECORDS) + 1, RECORD_DTYPE)
    for row, (kind, unit, begin, end, stall) in zip([0, 2, 3, 4, 5, 6, 7, 8], RECORDS, strict=True):
        made[row] = (begin, 3 * begin + 5, end, 3 * end + 5, 0, unit, 0, 0, 0, 4, 1, kind, 0, stall)
    return made


def test_a_kernel_that_measures_waits_has_them_on_two_spans_of_a_unit() -> None:
    spans, _ = spans_of_records(records(), 0, cluster=1, has_stalls=True)
    assert spans.stall_clock.tolist() == [NULL, 30, 40, NULL, NULL, 0, 500, NULL]
    assert spans.operand_stall.tolist() == [NULL, 30, NULL, NULL, NULL, 0, NULL, NULL]
    assert spans.room_stall.tolist() == [NULL, NULL, 40, NULL, NULL, NULL, 500, NULL]
    units = units_of(spans)
    assert units.operand_stall is not None
    assert units.room_stall is not None
    assert (units.unit.tolist(), units.operand_stall.tolist(), units.room_stall.tolist()) == (
        [7, 9],
        [30, 0],
        [40, 500],
    )


def test_a_wait_that_stands_twice_counts_once() -> None:
    # the owner of a split tile: its wait and its epilogue both have the copier's cycles (loop.cuh)
    made = records()[2:5]
    made["kind"] = [Kind.MAC, Kind.WAIT, Kind.EPILOGUE]
    made["stall_clock"] = [30, 40, 40]
    spans, _ = spans_of_records(np.concatenate([records()[:1], made]), 0, cluster=1, has_stalls=True)
    assert spans.room_stall.tolist() == [NULL, NULL, 40, NULL]


def test_all_32_bits_of_a_wait_are_a_number() -> None:
    made = records()
    made["stall_clock"][2] = 2**32 - 1
    assert spans_of_records(made, 0, cluster=1, has_stalls=True)[0].stall_clock[1] == 2**32 - 1


def test_a_kernel_that_does_not_measure_waits_has_none() -> None:
    spans, _ = spans_of_records(records(), 0, cluster=1)
    assert (spans.stall_clock == NULL).all()
    units = units_of(spans)
    assert (units.operand_stall, units.room_stall) == (None, None)
    assert not STALL_KERNELS & {"gemm_mma", "gemm_simt"}


def test_a_simulation_measures_none() -> None:
    trace = run(Problem(512, 512, 512), Tile(128, 128, 64), Variant("fixed"), virtual_device("h200"), reason="a test")
    assert (trace.spans.stall_clock == NULL).all()


@pytest.mark.parametrize("has_stalls", [True, False])
def test_files_and_csv_keep_what_was_measured(tmp_path: Path, has_stalls: bool) -> None:
    spans, _ = spans_of_records(records(), 0, cluster=1, has_stalls=has_stalls)
    save(trace_from(spans), tmp_path / "x.parquet")
    assert load(tmp_path / "x.parquet").spans.stall_clock.tolist() == spans.stall_clock.tolist()
    rows = csv.encode(csv.spans_table(spans)).decode().splitlines()
    last = [row.rpartition(",")[2] for row in rows]
    assert last == ["stall_clock", *("" if cycles == NULL else str(cycles) for cycles in spans.stall_clock)]


ROWS = [
    Span(Kind.CTA, 0, 0, 0, 1000),
    Span(Kind.MAC, 0, 0, 10, 500, 0, 0, 0, 0, 2, stall=100),
    Span(Kind.EPILOGUE, 0, 0, 500, 600, 0, 0, 0, 0, 2, stall=700),
    Span(Kind.MAC, 0, 0, 600, 900, 1, 0, 1, 0, 2, stall=0),
    Span(Kind.EPILOGUE, 0, 0, 900, 990, 1, 0, 1, 0, 2, stall=0),
]


def spans_with(row: int, stall: int) -> Spans:
    return spans_from([replace(span, stall=stall) if at == row else span for at, span in enumerate(ROWS)])


def test_waits_that_can_be_pass() -> None:
    check(trace_from(ROWS))
    check(trace_from(spans_with(1, 490 + 256)))  # stamps of two warps lie up to 256 cycles apart
    check(trace_from(spans_with(2, 1000 + 256)))


@pytest.mark.parametrize(
    ("row", "stall", "message"),
    [
        (1, 490 + 257, "1 of 5 spans waited longer inside than they, or their CTA, took .*stall_clock 747"),
        (2, 1000 + 257, "1 of 5 spans waited longer inside"),
        (3, NULL, "1 of 5 spans of kind mac have no stall_clock, and others do .*unit 1"),
        (0, 5, "1 of 5 spans of kind cta have a stall_clock"),
        (4, -2, "1 of 5 spans have a negative stall_clock"),
    ],
)
def test_waits_that_cannot_be_are_refused(row: int, stall: int, message: str) -> None:
    with pytest.raises(IntegrityError, match=message):
        check(trace_from(spans_with(row, stall)))
