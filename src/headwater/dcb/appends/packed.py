"""Long appends in MessagePack: first find the start and end of each event, without building anything.

Then decode the events in pieces. No decoder can pause, not even while skipping, which takes 5 ms per MiB. So each event
is skipped separately.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ...core.errors import InvalidInput, TooLarge
from ...core.event import Event
from ...core.limits import APPEND_EVENTS_MAX, ATTRIBUTES_MAX, TAGS_MAX
from ...core.loop.append_builder import AppendBuilder
from ...core.loop.slices import Slices
from ...formats import packed
from ...formats.budget.packed_pieces import (
    LONG_BYTES,
    Cut,
    array_at,
    array_head,
    map_at,
    span_at,
    without_long_bytes,
)
from ..queries import QUERY_VALUES_MAX
from ..wire import PackedAppendIn
from .large import BESIDE_BYTES_MAX, LARGE_BYTES, placed

_EVENT_VALUES_MAX = 16 * 1024
"""The maximum number of values of one event, so that it is skipped within 2 ms: 60 times as many as a valid event
has."""
EVENTS_VALUES_MAX = APPEND_EVENTS_MAX * (1 + len(Event._fields) + TAGS_MAX + 2 * ATTRIBUTES_MAX)
"""The maximum number of values of all events: that of the largest valid append, with every tag and attribute in each
event."""
_SCALAR_VALUES_MAX = 16
_NAME_BYTES_MAX = 64
_NAMES = PackedAppendIn.__struct_fields__
_name = msgspec.msgpack.Decoder(str)
_rest = msgspec.msgpack.Decoder(PackedAppendIn)
_events = msgspec.msgpack.Decoder(list[Event])
_NO_EVENTS = b"\x90"


class _Member(NamedTuple):
    name: str
    start: int
    """The position at which the name begins."""
    value: int
    """The position at which the value begins."""


async def read_packed(body: bytes, builder: AppendBuilder) -> PackedAppendIn:
    """Collect the events of an append. Returns the rest of the body, without events.

    Raises InvalidInput, TooLarge, with paths into the body. Each member may be given once.
    """
    slices = Slices()
    cut, rest = await _taken_apart(body, builder.event_bytes_max, slices)
    given = packed.decode(_rest, rest)
    for index, count, start, end in cut.pieces:
        await slices.pause()
        with placed(body, index, 0):
            events = await _events_of(body, count, start, end, slices)
        await builder.add_all(events, slices)
    return given


async def _events_of(body: bytes, count: int, start: int, end: int, slices: Slices) -> list[Event]:
    """The events of a piece. The long bytes of a long event are copied in spans."""
    if count > 1 or end - start < LONG_BYTES:
        return packed.decode(_events, array_head(count) + body[start:end])
    short, long = await without_long_bytes(body, start, end, slices)
    [event] = packed.decode(_events, array_head(1) + short)
    return [Event._make(long.get(index, value) for index, value in enumerate(event))]


async def _taken_apart(body: bytes, event_bytes_max: int, slices: Slices) -> tuple[Cut, bytes]:
    """The pieces of `events`, and the body without them."""
    count, at = map_at(body, 0)
    if count is None:
        raise InvalidInput("expected a MessagePack map that contains `events`, got another value")
    cut, rest, seen = Cut(at), bytearray(), set[str]()
    for _ in range(count):
        member = _member(body, at)
        if member.name in seen:
            raise InvalidInput("it occurs twice", member.name)
        seen.add(member.name)
        if member.name == "events":
            cut, at = await _cut_events(body, member.value, event_bytes_max, slices)
            rest += body[member.start : member.value] + _NO_EVENTS
        else:
            at = _end_of_other(body, member)
            rest += body[member.start : at]
        await slices.pause()
    if at < len(body):
        raise InvalidInput(f"malformed MessagePack: trailing characters (byte {at})")
    return cut, bytes([0x80 | len(seen)]) + rest


def _member(body: bytes, start: int) -> _Member:
    """The member that begins there. Raises InvalidInput unless an append has a member of that name."""
    value = span_at(body, start, _SCALAR_VALUES_MAX, "").end
    if value - start > _NAME_BYTES_MAX:
        raise InvalidInput(f"the name of a member is longer than {_NAME_BYTES_MAX} bytes")
    name = packed.decode(_name, body[start:value])
    if name not in _NAMES:
        raise InvalidInput(f"object contains unknown field `{name}`")
    return _Member(name, start, value)


async def _cut_events(body: bytes, start: int, event_bytes_max: int, slices: Slices) -> tuple[Cut, int]:
    """The pieces of the array that begins there, and the end of the array."""
    count, at = array_at(body, start)
    if count is None:
        raise InvalidInput("expected an array, got another value", "events")
    if count > APPEND_EVENTS_MAX:
        raise TooLarge(count, APPEND_EVENTS_MAX, "elements", "events")
    if count > len(body) - at:
        raise InvalidInput(f"malformed MessagePack: {count} elements declared in {len(body) - at} bytes", "events")
    cut, values, at_most = Cut(at), 0, event_bytes_max + BESIDE_BYTES_MAX
    for index in range(count):
        where = f"events[{index}]"
        end, more = span_at(body, at, _EVENT_VALUES_MAX, where)
        if end - at > at_most:
            raise TooLarge(end - at, at_most, "bytes of one event", where)
        values += more
        if values > EVENTS_VALUES_MAX:
            raise InvalidInput(f"expected at most {EVENTS_VALUES_MAX} values", "events")
        cut.add(end)
        at = end
        await slices.pause()
    cut.finish(at)
    return cut, at


def _end_of_other(body: bytes, member: _Member) -> int:
    """The end of a member other than `events`; it is decoded in one step, so it must be short."""
    is_condition = member.name == "condition"
    values, length = (QUERY_VALUES_MAX, BESIDE_BYTES_MAX) if is_condition else (_SCALAR_VALUES_MAX, LARGE_BYTES)
    end = span_at(body, member.value, values, member.name).end
    if end - member.value > length:
        raise TooLarge(end - member.value, length, "bytes", member.name)
    return end
