"""What the README shows is what the commands print, and its commands exist."""

import re
from pathlib import Path

import pytest

from wavescope import cuda_device
from wavescope.cli.main import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TRACE = ROOT / "tests/data/h200/gemm_mma-128x256x64-fixed-2304x2304x4096.parquet"


def test_the_report_shown_is_a_report_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.search(r"<!-- profile -->\n```\n(.*?)\n```\n<!-- end -->", README, re.DOTALL)
    assert shown is not None
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["report", str(TRACE)]) == 0
    assert shown.group(1) in capsys.readouterr().out
    assert "quantization" in shown.group(1)


def test_the_comparison_shown_is_one_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.search(r"<!-- compare -->\n```\n(.*?)\n```\n<!-- end -->", README, re.DOTALL)
    command = re.search(r"^wavescope (compare fixed vs .*)$", README, re.MULTILINE)
    assert shown is not None
    assert command is not None
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    assert main(command.group(1).split()) == 0
    printed = capsys.readouterr().out
    for part in shown.group(1).split("\n\n"):  # whole sections
        assert part in printed
    assert "tail removed" in shown.group(1)


def test_every_command_of_the_table_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    commands = set(re.findall(r"^\| `wavescope (\w+)", README, re.MULTILINE))
    assert {"profile", "report", "export", "devices", "doctor", "explain"} <= commands
    for command in commands:
        assert main([command, "--help"]) == 0
        assert f"wavescope {command}" in capsys.readouterr().out


def test_every_option_of_the_table_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    for line in README.splitlines():
        row = re.match(r"\| `wavescope (\w+)", line)
        if row:
            main([row.group(1), "--help"])
            printed = capsys.readouterr().out
            for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line):
                assert option in printed, (row.group(1), option)
