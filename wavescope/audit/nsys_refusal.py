"""Why an SQLite database gives no kernels, in its own words where it has some."""

from __future__ import annotations

import re
from typing import NoReturn

from wavescope.audit.database import Database, num_rows, rows
from wavescope.audit.source import refuse, shown
from wavescope.errors import NoKernels

_INFORMATION = 1  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL; warnings and errors are above
_TELLING = re.compile(r"cuda|cupti|kernel|driver|permission|wsl|support", re.IGNORECASE)
_ASIDE = re.compile(r"nvtx", re.IGNORECASE)
_MAX_QUOTED = 3
_MAX_CHARS = 220
_CAUSES = (
    "usual causes: no '--trace=cuda', the process ended before its buffers were flushed, the GPU work is in a child "
    "process or starts later, a driver newer than nsys knows, WSL without CUPTI access"
)


def explain_no_profile(database: Database) -> NoReturn:
    """Refuse a database that nsys did not write."""
    names = ", ".join(shown(name) for name in list(database.columns)[:8])
    what = (
        f"an SQLite database, but no Nsight Systems export (tables: {names})"
        if names
        else "an SQLite database without tables"
    )
    refuse(database.where, what, "export one with: nsys export --type sqlite report.nsys-rep")


def explain_no_kernels(database: Database, has_table: bool) -> NoReturn:
    """Refuse an export without kernels, with what it says of itself and the usual causes."""
    graphs = database.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    if graphs and num_rows(database, graphs):
        raise NoKernels(
            f"{database.where}: no kernels: {num_rows(database, graphs)} CUDA graph launches were recorded as wholes; "
            "profile with: nsys profile --cuda-graph-trace=node"
        )
    what = "the kernel table is empty" if has_table else "no kernel table in this Nsight Systems export"
    said = "".join(f" '{text}'" for text in _diagnostics(database))
    raise NoKernels(f"{database.where}: {what};{f' it says:{said};' if said else ''} {_CAUSES}")


def _diagnostics(database: Database) -> list[str]:
    """The export's own warnings on CUDA, the most telling first."""
    diagnostics = database.table("DIAGNOSTIC_EVENT")
    if diagnostics is None:
        return []
    found = [
        shown(text, _MAX_CHARS)
        for severity, text in rows(database, diagnostics, ["severity", "text"], most=1000)
        if isinstance(text, str) and isinstance(severity, int) and severity > _INFORMATION
    ]
    telling = [text for text in found if _TELLING.search(text) and not _ASIDE.search(text)]
    return sorted(telling, key=len, reverse=True)[:_MAX_QUOTED] or found[:_MAX_QUOTED]
