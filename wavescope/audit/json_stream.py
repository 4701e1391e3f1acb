"""A JSON document of any size, in pieces: the elements of its one large array in batches, the rest member by member.

The large array is cut where an element seems to end, and the parser says whether it did:
inside a nested list the text is too short, at the array's end too long.  So no byte is
looked at twice while the document is sound.  Where it is not, the usual damage of trace
writers is repaired in place, byte for byte, so that offsets stay true: bare NaN and
Infinity, lone backslashes (Windows paths), control characters in strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

import msgspec

from wavescope.audit.json_repair import repaired, repaired_more, unchanged
from wavescope.audit.source import refuse

Element = TypeVar("Element")

MAX_VALUE = 64 << 20  # bytes of one element or member; a trace's largest are a few kB
_LAST_CUTS = 4  # enough to step over a nested list of objects at the end
_TAIL = 1 << 16  # bytes from the end in which cuts are looked for first
_TRUNCATED = "Input data was truncated"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = re.compile(rb"[ \t\r\n]*+")
_CUT = re.compile(rb'\}[ \t\r\n]*+,(?=[ \t\r\n]*+\{[ \t\r\n]*+"\w)')
# A string (group 1: its closing quote, missing where the text ends first) or a bracket.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(")?|[\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb"[^,\[\]{}\s]++")


@dataclass(frozen=True)
class Member:
    """A member of the document's top level, as it stands there."""

    key: str
    raw: bytes


@dataclass(frozen=True)
class Batch(Generic[Element]):
    """Some consecutive elements of the large array."""

    elements: list[Element]


class _Text:
    """The part of the document in memory: `data[at:]` is still to be read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.data = b""
        self.at = 0
        self._dropped = 0

    def more(self) -> bool:
        """Read at least as much again as is held; False at the end of the document."""
        held = self.data[self.at :]
        new, size = [held], 0
        for piece in self._pieces:
            new.append(piece)
            size += len(piece)
            if size >= len(held):
                break
        self._dropped += self.at
        self.data, self.at = b"".join(new), 0
        return size > 0

    def offset(self, index: int) -> int:
        """The document's byte that `data[index]` is."""
        return self._dropped + index

    def peek(self) -> bytes:
        """The next byte that is not white space, b'' at the end."""
        while True:
            self.at = _past_space(self.data, self.at)
            if self.at < len(self.data):
                return self.data[self.at : self.at + 1]
            if not self.more():
                return b""


def _past_space(data: bytes, start: int) -> int:
    match = _SPACE.match(data, start)
    return match.end() if match else start


def stream(
    pieces: Iterator[bytes], array: str, element: type[Element], where: str
) -> Iterator[Member | Batch[Element]]:
    """The members of the document `where`, and the elements of its member `array` in batches.

    A document that is one list counts as that array.  Elements that are not of the type
    `element` are left out.

    Raises: InputError for what is not JSON, with the offset in the (unpacked) file.
    """
    text = _Text(pieces)
    first = text.peek()
    if text.data.startswith(_BYTE_ORDER_MARK, text.at):
        text.at += len(_BYTE_ORDER_MARK)
        first = text.peek()
    text.at += 1
    if first == b"[":
        yield from _elements(text, element, where)
    elif first == b"{":
        yield from _members(text, array, element, where)
    else:
        refuse(where, "not JSON: it begins with neither { nor [", "give a PyTorch trace")
    if text.peek():
        refuse(where, f"more text after the JSON document's end, at byte {text.offset(text.at)}", "give one trace")


def _members(text: _Text, array: str, element: type[Element], where: str) -> Iterator[Member | Batch[Element]]:
    """The rest of an object whose brace is behind `text.at`."""
    if text.peek() == b"}":
        text.at += 1
        return
    while True:
        key = _key(text, where)
        if key == array and text.peek() == b"[":
            text.at += 1
            yield from _elements(text, element, where)
        else:
            yield Member(key, _value(text, where))
        mark = text.peek()
        text.at += 1
        if mark == b"}":
            return
        if mark != b",":
            _broken(text, where, text.at - 1, "a comma or the closing brace is missing")


def _key(text: _Text, where: str) -> str:
    if text.peek() != b'"':
        _broken(text, where, text.at, "a member's name is missing")
    raw = _value(text, where)
    if text.peek() != b":":
        _broken(text, where, text.at, "a colon is missing")
    text.at += 1
    return raw[1:-1].decode(errors="replace")


def _value(text: _Text, where: str) -> bytes:
    """The JSON value at `text.at`, which is then behind it; nothing but its brackets and quotes is checked."""
    first = text.peek()
    if first not in (b'"', b"{", b"["):
        return _scalar(text, where)
    depth, seen = 0, text.at  # what lies before `seen` needs no second look
    while True:
        for token in _TOKEN.finditer(text.data, seen):
            mark = text.data[token.start()]
            if mark == ord('"'):
                if token[1] is None:
                    seen = token.start()
                    break
            else:
                depth += 1 if mark in b"[{" else -1
            if depth == 0:
                raw = text.data[text.at : token.end()]
                text.at = token.end()
                return raw
        else:
            seen = len(text.data)
        seen -= text.at
        _grow(text, where)
        seen += text.at


