"""Subscriptions: catch up, then follow; nothing skipped, nothing repeated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from headwater.core import ALL, EventLog, Query, QueryItem, SequencedEvent, Subscription
from headwater.core.errors import InvalidPosition
from headwater.core.limits import SEQUENCE_NUMBER_MAX

from ..builders import event, fill, numbers, refusal
from .conftest import LogFactory

PATIENCE_S = 20
"""How long a test waits for what must come; only a failing test waits that long."""


def take(subscription: Subscription, count: int) -> list[SequencedEvent]:
    """The next so many events."""
    taken: list[SequencedEvent] = []
    while len(taken) < count:
        events = subscription.poll(PATIENCE_S)
        assert events, f"only {len(taken)} of {count} events came"
        taken += events
    return taken


@contextmanager
def in_background(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run it in a thread, which must have ended at the end of the block."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_it_catches_up_and_follows(log: EventLog) -> None:
    fill(log, 3)
    with log.subscribe() as subscription:
        assert numbers(take(subscription, 3)) == [1, 2, 3]
        fill(log, 2)
        assert numbers(take(subscription, 2)) == [4, 5]


@pytest.mark.parametrize(("after", "expected"), [(None, [1, 2, 3, 4]), (0, [1, 2, 3, 4]), (2, [3, 4]), (3, [4])])
def test_it_begins_after_the_number_given(log: EventLog, after: int | None, expected: list[int]) -> None:
    fill(log, 3)
    with log.subscribe(after=after) as subscription:
        log.append([event()])
        assert numbers(take(subscription, len(expected))) == expected


def test_it_begins_with_what_is_retained(log: EventLog) -> None:
    fill(log, 5)
    log.trim(4)
    with log.subscribe() as subscription:
        assert numbers(take(subscription, 2)) == [4, 5]


def test_events_come_as_a_read_gives_them(log: EventLog) -> None:
    log.append([event("A", "x:1", data=b"\x00\xff", id="i", source="s", attributes={"subject": "t"}, group_key="g")])
    with log.subscribe() as subscription:
        assert take(subscription, 1) == list(log.read())


def test_it_gives_only_what_matches_and_the_cursor_moves_over_the_rest(log: EventLog) -> None:
    query = Query.of(QueryItem(("Wanted",)), QueryItem((), ("wanted",)))
    with log.subscribe(query) as subscription:
        log.append([event("A"), event("Wanted"), event("A"), event("A", "wanted:1"), event("A")])
        assert numbers(take(subscription, 2)) == [2, 4]
        fill(log, 20)
        await_cursor(subscription, 25)
        log.append([event("Wanted")])
        assert numbers(take(subscription, 1)) == [26]


def test_the_cursor_moves_though_nothing_ever_matched(log: EventLog) -> None:
    fill(log, 10)
    with log.subscribe(Query.where(types=["Wanted"])) as subscription:
        await_cursor(subscription, 10)


def await_cursor(subscription: Subscription, expected: int) -> None:
    """Poll until the cursor is there; nothing may match on the way."""
    for _ in range(PATIENCE_S * 20):
        assert list(subscription.poll(0.05)) == []
        if subscription.cursor == expected:
            return
    raise AssertionError(f"the cursor stayed at {subscription.cursor}")


def test_a_new_subscription_resumes_at_the_cursor_of_an_interrupted_one(log: EventLog) -> None:
    fill(log, 6)
    with log.subscribe() as subscription:
        for each in subscription:
            if each.sequence_number == 2:
                break
        cursor = subscription.cursor
    with log.subscribe(after=cursor) as subscription:
        assert numbers(take(subscription, 4)) == [3, 4, 5, 6]


def test_an_iteration_that_is_left_goes_on_where_it_was_left(log: EventLog) -> None:
    found: list[int] = []
    cursors: list[int] = []

    def follow_upto(last: int) -> None:
        for each in subscription:
            found.append(each.sequence_number)
            if each.sequence_number == last:
                break
        cursors.append(subscription.cursor)

    def follow_and_fail() -> None:
        with suppress(ZeroDivisionError):
            for each in subscription:
                found.append(each.sequence_number // 0)
        cursors.append(subscription.cursor)

    with log.subscribe() as subscription:
        assert list(subscription.poll(0.05)) == []  # it follows from here on
        fill(log, 6)
        for last in (2, 3):
            with in_background(partial(follow_upto, last)):
                pass
        with in_background(follow_and_fail):
            pass
        assert numbers(take(subscription, 2)) == [5, 6]
    assert (found, cursors) == ([1, 2, 3], [2, 3, 4])


def test_one_partition_is_followed(log_factory: LogFactory) -> None:
    log = log_factory(partitions=2)
    with log.subscribe(partition=1) as subscription:
        for number in range(6):
            log.append([event()], partition=number % 2)
        assert numbers(take(subscription, 3)) == [2, 4, 6]


def test_a_poll_without_anything_is_empty(log: EventLog) -> None:
    with log.subscribe() as subscription:
        assert list(subscription.poll(0.01)) == []
        assert subscription.cursor == 0


def test_many_pages_are_caught_up_with(log: EventLog) -> None:
    log.append([event("A")] * 3500)
    with log.subscribe() as subscription:
        assert numbers(take(subscription, 3500)) == list(range(1, 3501))


def test_an_iteration_waits_for_events(log: EventLog) -> None:
    found: list[int] = []
    subscription = log.subscribe()

    def follow() -> None:
        for each in subscription:
            found.append(each.sequence_number)
            if each.sequence_number == 30:
                return

    with in_background(follow):
        fill(log, 30)
    subscription.close()
    assert found == list(range(1, 31))


@pytest.mark.parametrize("behind", [0, 3])
def test_closing_it_from_another_thread_ends_the_iteration(log: EventLog, behind: int) -> None:
    fill(log, behind)
    subscription, found = log.subscribe(), list[int]()
    reached = threading.Event()
    if not behind:
        reached.set()

    def follow() -> None:
        for each in subscription:
            found.append(each.sequence_number)
            if each.sequence_number == behind:
                reached.set()

    with in_background(follow):
        assert reached.wait(PATIENCE_S)
        subscription.close()
    assert found == list(range(1, behind + 1))
    assert subscription.is_closed


def test_a_closed_subscription_gives_nothing_more(log: EventLog) -> None:
    subscription = log.subscribe()
    subscription.close()
    fill(log, 2)
    assert (list(subscription), list(subscription.poll(0.01))) == ([], [])


@pytest.mark.parametrize("query", [ALL, Query.where(tags=["writer:2"])], ids=["all", "one writer"])
def test_under_concurrent_appends_nothing_is_skipped_or_repeated(log: EventLog, query: Query) -> None:
    writers, calls = 4, 25

    def write(writer: int) -> None:
        for call in range(calls):
            log.append([event("A", f"writer:{writer}")] * (1 + call % 3))

    total = writers * sum(1 + call % 3 for call in range(calls))
    wanted = total if query is ALL else total // writers
    found: list[list[int]] = [[], []]

    def follow(place: int) -> None:
        with log.subscribe(query) as subscription:
            found[place] = numbers(take(subscription, wanted))

    with in_background(lambda: follow(0)):
        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
        for thread in threads:
            thread.start()
        with in_background(lambda: follow(1)):
            for thread in threads:
                thread.join()
    expected = numbers(log.read(query))
    assert len(expected) == wanted
    assert found == [expected, expected]


def test_positions_are_checked_at_once(log: EventLog) -> None:
    for after in (-1, SEQUENCE_NUMBER_MAX + 1):
        problem = f"expected 0 to {SEQUENCE_NUMBER_MAX}, got {after}"
        with refusal(InvalidPosition(problem, "after")):
            log.subscribe(after=after)
