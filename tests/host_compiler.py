"""The host's C++ compiler, or a skip; WAVESCOPE_REQUIRE_TOOLS=1 (set in CI) turns the skip into a failure."""

import os
import shutil

import pytest


def host_compiler() -> str:
    for name in ("g++", "c++", "clang++"):
        if shutil.which(name):
            return name
    if os.environ.get("WAVESCOPE_REQUIRE_TOOLS") == "1":
        pytest.fail("a C++ compiler is required here; install g++")
    pytest.skip("needs a C++ compiler (g++)")
