"""The facts beside the spans of a trace file: JSON written from the dataclasses, and read back strictly.

`encode` and `decode` are inverse to each other.  `decode` trusts nothing: every field's
type comes from the dataclass, and values that no device or launch can have are refused.
"""

from __future__ import annotations

import json
import re
import reprlib
import types
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

from wavescope.device import Device
from wavescope.errors import InputError, UsageError
from wavescope.raster import Raster
from wavescope.schedule import SCHEDULES
from wavescope.stats import Estimate
from wavescope.trace import NULL, SCHEMA_VERSION, Launch, Trace
from wavescope.work import Work

MAX_SMS = 2**16  # the record holds the SM id in 16 bits
MAX_COUNT = 2**31 - 1  # CTAs, units and k_iters are int32 on the device
MAX_CTAS_PER_SM = 64  # twice what any GPU so far holds
MAX_NUMBER = 1e300  # below the largest float, so that sums and ratios of a few stay finite
MAX_NESTING = 3  # launch.verified: the checks, what each found, and a list in it
TIME_RANGE_NS = (1.0, 1e15)  # a launch: a nanosecond to eleven days
RATIO_RANGE = (0.01, 100.0)  # probed over plain


@dataclass(frozen=True)
class Metadata:
    """A Trace without its spans."""

    tool_version: str
    device: Device
    timer_step_ns: int
    launches: tuple[Launch, ...]


class _BadFieldError(ValueError):
    """What is wrong with a field, without the file's name."""


