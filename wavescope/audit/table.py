"""Puts the columns a reader has filled into the table of launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from wavescope.audit.launches import NULL, IntColumn, Launches, ObjectColumn, ProfiledDevice

_WIDE = ("grid", "block", "cluster")
_INTEGERS = (
    "device",
    "stream",
    "start_ns",
    "duration_ns",
    "registers",
    "shared_static",
    "shared_dynamic",
    "max_active_clusters",
    "context_sms",
    "graph",
)
_FLOATS = ("profile_occupancy", "sm_active_avg_over_max", "sm_active_share")
_OBJECTS = ("operator", "shapes", "activity")
_COLUMNS = ("name", *_INTEGERS, *_WIDE, *_FLOATS, *_OBJECTS)


def table(
    path: str,
    kind: str,
    devices: Sequence[ProfiledDevice],
    columns: dict[str, NDArray[Any]],
    notes: Iterable[str] = (),
) -> Launches:
    """The launches of `columns` in order of start; columns that are not there are NULL, NaN or None.

    `columns` is emptied on the way, so that a large profile is not in memory twice.
    """
    num = len(columns["name"])
    order = _order(columns.get("start_ns"))
    filled: dict[str, NDArray[Any]] = {}
    for column in _COLUMNS:
        values = columns.pop(column, None)
        if values is None:
            values = _absent(column, num)
        elif order is not None and values.strides[0] != 0:
            values = values[order]
        values.flags.writeable = False
        filled[column] = values
    return Launches(path=path, kind=kind, devices=tuple(devices), notes=tuple(notes), **filled)


def _order(start_ns: IntColumn | None) -> IntColumn | None:
    """The stable order of start; None where the launches have it already."""
    if start_ns is None or bool((start_ns[1:] >= start_ns[:-1]).all()):
        return None
    return np.argsort(start_ns, kind="stable")


def _absent(column: str, num: int) -> NDArray[Any]:
    """A column of which the profile says nothing, in the memory of one element."""
    if column in _FLOATS:
        return np.broadcast_to(np.float64(np.nan), (num,))
    if column in _OBJECTS:
        return np.broadcast_to(np.array(None, object), (num,))
    return np.broadcast_to(np.int64(NULL), (num, 3) if column in _WIDE else (num,))


def chosen(values: Sequence[Any], indices: NDArray[Any]) -> ObjectColumn:
    """values[indices] as an object column; an index of -1 gives None."""
    pool = np.empty(len(values) + 1, object)
    for index, value in enumerate(values):  # one at a time, since a tuple is not a row
        pool[index] = value
    column: ObjectColumn = pool[indices]
    return column


def whole(value: object, least: int = 0, most: int = 2**40) -> int:
    """`value` as a whole number in [least, most], NULL for anything else."""
    if type(value) is not int:  # a bool is none either
        if isinstance(value, str):
            text = value.strip()
            value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else NULL
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        else:
            return NULL
    return value if least <= value <= most else NULL


def wholes(values: list[object], least: int = 0, most: int = 2**40) -> list[int]:
    """`whole` of many at once; a column of sound numbers is looked at by built-in functions only."""
    types = set(map(type, values))
    if types == {int}:
        numbers = cast(list[int], values)
        if min(numbers) >= least and max(numbers) <= most:
            return numbers
    if types == {type(None)}:
        return [NULL] * len(values)
    return [whole(value, least, most) for value in values]


def positive(facts: Mapping[str, object], *names: str) -> int | None:
    """The first of `names` among `facts` that is a whole number of at least 1; None where none is."""
    for name in names:
        number = whole(facts.get(name), 1)
        if number != NULL:
            return number
    return None
