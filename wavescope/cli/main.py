"""The `wavescope` command: its commands, and the one boundary where errors become messages."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from wavescope import __version__
from wavescope.cli.audit import audit
from wavescope.cli.calibrate import calibrate
from wavescope.cli.compare import compare
from wavescope.cli.console import note
from wavescope.cli.devices import devices
from wavescope.cli.doctor import doctor
from wavescope.cli.explain import explain
from wavescope.cli.export import export
from wavescope.cli.profile import profile
from wavescope.cli.report import report
from wavescope.errors import CompileError, DeviceError, LaunchError, OutputError, UsageError, WavescopeError

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
CLOSED_PIPE = 141  # 128 + SIGPIPE
EPILOG = """\b
Examples:
  wavescope profile --m 2304 --n 2304 --k 4096
  wavescope profile -m 2304 -n 2304 -k 4096 --tile 128x256x64 -o run.parquet
  wavescope compare fixed vs streamk --m 2304 --n 2304 --k 4096
  wavescope report run.parquet --json
  wavescope audit trace.json.gz
  wavescope explain wave efficiency

\b
Exit status: 0 fine; 1 below a --fail bar; 2 usage or impossible shape; 3 device;
4 compile; 5 unreadable input; 6 no kernels in it; 7 result or integrity check
failed; 8 output not writable; 130 interrupted; 143 terminated."""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command(short_help="Run one GEMM and report where its SM time goes.")(profile)
app.command(short_help="Run one GEMM under several schedules: which wins, and why.")(compare)
app.command(short_help="Show the report of a recorded trace; needs no GPU.")(report)
app.command(short_help="Convert a recorded trace to CSV.")(export)
app.command(short_help="Rank the kernels of a recorded profile by time lost to waves.")(audit)
app.command(short_help="Measure what units cost on this GPU, for simulations and Stream-K.")(calibrate)
app.command(short_help="List virtual devices and this machine's GPUs.")(devices)
app.command(short_help="Check the installation.")(doctor)
app.command(short_help="Explain a word of the reports.")(explain)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wavescope {__version__}")
        raise typer.Exit


@app.callback(epilog=EPILOG, invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Show where every SM-nanosecond of a GPU matrix multiplication goes.

    Kernels are cut into tiles, the GPU runs them in waves, and the last wave is rarely
    full.  wavescope records every unit of work on every SM and prints a budget that adds
    up.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; every deliberate error ends here as one message."""
    _prepare_streams()
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except typer.TyperException as error:
        return _fail(_usage_message(error), UsageError.exit_code)
    except LaunchError as error:
        _fail(str(error), error.exit_code)
        sys.stdout.flush()
        os._exit(error.exit_code)  # the CUDA context is lost: an orderly end would hang in it
    except WavescopeError as error:
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except (BrokenPipeError, SystemExit):  # the latter is how rich answers a closed pipe
        _drop_stdout()
        return CLOSED_PIPE
    except OSError as error:
        message = f"{error.filename or 'output'}: {error.strerror or error}; nothing more can be written"
        return _fail(message, OutputError.exit_code)
    except MemoryError:
        return _fail("not enough memory for this; use a smaller problem or trace", DeviceError.exit_code)


def _run(argv: Sequence[str]) -> int:
    """The command's exit status, with everything it printed on its way out."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("wavescope", list(argv)) as context:
            status = command.invoke(context)
    except typer.Exit as end:
        status = end.exit_code
    sys.stdout.flush()
    return status or 0


def _prepare_streams() -> None:
    """A closed stream swallows output; a character the console lacks is escaped, never an error."""
    if sys.stdout is None:
        sys.stdout = io.StringIO()
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _usage_message(error: typer.TyperException) -> str:
    """What is wrong with the command line, and where the right one is described."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "wavescope"
    text = " ".join(error.format_message().split()).rstrip(".")
    end = "" if text.endswith("?") else ";"
    return f"{text[:1].lower()}{text[1:]}{end} '{path} --help' shows what there is"


def _fail(message: str, status: int) -> int:
    """Print a message on stderr, control characters escaped; return the status."""
    keep = "\n" if status == CompileError.exit_code else ""  # a compiler's log has lines
    note(message, keep)
    return status


def _drop_stdout() -> None:
    """Send what stdout still holds nowhere, so that the interpreter does not stumble over it at its end."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # not a real stream
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), descriptor)
