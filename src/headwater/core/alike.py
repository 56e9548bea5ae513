"""A fast path through the gate for messages that differ only in message-id and data: checks their common form once.

A later message is compared with that form; if all bytes except message-id and data match, only its id is checked. This
takes a tenth of the time of a full check. The result equals that of `limits.check_append`, column by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from ..speedups import IS_NATIVE
from .event import Encoding, Event
from .identifier import uuid7s
from .limits import EventColumns, check_append, plain_bytes
from .message.sections import DATA_SECTION, HEADER
from .message.spans import Spans, message_id_span
from .message.validity import check_ids, look_through

if IS_NATIVE:
    from ..speedups._native import alike as usual_alike

_SHORT_DATA_BYTES = 5
"""Descriptor, constructor and size of a data section of up to 255 bytes."""


class AlikeEvents:
    """Events from messages, each checked as it is added: see `Form.take`."""

    __slots__ = ("attributes", "bytes", "count", "data", "envelopes", "group_keys", "types")

    def __init__(self) -> None:
        self.types: list[str] = []
        self.data: list[bytes] = []
        self.attributes: list[Mapping[str, str]] = []
        self.group_keys: list[str] = []
        self.envelopes: list[bytes] = []
        self.count = 0
        self.bytes = 0
        """Like `EventColumns.bytes`."""

    def as_columns(self) -> EventColumns:
        """The events, each with a UUIDv7 as its id."""
        count = self.count
        return EventColumns.unchecked(
            self.types, self.data, [()] * count, uuid7s(count), [""] * count, self.attributes, self.group_keys,
            self.envelopes, [Encoding.DATA] * count, self.bytes, is_gated=True,
        )  # fmt: skip

    def cut(self, count: int, bytes: int) -> None:
        """Keep only the first `count` events, whose size is `bytes` bytes."""
        for column in (self.types, self.data, self.attributes, self.group_keys, self.envelopes):
            del column[count:]
        self.count, self.bytes = count, bytes


class Form:
    """The common form of alike messages: all of their bytes except message-id and data."""

    __slots__ = ("_around", "_attributes", "_content_at", "_group_key", "_head", "_id_at", "_id_form", "_id_of",
                 "_kept", "_rest_at", "_size_bytes", "_tail", "_tail_at", "_type")  # fmt: skip

    def __init__(self, message: bytes, spans: Spans, event: Event, event_bytes_max: int) -> None:
        """Create the form of a received message whose body is one data section, and of the event that it represents.

        Raises InvalidInput, as `check_append` of that event; DecodeError; ValueError if it has parts that alike
        messages cannot share.
        """
        if event.id or event.source or event.tags or event.encoding:
            raise ValueError("more than what stays the same makes this event")
        look_through(message, len(message))
        if (size := plain_bytes(event, event_bytes_max)) is None:
            size = check_append((event,), event_bytes_max).bytes
        self._around = size - len(event.data) - len(event.envelope)
        self._type, self._attributes, self._group_key = event.type, event.attributes, event.group_key
        self._content_at = content_at = spans[DATA_SECTION][0]
        self._id_form, self._id_at, self._tail_at = message_id_span(message, spans)
        self._id_of = itemgetter(slice(self._id_at, self._tail_at))
        self._head = message[: self._id_at]
        begin = max([stop for section, (_, stop) in spans.items() if section != DATA_SECTION], default=0)
        self._size_bytes = 1 if content_at - begin == _SHORT_DATA_BYTES else 4
        self._tail = message[self._tail_at : content_at - self._size_bytes]
        self._rest_at = spans[HEADER][1] if HEADER in spans else 0
        self._kept = event.envelope[: len(event.envelope) - (content_at - self._rest_at)]

    def take(self, messages: Sequence[bytes], at: int, bytes_max: int, events: AlikeEvents) -> int:
        """Add the messages from `at` on that have this form, up to `bytes_max` bytes; returns the index after them.

        Raises DecodeError for a message-id that some receivers cannot decode; discard the events added so far.
        """
        begin = at
        at, size = alike(
            messages, at, self._head, self._tail, self._tail_at, self._content_at, self._size_bytes, self._rest_at,
            self._kept, bytes_max, events.data, events.envelopes,
        )  # fmt: skip
        count = at - begin
        run = messages[begin:at] if count < len(messages) else messages
        check_ids(self._id_form, lambda: map(self._id_of, run), self._id_at)
        events.types += [self._type] * count
        events.attributes += [self._attributes] * count
        events.group_keys += [self._group_key] * count
        events.count += count
        events.bytes += size + count * (self._around + len(self._kept) - self._rest_at)
        return at


def alike(
    messages: Sequence[bytes], at: int, head: bytes, tail: bytes, tail_at: int, content_at: int, size_bytes: int,
    rest_at: int, kept: bytes, bytes_max: int, data: list[bytes], envelopes: list[bytes],
) -> tuple[int, int]:  # fmt: skip
    """Append data and envelopes of the alike messages from `at` on; returns where they end and their total size.

    Each message begins with that head, has that tail at its place, and ends with its content, whose size is in the
    bytes before it. Its envelope is `kept` plus the bytes from `rest_at` up to the content; envelopes and contents
    together are at most `bytes_max`.
    """
    if IS_NATIVE:
        found = usual_alike(
            messages, at, head, tail, tail_at, content_at, size_bytes, rest_at, kept, bytes_max, data, envelopes
        )
        if found is not None:
            return found
    return alike_any(
        messages, at, head, tail, tail_at, content_at, size_bytes, rest_at, kept, bytes_max, data, envelopes
    )


def alike_any(
    messages: Sequence[bytes], at: int, head: bytes, tail: bytes, tail_at: int, content_at: int, size_bytes: int,
    rest_at: int, kept: bytes, bytes_max: int, data: list[bytes], envelopes: list[bytes],
) -> tuple[int, int]:  # fmt: skip
    """Like `alike`: the Python twin of the function in `speedups/runs.c`."""
    stop, size = len(messages), 0
    while at < stop:
        message = messages[at]
        length = len(message)
        if (
            length < content_at
            or length - rest_at + len(kept) > bytes_max
            or not message.startswith(head)
            or not message.startswith(tail, tail_at)
        ):
            break
        content = message[content_at - 1] if size_bytes == 1 else int.from_bytes(message[content_at - 4 : content_at])
        if content != length - content_at:
            break
        envelopes.append(kept + message[rest_at:content_at])
        data.append(message[content_at:])
        size += length
        at += 1
    return at, size
