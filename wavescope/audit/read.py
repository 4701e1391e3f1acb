"""Reads a profile of any of the known kinds; the kind is recognised from the content, not from the file's name."""

from __future__ import annotations

from pathlib import Path

from wavescope.audit.launches import Launches
from wavescope.audit.lines import encoding
from wavescope.audit.source import GZIP_MAGIC, Progress, head, pieces, refuse

KINDS = "give a PyTorch trace (JSON), an nsys export (SQLite), ncu's CSV or an .ncu-rep file"
# What else people hand over, by its first bytes.
_OTHERS = {
    b"PAR1": ("a Parquet file", "wavescope report shows a recorded trace of wavescope's own"),
    b"PK\x03\x04": ("a zip archive", "unpack it first"),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", "unpack it first"),
    b"BZh": ("a bzip2 archive", "unpack it first"),
    b"\xfd7zXZ": ("an xz archive", "unpack it first"),
    b"\x89HDF": ("an HDF5 file", KINDS),
}
_SQLITE = b"SQLite format 3\0"
_NCU_REPORT = b"NVR\0"
_SPACE = b" \t\r\n"


def read(path: str | Path, *, progress: Progress | None = None) -> Launches:
    """The kernel launches of the profile at `path`.

    `progress` is called with the bytes read so far and the bytes of the file.

    Raises: InputError for what cannot be read as a profile, an .ncu-rep file where
    ncu-report is not installed included; NoKernels for a profile without kernels.
    """
    start = head(path)
    packed = start.startswith(GZIP_MAGIC)
    if packed:
        start = next(pieces(path))[: len(start)]
    if start.startswith((_SQLITE, _NCU_REPORT)) and packed:
        refuse(path, "a gzip of a binary profile", "unpack it first (gunzip)")
    # each reader is imported where it is wanted: together they take longer than a small file
    if start.startswith(_SQLITE):
        from wavescope.audit import nsys

        return nsys.read(path, progress=progress)
    if start.startswith(_NCU_REPORT):
        from wavescope.audit import ncu_report

        return ncu_report.read(path, progress=progress)
    for magic, (what, advice) in _OTHERS.items():
        if start.startswith(magic):
            refuse(path, f"{what}, not a profile", advice)
    if start.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE)[:1] in (b"{", b"["):
        from wavescope.audit import kineto

        return kineto.read(path, progress=progress)
    if b"\0" in start and encoding(start) != "utf-16":
        what = f"binary data of an unknown kind (it begins with {start[:8]!r})"
        refuse(path, what, f"{KINDS}; an .nsys-rep needs 'nsys export --type sqlite' first")
    from wavescope.audit import ncu_csv

    return ncu_csv.read(path, progress=progress)
