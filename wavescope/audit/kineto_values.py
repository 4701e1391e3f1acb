"""Values of a PyTorch (Kineto) trace, read from the JSON text they stand in, odd ones included."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import msgspec

from wavescope.audit.launches import NULL
from wavescope.audit.table import whole

NO_NAME = "(no name)"
MAX_NS = 2**62
_MAX_EXTENTS = {"grid": (2**31 - 1, 65535, 65535), "block": (1024, 1024, 64)}  # CUDA's, of every architecture
_MAX_THREADS = 1024  # a block

Shapes = tuple[Any, ...]
Args = TypeVar("Args", bound=msgspec.Struct)
_text = msgspec.json.Decoder(str)


def nanoseconds(raw: bytes) -> int | None:
    """A time in microseconds, as it stands in JSON, in whole nanoseconds; None for what is no time.

    Decimal digits are kept (2**53 us with three decimals is past a float), and the third
    decimal is rounded, since writers print 281.34299999999996.
    """
    if len(raw) > 40:
        return None
    units, _, decimals = raw.partition(b".")
    if not units.isdigit() or not (decimals.isdigit() or not decimals):
        return _odd_nanoseconds(raw)
    nanos = int(units) * 1000 + (int((decimals + b"000")[:4]) + 5) // 10 if decimals else int(units) * 1000
    return nanos if nanos <= MAX_NS else None


def _odd_nanoseconds(raw: bytes) -> int | None:
    """The same for signs, exponents and numbers in quotes."""
    try:
        number = Decimal(raw.strip(b'"').decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not number.is_finite() or abs(number) > MAX_NS // 1000:
        return None
    return int((number * 1000).to_integral_value())


def text(raw: bytes) -> str:
    """A JSON string's text; what is not valid UTF-8 or no valid escape in it is replaced or left as it is."""
    try:
        return _text.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        plain = raw.decode(errors="replace")
    try:
        loaded = json.loads(plain, strict=False)
    except (ValueError, RecursionError):
        return plain.strip('"') or NO_NAME
    return loaded if isinstance(loaded, str) else NO_NAME


def shapes(raw: bytes) -> Shapes | None:
    """Input shapes as tuples, () for an input that is no tensor; None where the trace has none."""
    if not raw:
        return None
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return tuple(_tuple(item, 2) for item in value) if isinstance(value, list) else None


def _tuple(value: object, depth: int) -> Any:
    """Lists as tuples (a list of tensors has a list of shapes); what is neither list nor number as ()."""
    if isinstance(value, list):
        return tuple(_tuple(item, depth - 1) for item in value) if depth else ()
    return value if isinstance(value, int) else ()


def plain(raw: msgspec.Raw) -> object:
    """The value, None for what is none."""
    try:
        return msgspec.json.decode(raw) if bytes(raw) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def extents(value: object, what: str) -> tuple[int, int, int]:
    """The three extents of a "grid" or "block", all NULL where one is missing or cannot be."""
    if isinstance(value, (list, tuple)) and len(value) == 3:
        x, y, z = (whole(extent, 1, most) for extent, most in zip(value, _MAX_EXTENTS[what], strict=True))
        if NULL not in (x, y, z) and (what == "grid" or x * y * z <= _MAX_THREADS):
            return x, y, z
    return NULL, NULL, NULL


def decoded(decoder: msgspec.json.Decoder[Args], raw: msgspec.Raw, empty: type[Args]) -> Args:
    """The args of an event; for those with odd values, as many as can be had."""
    if not bytes(raw):
        return empty()
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        members = json.loads(bytes(raw).decode(errors="replace"), strict=False)
        return msgspec.convert(members, empty, strict=False)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, too
        return empty()
