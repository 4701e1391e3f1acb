"""Kernels become cubins: one compile function, with or without a GPU, and its cache.

NVRTC comes through cuda-bindings (extras cuda12, cuda13).  CuPy's own compile path is
not used: it cannot target sm_90a, its cache ignores included headers, and it drops the
assembler's notes.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

from wavescope.errors import CompileError
from wavescope.output_file import write_atomically

INSTALL_HINT = "pip install 'wavescope[cuda13]' (or [cuda12] for a CUDA 12 driver)"
# Targets whose own instructions need the architecture-specific suffix.
_SPECIFIC_ARCHITECTURES = {(9, 0): "90a", (10, 0): "100a"}

# The second: else a lambda with auto parameters is a host function to NVRTC 12 and 13.0.
LANGUAGE = ("--std=c++17", "--device-as-default-execution-space")
# From this version on NVRTC keeps a cache of its own, and what it serves from there has no log.
_OWN_CACHE_SINCE = (12, 9)


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel: its file, what the assembler said, and what it needs.

    `registers` a thread, `spill_bytes` stored to local memory a thread, `shared_bytes`
    static shared memory a CTA.
    """

    path: Path
    log: str
    registers: int
    spill_bytes: int
    shared_bytes: int


def kernel_directory() -> Path:
    """Where the .cu files are: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "kernels", package.parent / "kernels"):
        if (candidate / "include" / "schedule.cuh").is_file():
            return candidate
    raise CompileError(f"kernel sources are missing beside {package}; reinstall wavescope")


def architecture(compute_capability: tuple[int, int]) -> str:
    """NVRTC's name of the target: (9, 0) -> 'sm_90a', (8, 6) -> 'sm_86'."""
    major, minor = compute_capability
    return f"sm_{_SPECIFIC_ARCHITECTURES.get(compute_capability, f'{major}{minor}')}"


def compile_kernel(source: Path, defines: dict[str, int], arch: str) -> Cubin:
    """Compile one kernel file for `arch` ('sm_90a'), from the cache where nothing changed.

    The key holds every source and header of the kernel folder, the options and NVRTC's
    version, so an edited header is never served stale.

    Raises: CompileError with NVRTC's log, or when NVRTC is not installed or too old for
    the architecture.
    """
    nvrtc = _nvrtc()
    include = kernel_directory() / "include"
    options = [
        f"--gpu-architecture={arch}",
        f"--include-path={include}",
        *LANGUAGE,
        "--ptxas-options=-v",
        *(f"-D{name}={value}" for name, value in sorted(defines.items())),
    ]
    version = nvrtc_version()
    if tuple(int(part) for part in version.split(".")) >= _OWN_CACHE_SINCE:
        options.append("--no-cache")
    key = _digest(source, include, [*options[2:], arch], version)
    folder, _ = cache_directory()
    path = folder / f"{source.stem}-{arch}-{key}.cubin"
    log_path = path.with_suffix(".log")
    if not (path.is_file() and log_path.is_file()):
        cubin, log = _run_nvrtc(nvrtc, source, options, arch, version)
        write_atomically(log_path, log.encode())
        write_atomically(path, cubin)
    log = log_path.read_text(errors="replace")
    registers, spill, shared = _resources(log)
    return Cubin(path, log, registers, spill, shared)


@lru_cache(maxsize=1)
def cache_directory() -> tuple[Path, str | None]:
    """The cubin cache, and a note where a private temporary folder had to replace it.

    WAVESCOPE_CACHE_DIR, else XDG_CACHE_HOME/wavescope, else ~/.cache/wavescope.
    """
    chosen = os.environ.get("WAVESCOPE_CACHE_DIR")
    if chosen:
        wanted = Path(chosen)
    else:
        try:
            home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        except RuntimeError:  # no home directory at all
            home = Path("/nonexistent")
        wanted = home / "wavescope"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            pass
    except OSError as error:
        private = Path(tempfile.mkdtemp(prefix="wavescope-"))
        reason = error.strerror or str(error)
        return private, f"cache {wanted} is not writable ({reason}); using {private} for this run"
    return wanted, None


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """NVRTC's version, such as '13.0'."""
    nvrtc = _nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    if int(status) != 0:
        raise CompileError(f"NVRTC does not tell its version (status {int(status)}); reinstall it: {INSTALL_HINT}")
    return f"{major}.{minor}"


@lru_cache(maxsize=1)
def _nvrtc() -> ModuleType:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # loads the library
    except ImportError:
        raise CompileError(f"cuda-bindings is not installed, so kernels cannot be compiled; {INSTALL_HINT}") from None
    except (RuntimeError, OSError) as error:  # DynamicLibNotFoundError is a RuntimeError
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CompileError(f"NVRTC was not found ({reason}); {INSTALL_HINT}") from None
    return nvrtc  # type: ignore[no-any-return]


def _run_nvrtc(nvrtc: ModuleType, source: Path, options: list[str], arch: str, version: str) -> tuple[bytes, str]:
    def check(status: object, what: str) -> None:
        if int(status) != 0:  # type: ignore[call-overload]
            raise CompileError(f"{source.name}: NVRTC {version} cannot {what} for {arch} (status {status})")

    status, program = nvrtc.nvrtcCreateProgram(source.read_bytes(), source.name.encode(), 0, [], [])
    check(status, "create a program")
    try:
        (compiled,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        status, size = nvrtc.nvrtcGetProgramLogSize(program)
        check(status, "give its log")
        log_bytes = _buffer(size)
        nvrtc.nvrtcGetProgramLog(program, log_bytes)
        log = log_bytes.rstrip(b"\0").decode(errors="replace")
        if int(compiled) != 0:
            if "gpu-architecture" in log or "NVRTC_ERROR_INVALID_OPTION" in str(compiled):
                raise CompileError(
                    f"NVRTC {version} does not know {arch}; install an NVRTC as new as the GPU: {INSTALL_HINT}"
                )
            raise CompileError(f"{source.name} does not compile for {arch} with NVRTC {version}:\n{log}")
        status, size = nvrtc.nvrtcGetCUBINSize(program)
        check(status, "give the cubin's size")
        cubin = _buffer(size)
        (status,) = nvrtc.nvrtcGetCUBIN(program, cubin)
        check(status, "give the cubin")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return cubin[:size], log


def _buffer(size: int) -> bytes:
    """Bytes that NVRTC may write into: never of length 1, which Python shares with everyone else."""
    return bytes(size + 16)


def _digest(source: Path, include: Path, options: list[str], version: str) -> str:
    digest = hashlib.sha256()
    for path in [source, *sorted(include.glob("*.cuh"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    packages = [f"{name}={_package_version(name)}" for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")]
    digest.update("\0".join([version, *packages, *options]).encode())
    return digest.hexdigest()[:20]


@lru_cache(maxsize=4)
def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _resources(log: str) -> tuple[int, int, int]:
    registers = re.search(r"Used (\d+) registers", log)
    spill = re.search(r"(\d+) bytes spill stores", log)
    shared = re.search(r"(\d+) bytes smem", log)
    return tuple(int(match.group(1)) if match else 0 for match in (registers, spill, shared))  # type: ignore[return-value]
