"""Values of a PyTorch (Kineto) trace, read from the JSON text they stand in, odd ones included."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from math import prod
from typing import Any, TypeVar

import msgspec

from wavescope.audit.launches import NO_NAME

MAX_NS = 2**61  # twice that is still within 64 bits

# Of a tensor; what is above fits no memory, and products of it no 64 bits.
_MAX_EXTENT, _MAX_ELEMENTS = 2**31 - 1, 2**42

Shapes = tuple[Any, ...]
Args = TypeVar("Args", bound=msgspec.Struct)
_text = msgspec.json.Decoder(str)


def nanoseconds(raw: bytes) -> int | None:
    """A time in microseconds, as it stands in JSON, in whole nanoseconds; None for what is no time.

    Decimal digits are kept (2**53 us with three decimals is past a float), and the third
    decimal is rounded, since writers print 281.34299999999996.
    """
    if raw.isdigit() and len(raw) < 17:
        return int(raw) * 1000
    if len(raw) > 40:
        return None
    units, _, decimals = raw.partition(b".")
    if not units.isdigit() or not (decimals.isdigit() or not decimals):
        return _odd_nanoseconds(raw)
    nanos = int(units) * 1000 + (int((decimals + b"000")[:4]) + 5) // 10 if decimals else int(units) * 1000
    return nanos if nanos <= MAX_NS else None


def times(values: Iterable[msgspec.Raw]) -> list[int | None]:
    """`nanoseconds` of many at once."""
    raws = [bytes(value) for value in values]
    try:
        micros = list(map(int, raws))  # older traces have whole microseconds throughout
    except ValueError:
        return [nanoseconds(raw) for raw in raws]
    return [number * 1000 if abs(number) <= MAX_NS // 1000 else None for number in micros]


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
    """Input shapes as tuples, () for an input that is no tensor or cannot be one; None where the trace has none."""
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
        items = tuple(_tuple(item, depth - 1) for item in value) if depth else ()
        is_shape = all(isinstance(item, int) for item in items)
        return () if is_shape and not _can_be(items) else items
    return value if isinstance(value, int) else ()


def _can_be(shape: tuple[int, ...]) -> bool:
    return all(0 <= extent <= _MAX_EXTENT for extent in shape) and prod(shape) <= _MAX_ELEMENTS


def decoded(decoder: msgspec.json.Decoder[list[Args]], values: Sequence[msgspec.Raw], empty: type[Args]) -> list[Args]:
    """The args of many events at once; of those with odd values as many as can be had."""
    try:
        found = decoder.decode(b"[" + b",".join(values) + b"]")
    except (msgspec.DecodeError, RecursionError):
        found = []
    if len(found) == len(values):
        return found
    # one of them is absent or odd
    return [_decoded_one(value, empty) for value in values]


def _decoded_one(raw: msgspec.Raw, empty: type[Args]) -> Args:
    if not bytes(raw):
        return empty()
    try:
        return msgspec.json.decode(raw, type=empty)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        members = json.loads(bytes(raw).decode(errors="replace"), strict=False)
        return msgspec.convert(members, empty, strict=False)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, too
        return empty()
