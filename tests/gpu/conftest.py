"""These tests need a CUDA device: without one they skip, under WAVESCOPE_REQUIRE_GPU=1 they fail."""

import os

import pytest

from wavescope.cuda_device import count, query
from wavescope.device import Device
from wavescope.errors import DeviceError


@pytest.fixture(scope="session")
def device() -> Device:
    try:
        found = count()
    except DeviceError as error:
        reason = str(error)
    else:
        if found:
            return query(0)
        reason = "no CUDA device"
    if os.environ.get("WAVESCOPE_REQUIRE_GPU") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs them all: tests that share a GPU disturb one another's times."""
    for item in items:
        if "gpu" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("gpu"))
