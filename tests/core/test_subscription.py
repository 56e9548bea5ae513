"""Subscriptions of a local log: the cursor, waiting, and the end. The contract has what every kind must do."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from headwater.core import Query, SequencedEvent
from headwater.storage.memory import MemoryLog

from ..builders import event, fill, numbers

OTHERS = Query.where(types=["Other"])


def test_the_cursor_is_the_event_last_given_out() -> None:
    log = MemoryLog()
    fill(log, 5)
    with log.subscribe() as subscription:
        for each in subscription:
            assert subscription.cursor == each.sequence_number
            if each.sequence_number == 3:
                break
        assert subscription.cursor == 3
        assert numbers(subscription.poll()) == [4, 5]


def test_iterating_again_goes_on_where_it_was_left() -> None:
    log = MemoryLog()
    fill(log, 5)
    with log.subscribe() as subscription:
        assert next(iter(subscription)).sequence_number == 1
        assert next(iter(subscription)).sequence_number == 2
        assert numbers(subscription.poll()) == [3, 4, 5]


def test_the_cursor_moves_over_what_does_not_match_behind_the_last_event() -> None:
    log = MemoryLog()
    log.append([event("Other"), event("A"), event("A")])
    with log.subscribe(OTHERS) as subscription:
        assert numbers(subscription.poll()) == [1]
        assert numbers(subscription.poll()) == []
        assert subscription.cursor == 3


def test_a_poll_without_timeout_waits_through_commits_that_do_not_match() -> None:
    polled: list[Sequence[SequencedEvent]] = []
    waiting = StepwiseLog()
    with waiting.log.subscribe(OTHERS) as subscription:
        thread = threading.Thread(target=lambda: polled.append(subscription.poll(None)))
        thread.start()
        for _ in range(5):
            waiting.await_page()
            waiting.log.append([event("A")])
        waiting.await_page()
        waiting.log.append([event("Other")])
        thread.join(10)
    assert [numbers(events) for events in polled] == [[6]]


def test_a_poll_with_timeout_ends_empty_and_moves_the_cursor() -> None:
    log = MemoryLog()
    fill(log, 3)
    with log.subscribe(OTHERS) as subscription:
        assert numbers(subscription.poll(0.01)) == []
        assert subscription.cursor == 3


def test_what_a_closed_subscription_did_not_give_out_is_not_counted_as_seen() -> None:
    waiting = StepwiseLog()
    subscription = waiting.log.subscribe()
    polled: list[Sequence[SequencedEvent]] = []
    thread = threading.Thread(target=lambda: polled.append(subscription.poll(None)))
    thread.start()
    waiting.await_page()
    subscription.close()
    thread.join(10)
    fill(waiting.log, 2)
    assert numbers(subscription.poll()) == []
    assert (polled, subscription.cursor) == ([()], 0)


def test_closing_twice_is_allowed() -> None:
    subscription = MemoryLog().subscribe()
    subscription.close()
    subscription.close()
    assert list(subscription) == []


def test_the_end_of_the_log_is_the_end_of_an_iteration() -> None:
    log = MemoryLog()
    fill(log, 2)
    subscription = log.subscribe()
    log.close()
    assert numbers(subscription) == [1, 2]


def test_a_page_without_events_that_is_not_the_last_is_passed_over() -> None:
    """A scan that matches nothing yields such pages."""
    log = SparseLog()
    log.append([event("A")] * 50 + [event("Other")])
    with log.subscribe(OTHERS) as subscription:
        assert numbers(subscription.poll()) == [51]
        assert subscription.cursor == 51


class SparseLog(MemoryLog):
    """Looks at ten events for a page."""

    def read_page(self, query, after, *, upto=None, **selection):  # type: ignore[no-untyped-def]
        page = super().read_page(query, after, upto=after + 10, **selection)
        return page._replace(is_last=page.cursor >= self.head())


class StepwiseLog:
    """A log that tells when a page was read, so that a test can act while a subscription waits."""

    def __init__(self) -> None:
        self._read = read = threading.Semaphore(0)

        class Telling(MemoryLog):
            def read_page(self, *selection, **more):  # type: ignore[no-untyped-def]
                page = super().read_page(*selection, **more)
                read.release()
                return page

        self.log = Telling()

    def await_page(self) -> None:
        assert self._read.acquire(timeout=10)