def _scalar(text: _Text, where: str) -> bytes:
    while (match := _SCALAR.match(text.data, text.at)) is not None and match.end() == len(text.data):
        _grow(text, where)
    if match is None:
        _broken(text, where, text.at, "a value is missing")
    text.at = match.end()
    return match[0]


def _grow(text: _Text, where: str) -> None:
    """More text for the value at `text.at`, within reason."""
    if len(text.data) - text.at > MAX_VALUE:
        what = f"one value of more than {MAX_VALUE >> 20} MiB at byte {text.offset(text.at)}"
        refuse(where, what, "this is no trace of GPU kernels")
    if not text.more():
        _truncated(text, where)


def _truncated(text: _Text, where: str) -> NoReturn:
    end = text.offset(len(text.data))
    refuse(where, f"truncated: the JSON text ends at byte {end}, inside a value", "copy or record it again")


def _broken(text: _Text, where: str, index: int, what: str) -> NoReturn:
    if index >= len(text.data):
        _truncated(text, where)
    refuse(where, f"not JSON at byte {text.offset(index)}: {what}", "copy or record it again")


def _elements(text: _Text, element: type[Element], where: str) -> Iterator[Batch[Element]]:
    """The elements of the array whose opening bracket is behind `text.at`, which ends behind its closing one."""
    parser = _Parser(element, where)
    while True:
        ended = False
        for cut in _cuts(text.data, text.at):
            found = parser.parse(text, cut, b"]")
            if found is not None:
                elements, length, ended = found
                text.at = text.at + length if ended else cut + 1
                yield Batch(elements)
                break
        else:
            if len(text.data) - text.at > MAX_VALUE:
                _grow(text, where)
            if not text.more():
                elements, length = parser.parse_last(text)
                text.at += length
                yield Batch(elements)
                return
        if ended:
            return
        if len(text.data) - text.at < _TAIL:
            text.more()


def _cuts(data: bytes, start: int) -> Iterator[int]:
    """Indices of commas that seem to stand between elements: the last few, then ever further back."""
    last = [match.end() - 1 for match in _CUT.finditer(data, max(start, len(data) - _TAIL))]
    yield from last[: -_LAST_CUTS - 1 : -1]
    found = [match.end() - 1 for match in _CUT.finditer(data, start)]
    back = 1 if not last else 2 * _LAST_CUTS
    while back <= len(found):
        yield found[-back]
        back *= 2


class _Parser(Generic[Element]):
    """Parses stretches of the array's text into elements."""

    def __init__(self, element: type[Element], where: str) -> None:
        self._all = msgspec.json.Decoder(list[element])  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(element)
        self._raw = msgspec.json.Decoder(list[msgspec.Raw])
        self._where = where

    def parse(self, text: _Text, end: int, closing: bytes) -> tuple[list[Element], int, bool] | None:
        """The elements of data[at:end], how long they are, and whether the array ends with them.

        None where the text stops inside an element.
        """
        part = b"[" + text.data[text.at : end] + closing
        for repair in (unchanged, repaired, repaired_more):
            part = repair(part)
            try:
                return self._decode(part), end - text.at, False
            except msgspec.DecodeError as error:
                message = str(error)
            except RecursionError:
                message = "values nested too deeply"
            if message == _TRUNCATED:
                return None
            behind = re.search(r"trailing characters \(byte (\d+)\)", message)
            if behind:
                close = part.rindex(b"]", 0, int(behind[1]) - 1)  # the byte counted is the one read last
                return self._decode(part[: close + 1]), close, True
        return self._refuse(text, message)

    def _refuse(self, text: _Text, message: str) -> NoReturn:
        found = re.search(r"\(byte (\d+)\)", message)
        if found and text.at + int(found[1]) - 1 >= len(text.data):  # the text ends inside a number, say
            _truncated(text, self._where)
        place = f"at byte {text.offset(text.at + int(found[1]) - 1)}" if found else f"near {text.offset(text.at)}"
        reason = re.sub(r"JSON is malformed: | \(byte \d+\)", "", message)
        refuse(self._where, f"not JSON {place}: {reason}", "copy or record it again")

    def parse_last(self, text: _Text) -> tuple[list[Element], int]:
        """The elements up to the array's end, where the document holds nothing more."""
        found = self.parse(text, len(text.data), b"")
        if found is None:
            _truncated(text, self._where)
        elements, length, _ = found
        return elements, length

    def _decode(self, part: bytes) -> list[Element]:
        try:
            return self._all.decode(part)
        except msgspec.ValidationError:
            pass
        elements = []
        for raw in self._raw.decode(part):
            try:
                elements.append(self._one.decode(raw))
            except msgspec.ValidationError:
                continue
        return elements
