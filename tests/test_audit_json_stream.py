"""Any JSON document comes back in pieces as it is, whatever the sizes of the pieces it arrives in."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wavescope.audit.json_repair import repaired, repaired_more
from wavescope.audit.json_stream import Batch, Member, stream
from wavescope.errors import InputError


class Element(msgspec.Struct):
    a: msgspec.Raw = msgspec.Raw(b"")
    b: msgspec.Raw = msgspec.Raw(b"")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
ELEMENTS = st.lists(st.fixed_dictionaries({"a": VALUES}, optional={"b": VALUES}), max_size=12)
LAYOUTS = st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])


def parsed(content: bytes, size: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The members and the elements of a document that arrives in pieces of `size` bytes."""
    members, elements = {}, []
    pieces = (content[begin : begin + size] for begin in range(0, len(content), size))
    for part in stream(pieces, "events", Element, "test"):
        if isinstance(part, Member):
            members[part.key] = json.loads(part.raw)
        else:
            assert isinstance(part, Batch)
            for element in part.elements:
                fields = {"a": bytes(element.a), "b": bytes(element.b)}
                elements.append({name: json.loads(raw) for name, raw in fields.items() if raw})
    return members, elements


@settings(deadline=None)
@given(ELEMENTS, VALUES, VALUES, LAYOUTS, st.integers(1, 200))
def test_documents_come_back(elements: list[Any], first: Any, last: Any, layout: dict[str, Any], size: int) -> None:
    document = {"first": first, "events": elements, "last": last}
    members, found = parsed(json.dumps(document, **layout).encode(errors="surrogatepass"), size)
    assert members == {"first": first, "last": last}
    assert found == elements


@settings(deadline=None)
@given(ELEMENTS, LAYOUTS, st.integers(1, 200))
def test_lists_come_back(elements: list[Any], layout: dict[str, Any], size: int) -> None:
    assert parsed(json.dumps(elements, **layout).encode(), size) == ({}, elements)


@settings(deadline=None)
@given(ELEMENTS, st.integers(1, 200), st.data())
def test_every_cut_document_is_refused(elements: list[Any], size: int, data: st.DataObject) -> None:
    whole = json.dumps({"events": elements, "last": 1}).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(InputError, match="truncated|neither"):
        parsed(whole[:cut], size)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_repairs_keep_the_length(content: bytes) -> None:
    assert len(repaired(content)) == len(content)
    assert len(repaired_more(content)) == len(content)


@settings(deadline=None)
@given(VALUES)
def test_repairs_leave_valid_text_alone(value: Any) -> None:
    text = json.dumps(value).encode()
    assert repaired(text) == text


def test_elements_are_not_all_held_at_once() -> None:
    """A thousand elements of 100 bytes in pieces of 1000 come in many batches."""
    content = json.dumps({"events": [{"a": "x" * 80}] * 1000}).encode()
    pieces = (content[begin : begin + 1000] for begin in range(0, len(content), 1000))
    sizes = [len(part.elements) for part in stream(pieces, "events", Element, "test") if isinstance(part, Batch)]
    assert sum(sizes) == 1000
    assert max(sizes) < 1000
