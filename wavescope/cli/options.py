"""Options that several commands share, and words that are one of a few."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from wavescope.errors import UsageError

Name = TypeVar("Name", bound=str)

Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON (and nothing else) on stdout.")]
Csv = Annotated[
    Path | None,
    typer.Option(
        "--csv", metavar="X.csv", readable=False, help="Write the spans to X.csv and one row per SM to X.sm.csv."
    ),
]
FailUnder = Annotated[
    str | None,
    typer.Option(
        "--fail-under",
        metavar="SHARE",
        help="Exit with 1 where the share of SM time that is not idle is below SHARE (0 to 1).",
    ),
]
TraceFile = Annotated[
    Path, typer.Argument(metavar="TRACE", readable=False, help="A trace written by 'wavescope profile -o'.")
]


def one_of(option: str, value: str, known: tuple[Name, ...]) -> Name:
    """The value, where it is one of the known ones.

    Raises: UsageError naming the option, the value and what there is.
    """
    from difflib import get_close_matches

    for name in known:
        if value == name:
            return name
    close = get_close_matches(value.lower(), known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise UsageError(f'{option}: "{value}" is unknown; use one of {", ".join(known)}{hint}')
