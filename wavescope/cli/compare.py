"""`wavescope compare`: schedules of one problem against each other, and why one of them wins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavescope.cli.numbers import positive_number, whole_number
from wavescope.cli.options import (
    CtasPerSm,
    DeviceName,
    Dtype,
    KernelWord,
    Layout,
    RegimeName,
    WorkWords,
    is_auto,
    kernel_name,
    one_of,
    schedules_of,
)
from wavescope.cli.profile import (
    DEFAULT_REPEAT,
    DEFAULT_SECONDS,
    MAX_CTAS_PER_SM,
    MAX_REPEAT,
    MAX_SECONDS,
    MAX_SEED,
    REGIMES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wavescope.comparison import Comparison
    from wavescope.standings import Standing
    from wavescope.verdicts import Verdict

MAX_RATIO = 1000.0


def compare(
    contenders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A vs B",
            help="fixed, persistent, dynamic, splitk[:splits], streamk[:CTAs], hybrid[:1], tailsplit[:parts], each "
            "with @raster, @lpt (longest tiles of --work first) or @atomic if wanted; auto (that of the least "
            "predicted time); cublas; or all.  The first is what the others are measured against.",
            show_default=False,
        ),
    ] = None,
    m: Annotated[list[str] | None, typer.Option("--m", "-m", metavar="M", help="Rows of C.")] = None,
    n: Annotated[list[str] | None, typer.Option("--n", "-n", metavar="N", help="Columns of C.")] = None,
    k: Annotated[list[str] | None, typer.Option("--k", "-k", metavar="K", help="Length of the sums.")] = None,
    ladder: Annotated[
        bool,
        typer.Option(
            "--ladder",
            help="In place of schedules compare kernels of which each adds one technique to the one before, all by "
            "one schedule (persistent, or the one named), and cublas.  M, N and K are 4096 where not given.",
        ),
    ] = False,
    work: WorkWords = None,
    dtype: Dtype = "bf16",
    layout: Layout = "tn",
    tile: Annotated[
        str | None,
        typer.Option(
            metavar="MxNxK",
            help="Tile of all contenders, or auto: that of the least predicted time.  "
            "[default: the largest that gives every SM one]",
        ),
    ] = None,
    kernel: KernelWord = "auto",
    device: DeviceName = None,
    regime: RegimeName = "both",
    repeat: Annotated[str, typer.Option(metavar="COUNT", help="Rounds of cool timing on a GPU.")] = str(DEFAULT_REPEAT),
    seconds: Annotated[
        str, typer.Option(metavar="SECONDS", help="Length of a block of sustained timing; each contender has eight.")
    ] = str(DEFAULT_SECONDS),
    ctas_per_sm: CtasPerSm = None,
    seed: Annotated[str, typer.Option(metavar="NUMBER", help="Of the random operands, or of the simulation.")] = "0",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="X.parquet", readable=False, help="Keep all launches in one trace."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as JSON (and nothing else) on stdout.")
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="X.csv", readable=False, help="Write a row per contender and regime to X.csv."),
    ] = None,
    fail_under_ratio: Annotated[
        str | None,
        typer.Option(
            "--fail-under-ratio",
            metavar="R",
            help="Exit with 1 where the last contender is not R times as fast as the first, in any regime, or one of "
            "the two did not run.",
        ),
    ] = None,
) -> int:
    """Run one GEMM under several schedules and show which wins, by how much and why.

    All contenders compute the same problem in the same tile from the same operands, timed
    in turn on an NVIDIA GPU, or simulated and marked SIMULATED where there is none.
    """
    from wavescope.cli.console import note
    from wavescope.cli.contenders import contenders as read
    from wavescope.cli.contenders import one_value
    from wavescope.cli.contest import Timed, run
    from wavescope.cli.outputs import claim
    from wavescope.problem import DTYPES, LAYOUTS, MAX_DIMENSION, Problem, Tile
    from wavescope.work import Work

    if ladder:
        from wavescope.cli import ladder as steps

        steps.refuse(
            {
                "--work": work,
                "--tile": tile,
                "--kernel": None if kernel == "auto" else kernel,
                "--fail-under-ratio": fail_under_ratio,
            }
        )
        climbed = steps.variant_of(contenders or [])
        m, n, k = (given or [str(steps.SIZE)] for given in (m, n, k))
    else:
        lineup = read(contenders or [], work is not None, schedules_of(kernel))
    rows, columns, depth = (
        whole_number(option, one_value(option, given or []), most=MAX_DIMENSION, example=example)
        for option, given, example in (("--m", m, 2304), ("--n", n, 2304), ("--k", k, 4096))
    )
    number = whole_number("--seed", seed, least=0, most=MAX_SEED, example=0)
    how = Timed(
        ("cool", "sustained") if one_of("--regime", regime, REGIMES) == "both" else (regime,),
        whole_number("--repeat", repeat, most=MAX_REPEAT, example=DEFAULT_REPEAT),
        positive_number("--seconds", seconds, most=MAX_SECONDS, example=DEFAULT_SECONDS),
        None if ctas_per_sm is None else whole_number("--ctas-per-sm", ctas_per_sm, most=MAX_CTAS_PER_SM, example=1),
        number,
        None if work is None else Work.parse(work, number),
        kernel_name(kernel),
    )
    for variant in () if ladder else lineup.variants:
        if variant is not None:
            variant.check_work(how.work)
    bar = (
        None
        if fail_under_ratio is None
        else positive_number("--fail-under-ratio", fail_under_ratio, most=MAX_RATIO, example=1.05)
    )
    problem = Problem(rows, columns, depth, one_of("--dtype", dtype, DTYPES), one_of("--layout", layout, LAYOUTS))
    any_tile = tile is not None and is_auto(tile, "the tile")
    asked = None if tile is None or any_tile else Tile.parse(tile)
    claim([("-o", output), ("--csv", csv)])

    from wavescope.cli.target import choose

    target = choose(device)
    if target.cuda_index is None and json:
        note(f"simulated because {target.reason}")
    found = steps.run(problem, climbed, target, how) if ladder else run(problem, asked, any_tile, lineup, target, how)
    if output:
        _save(found, output)
    return steps.deliver(found, json, csv) if ladder else _deliver(found, json, csv, bar)


def _save(found: Comparison, output: Path) -> None:
    """All launches in one file, and on stderr which is whose."""
    from wavescope.cli.console import note
    from wavescope.comparison import joined, regime_of
    from wavescope.trace_file import save

    save(joined(found), output)
    whose = [
        f"{launch.launch_id} {one.name}{f' {regime_of(launch)}' if launch.timing else ''}"
        for one in found.contenders
        if one.trace
        for launch in one.trace.launches
    ]
    note(f"wrote {output}, launches {', '.join(whose)}")


def _deliver(found: Comparison, json: bool, csv: Path | None, bar: float | None) -> int:
    """Analyse, write and print what is wanted, and return the exit status."""
    from wavescope.cli.console import note
    from wavescope.standings import standings
    from wavescope.verdicts import verdicts

    placed = standings(found)
    said = verdicts(found, placed)
    if csv:
        from wavescope.output_file import write_atomically
        from wavescope.report import compare_csv

        write_atomically(csv, compare_csv.encode(found, placed, said))
        note(f"wrote {csv}")
    if json:
        from wavescope.report import compare_json

        sys.stdout.write(compare_json.render(found, placed, said))
    else:
        _print_text(found, placed, said)
    return 0 if bar is None else judge(found, bar)


def _print_text(found: Comparison, placed: Sequence[Standing], said: Sequence[Verdict]) -> None:
    from wavescope.cli.console import make_console
    from wavescope.picture import picture
    from wavescope.report import compare_charts, compare_text, glyphs
    from wavescope.report.layout import Page, page_width

    console = make_console()
    page = Page(page_width(console.width), glyphs.for_encoding(console.encoding))
    drawn = [(one, one.report) for one in placed if one.report and one.regime == found.regimes[0]]
    rows, columns = compare_charts.picture_size(page.width, found.device.sms, len(drawn))
    longest = max((report.budget.duration_ns for _, report in drawn), default=0)
    pictures = []
    for one, report in drawn:
        if one.contender.trace:
            wide = compare_charts.picture_columns(columns, report.budget.duration_ns, longest)
            pictures.append((one, picture(one.contender.trace, report.launch.launch_id, rows, wide)))
    for line in compare_text.lines(page, found, placed, said, pictures):
        console.print(line, soft_wrap=True)


def judge(found: Comparison, bar: float) -> int:
    """0, or BELOW_BAR where the last contender is not `bar` times as fast as the first, and say so."""
    from wavescope.cli.console import note
    from wavescope.cli.outputs import BELOW_BAR
    from wavescope.report.figures import below

    first, last = found.contenders[0], found.contenders[-1]
    for one in (first, last):
        if one.unavailable:
            note(f"{one.name} did not run, so --fail-under-ratio {bar:g} is not met: {one.unavailable}")
            return BELOW_BAR
    for regime, ratio in last.ratios.items():
        if ratio.median < bar:
            where = f" (regime {regime})" if found.source == "measured" else " (simulated)"
            note(f"{last.name} is {below(ratio.median, bar)} times as fast as {first.name}{where}, below {bar:g}")
            return BELOW_BAR
    return 0
