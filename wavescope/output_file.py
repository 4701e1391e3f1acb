"""Output files that are either complete or not there: every document is written through here."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

from wavescope.errors import OutputError

_ADVICE = {
    errno.ENOSPC: "free some space, or write to another disk",
    errno.EDQUOT: "free some of your quota, or write to another disk",
    errno.EACCES: "write to a place you may write to",
    errno.EPERM: "write to a place you may write to",
    errno.EROFS: "write to a place you may write to",
    errno.ENOENT: "create the directory first",
    errno.ENOTDIR: "give a path whose parent is a directory",
    errno.EISDIR: "give the name of a file in it",
    errno.ENAMETOOLONG: "give a shorter name",
}


def write_atomically(path: str | Path, data: bytes | memoryview) -> None:
    """Put `data` at `path`: all of it, or nothing, and then what stood there before stays.

    The bytes go to a hidden file in the same directory first, which is renamed at the
    end and removed on any failure or interrupt.  A link is followed; a device or pipe
    (/dev/stdout, say) is written to directly, since it must not be replaced.

    Raises: OutputError with the path, the system's reason and what to do.
    """
    try:
        mode = _existing_mode(Path(path))
        if mode is not None and not stat.S_ISREG(mode):
            Path(path).write_bytes(data)  # not its real path: a pipe behind /dev/stdout has none
        else:
            _replace(Path(os.path.realpath(path)), mode, data)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        number = error.errno if isinstance(error, OSError) else None
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        advice = _ADVICE.get(number or 0, "give another path")
        raise OutputError(f"cannot write {str(path)!r}: {reason}; {advice}") from error


def _existing_mode(target: Path) -> int | None:
    """File mode of what stands at `target`, None where nothing does; refuses what may not be overwritten."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return mode


def _replace(target: Path, mode: int | None, data: bytes | memoryview) -> None:
    temporary = target.with_name(f".wavescope-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:  # an interrupt, too, must leave nothing half-written
        temporary.unlink(missing_ok=True)
        raise
