"""`wavescope calibrate`: measure what units cost on a GPU, and let simulations and Stream-K use it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavescope.cli.console import make_console, note
from wavescope.cli.numbers import positive_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wavescope.leave_one_out import Checked
    from wavescope.problem import Dtype, Tile
    from wavescope.trace import Launch, Trace

DEFAULT_SECONDS = 300
MAX_SECONDS = 86_400.0
ROUNDS = 7  # of timing a launch; the median launch is kept


def calibrate(
    traces: Annotated[
        list[Path] | None, typer.Argument(metavar="[TRACE...]", readable=False, help="More traces, with --from.")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="TRACE", readable=False, help="Fit recorded traces (profile -o) instead; needs no GPU."
        ),
    ] = None,
    kernel: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="gemm_sm90, gemm_mma or gemm_simt; auto: for each type the first of them that runs here.",
        ),
    ] = "auto",
    tile: Annotated[
        list[str] | None, typer.Option(metavar="MxNxK", help="Only this tile; may be repeated.  [default: all]")
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="bf16, fp16 or fp32; may be repeated.  [default: bf16 and fp32]"),
    ] = None,
    device: Annotated[str | None, typer.Option(metavar="DEVICE", help="cuda:N.  [default: cuda:0]")] = None,
    seconds: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help=f"Begin no launch after so long; the most telling come first.  [default: {DEFAULT_SECONDS:g}]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="X.csv", readable=False, help="Where to keep it.  [default: the user's own file]"
        ),
    ] = None,
) -> None:
    """Measure what the kernels' units cost on a GPU, and keep it for simulations and Stream-K.

    Fits the virtual device's constants on launches of every schedule, prints them with
    the error of predicting each launch from the others, and writes them to
    $WAVESCOPE_CALIBRATION, or wavescope/calibration.csv in the user's data folder, where
    profile, compare and report --what-if look them up.
    """
    from wavescope.calibration_file import make_folder, merge, read, user_path
    from wavescope.cli.options import kernel_name, one_of
    from wavescope.cli.outputs import check_writable
    from wavescope.errors import UsageError
    from wavescope.least_squares import require_scipy
    from wavescope.problem import DTYPES, Tile

    for option, given in (("--device", device), ("--seconds", seconds)):
        if source and given is not None:
            raise UsageError(f"--from and {option} do not go together: recorded traces are not measured again")
    budget_s = (
        DEFAULT_SECONDS
        if seconds is None
        else positive_number("--seconds", seconds, most=MAX_SECONDS, example=DEFAULT_SECONDS)
    )
    tiles = [Tile.parse(text) for text in tile or ()]
    dtypes = [one_of("--dtype", text, DTYPES) for text in dtype or ()]
    name = kernel_name(kernel)
    recordings = [*(source or ()), *(traces or ())]
    if traces and not source:
        raise UsageError(f"{traces[0]}: traces are read with --from; without it, calibrate measures on a GPU")
    path = output or user_path()
    if path is None:
        raise UsageError("there is no home directory to keep a calibration in; give a file with -o")
    require_scipy()
    if output is None:
        make_folder(path)
    check_writable(path)
    if path.exists():
        read(path, "give another name with -o")  # what is there must be a calibration, since its other rows stay
    found = (
        _chosen(_read(recordings), tiles, dtypes, name)
        if recordings
        else _measured(device or "cuda:0", tiles, dtypes, name, budget_s)
    )
    checked = _fitted(found)
    total = merge(path, [one.row for one in checked])  # before a closed pipe can end this
    _print(checked)
    note(f"wrote {path}: {len(checked)} of its {total} rows are new")


def _read(paths: Sequence[Path]) -> list[Trace]:
    """The traces of files that can be true and were measured."""
    from wavescope.errors import UsageError
    from wavescope.integrity import check
    from wavescope.trace_file import load

    found = []
    for path in paths:
        trace = load(path)
        check(trace)
        for launch in trace.launches:
            if launch.source != "measured":
                raise UsageError(f"{path}: launch {launch.launch_id} is {launch.source}; calibrate on measured ones")
        found.append(trace)
    return found


def _chosen(found: Sequence[Trace], tiles: Sequence[Tile], dtypes: Sequence[Dtype], kernel: str | None) -> list[Trace]:
    """The launches of the kernel, tiles and types asked for; all where none was.

    Raises: UsageError where there are none.
    """
    from wavescope.calibrate import each_launch
    from wavescope.errors import UsageError

    def wanted(launch: Launch) -> bool:
        right_type = not dtypes or (launch.problem is not None and launch.problem.dtype in dtypes)
        right_kernel = kernel is None or launch.kernel == kernel
        return right_type and right_kernel and (not tiles or launch.tile in tiles)

    chosen = [trace for trace in each_launch(found) if wanted(trace.launches[0])]
    if not chosen:
        raise UsageError(
            "no launch of the kernel, tiles and types asked for is in the traces; leave out --kernel, --tile or --dtype"
        )
    return chosen


def _measured(
    device: str, tiles: Sequence[Tile], dtypes: Sequence[Dtype], kernel: str | None, seconds: float
) -> list[Trace]:
    """Traces of the planned launches on a GPU."""
    from wavescope.calibration_launches import ALL_PLACES, Planned, plans, record
    from wavescope.cuda_device import query
    from wavescope.device import cuda_index
    from wavescope.errors import DeviceError, UsageError

    index = cuda_index(device)
    if index is None:
        raise UsageError(f'--device: "{device}" is no CUDA device; calibrate measures on cuda:N, such as cuda:0')
    try:
        chosen = query(index)
    except DeviceError as error:
        why = str(error).partition(";")[0]
        raise DeviceError(
            f"calibrate measures on a GPU: {why}; give recorded traces with --from, or use the shipped calibration"
        ) from error
    from wavescope.kernels import facts
    from wavescope.measure import measure
    from wavescope.prepare import compile_ahead

    def one(launch: Planned) -> Trace:
        return measure(
            launch.problem,
            launch.tile,
            launch.variant,
            index,
            repeat=ROUNDS,
            seed=1,
            progress=lambda text: None,
            model=ALL_PLACES,
            kernel=launch.kernel,
        )

    planned = plans(chosen, tiles, dtypes, kernel)
    needs = [
        (launch.problem, facts(launch.problem, launch.tile, chosen, kernel_name=launch.kernel), launch.variant)
        for plan in planned
        for launch in plan
    ]
    compile_ahead(needs, chosen, note)
    found, left_out = record(planned, one, seconds, note)
    if left_out:
        note(f"no time for {left_out} launches; what they alone show is not calibrated (--seconds gives more time)")
    return found


def _fitted(found: Sequence[Trace]) -> list[Checked]:
    """Rows dated today, each with its check."""
    from dataclasses import replace

    from wavescope.leave_one_out import fit_and_check

    checked = []
    for one in fit_and_check(found):
        note(f"fitted {one.row.name} on {one.num_launches} launches")
        source = f"wavescope calibrate, {date.today().isoformat()}: {one.row.source}"
        checked.append(replace(one, row=replace(one.row, source=source)))
    return checked


def _print(checked: Sequence[Checked]) -> None:
    from wavescope.report import calibration_text, glyphs
    from wavescope.report.layout import Page, page_width

    console = make_console()
    page = Page(page_width(console.width), glyphs.for_encoding(console.encoding))
    for line in calibration_text.lines(page, checked):
        console.print(line, soft_wrap=True)
