"""Seeded damage to valid profiles, and what `audit` makes of it: a report or one of the project's errors, nothing else."""

from __future__ import annotations

import collections
import gzip
import json
import random
import re
import signal
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from audit_profiles import (
    COPY,
    PID,
    as_kineto_writes,
    call_event,
    csv_line,
    details_page,
    kernel_event,
    kernel_row,
    kineto_trace,
    nsys_export,
    operator_event,
    raw_page,
)

from wavescope.audit.advice import advice
from wavescope.audit.examine import examine
from wavescope.audit.read import read
from wavescope.errors import WavescopeError
from wavescope.report import audit_csv, audit_json, audit_text, glyphs
from wavescope.report.layout import Page

DATA = Path(__file__).parent / "data" / "h200"
KINDS = ("kineto", "csv", "sqlite", "ncu-rep")
HANG_S = 20
# Values that have broken readers before.
NASTY = ["0", "-1", "1", "2", "3.5", "1e308", "-1e308", "1e-320", "1e400", "NaN", "Infinity", "-inf", "nan", "null", "true", "false", "[]", "{}", '""', '"x"', "[1]", "[[]]", "[0,0,0]", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616", "4294967296", "65536", "1024", "99999999999999999999999999", "0.1", "00", '"-5"', '"n/a"', "1,234", "1.234,5", "\\", "\\\\", "\\u", "\\ud800", '"', "'", ",", ":", ";", "]", "}", "[", "{"]  # fmt: skip
_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d[\d.,eE+-]*|[\[\]{}:,]|\w+')
_NUMBER = re.compile(rb"-?\d[\d.,]*")


class HangError(BaseException):
    """A profile that was not through after HANG_S."""


@dataclass
class Outcome:
    """What became of some mutated profiles: `failures` are those that ended in no error of the project's."""

    runs: int = 0
    accepted: int = 0
    refusals: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def share_accepted(self) -> float:
        return self.accepted / self.runs if self.runs else 0.0


def fuzz(kind: str, indices: range, seed: int, folder: Path, profiles: Path | None = None) -> Outcome:
    """Mutate, read and report once for each index; an index and the seed give the same file again."""
    seeds = SEEDS[kind](folder, profiles)
    target = folder / f"mutated-{kind}"
    outcome = Outcome()
    for index in indices:
        rng = random.Random(f"{seed} {kind} {index}")
        target.write_bytes(mutated(kind, rng.choice(seeds), rng, folder))
        outcome.runs += 1
        try:
            with _time_limit():
                report(target)
            outcome.accepted += 1
        except WavescopeError as error:
            _take_refusal(outcome, index, error)
        except (Exception, HangError):  # whatever it is, it is what is looked for
            outcome.failures.append(f"{kind} seed {seed} index {index}\n{traceback.format_exc()}")
    return outcome


def _take_refusal(outcome: Outcome, index: int, error: WavescopeError) -> None:
    message = str(error)
    outcome.refusals[re.sub(r"^.*?: |\d+|'.*'|\(.*\)", "", message)[:60]] += 1
    if error.exit_code not in (5, 6) or "\n" in message or len(message) > 2000:
        outcome.failures.append(f"index {index}: exit {error.exit_code}: {message[:3000]!r}")


def report(path: Path) -> None:
    """Everything that the command does with a file, in every form of output."""
    found = examine([read(path)])
    sentences = advice(found)
    page = Page(80, glyphs.for_encoding("utf-8"))
    for line in audit_text.lines(page, found, sentences):
        assert "\n" not in line.plain
    json.loads(audit_json.render(found, sentences), parse_constant=_refuse_constant)
    audit_csv.encode(audit_csv.groups_table(found))
    audit_csv.encode(audit_csv.launches_table(found))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def mutated(kind: str, content: bytes, rng: random.Random, folder: Path) -> bytes:
    """`content` with one to three changes, most of which leave it readable."""
    if kind == "sqlite" and rng.random() < 0.5:
        content = _with_other_cells(content, rng, folder)
        if rng.random() < 0.7:
            return content
    changes = TEXT if kind in ("kineto", "csv") else BINARY
    for _ in range(rng.choice((1, 1, 2, 3))):
        content = rng.choices([change for change, _ in changes], [weight for _, weight in changes])[0](content, rng)
    return gzip.compress(content, 1) if kind == "kineto" and rng.random() < 0.05 else content


def _place(content: bytes, rng: random.Random) -> int:
    return rng.randrange(len(content)) if content else 0


def _flip(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]


def _flip_bit(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :] if content else content


def _insert(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + rng.choice((b"\0", b"\n", b'"', b"\xff", b"\\", b",", b"[", b"}", b" ")) + content[at:]


def _delete(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + content[at + rng.choice((1, 1, 2, 10, 100)) :]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + content[at : at + rng.choice((1, 10, 300))] * 2 + content[at:]


def _truncate(content: bytes, rng: random.Random) -> bytes:
    return content[: _place(content, rng)]


def _zero(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    length = rng.choice((1, 2, 4, 8, 64))
    return content[:at] + bytes(length) + content[at + length :]


def _replace_match(pattern: re.Pattern[bytes]) -> Callable[[bytes, random.Random], bytes]:
    def change(content: bytes, rng: random.Random) -> bytes:
        match = pattern.search(content, _place(content, rng))
        if match is None:
            return content
        return content[: match.start()] + rng.choice(NASTY).encode() + content[match.end() :]

    return change


def _swap_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


TEXT = (
    (_replace_match(_NUMBER), 6),
    (_replace_match(_TOKEN), 3),
    (_flip, 3),
    (_insert, 1),
    (_delete, 1),
    (_repeat, 1),
    (_swap_lines, 1),
    (_truncate, 0.3),
)
BINARY = ((_flip, 4), (_flip_bit, 4), (_zero, 2), (_insert, 0.3), (_delete, 0.3), (_truncate, 0.3))


def _with_other_cells(content: bytes, rng: random.Random, folder: Path) -> bytes:
    """The database with some cells of some tables set to other values, of other types."""
    path = folder / "cells.sqlite"
    path.write_bytes(content)
    connection = sqlite3.connect(path)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(rng.choice((1, 3, 10))):
            table = rng.choice(tables)
            column = rng.choice([row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')])
            number = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
            row = rng.randrange(1, number + 1) if number else 1
            value = rng.choice(
                (None, 0, -1, 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 1.5, float("inf"), "text", b"\xff", "")
            )
            connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (value, row))
        connection.commit()
    finally:
        connection.close()
    return path.read_bytes()


def _kineto_seeds(folder: Path, profiles: Path | None) -> list[bytes]:
    events = [
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "ts": 1, "dur": 100_000},
        operator_event("aten::linear", ts=880.5, dur=90.25, **{"External id": 6}),
        operator_event(),
        call_event(),
        kernel_event(),
        kernel_event(
            COPY,
            ts=1050.125,
            dur=20.5,
            correlation=71,
            **{"External id": 71, "grid": [6216, 1, 1], "block": [128, 1, 1]},
        ),
        kernel_event("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", ts=1100, dur=3, grid=[162, 1, 1]),
        kernel_event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", ts=1000, dur=90, stream=20, grid=[24, 1, 1]),
    ]
    trace = kineto_trace(events, cuda_driver_version=13000)
    with gzip.open(DATA / "corpus.pt.trace.json.gz") as file:
        recorded = json.load(file)
    kept = [event for event in recorded["traceEvents"] if event.get("cat") in ("kernel", "cpu_op", "cuda_driver")]
    recorded["traceEvents"] = kept[:24] + [event for event in kept if event["cat"] == "kernel"][:6]
    old = kineto_trace([event | {"cat": event["cat"].capitalize()} for event in events[4:]], deviceProperties=None)
    return [
        as_kineto_writes(trace).encode(),
        json.dumps(trace).encode(),
        as_kineto_writes(recorded).encode(),
        json.dumps(old).encode(),
    ]


def _csv_seeds(folder: Path, profiles: Path | None) -> list[bytes]:
    lines = (DATA / "corpus_ncu_raw.csv").read_text().splitlines()
    return [
        raw_page({}, {"Kernel Name": COPY, "Grid Size": "(1056, 1, 1)"}, {"sm__cycles_active.avg": "n/a"}).encode(),
        details_page({}, {"Duration": ("us", "12.5")}).encode(),
        ("\n".join(lines[:6]) + "\n" + csv_line(["x"])).encode(),
    ]


def _sqlite_seeds(folder: Path, profiles: Path | None) -> list[bytes]:
    tid = 1 << 48 | PID << 24 | 5
    rows = [
        kernel_row(start=10**6 * i, end=10**6 * i + 4000 * i, correlationId=69 + i, streamId=i % 3)
        for i in range(1, 20)
    ]
    more = {
        "NVTX_EVENTS": (
            ("start", "end", "globalTid", "text"),
            [(100, 900, tid, "aten::mm, op_id = 2, sizes = [[8, 4], [4, 2]]")],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("correlationId", "globalTid", "start"), [(70, tid, 250), (71, tid, 1000)]),
        "TARGET_INFO_CUDA_CONTEXT_INFO": (
            ("contextId", "processId", "isGreenContext", "numMultiprocessors"),
            [(1, PID, 0, 0)],
        ),
        "TARGET_INFO_CUDA_DEVICE": (("gpuId", "cudaId", "pid"), [(0, 0, PID)]),
        "DIAGNOSTIC_EVENT": (("severity", "text"), [(2, "Not all CUDA events might have been collected.")]),
    }
    path = folder / "seed.sqlite"
    path.unlink(missing_ok=True)
    nsys_export(path, rows, more=more)
    plain = path.read_bytes()
    path.unlink()
    nsys_export(path, rows[:3], without=("globalPid", "clusterX", "clusterY", "clusterZ", "graphId"), gpus=None)
    return [plain, path.read_bytes()]


def _report_seeds(folder: Path, profiles: Path | None) -> list[bytes]:
    found = sorted((profiles / "inputs" / "ncu_rep").glob("mojo*.ncu-rep")) if profiles else []
    found += sorted((profiles / "data" / "h200").glob("*.ncu-rep")) if profiles else []
    return [path.read_bytes() for path in found]


SEEDS: dict[str, Callable[[Path, Path | None], list[bytes]]] = {
    "kineto": _kineto_seeds,
    "csv": _csv_seeds,
    "sqlite": _sqlite_seeds,
    "ncu-rep": _report_seeds,
}
