"""Every error wavescope raises on purpose, and the exit code each one ends with.

WavescopeError
+-- UsageError        2   an argument that cannot be understood
|   +-- ShapeError    2   a problem, tile or schedule that cannot be
+-- DeviceError       3   no device, no driver, not enough of something on it
|   +-- LaunchError   3   a launch that failed or hung; the context is gone
+-- CompileError      4   NVRTC or its headers
+-- InputError        5   a file that cannot be read as what it should be
|   +-- NoKernels     6   a readable file without kernels in it
+-- IntegrityError    7   a wrong result, or spans that cannot be true
+-- OutputError       8   an output that cannot be written

A message says what is wrong, which value, and what to do; the command line prints
it as one line and ends with `exit_code`.
"""

from __future__ import annotations


class WavescopeError(Exception):
    """Base of all; `exit_code` is the process's exit status."""

    exit_code = 1


class UsageError(WavescopeError):
    """An argument that cannot be understood."""

    exit_code = 2


class ShapeError(UsageError):
    """A problem, tile or schedule that cannot be."""


class DeviceError(WavescopeError):
    """No device, no driver, or not enough memory, shared memory or places on it."""

    exit_code = 3


class LaunchError(DeviceError):
    """A launch that failed or hung: the CUDA context is lost, so the process must end."""


class CompileError(WavescopeError):
    """A kernel that does not compile, or a compiler that is not there."""

    exit_code = 4


class InputError(WavescopeError):
    """A file that cannot be read as what it should be."""

    exit_code = 5


class NoKernels(InputError):
    """A readable file without kernels in it."""

    exit_code = 6


class IntegrityError(WavescopeError):
    """A wrong result, or spans that cannot be true."""

    exit_code = 7


class OutputError(WavescopeError):
    """An output that cannot be written."""

    exit_code = 8
