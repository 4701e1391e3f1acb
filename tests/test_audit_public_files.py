"""Every profile of the collection beside the checkout: read with the right number of kernels, or refused.

The folder is WAVESCOPE_PROFILES, else ../shared of the checkout; without it these tests
skip.  The numbers are counted here in another way (json, sqlite3, csv), and are in the
table of tests/data/README.md.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import os
import re
import sqlite3
from pathlib import Path

import pytest

from wavescope.audit.read import read
from wavescope.errors import InputError

CHECKOUT = Path(__file__).parents[1]
PROFILES = Path(os.environ.get("WAVESCOPE_PROFILES", CHECKOUT.parent / "shared"))
README = Path(__file__).parent / "data" / "README.md"
FILES = sorted(path for folder in ("inputs", "data") for path in (PROFILES / folder).rglob("*") if path.is_file())

pytestmark = pytest.mark.skipif(not FILES, reason=f"no profiles in {PROFILES}")


def counted(path: Path) -> int | None:
    """The kernels of a file by other means than the readers'; None for a file that these cannot open."""
    name = path.name
    if name.endswith((".json", ".json.gz")):
        return _kineto(path)
    if name.endswith(".sqlite"):
        return _nsys(path)
    if name.endswith((".csv", ".txt")) and "ncu" in str(path):
        return _ncu_csv(path)
    if name.endswith(".ncu-rep"):
        return _ncu_report(path)
    return None


def _kineto(path: Path) -> int | None:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        events = json.loads(content)["traceEvents"]
    except (EOFError, ValueError):
        return None
    return sum(str(event.get("cat")).lower() == "kernel" for event in events)


def _nsys(path: Path) -> int:
    connection = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


def _ncu_csv(path: Path) -> int:
    rows = list(csv.reader(line for line in path.read_text().splitlines() if line.startswith('"')))
    return len({row[0] for row in rows if row[0].isdigit()})


def _ncu_report(path: Path) -> int:
    import ncu_report

    report = ncu_report.load_report(str(path))
    return sum(report.range_by_idx(index).num_actions() for index in range(report.num_ranges()))


def table() -> dict[str, str]:
    """File name: kernels or reason, as tests/data/README.md has them."""
    return dict(re.findall(r"^\| (\S+) \| ([^|]+?) \|", README.read_text().partition("## Profiles")[2], re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file(path: Path) -> None:
    """The table's number or reason; for a file that is not in the table, what the other count says."""
    if path.suffix == ".ncu-rep" and importlib.util.find_spec("ncu_report") is None:
        pytest.skip("ncu-report is not installed")
    independent = counted(path)
    expected = table().get(path.name, f"{independent}" if independent else "exit 5: ; ")
    if expected.isdigit():
        assert len(read(path)) == int(expected)
        assert independent == int(expected)
    else:
        status, _, reason = expected.partition(": ")
        with pytest.raises(InputError) as caught:
            read(path)
        assert f"exit {caught.value.exit_code}" == status
        assert reason in str(caught.value)
        assert not independent


def test_the_table_is_of_these_files() -> None:
    assert len(table().keys() & {path.name for path in FILES}) >= 40
