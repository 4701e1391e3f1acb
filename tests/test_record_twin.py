"""trace.py's record and kinds against trace.cuh, as NVRTC lays them out."""

import re

from wavescope.nvrtc import kernel_directory
from wavescope.trace import RECORD_DTYPE, Kind

TYPES = {"unsigned long long": 8, "unsigned int": 4, "unsigned short": 2, "unsigned char": 1}


def test_record_layout() -> None:
    text = (kernel_directory() / "include" / "trace.cuh").read_text()
    body = re.search(r"struct alignas\(64\) Record \{(.*?)\};", text, re.DOTALL)
    assert body is not None
    fields, offset = [], 0
    for line in body.group(1).splitlines():
        declaration = re.match(r"\s*(unsigned \w+(?: long)?) ([\w, ]+);", line)
        if declaration:
            size = TYPES[declaration.group(1)]
            for name in declaration.group(2).split(", "):
                fields.append((name, offset, size))
                offset += size
    python = [
        (name, RECORD_DTYPE.fields[name][1], RECORD_DTYPE.fields[name][0].itemsize) for name in RECORD_DTYPE.names
    ]
    assert fields == python
    assert offset == RECORD_DTYPE.itemsize == 64


def test_kinds() -> None:
    text = (kernel_directory() / "include" / "trace.cuh").read_text()
    cuda = {name: int(number) for name, number in re.findall(r"KIND_(\w+) = (\d)", text)}
    assert cuda.pop("NONE") == 0
    assert cuda == {kind.name: kind.value for kind in Kind}
