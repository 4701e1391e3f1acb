"""Imports point one way, and the heavy ones stand where they may."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "wavescope"

# Third-party modules and the only places that may name them.
HOMES = {
    "cupy": {"cuda_device", "launch"},
    "cuda": {"nvrtc", "library"},
    "pynvml": {"cuda_device"},
    "nvtx": {"launch"},
    "scipy": {"least_squares"},
    "typer": {"cli"},
    "pandas": {"audit"},
}
# What runs only with a GPU at hand; the rest works without.
GPU = {"launch", "prepare", "operands", "timing", "measure", "library", "duel"}
# Stages after the trace: they may not know how it came about.
ANALYSIS = {"states", "budget", "tail", "waves", "waterfall", "integrity", "analyze", "picture", "meaning", "spread"}
ANALYSIS |= {"comparison", "standings", "accounts", "reasons", "verdicts"}


def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}


def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, at the top level?) of every import in a file, wavescope's own without the package's name."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module in ("wavescope", "wavescope.report", "wavescope.audit"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name, id(node) in top) for name in names]
    return [(name.removeprefix("wavescope."), at_top) for name, at_top in found]


def own_graph() -> dict[str, set[str]]:
    known = set(modules())
    return {name: {target for target, _ in imports(path) if target in known} for name, path in modules().items()}


def test_no_cycles() -> None:
    assert list(graphlib.TopologicalSorter(own_graph()).static_order())


def test_nothing_below_knows_the_reports_or_the_command_line() -> None:
    for name, targets in own_graph().items():
        area = name.split(".")[0]
        if area not in ("cli", "__main__"):
            assert not {target for target in targets if target.startswith("cli")}, name
        if area not in ("cli", "report", "__main__"):
            assert not {target for target in targets if target.startswith("report")}, name


def test_analysis_knows_neither_gpu_nor_simulation() -> None:
    graph = own_graph()
    assert set(graph) >= ANALYSIS
    for name in ANALYSIS:
        reached, todo = set(), [name]
        while todo:
            for target in graph[todo.pop()] - reached:
                reached.add(target)
                todo.append(target)
        assert not reached & (GPU | {"simulate", "virtual", "calibration", "calibrate", "nvrtc"}), name


def test_third_party_modules_stand_where_they_may() -> None:
    for name, path in modules().items():
        for target, _ in imports(path):
            homes = HOMES.get(target.split(".")[0])
            if homes is not None:
                assert name in homes or name.split(".")[0] in homes, f"{name} imports {target}"


def test_importing_wavescope_is_light() -> None:
    code = "import sys, wavescope, wavescope.cli.main; print([m for m in ('numpy', 'pandas', 'pyarrow', 'cupy', 'rich') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
