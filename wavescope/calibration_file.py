"""The user's own calibration: a CSV file that is read wherever costs are looked up."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from wavescope.calibration_row import Calibration, parse, render
from wavescope.errors import InputError, OutputError
from wavescope.output_file import write_atomically

VARIABLE = "WAVESCOPE_CALIBRATION"
_MAX_BYTES = 1 << 20
_ADVICE = "run 'wavescope calibrate' again, or remove the file"


def user_path() -> Path | None:
    """Where the user's file is, or would be: WAVESCOPE_CALIBRATION, else wavescope/calibration.csv in the data folder.

    The data folder is XDG_DATA_HOME, else ~/.local/share.  None where there is no home.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    try:
        home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    except RuntimeError:  # no home directory at all
        return None
    return home / "wavescope" / "calibration.csv"


def user_rows() -> tuple[Calibration, ...]:
    """The rows of the user's file; none where there is no file and none was named.

    Raises: InputError for a file that cannot be read as a calibration, or that
    WAVESCOPE_CALIBRATION names and that is not there.
    """
    path = user_path()
    if path is None:
        return ()
    if not os.path.lexists(path):
        if os.environ.get(VARIABLE):
            raise InputError(f"{path}: no such file ({VARIABLE} names it); run 'wavescope calibrate', or unset that")
        return ()
    return read(path)


def read(path: Path, advice: str = _ADVICE) -> tuple[Calibration, ...]:
    """The rows of a calibration file.

    Raises: InputError, one line that names the file, what is wrong with it, and `advice`.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: not a regular file, so no calibration; {advice}")
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read: {reason}; {advice}") from error
    if len(data) > _MAX_BYTES:
        raise InputError(f"{path}: longer than {_MAX_BYTES} bytes, so no calibration; {advice}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: no text at byte {error.start}; {advice}") from error
    return parse(text, str(path), advice)


def merge(path: Path, rows: Sequence[Calibration]) -> int:
    """Put rows into a file, in place of those of the same keys; returns how many there are now.

    Raises: InputError where there is a file that is no calibration, and for rows that could
    not be read again; OutputError where it cannot be written.
    """
    new = {row.key: row for row in rows}
    kept = [row for row in read(path) if row.key not in new] if path.exists() else []
    merged = sorted((*kept, *rows), key=lambda row: row.key)
    text = render(merged)
    parse(text, "what was fitted", "leave out the trace that it is from")
    write_atomically(path, text.encode())
    return len(merged)


def make_folder(path: Path) -> None:
    """The folder that the file is to lie in.

    Raises: OutputError where it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(
            f"cannot make the folder {str(path.parent)!r}: {reason}; give another file with -o"
        ) from error
