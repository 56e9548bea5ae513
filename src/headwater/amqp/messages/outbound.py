"""Converts a stored event to the delivered message: its own sections, with our delivery annotations inserted.

Every message carries event-streams-offset, -timestamp and -source-partition (event streams 4.4, 5.1). Constant parts
are prepared once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...core.event import SequencedEvent
from ...core.message.sections import HEADER_START, header_stop
from ..filters.fields import OFFSET, TIMESTAMP
from .cloudevent_binding import envelope_of
from .headers import HEADER_BYTES_MAX, redelivered

SOURCE_PARTITION = "event-streams-source-partition"
ASSOCIATED_PARTITIONS = "event-streams-associated-partitions-changed"
"""The name of the heading of 4.6.5 (and of 4.5.1); the sentence below that heading calls it "assigned"."""

FIRST_RETAINED = "x-opt-headwater-first-retained-offset"
"""The offset below which requested events are gone; on the consumer's first message."""


class Outbound:
    """Renders the events of one log for its consumers."""

    def __init__(self, partitions: int, default_source: str) -> None:
        """`default_source` is the CloudEvents source of events without one."""
        self._default_source = default_source
        self._suffixes = [_symbol(SOURCE_PARTITION) + _symbol(str(number)) for number in range(partitions)]
        self._prefixes: list[tuple[int, bytes]] = [(-1, b"")] * partitions
        """By partition: a time, and the bytes that precede an offset's digits at that time (many events have the same
        time).
        """

    def message(
        self,
        event: SequencedEvent,
        failures: int = 0,
        associated_partitions: Sequence[int] | None = None,
        first_retained: int | None = None,
    ) -> bytes:
        """The message of an event; `failures` is how often its delivery has failed before.

        `associated_partitions` are sent to the consumer if they have changed (4.6.5), `first_retained` if the consumer
        asked for events below it, which are gone.
        """
        annotations = b"%b%020d" % (self._prefix(event.partition, event.recorded_at), event.sequence_number)
        if associated_partitions is not None or first_retained is not None:
            annotations = _more(annotations, associated_partitions, first_retained)
        stored = event.envelope + event.data
        if not event.envelope and not event.encoding:
            stored = envelope_of(event, self._default_source) + event.data
        stop = header_stop(stored)
        header, stored = stored[:stop], stored[stop:]
        if failures:
            header = redelivered(header, failures)
        return b"".join((header, annotations, stored))

    def messages(self, events: Iterable[SequencedEvent]) -> list[bytes]:
        """The messages of events, each like `message` without further arguments, and several times faster."""
        messages, prefixes, default_source = [], self._prefixes, self._default_source
        for event in events:
            number, recorded_at, partition, _, data, _, _, _, _, _, envelope, encoding = event
            time, prefix = prefixes[partition]
            if time != recorded_at:
                prefix = self._prefix(partition, recorded_at)
            if not envelope and not encoding:
                envelope = envelope_of(event, default_source)
            if (envelope or data).startswith(HEADER_START):  # the annotations follow it
                messages.append(self.message(event))
            else:
                messages.append(b"%b%020d%b%b" % (prefix, number, envelope, data))
        return messages

    def large(
        self,
        event: SequencedEvent,
        data: memoryview,
        failures: int = 0,
        associated_partitions: Sequence[int] | None = None,
        first_retained: int | None = None,
    ) -> tuple[bytes, memoryview]:
        """The message of an event without its data, in two parts. The second is a part of the data, which is not
        copied.
        """
        envelope = event.envelope
        if event.encoding:  # the data is a whole message, which may begin with a header
            stop = header_stop(bytes(data[:HEADER_BYTES_MAX]))
            envelope, data = bytes(data[:stop]), data[stop:]
        elif not envelope:
            envelope = envelope_of(event, self._default_source, len(data))
        event = event._replace(envelope=envelope, data=b"")
        return self.message(event, failures, associated_partitions, first_retained), data

    def _prefix(self, partition: int, recorded_at: int) -> bytes:
        entries = b"".join((
            self._suffixes[partition],
            _symbol(TIMESTAMP), b"\x83", recorded_at.to_bytes(8, signed=True),
            _symbol(OFFSET), b"\xa3\x14",
        ))  # fmt: skip
        prefix = b"\x00\x53\x71\xc1%c\x06%b" % (len(entries) + 21, entries)
        self._prefixes[partition] = recorded_at, prefix
        return prefix


def _more(annotations: bytes, associated_partitions: Sequence[int] | None, first_retained: int | None) -> bytes:
    """The usual three annotations, followed by these."""
    entries, count = annotations[6:], 6
    if associated_partitions is not None:
        entries += _symbol(ASSOCIATED_PARTITIONS) + _symbols(associated_partitions)
        count += 2
    if first_retained is not None:
        entries += _symbol(FIRST_RETAINED) + _symbol(f"{first_retained:020d}")
        count += 2
    return b"\x00\x53\x71\xd1%b%b%b" % ((len(entries) + 4).to_bytes(4), count.to_bytes(4), entries)


def _symbol(text: str) -> bytes:
    return b"\xa3%c%b" % (len(text), text.encode())


def _symbols(partitions: Sequence[int]) -> bytes:
    """An array of symbols (AMQP part 1, 1.6.24)."""
    elements = b"".join([b"%c%b" % (len(text), text) for text in [b"%d" % number for number in partitions]])
    return b"\xf0%b%b\xa3%b" % ((len(elements) + 5).to_bytes(4), len(partitions).to_bytes(4), elements)
