"""Decodes and checks the events of an addEvents in pieces, so that a message of 8M does not block others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ...core.errors import InvalidInput, TooLarge
from ...core.event import NO_ATTRIBUTES
from ...formats.budget import packed_pieces
from ...formats.budget.json_pieces import CUT_BYTES, cut
from ...formats.budget.values import packed_holds_more
from ...formats.tracing import TRACEPARENT, TRACESTATE
from ..calls import Call
from ..errors import invalid
from ..messages.coders import JSON
from ..messages.json_values import Walk, checked_json, encoded_json, json_text
from ..messages.message import PACKED_VALUES_MAX, PLAIN_BYTES, Encoded

PACKED_FACTOR = 3
"""The maximum ratio of a value's size in MessagePack to its size in JSON: `0.5` takes nine bytes."""
BESIDE_BYTES_MAX = 2 * CUT_BYTES
"""The maximum size of an event's type, key, names and white space together, in bytes."""
STEP_VALUES = 8 * 1024
_ARRAY = re.compile(rb"\s*+\[")


class NewEvent(NamedTuple):
    """A checked event to add."""

    type: str
    data: bytes
    """JSON."""
    key: str | None
    trace: Mapping[str, str]
    """Its members `traceparent` and `tracestate`, if given."""


class _Element(Struct, forbid_unknown_fields=True):
    type: str
    data: Raw
    key: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None

    def new_event(self, data: bytes) -> NewEvent:
        """The event, with its data as JSON."""
        return NewEvent(self.type, data, self.key, _given(self.traceparent, self.tracestate))


def _given(traceparent: str | None, tracestate: str | None) -> Mapping[str, str]:
    """The given members, by name."""
    if traceparent is tracestate is None:
        return NO_ATTRIBUTES
    given = {TRACEPARENT: traceparent, TRACESTATE: tracestate}
    return {name: value for name, value in given.items() if value is not None}


_json = msgspec.json.Decoder(list[_Element])
_packed = msgspec.msgpack.Decoder(list[_Element])
_MISFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError, InvalidInput)


def new_events(call: Call, event_bytes_max: int) -> Iterator[NewEvent | None]:
    """The parameter `events`, element by element; None marks a short step before the next element.

    An event longer than the log accepts is not examined. Raises FutoInError (InvalidRequest), TooLarge.
    """
    given, function = call.parameters["events"], call.function
    allowed = function.parameters["events"].elements
    assert allowed is not None, "the definition says that it is an array of maps"
    number = 0
    try:
        for event in _decoded(call, given, allowed.at_most, event_bytes_max):
            if event is None:
                yield None
                continue
            if number == allowed.at_most:
                raise invalid(f"expected at most {allowed.at_most} events")
            if not allowed.check({"type": event.type, "data": None, "key": event.key, **event.trace}):
                shown = {"type": event.type, "key": event.key, **event.trace}
                raise function.mismatch(f"events[{number}]", shown)
            number += 1
            yield event
    except TooLarge:
        raise
    except _MISFIT as error:
        raise invalid(f"Type mismatch for parameter: {function.name}(events), at events[{number}]: {error}") from None
    if number < allowed.at_least:
        raise invalid(f"got {number} events, at least {allowed.at_least} are expected")


def _decoded(call: Call, given: object, at_most: int, event_bytes_max: int) -> Iterator[NewEvent | None]:
    if not isinstance(given, Encoded):  # from a coder that accepts only short messages, already checked
        assert isinstance(given, list)
        size = call.message.size
        return (_of_tree(each, size) for each in given)
    return _of_json(given, event_bytes_max) if call.coder is JSON else _of_packed(given, at_most, event_bytes_max)


def _of_tree(element: Mapping[str, Any], size: int) -> NewEvent:
    trace = _given(element.get(TRACEPARENT), element.get(TRACESTATE))
    return NewEvent(element["type"], json_text(element["data"], size), element.get("key"), trace)


def _of_json(text: bytes, event_bytes_max: int) -> Iterator[NewEvent | None]:
    found, number, at_most = _ARRAY.match(text), 0, event_bytes_max + BESIDE_BYTES_MAX
    start = found.end() if found else 0
    while start and (piece := cut(text, start, at_most)) is not None:
        for element in _json.decode(piece.text):
            yield _of_json_element(element, number, event_bytes_max)
            number += 1
        yield None
        start = piece.following
    rest = b"[" + text[start:] if start else text
    if len(rest) > at_most:
        raise TooLarge(len(rest), at_most, "bytes of one event", f"events[{number}]")
    for element in _json.decode(rest):
        yield None
        yield _of_json_element(element, number, event_bytes_max)
        number += 1


def _of_json_element(element: _Element, number: int, event_bytes_max: int) -> NewEvent:
    data = bytes(element.data)
    _check_size(data, number, event_bytes_max)
    return element.new_event(checked_json(data))


def _of_packed(array: bytes, at_most: int, event_bytes_max: int) -> Iterator[NewEvent | None]:
    elements, number = packed_pieces.elements_of(array, at_most, "events"), 0
    for _, piece in packed_pieces.pieces_of(elements):
        yield None
        for element in _packed.decode(piece):
            data = bytes(element.data)
            _check_size(data, number, PACKED_FACTOR * event_bytes_max)
            if len(data) > PLAIN_BYTES and packed_holds_more(data, PACKED_VALUES_MAX):
                raise invalid(
                    f"expected at most {PACKED_VALUES_MAX} values in one MessagePack event; use JSON for this event"
                )
            value = msgspec.msgpack.decode(data)
            walk = Walk(value, len(data))
            while not walk.go_on(STEP_VALUES):
                yield None
            yield element.new_event(encoded_json(value))
            number += 1


def _check_size(data: bytes, number: int, at_most: int) -> None:
    if len(data) > at_most:
        raise TooLarge(len(data), at_most, "bytes", f"events[{number}].data")
