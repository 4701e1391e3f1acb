"""`wavescope export`: a recorded trace in other formats."""

from __future__ import annotations

from wavescope.cli.options import Csv, TraceFile
from wavescope.errors import UsageError


def export(trace: TraceFile, csv: Csv = None) -> None:
    """Convert a recorded trace for other tools, all its launches; prints nothing on stdout."""
    from wavescope.cli.outputs import outputs, write_csv

    if csv is None:
        raise UsageError("export has nothing to write; give --csv X.csv")
    outputs(json=False, csv=csv, fail_under=None, source=trace)

    from wavescope.analyze import analyze
    from wavescope.integrity import check
    from wavescope.trace_file import load

    recorded = load(trace)
    check(recorded)
    write_csv(recorded, [analyze(recorded, launch.launch_id) for launch in recorded.launches], csv)
