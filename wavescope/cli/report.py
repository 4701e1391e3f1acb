"""`wavescope report`: the report of a recorded trace; needs no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wavescope.cli.numbers import whole_number
from wavescope.cli.options import Csv, FailUnder, Json, TraceFile
from wavescope.errors import UsageError

if TYPE_CHECKING:
    from wavescope.trace import Launch

MAX_LAUNCH_ID = 2**31 - 1
MOST_NAMED = 20  # launches that are named where one is to be chosen


def report(
    trace: TraceFile,
    launch: Annotated[
        str | None, typer.Option(metavar="ID", help="Which launch, where the trace holds several.")
    ] = None,
    clocks: Annotated[
        bool, typer.Option("--clocks", help="Add MHz by kind of span, by clock domain and over time.")
    ] = False,
    dispatch: Annotated[
        bool, typer.Option("--dispatch", help="Add what the hardware's block scheduler did, and CTAs side by side.")
    ] = False,
    spread: Annotated[
        bool, typer.Option("--spread", help="Add where slow units come from, with a permutation test.")
    ] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="CHANGE",
            help="Add a prediction: sms=108, schedule=hybrid or tile=128x128x64, several of them with commas between; "
            "may be repeated.",
        ),
    ] = None,
    json: Json = False,
    csv: Csv = None,
    fail_under: FailUnder = None,
) -> int:
    """Show the report of a recorded trace; needs no GPU."""
    from wavescope.cli.outputs import deliver, outputs
    from wavescope.integrity import check
    from wavescope.trace_file import load

    launch_id = None if launch is None else whole_number("--launch", launch, least=0, most=MAX_LAUNCH_ID, example=0)
    asked = {"clocks": clocks, "dispatch": dispatch, "spread": spread}
    details = tuple(name for name, chosen in asked.items() if chosen)
    wanted = outputs(
        json=json, csv=csv, fail_under=fail_under, source=trace, details=details, what_if=tuple(what_if or ())
    )
    recorded = load(trace)
    check(recorded)
    if launch_id is None and len(recorded.launches) > 1:
        ids = ", ".join(_named(entry) for entry in recorded.launches[:MOST_NAMED])
        more = len(recorded.launches) - MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        raise UsageError(f"{trace} holds {len(recorded.launches)} launches; choose one with --launch: {ids}{rest}")
    return deliver(recorded, launch_id, wanted)


def _named(launch: Launch) -> str:
    """A launch's number, with its schedule, sizes and regime where they are known."""
    sizes = launch.problem and f"{launch.problem.m}x{launch.problem.n}x{launch.problem.k}"
    what = " ".join(word for word in (launch.schedule, sizes) if word)
    known = [word for word in (what, launch.timing and launch.timing.regime) if word]
    return f"{launch.launch_id} ({', '.join(known)})" if known else str(launch.launch_id)
