"""A profile's bytes, in pieces: plain or gzip, with every way of failing said in one line."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from wavescope.errors import InputError

# Called with the bytes of the file read so far, and the bytes of the file.
Progress = Callable[[int, int], None]

PIECE = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # zlib's window bits for a gzip header and trailer


def refuse(path: str | Path, what: str, advice: str) -> NoReturn:
    """Raise the InputError that names the file, what is wrong with it and what to do."""
    raise InputError(f"{path}: {what}; {advice}")


def shown(text: str, most: int = 40) -> str:
    """A name from the file as a part of one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def head(path: str | Path, size: int = 4096) -> bytes:
    """The first bytes of the file.

    Raises: InputError for what is missing, empty, a directory, not a regular file or not readable.
    """
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            refuse(path, "a directory, not a profile", "give a file in it")
        if not stat.S_ISREG(mode):
            refuse(path, "not a regular file", "save the profile to a file first")
        with open(path, "rb") as file:
            first = file.read(size)
    except FileNotFoundError:
        refuse(path, "no such file", "give a profile: a PyTorch trace, an nsys export or an ncu export")
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        refuse(path, f"cannot be read: {getattr(error, 'strerror', None) or error}", "give a file that can be read")
    if not first:
        refuse(path, "the file is empty (0 bytes)", "record or export it again")
    return first


def pieces(path: str | Path, progress: Progress | None = None) -> Iterator[bytes]:
    """The file's content in pieces of a MiB or so, unpacked where it is gzip.

    Raises: InputError for a file that cannot be read, and for damaged or truncated gzip
    data, with the number of bytes that were there.
    """
    packed = head(path, len(GZIP_MAGIC)) == GZIP_MAGIC
    raw = _raw_pieces(path, progress)
    return _unpacked(path, raw) if packed else raw


def _raw_pieces(path: str | Path, progress: Progress | None) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            done = 0
            while piece := file.read(PIECE):
                done += len(piece)
                if progress is not None:
                    progress(done, size)
                yield piece
    except OSError as error:
        refuse(path, f"cannot be read: {error.strerror or error}", "give a file that can be read")


def _unpacked(path: str | Path, raw: Iterator[bytes]) -> Iterator[bytes]:
    """What gzip members in `raw` hold, never more than a piece at a time, however well they are packed."""
    unpack = zlib.decompressobj(_GZIP)
    done = 0
    begun = False  # the current member has begun, so it must end
    try:
        for packed in raw:
            rest = packed
            while rest:
                if unpack.eof:
                    rest = rest.lstrip(b"\0")  # padding between or after members
                    unpack, begun = zlib.decompressobj(_GZIP), False
                    continue
                begun = True
                piece = unpack.decompress(rest, PIECE)
                full = len(piece) == PIECE
                while full:  # all of `rest` may be inside zlib, with more to come out
                    done += len(piece)
                    yield piece
                    piece = unpack.decompress(unpack.unconsumed_tail, PIECE)
                    full = len(piece) == PIECE
                if piece:
                    done += len(piece)
                    yield piece
                rest = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
    except zlib.error as error:
        refuse(path, f"the gzip data is damaged after {done} unpacked bytes ({error})", "copy or record it again")
    if begun and not unpack.eof:
        refuse(path, f"truncated: the gzip data ends after {done} unpacked bytes", "copy or record it again")
    if done == 0:
        refuse(path, "the gzip file holds 0 bytes", "record or export it again")
