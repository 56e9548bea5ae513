"""The events of an addEvents, decoded and checked in pieces, so that a message of 8M holds nobody up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from ..core.errors import InvalidInput
from ..formats import packed_cutting
from ..formats.budget import packed_holds_more
from ..formats.cutting import cut
from .calls import Call
from .coders import JSON
from .errors import invalid
from .message import PLAIN_BYTES, Encoded
from .plain import checked_json, json_text

PACKED_VALUES_MAX = 2**16
"""Of one event in MessagePack, which are made to be written as JSON; data in JSON may have any number."""
_ARRAY = re.compile(rb"\s*+\[")


class NewEvent(NamedTuple):
    """One event to add, checked."""

    type: str
    data: bytes
    """JSON."""
    key: str | None


class _Element(Struct, forbid_unknown_fields=True):
    type: str
    data: Raw
    key: str | None = None


_json = msgspec.json.Decoder(list[_Element])
_packed = msgspec.msgpack.Decoder(list[_Element])
_MISFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError, InvalidInput)


def new_events(call: Call) -> Iterator[NewEvent]:
    """The parameter `events`, element by element, each a short step. Raises FutoInError (InvalidRequest)."""
    given, function = call.parameters["events"], call.function
    allowed = function.parameters["events"].elements
    assert allowed is not None, "the definition says that it is an array of maps"
    number = 0
    try:
        for event in _decoded(call, given, allowed.at_most):
            if number == allowed.at_most:
                raise invalid(f"more than {allowed.at_most} events given")
            if not allowed.check({"type": event.type, "data": None, "key": event.key}):
                raise function.mismatch(f"events[{number}]", {"type": event.type, "key": event.key})
            number += 1
            yield event
    except _MISFIT as error:
        raise invalid(f"Type mismatch for parameter: {function.name}(events), at events[{number}]: {error}") from None
    if number < allowed.at_least:
        raise invalid(f"{number} events given, at least {allowed.at_least} are expected")


def _decoded(call: Call, given: object, at_most: int) -> Iterator[NewEvent]:
    if not isinstance(given, Encoded):  # of a coder that takes only short messages, and has checked them
        assert isinstance(given, list)
        size = call.message.size
        return (NewEvent(each["type"], json_text(each["data"], size), each.get("key")) for each in given)
    return _of_json(given) if call.coder is JSON else _of_packed(given, at_most)


def _of_json(text: bytes) -> Iterator[NewEvent]:
    found = _ARRAY.match(text)
    start = found.end() if found else 0
    while start and (piece := cut(text, start)) is not None:
        yield from map(_of_json_element, _json.decode(piece.text))
        start = piece.following
    rest = b"[" + text[start:] if start else text
    yield from map(_of_json_element, _json.decode(rest))


def _of_json_element(element: _Element) -> NewEvent:
    return NewEvent(element.type, checked_json(bytes(element.data)), element.key)


def _of_packed(array: bytes, at_most: int) -> Iterator[NewEvent]:
    elements = packed_cutting.elements_of(array, at_most, "events")
    for each in elements:
        if len(bytes(each)) > PLAIN_BYTES and packed_holds_more(bytes(each), PACKED_VALUES_MAX):
            raise invalid(f"more than {PACKED_VALUES_MAX} values in an event as MessagePack given; use JSON")
    for _, piece in packed_cutting.pieces_of(elements):
        for element in _packed.decode(piece):
            data = bytes(element.data)
            yield NewEvent(element.type, json_text(msgspec.msgpack.decode(data), len(data)), element.key)
