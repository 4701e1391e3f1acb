"""What `wavescope compare --ladder` runs and prints: kernels of growing technique in place of schedules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wavescope.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from wavescope.cli.contest import Timed
    from wavescope.cli.target import Target
    from wavescope.comparison import Comparison
    from wavescope.problem import Problem
    from wavescope.variant import Variant

SIZE = 4096  # m, n and k where they are not given
EXAMPLE = "wavescope compare --ladder"


def variant_of(words: Sequence[str]) -> Variant:
    """The schedule of all steps: persistent, or the one that is named; the library takes part in any case.

    Raises: UsageError for two schedules, and for one that some kernel of the ladder cannot run.
    """
    from wavescope.cli.contenders import BETWEEN
    from wavescope.comparison import LIBRARY
    from wavescope.kernel_table import WHOLE_AND_STATIC
    from wavescope.variant import Variant

    named = [word for word in words if word.strip().lower() not in (*BETWEEN, LIBRARY)]
    if len(named) > 1:
        raise UsageError(f"--ladder runs all its kernels by one schedule, not {' and '.join(named)}; name one, or none")
    found = Variant.parse(named[0] if named else "persistent")
    if found.schedule not in WHOLE_AND_STATIC:
        raise UsageError(
            f"--ladder: not every kernel runs {found.schedule}; use {' or '.join(WHOLE_AND_STATIC)}, "
            f"as in '{EXAMPLE} fixed'"
        )
    return found


def refuse(options: dict[str, object]) -> None:
    """Pass where none of the options is given that the ladder itself decides.

    Raises: UsageError naming the first that is.
    """
    reasons = {"--work": "its steps do all k_iters of all tiles", "--fail-under-ratio": "no step is to beat another"}
    for option, value in options.items():
        if value is not None:
            why = reasons.get(option, "each step has its own kernel and tile")
            raise UsageError(f"--ladder and {option} do not go together: {why}")


def run(problem: Problem, variant: Variant, target: Target, how: Timed) -> Comparison:
    """All steps on the target, measured or simulated, with the library; steps that cannot run say why.

    Raises: DeviceError where not one can; else as duel and virtual_comparison.
    """
    from wavescope.cli.contest import timed
    from wavescope.comparison import LIBRARY, arranged
    from wavescope.ladder import RUNGS, climb

    if problem.dtype == "fp32":
        raise UsageError("--ladder: its kernels compute bf16 and fp16, not fp32; use --dtype bf16")
    entries, missing = climb(problem, target.device, variant)
    if target.cuda_index is None:
        from wavescope.virtual_comparison import calibrated

        entries, unknown = calibrated(problem, entries, target.device, how.most_ctas)
        missing += unknown
    if not entries:
        what = "runs here" if target.cuda_index is not None else "can be simulated"
        raise DeviceError(f"no step of the ladder {what}: {missing[0].unavailable}; use --device virtual:h200")
    found = timed(problem, entries, True, target, how)
    whole = replace(found, contenders=(*found.contenders, *missing))
    return arranged(whole, [*(rung.name for rung in RUNGS), LIBRARY])


def deliver(found: Comparison, json: bool, csv: Path | None) -> int:
    """Analyse, write and print what is wanted, and return the exit status."""
    from wavescope.cli.console import make_console, note
    from wavescope.ladder import steps
    from wavescope.standings import standings

    placed = standings(found)
    climbed = steps(found, placed)
    if csv:
        from wavescope.output_file import write_atomically
        from wavescope.report import ladder_csv

        write_atomically(csv, ladder_csv.encode(found, placed, climbed))
        note(f"wrote {csv}")
    if json:
        from wavescope.report import ladder_json

        sys.stdout.write(ladder_json.render(found, placed, climbed))
        return 0
    from wavescope.report import glyphs, ladder_text
    from wavescope.report.layout import Page, page_width

    console = make_console()
    page = Page(page_width(console.width), glyphs.for_encoding(console.encoding))
    for line in ladder_text.lines(page, found, placed, climbed):
        console.print(line, soft_wrap=True)
    return 0
