"""Plain messages as columns of events: a sender's messages that differ in message-id and data alone.

`inbound` reads the first of them, and says what its event is; those that follow with the same bytes around message-id
and data have events that differ in data and envelope alone. They are compared, not read: a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...core.event import Encoding
from ...core.identifier import uuid7s
from ...core.limits import METADATA_BYTES, EventColumns
from ...core.loop.batcher import Ended, Joint, Outcome
from ...core.settings import LogSettings
from ..errors import MessageFault
from ..protocol.sections import DATA_SECTION, DELIVERY_ANNOTATIONS, HEADER
from .inbound import read_message
from .spans import Spans, message_id_span, usual_spans
from .validity import check_sections

FORMS_MAX = 4
"""Messages that change their form more often, among some that came together, are read one by one."""
_SHORT_DATA_BYTES = 5
"""Descriptor, constructor and size of a data section with up to 255 bytes."""
_AROUND_BYTES_MAX = 4096
"""More than that around its data is not compared."""


class Share(Protocol):
    """Whose events some of a joint append are."""

    def ended(self, outcome: Outcome) -> None:
        """They are stored, or were refused."""

    def apart(self) -> Sequence[Joint]:
        """Each of the events as an append of its own."""


class PlainEvents:
    """Plain events of one log that come in one turn of the event loop, from all links: one append (see `Joint`).

    They are what `core.limits.check_append` would make of them, column by column.
    """

    __slots__ = ("_shares", "attributes", "bytes", "count", "data", "envelopes", "group_keys", "partition", "types")

    def __init__(self, partition: int | None = None) -> None:
        self.partition = partition
        self._shares: list[Share] = []
        self.types: list[str] = []
        self.data: list[bytes] = []
        self.attributes: list[Mapping[str, str]] = []
        self.group_keys: list[str] = []
        self.envelopes: list[bytes] = []
        self.count = 0
        self.bytes = 0
        """As `EventColumns.bytes`."""

    def claim(self, share: Share) -> None:
        """The events that were added last are of that share."""
        self._shares.append(share)

    def outcomes(self, outcome: Outcome) -> list[tuple[Ended, Outcome]]:
        """See Joint."""
        return [(share.ended, outcome) for share in self._shares]

    def apart(self) -> list[Joint]:
        """See Joint."""
        return [joint for share in self._shares for joint in share.apart()]

    def columns(self, settings: LogSettings) -> EventColumns:
        """The events, each with a UUIDv7 as its id. They were checked as they were added."""
        count = self.count
        return EventColumns(
            self.types, self.data, [()] * count, uuid7s(count), [""] * count, self.attributes, self.group_keys,
            self.envelopes, [Encoding.DATA] * count, self.bytes, is_gated=True,
        )  # fmt: skip

    def cut(self, count: int, bytes: int) -> None:
        """Forget all but the first so many, which count so many bytes."""
        for column in (self.types, self.data, self.attributes, self.group_keys, self.envelopes):
            del column[count:]
        self.count, self.bytes = count, bytes


class Form:
    """How the plain messages of a sender look: all of their bytes but those of message-id and data."""

    __slots__ = ("_around", "_attributes", "_content_at", "_group_key", "_head", "_is_short", "_kept", "_rest_at",
                 "_tail", "_tail_at", "_type")  # fmt: skip

    def __init__(self, message: bytes, spans: Spans, settings: LogSettings) -> None:
        """Of a message with data. Raises MessageFault, and ValueError if it is not plain."""
        event, target = read_message(message, settings)
        if event.id or event.source or event.tags or event.encoding or target is not None:
            raise ValueError("more than what stays the same makes this event")
        self._type, self._attributes, self._group_key = event.type, event.attributes, event.group_key
        self._content_at = content_at = spans[DATA_SECTION][0]
        _, id_at, self._tail_at = message_id_span(message, spans)
        self._head = message[:id_at]
        begin = max([stop for section, (_, stop) in spans.items() if section != DATA_SECTION], default=0)
        self._is_short = content_at - begin == _SHORT_DATA_BYTES
        self._tail = message[self._tail_at : content_at - (1 if self._is_short else 4)]
        self._rest_at = spans[HEADER][1] if HEADER in spans else 0
        self._kept = event.envelope[: len(event.envelope) - (content_at - self._rest_at)]
        attributes = sum([len(name) + len(value) for name, value in event.attributes.items()])
        self._around = METADATA_BYTES + len(event.type) + len(event.group_key) + attributes

    def take(self, messages: Sequence[bytes], at: int, bytes_max: int, events: PlainEvents) -> int:
        """Add the messages from `at` on that have this form and no more bytes; answers where that ends."""
        head, tail, tail_at, content_at, rest_at = (
            self._head,
            self._tail,
            self._tail_at,
            self._content_at,
            self._rest_at,
        )
        kept, is_short, data, envelopes = self._kept, self._is_short, events.data, events.envelopes
        stop, begin = len(messages), at
        size = 0
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
            content = (
                message[content_at - 1] if is_short else int.from_bytes(message[content_at - 4 : content_at], "big")
            )
            if content != length - content_at:
                break
            envelopes.append(kept + message[rest_at:content_at])
            data.append(message[content_at:])
            size += length
            at += 1
        count = at - begin
        events.types += [self._type] * count
        events.attributes += [self._attributes] * count
        events.group_keys += [self._group_key] * count
        events.count += count
        events.bytes += size + count * (self._around + len(kept) - rest_at)
        return at


def read_plain(messages: Sequence[bytes], form: Form | None, settings: LogSettings, events: PlainEvents) -> Form | None:
    """Add the events of messages, of which that form is expected; answers the form that the next should have.

    None, and nothing was added, if not all of them are plain. Raises DecodeError, as `form_of`; nothing was added.
    """
    count, size = events.count, events.bytes
    found = None
    try:
        found = _read(messages, form, settings, events)
    finally:
        if found is None:
            events.cut(count, size)
    return found


def _read(messages: Sequence[bytes], form: Form | None, settings: LogSettings, events: PlainEvents) -> Form | None:
    """As `read_plain`, but that events may have been added in vain."""
    at, forms_left = 0, FORMS_MAX
    while True:
        if form is not None:
            at = form.take(messages, at, settings.event_bytes_max, events)
            if at == len(messages):
                return form
        form = form_of(messages[at], settings) if forms_left else None
        if form is None:
            return None
        forms_left -= 1


def form_of(message: bytes, settings: LogSettings) -> Form | None:
    """The form of a plain message; None for any other, which is read by itself.

    Raises DecodeError: it is plain, but not every receiver can decode it.
    """
    spans = usual_spans(message)
    if spans is None or spans[DATA_SECTION][1] != len(message) or DELIVERY_ANNOTATIONS in spans:
        return None
    if spans[DATA_SECTION][0] > _AROUND_BYTES_MAX:
        return None
    try:
        form = Form(message, spans, settings)
    except (MessageFault, ValueError):
        return None
    check_sections(message, spans)
    return form
