"""`wavescope audit`: the kernels of a whole program, ranked by the time they lose to waves."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavescope.cli.console import make_console, note
from wavescope.cli.numbers import percentage, whole_number
from wavescope.cli.outputs import check_writable
from wavescope.device import virtual_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from wavescope.audit.difference import Difference
    from wavescope.audit.examine import Audit
    from wavescope.audit.groups import By

OVER_BAR = 1  # exit status
MAX_TOP = 100_000
MAX_DEVICE = 1023
# A file that is read faster than this shows no progress.
_QUIET_S = 2.0
_PACE_S = 1.0  # between two lines of progress

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="PyTorch trace (.json, .gz), Nsight Systems export (.sqlite), or Nsight Compute (.csv, .ncu-rep).",
    ),
]


def audit(
    files: Files,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (and nothing else) on stdout.")] = False,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="X.csv", help="Write a row per group to X.csv, per launch to X.launches.csv."),
    ] = None,
    top: Annotated[str, typer.Option(metavar="N", help="Kernels shown.")] = "10",
    device: Annotated[str | None, typer.Option(metavar="N", help="Only kernels of GPU N.")] = None,
    by: Annotated[str, typer.Option(metavar="WHAT", help="Group by kernel or operator.")] = "kernel",
    counters: Annotated[
        Path | None,
        typer.Option(metavar="NCU", help="Nsight Compute export of the same launches, for measured values beside."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="virtual:NAME", help="The GPU, where a profile does not say which it was."),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with another profile of the same program.")
    ] = None,
    fail_over: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="Exit with 1 where more of the kernel time is lost to waves."),
    ] = None,
) -> int:
    """Rank the kernels of a recorded profile by the time they lose to waves; needs no GPU.

    Several files (ranks) are added up.  Waves inside persistent kernels are found from the
    tile in the kernel's name and the operator's shapes.
    """
    shown = whole_number("--top", top, most=MAX_TOP, example=10)
    number = None if device is None else whole_number("--device", device, least=0, most=MAX_DEVICE, example=0)
    product = None if gpu is None else virtual_device(gpu)
    bar = None if fail_over is None else percentage("--fail-over", fail_over)
    grouping = _grouping(by)
    for path in (csv, csv and launches_path(csv)):
        if path is not None:
            _refuse_input(path, [*files, *(extra for extra in (counters, against) if extra)])
            check_writable(path)

    from wavescope.audit.advice import advice
    from wavescope.audit.difference import difference
    from wavescope.audit.examine import audit as audit_files

    found = audit_files(files, device=number, by=grouping, counters=counters, gpu=product, progress=_progress())
    versus = None
    if against is not None:
        before = audit_files([against], device=number, by=grouping, gpu=product, progress=_progress())
        versus = difference(found, before)
    sentences = advice(found)
    if csv is not None:
        _write_csv(found, csv)
    if json:
        from wavescope.report import audit_json

        sys.stdout.write(audit_json.render(found, sentences, versus))
    else:
        _print_text(found, sentences, versus, shown)
    share = 100 * found.totals.lost_share
    if bar is not None and share > bar:
        note(f"{share:.1f}% of kernel time is lost to waves, over --fail-over {bar:g}")
        return OVER_BAR
    return 0


def _grouping(text: str) -> By:
    from wavescope.audit.groups import BYS
    from wavescope.errors import UsageError

    for known in BYS:
        if text == known:
            return known
    raise UsageError(f'--by: "{text}" is unknown; use one of {", ".join(BYS)}')


def launches_path(csv: Path) -> Path:
    """X.launches.csv beside X.csv."""
    return csv.with_name(f"{csv.stem}.launches{csv.suffix or '.csv'}") if csv.name else csv


def _refuse_input(path: Path, inputs: list[Path]) -> None:
    from wavescope.errors import UsageError

    if os.path.realpath(path) in {os.path.realpath(given) for given in inputs}:
        raise UsageError(f"--csv: {path} is an input; give another name")


def _write_csv(found: Audit, csv: Path) -> None:
    from wavescope.output_file import write_atomically
    from wavescope.report import audit_csv

    write_atomically(csv, audit_csv.encode(audit_csv.groups_table(found)))
    write_atomically(launches_path(csv), audit_csv.encode(audit_csv.launches_table(found)))
    note(f"wrote {csv} and {launches_path(csv)}")


def _print_text(found: Audit, sentences: tuple[str, ...], versus: Difference | None, top: int) -> None:

    from wavescope.report import audit_text, glyphs
    from wavescope.report.layout import Page, page_width

    console = make_console()
    page = Page(page_width(console.width), glyphs.for_encoding(console.encoding))
    for line in audit_text.lines(page, found, sentences, top):
        console.print(line, soft_wrap=True)
    if versus is not None:
        for line in audit_text.difference_lines(page, versus, top):
            console.print(line, soft_wrap=True)


def _progress() -> Callable[[int, int], None]:
    """Percent read on stderr, after the first seconds, at most twice a second."""
    due = time.monotonic() + _QUIET_S

    def show(done: int, total: int) -> None:
        nonlocal due
        now = time.monotonic()
        if now < due:
            return
        due = now + _PACE_S
        share = f"{done / total:.0%} of {total / 2**20:,.0f} MiB" if total else f"{done / 2**20:,.0f} MiB"
        note(f"read {share}")

    return show
