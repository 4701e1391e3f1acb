"""What holds for every test: no calibration of whoever runs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from wavescope.calibration_file import VARIABLE


@pytest.fixture(autouse=True, scope="session")
def shipped_calibration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Costs are looked up in the shipped table; the data folder is an empty one."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        patch.delenv(VARIABLE, raising=False)
        yield folder
