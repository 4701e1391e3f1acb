"""Rewrite the README's comparison from the command it shows; no GPU needed.

python tests/benchmarks/readme_compare.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def main() -> None:
    text = README.read_text()
    command = re.search(r"^wavescope (compare fixed vs .*)$", text, re.MULTILINE)
    assert command is not None
    argv = [sys.executable, "-m", "wavescope", *command.group(1).split(), "--device", "virtual:h200"]
    done = subprocess.run(argv, env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=True)
    shown = done.stdout[done.stdout.index("── Result") :]  # the header says who asked for a virtual device
    block = f"<!-- compare -->\n```\n{shown}```\n<!-- end -->"
    README.write_text(re.sub(r"<!-- compare -->\n```\n.*?```\n<!-- end -->", lambda _: block, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
