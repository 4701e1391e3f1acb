"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