def encode(trace: Trace) -> str:
    """JSON of everything in `trace` but the spans.

    The globaltimer of T0 is written as a string: it is above 2**53, where readers that
    hold numbers as floats round it.

    Raises: TypeError or ValueError for a `verified` value that JSON has no word for.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "tool_version": trace.tool_version,
        "device": asdict(trace.device),
        "timer_step_ns": trace.timer_step_ns,
        "launches": [
            asdict(launch) | {"t0_globaltimer_ns": str(launch.t0_globaltimer_ns)} for launch in trace.launches
        ],
    }
    return json.dumps(document, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def decode(text: bytes, where: str) -> Metadata:
    """The Metadata that `encode` wrote.

    Raises: InputError, one line that starts with `where` and names field and value.
    """
    try:
        document = _parse(text)
        for launch in document["launches"] if isinstance(document["launches"], list) else []:
            _read_globaltimer(launch)
        metadata: Metadata = _build(Metadata, document, "")
        _check_device(metadata)
        for index, launch in enumerate(metadata.launches):
            _check_launch(launch, metadata.device, f"launches[{index}]")
        ids = [launch.launch_id for launch in metadata.launches]
        if len(set(ids)) < len(ids):
            raise _BadFieldError(f"launch ids {reprlib.repr(ids)} repeat")
    except _BadFieldError as error:
        raise InputError(f"{where}: {error}; record the trace again") from error
    return metadata


def _parse(text: bytes) -> dict[str, Any]:
    """The document without its schema_version, which must be ours."""
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _BadFieldError(f"its 'wavescope' metadata is not JSON ({reprlib.repr(str(error))})") from error
    if not isinstance(document, dict):
        raise _BadFieldError(f"its 'wavescope' metadata is {reprlib.repr(document)}, not an object")
    version = document.pop("schema_version", None)
    if type(version) is not int or version != SCHEMA_VERSION:
        raise _BadFieldError(
            f"schema_version is {reprlib.repr(version)}, and this wavescope reads {SCHEMA_VERSION}: "
            "use the version that wrote it"
        )
    if "launches" not in document:
        raise _BadFieldError("field 'launches' is missing from its metadata")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _read_globaltimer(launch: Any) -> None:
    """Turn the string form of t0_globaltimer_ns back into an integer, in place."""
    if not isinstance(launch, dict) or "t0_globaltimer_ns" not in launch:
        return
    value = launch["t0_globaltimer_ns"]
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,20}", value):
        raise _BadFieldError(f"t0_globaltimer_ns is {reprlib.repr(value)}, not a string of digits")
    launch["t0_globaltimer_ns"] = int(value)


def _build(cls: type, value: Any, at: str) -> Any:
    """An instance of a dataclass from a JSON object; a missing field takes its default."""
    if not isinstance(value, dict):
        raise _BadFieldError(f"{at or 'the metadata'} is {reprlib.repr(value)}, not an object")
    hints, known = get_type_hints(cls), {entry.name: entry for entry in fields(cls)}
    for name in value:
        if name not in known:
            raise _BadFieldError(f"field {reprlib.repr(name)} of {at or 'the metadata'} is unknown")
    arguments = {}
    for name, entry in known.items():
        path = f"{at}.{name}" if at else name
        if name in value:
            arguments[name] = _value(hints[name], value[name], path)
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise _BadFieldError(f"field '{path}' is missing from its metadata")
    try:
        return cls(**arguments)
    except UsageError as error:  # a problem or tile that cannot be
        raise _BadFieldError(f"{at}: {error}") from error


def _value(hint: Any, value: Any, at: str) -> Any:
    """`value` as the annotation `hint` wants it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _finding(value, at, 2)
    if origin in (Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if value is None else _value(inner, value, at)
    if origin is Literal and isinstance(value, str) and value in arguments:
        return value
    if origin is tuple and isinstance(value, list):
        many = arguments[-1] is Ellipsis
        if many or len(arguments) == len(value):
            kinds = [arguments[0]] * len(value) if many else arguments
            return tuple(
                _value(kind, item, f"{at}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True))
            )
    if origin is dict and isinstance(value, dict):
        return {_text(key, at): _value(arguments[1], item, f"{at}[{reprlib.repr(key)}]") for key, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, at)
    if hint is str and isinstance(value, str):
        return _text(value, at)
    if hint is int and type(value) is int:
        return value
    if hint is float and type(value) in (int, float) and abs(value) < MAX_NUMBER:
        return float(value)
    wanted = " or ".join(map(repr, arguments)) if origin is Literal else getattr(hint, "__name__", str(hint))
    raise _BadFieldError(f"{at} is {reprlib.repr(value)}, not {wanted}")


def _finding(value: Any, at: str, level: int) -> Any:
    """What a check of the result found: text, a number, yes or no, nothing, integers, or such values by name.

    `level` counts the dicts and lists around the value and itself.
    """
    if isinstance(value, (dict, list)) and level > MAX_NESTING:
        raise _BadFieldError(f"{at} lies deeper than {MAX_NESTING} levels")
    if isinstance(value, str):
        return _text(value, at)
    if isinstance(value, dict):
        if type(value.get("worst_error", 0.0)) not in (int, float):  # the report formats it
            raise _BadFieldError(f"{at}['worst_error'] is {reprlib.repr(value['worst_error'])}, not a number")
        return {_text(key, at): _finding(item, f"{at}[{reprlib.repr(key)}]", level + 1) for key, item in value.items()}
    is_known = value is None or isinstance(value, bool)
    is_known |= isinstance(value, list) and all(type(item) is int and abs(item) < MAX_NUMBER for item in value)
    is_known |= type(value) in (int, float) and abs(value) < MAX_NUMBER
    if not is_known:
        raise _BadFieldError(f"{at} is {reprlib.repr(value)}, not text, a number, true, false, null or integers")
    return value


def _text(value: str, at: str) -> str:
    """A string that a terminal can be given: no escape sequences, no half characters."""
    for character in value:
        if character not in "\n\t" and (ord(character) < 32 or 127 <= ord(character) < 160 or _is_surrogate(character)):
            raise _BadFieldError(f"{at} holds the character {character!a}")
    return value


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _between(at: str, name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise _BadFieldError(f"{at}.{name} is {reprlib.repr(value)}, outside {low:g} to {high:g}")


def _check_device(metadata: Metadata) -> None:
    device = metadata.device
    _between("device", "sms", device.sms, 1, MAX_SMS)
    _between("device", "max_clock_mhz", device.max_clock_mhz, 1, 1e5)
    for name in ("registers_per_sm", "shared_per_sm", "shared_per_block", "threads_per_sm", "ctas_per_sm"):
        _between("device", name, getattr(device, name), 1, MAX_COUNT)
    _between("device", "shared_reserved_per_block", device.shared_reserved_per_block, 0, MAX_COUNT)
    for name in ("l2_bytes", "memory_bytes", "memory_gb_per_s"):
        _between("device", name, getattr(device, name), 0, 2**62)
    for number in device.compute_capability:
        _between("device", "compute_capability", number, 0, 1000)
    for dtype, rate in device.peak_tflops.items():
        _between("device.peak_tflops", dtype, rate, 1e-6, 1e9)
    if not 1 <= metadata.timer_step_ns <= 10**9:
        raise _BadFieldError(f"timer_step_ns is {reprlib.repr(metadata.timer_step_ns)}, outside 1 to a second")


def _check_launch(launch: Launch, device: Device, at: str) -> None:
    for name in ("grid", "cluster", "ctas_per_sm", "places", "parts"):
        _between(at, name, getattr(launch, name), 1, MAX_COUNT)
    _between(at, "launch_id", launch.launch_id, 0, MAX_COUNT)
    _between(at, "reducers", launch.reducers, 0, MAX_COUNT)
    for name in ("block", "registers", "shared_bytes"):  # NULL: not recorded
        _between(at, name, getattr(launch, name), NULL, MAX_COUNT)
    _between(at, "stream", launch.stream, 0, 2**63)
    _between(at, "t0_globaltimer_ns", launch.t0_globaltimer_ns, 0, 2**64 - 1)
    room = device.sms * launch.ctas_per_sm
    if launch.places > room:
        raise _BadFieldError(
            f"{at}.places is {launch.places}, more than {launch.ctas_per_sm} CTAs on each of {device.sms} SMs"
        )
    if launch.ctas_per_sm > MAX_CTAS_PER_SM:
        raise _BadFieldError(f"{at}.ctas_per_sm is {launch.ctas_per_sm}, more than any GPU holds ({MAX_CTAS_PER_SM})")
    if launch.schedule is not None:
        _check_schedule(launch, at)
    if launch.work is not None:
        _check_work(launch, at)
    if launch.timing is not None:
        for name, limits in (("plain_ns", TIME_RANGE_NS), ("probed_ns", TIME_RANGE_NS), ("perturbation", RATIO_RANGE)):
            _check_estimate(getattr(launch.timing, name), *limits, f"{at}.timing.{name}")
        if launch.timing.cycles is not None:
            _check_estimate(launch.timing.cycles, *TIME_RANGE_NS, f"{at}.timing.cycles")


def _check_schedule(launch: Launch, at: str) -> None:
    """A schedule and a raster of wavescope's."""
    if launch.schedule not in SCHEDULES:
        raise _BadFieldError(f"{at}.schedule is {reprlib.repr(launch.schedule)}, none of {', '.join(SCHEDULES)}")
    try:
        Raster(launch.raster or "")
    except UsageError as error:
        raise _BadFieldError(f"{at}.raster: {error}") from error


def _check_work(launch: Launch, at: str) -> None:
    """The work is written as a recording has it, and says what tiles it is of."""
    try:
        written = str(Work.parse(launch.work or ""))
    except UsageError as error:
        raise _BadFieldError(f"{at}.work: {error}") from error
    if written != launch.work:
        raise _BadFieldError(f"{at}.work is {reprlib.repr(launch.work)}, and should be {written}")
    if launch.problem is None or launch.tile is None:
        raise _BadFieldError(f"{at}.work is {launch.work}, of no known problem or tile")


def _check_estimate(estimate: Estimate, least: float, most: float, at: str) -> None:
    is_ordered = least <= estimate.low <= estimate.median <= estimate.high <= most
    if not is_ordered or not 1 <= estimate.count <= MAX_COUNT:
        raise _BadFieldError(
            f"{at} is {estimate.median} over {reprlib.repr(estimate.count)} samples, from {estimate.low} to "
            f"{estimate.high}, and not a median of 1 sample or more within its interval and {least:g} to {most:g}"
        )
