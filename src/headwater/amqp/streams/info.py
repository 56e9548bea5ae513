"""The information on a log at `LOG/$info` (event streams 6): its partitions, and their offset ranges."""

from __future__ import annotations

from ...core.local import LocalLog
from ...core.reading import next_event
from ..filters import format_offset
from ..protocol.codec import encode
from ..protocol.types import Symbol, Timestamp, ULong

_VALUE = b"\x00\x53\x77"


def information(log: LocalLog) -> dict[str, object]:
    """The map of the information message; its keys are strings.

    It makes two short reads per partition with events. If there are many partitions, call it in a thread. Raises
    NotPrimary."""
    log.check_current()
    info = log.info()
    counts = info.partition_events or (info.events,)
    return {
        "partitions": [_partition(log, number, count) for number, count in enumerate(counts)],
        "log": info.name,
        "incarnation": info.incarnation,
        "partition-count": ULong(info.settings.partitions),
        "event-count": ULong(info.events),
        "first-retained-offset": format_offset(info.first_retained) if info.events else None,
        "head-offset": format_offset(info.head) if info.head else None,
        "created-at": Timestamp(info.created_at),
    }


def information_message(log: LocalLog) -> bytes:
    """The message: a single amqp-value section."""
    return _VALUE + encode(information(log))


def _partition(log: LocalLog, number: int, count: int) -> dict[str, object]:
    """An entry of `partitions`: three reserved keys, and other useful keys."""
    first = next_event(log, 0, partition=number) if count else None  # a concurrent trim may leave no events
    last = next_event(log, log.head() + 1, backwards=True, partition=number) if count else None
    return {
        "partition": Symbol(number),
        "earliest-offset": format_offset(first.sequence_number) if first else None,
        "latest-offset": format_offset(last.sequence_number) if last else None,
        "earliest-timestamp": Timestamp(first.recorded_at) if first else None,
        "latest-timestamp": Timestamp(last.recorded_at) if last else None,
        "event-count": ULong(count),
    }
