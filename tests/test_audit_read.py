"""What a file is, told from its content; and files that are no profile."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from audit_profiles import as_kineto_writes, details_page, kernel_event, kernel_row, kineto_trace, nsys_export, raw_page

from wavescope.audit.read import read
from wavescope.errors import InputError

TRACE = as_kineto_writes(kineto_trace([kernel_event()])).encode()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (TRACE, "kineto"),
        (b"\xef\xbb\xbf" + TRACE, "kineto"),
        (b"\n\n  [\n" + TRACE.split(b"[", 2)[-1].rsplit(b"]", 1)[0] + b"]", "kineto"),
        (gzip.compress(TRACE, mtime=0), "kineto"),
        (raw_page({}).encode(), "ncu csv"),
        (details_page({}).encode("utf-16"), "ncu csv"),
        (gzip.compress(raw_page({}).encode(), mtime=0), "ncu csv"),
    ],
)
def test_kind_by_content(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "misleading.sqlite"
    path.write_bytes(content)
    launches = read(path)
    assert (launches.kind, len(launches), launches.path) == (kind, 1, str(path))


def test_sqlite_by_content(tmp_path: Path) -> None:
    assert read(nsys_export(tmp_path / "x.json", [kernel_row()])).kind == "nsys"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty (0 bytes)"),
        (gzip.compress(b"", mtime=0), "the gzip file holds 0 bytes"),
        (gzip.compress(TRACE, mtime=0)[:30], "truncated"),
        (b"\x1f\x8b", "truncated: the gzip data ends after 0 unpacked bytes"),
        (b"\x1f\x8b\x08 rubbish after the magic", "damaged"),
        (b"PAR1....PAR1", "a Parquet file, not a profile; wavescope report"),
        (b"PK\x03\x04...", "a zip archive, not a profile; unpack it first"),
        (b"\x00\x01\x02\x03" * 50, "binary data of an unknown kind (it begins with b'\\x00\\x01"),
        (b"SQLite format 3\0", "truncated: 16 bytes are there"),
        (b"hello", "neither a PyTorch trace nor a table of Nsight Compute"),
        (b"   \n", "neither a PyTorch trace nor a table of Nsight Compute"),
        (b"\xff\xfe", "neither a PyTorch trace nor a table of Nsight Compute"),
        (bytes(range(128, 256)) * 100, "neither a PyTorch trace nor a table of Nsight Compute"),
        (b"a" * 10_000_000, "neither a PyTorch trace nor a table of Nsight Compute"),
        (b'{"a": "' + b"a" * 10_000_000, "truncated: the JSON text ends at byte 10000007"),
        (gzip.compress(b"SQLite format 3\0" + bytes(100), mtime=0), "a gzip of a binary profile; unpack it first"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert problem in str(caught.value)
    assert caught.value.exit_code == 5
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_places_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a directory, not a profile"):
        read(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "missing")
    with pytest.raises(InputError, match="cannot be read"):
        read("null\0character")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(InputError, match="not a regular file"):
        read(fifo)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "loop")
