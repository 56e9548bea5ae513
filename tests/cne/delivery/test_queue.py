"""Events that wait in memory for endpoints: bytes for all together, and one event for each at least."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.cne.delivery.queue import EventQueue, QueuedBytes
from headwater.cne.notifications.notification import Notification
from headwater.cne.notifications.stored import Stored, bytes_of
from headwater.core.event import NO_ATTRIBUTES, Encoding, SequencedEvent

KIB = 1024
SAID = Notification(id="i", type="t", source="/s", time="2026-01-01T00:00:00Z", version="1.0", values=())


def events(size: int) -> Iterator[Stored]:
    number = 0
    while True:
        number += 1
        event = SequencedEvent(
            number, 1, 0, "t", bytes(size), (), f"i{number}", "/s", NO_ATTRIBUTES, "", b"", Encoding.DATA
        )
        yield Stored(event, SAID, ())


def test_ten_thousand_endpoints_that_are_behind_hold_the_budget_and_one_event_each() -> None:
    queued = QueuedBytes(1024 * KIB)
    queues = [EventQueue(queued, 1000) for _ in range(10_000)]
    source = events(KIB)
    each = bytes_of(bytes(KIB))
    held = 0
    for queue in queues:  # each reads the log at another place, so no event is in two of them
        for _ in range(1000):
            if not queue.append(next(source)):
                break
            held += 1
    assert all(queues)
    assert held == queued.bytes // each
    assert queued.bytes <= queued.bytes_max + len(queues) * each
    for queue in queues:
        queue.clear()
    assert queued.bytes == 0


def test_an_event_that_waits_for_many_endpoints_counts_once() -> None:
    queued = QueuedBytes()
    queues = [EventQueue(queued, 1000) for _ in range(1000)]
    event = next(events(64 * KIB))
    assert all(queue.append(event) for queue in queues)
    assert queued.bytes == event.bytes
    for queue in queues[1:]:
        assert queue.popleft() is event
    assert queued.bytes == event.bytes
    queues[0].clear()
    assert queued.bytes == 0


def test_a_queue_that_is_full_takes_no_more_and_says_where_it_ends() -> None:
    queue, source = EventQueue(QueuedBytes(), 3), events(10)
    assert [queue.append(next(source)) for _ in range(4)] == [True, True, True, False]
    assert queue.last == 3 and len(queue) == 3
