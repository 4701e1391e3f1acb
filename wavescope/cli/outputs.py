"""Where a command's findings go: files checked before the work, stdout last, a bar at the end."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wavescope.cli.console import make_console, note
from wavescope.cli.numbers import share
from wavescope.errors import OutputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wavescope.details import Details
    from wavescope.regimes import RegimeRow
    from wavescope.trace import Trace
    from wavescope.wave_report import WaveReport

BELOW_BAR = 1  # exit status
PIPE_HEIGHT = 30  # lines a picture is made for where no terminal tells its own


@dataclass(frozen=True)
class Outputs:
    """What to make of a report, with which `details`; files are checked to be writable."""

    json: bool = False
    csv: Path | None = None
    trace: Path | None = None
    fail_under: float | None = None
    details: tuple[str, ...] = ()


def outputs(
    *,
    json: bool,
    csv: Path | None,
    fail_under: str | None,
    trace: Path | None = None,
    source: Path | None = None,
    details: tuple[str, ...] = (),
) -> Outputs:
    """The outputs asked for, checked before any work; `source` is the file that is read.

    Raises: UsageError for a bar that is no share, or two uses of one file; OutputError
    for a file that cannot be written.
    """
    bar = None if fail_under is None else share("--fail-under", fail_under)
    uses = [("the input", source), ("-o", trace), ("--csv", csv), ("--csv", csv and sms_path(csv))]
    claim(uses)
    return Outputs(json, csv, trace, bar, details)


def claim(uses: Sequence[tuple[str, Path | None]]) -> None:
    """Check that each use has a file of its own that can be written; "the input" is read only.

    Raises: UsageError for two uses of one file; OutputError for a file that cannot be
    written.
    """
    seen: dict[str, str] = {}
    for use, path in uses:
        if path is None:
            continue
        if str(path) == "-":
            raise UsageError(f"{use}: - is not a file name; give one (reports are printed without an option)")
        real = os.path.realpath(path)
        if real in seen:
            raise UsageError(f"{use}: {path} is already {seen[real]}; give another name")
        seen[real] = use
        if use != "the input":
            check_writable(path)


def sms_path(csv: Path) -> Path:
    """X.sm.csv beside X.csv."""
    return csv.with_name(f"{csv.stem}.sm{csv.suffix or '.csv'}") if csv.name else csv


def check_writable(path: Path) -> None:
    """Return where a file can be made at `path`.

    Raises: OutputError with the reason.
    """
    try:
        target = Path(os.path.realpath(path))
        if path.is_dir():
            raise OutputError(f"cannot write {str(path)!r}: it is a directory; give the name of a file in it")
        if path.exists() and not os.access(path, os.W_OK):
            raise OutputError(f"cannot write {str(path)!r}: it is write-protected; give another path")
        if path.exists() and not path.is_file():
            return  # a device or pipe
        if not target.parent.is_dir():
            raise OutputError(f"cannot write {str(path)!r}: there is no directory {target.parent}; create it first")
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"cannot write {str(path)!r}: {reason}; give another path") from error


def write_csv(trace: Trace, reports: Sequence[WaveReport], path: Path) -> None:
    """The spans of the reports' launches to `path`, one row per SM beside it."""
    import numpy as np

    from wavescope.output_file import write_atomically
    from wavescope.report import csv

    wanted = [report.launch.launch_id for report in reports]
    spans = trace.spans
    if len(wanted) < len(trace.launches):
        spans = spans.select(np.isin(spans.launch_id, wanted))
    write_atomically(path, csv.encode(csv.spans_table(spans)))
    write_atomically(sms_path(path), csv.encode(csv.sms_table(reports)))
    note(f"wrote {path} and {sms_path(path)}")


def deliver(trace: Trace, launch_id: int | None, wanted: Outputs) -> int:
    """Analyse one launch, write and print what is wanted, and return the exit status."""
    from wavescope.analyze import analyze
    from wavescope.details import details
    from wavescope.meaning import meaning

    report = analyze(trace, launch_id)
    sentences = meaning(report)
    found = details(trace, launch_id, wanted.details)
    if wanted.csv:
        write_csv(trace, [report], wanted.csv)
    if wanted.json:
        from wavescope.report import json

        sys.stdout.write(json.render(report, sentences, trace.tool_version, found))
    else:
        _print_text(trace, report, sentences, found)
    return judge(report, wanted.fail_under)


def _print_text(trace: Trace, report: WaveReport, sentences: Sequence[str], found: Details) -> None:
    from rich.text import Text

    from wavescope.picture import picture
    from wavescope.report import charts, detail_text, glyphs, regimes_text, text
    from wavescope.report.layout import Page, page_width

    console = make_console()
    page = Page(page_width(console.width), glyphs.for_encoding(console.encoding))
    height = console.height if console.is_terminal else PIPE_HEIGHT
    rows, columns = charts.picture_size(page.width, height, report.budget.sms)
    cells = picture(trace, report.launch.launch_id, rows, columns)
    details = detail_text.lines(page, found, report.launch.source)
    regimes = regimes_text.lines(page, _regimes(trace, report))
    for line in (*text.lines(page, report, cells, sentences), *details, *([Text(), *regimes] if regimes else [])):
        console.print(line, soft_wrap=True)


def _regimes(trace: Trace, report: WaveReport) -> tuple[RegimeRow, ...]:
    """The regimes under which this work was timed, where there are several."""
    from wavescope.analyze import analyze
    from wavescope.regimes import compare_regimes

    timed = [launch for launch in trace.launches if launch.timing]
    if len({launch.timing.regime for launch in timed if launch.timing}) < len(timed) or len(timed) < 2:
        return ()
    ids = [launch.launch_id for launch in timed]
    return compare_regimes([report if number == report.launch.launch_id else analyze(trace, number) for number in ids])


def judge(report: WaveReport, fail_under: float | None) -> int:
    """0, or BELOW_BAR where the not-idle share of SM time is below the bar, and say so."""
    busy = report.budget.not_idle.value / report.budget.total_ns
    if fail_under is None or busy >= fail_under:
        return 0
    note(f"{100 * busy:.3f}% of SM time is not idle, below --fail-under {fail_under:g}")
    return BELOW_BAR
