"""Races: many writers, one boundary, one winner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from headwater.core import AppendCondition, AppendResult, EventLog, Query, QueryItem
from headwater.core.errors import AppendConditionFailed, DuplicateEventId

from ..builders import event, numbers, unless

WRITERS = 8


def race(contestants: list[Callable[[], AppendResult]]) -> list[AppendResult | AppendConditionFailed]:
    """Let them all go at once; what each got."""
    barrier = threading.Barrier(len(contestants))

    def run(contestant: Callable[[], AppendResult]) -> AppendResult | AppendConditionFailed:
        barrier.wait(30)
        try:
            return contestant()
        except AppendConditionFailed as failed:
            return failed

    with ThreadPoolExecutor(len(contestants)) as pool:
        return list(pool.map(run, contestants))


def winners(outcomes: list[AppendResult | AppendConditionFailed]) -> list[AppendResult]:
    return [outcome for outcome in outcomes if isinstance(outcome, AppendResult)]


def test_of_many_writers_at_one_boundary_one_wins(log: EventLog) -> None:
    """And the others are told which event stood in their way."""
    for round in range(25):
        seat = f"seat:{round}"
        pair = [event("Reserved", seat), event("Confirmed", seat)]
        outcomes = race([partial(log.append, pair, unless(tags=[seat]))] * WRITERS)
        (won,) = winners(outcomes)
        conflicts = {outcome.conflict for outcome in outcomes if isinstance(outcome, AppendConditionFailed)}
        assert conflicts == {won.first}
        assert numbers(log.read(Query.where(tags=[seat]))) == [won.first, won.last]


def test_conditions_on_types_and_on_tags_exclude_each_other(log: EventLog) -> None:
    """Each contestant's event is what some other's condition forbids, whichever index answers it."""
    for round in range(25):
        type, tag = f"Opened{round}", f"gate:{round}"
        mine = [event(type, tag)]
        conditions = [
            unless(types=[type]),
            unless(tags=[tag]),
            unless(types=[type, "Other"], tags=[tag]),
            AppendCondition(Query.of(QueryItem(("Nothing",)), QueryItem((), (tag,)))),
            AppendCondition(Query.all(), log.head()),
        ]
        outcomes = race([partial(log.append, mine, each) for each in conditions])
        assert len(winners(outcomes)) == 1


def test_independent_boundaries_do_not_disturb_each_other(log: EventLog) -> None:
    for round in range(10):
        tags = [f"seat:{round}-{writer}" for writer in range(WRITERS)]
        outcomes = race([partial(log.append, [event("A", tag)], unless(tags=[tag])) for tag in tags])
        assert len(winners(outcomes)) == WRITERS


def test_overlapping_boundaries_leave_no_two_neighbours(log: EventLog) -> None:
    """A writer takes two of the seats around a table; whoever won, no seat is taken twice."""
    for round in range(20):
        seats = [f"seat:{round}-{place}" for place in range(WRITERS)]
        pairs = [(seats[place], seats[(place + 1) % WRITERS]) for place in range(WRITERS)]
        outcomes = race(
            [
                partial(
                    log.append,
                    [event("Took", one, two)],
                    AppendCondition(Query.of(QueryItem((), (one,)), QueryItem((), (two,)))),
                )
                for one, two in pairs
            ]
        )
        assert 1 <= len(winners(outcomes)) <= WRITERS // 2
        for seat in seats:
            assert len(numbers(log.read(Query.where(tags=[seat])))) <= 1


def test_a_counter_that_is_read_and_written_loses_no_update(log: EventLog) -> None:
    """Read, decide, append under the condition that nothing has changed; try again where it has."""
    query, increments = Query.where(tags=["counter:1"]), 40

    def increment() -> None:
        for _ in range(increments):
            while True:
                reading = log.read(query, backwards=True, limit=1)
                last = next(reading, None)
                value = int(last.data) if last else 0
                after = last.sequence_number if last else 0
                try:
                    log.append([event("Counted", "counter:1", data=b"%d" % (value + 1))], AppendCondition(query, after))
                    break
                except AppendConditionFailed as failed:
                    assert failed.conflict is not None and failed.conflict > after

    threads = [threading.Thread(target=increment) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int(each.data) for each in log.read(query)] == list(range(1, 4 * increments + 1))


def test_a_loser_that_reads_sees_the_winner(log: EventLog) -> None:
    """A conflict is told only once the event that it names can be read."""
    for round in range(25):
        tag = f"seat:{round}"

        def claim(tag: str = tag) -> AppendResult:
            try:
                return log.append([event("A", tag)], unless(tags=[tag]))
            except AppendConditionFailed as failed:
                assert failed.conflict in numbers(log.read(Query.where(tags=[tag])))
                assert log.head() >= (failed.conflict or 0)
                raise

        assert len(winners(race([claim] * WRITERS))) == 1


def test_the_same_append_sent_many_times_at_once_is_stored_once(log: EventLog) -> None:
    for round in range(20):
        events = [event("A", f"round:{round}", id=f"{round}-{place}") for place in range(3)]
        condition = unless(tags=[f"round:{round}"])
        outcomes = winners(race([partial(log.append, events, condition)] * WRITERS))
        assert len(outcomes) == WRITERS
        assert len({(outcome.first, outcome.last) for outcome in outcomes}) == 1
        assert [outcome.was_stored for outcome in outcomes].count(False) == 1
    assert log.head() == 60


def test_of_many_appends_of_one_id_with_different_content_one_is_stored(log: EventLog) -> None:
    stored = []
    for round in range(20):

        def append(writer: int, round: int = round) -> AppendResult | DuplicateEventId:
            try:
                return log.append([event(f"W{writer}", id=str(round))])
            except DuplicateEventId as duplicate:
                return duplicate

        with ThreadPoolExecutor(WRITERS) as pool:
            outcomes = list(pool.map(append, range(WRITERS)))
        (won,) = [outcome for outcome in outcomes if isinstance(outcome, AppendResult)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, DuplicateEventId)]
        assert {each.sequence_number for each in lost} == {won.first}
        stored.append(won.first)
    assert stored == list(range(1, 21))


def test_a_reader_sees_a_growing_prefix_of_whole_appends(log: EventLog) -> None:
    """In order, without a gap, never half an append, and never less than before."""
    writing = threading.Event()
    writing.set()

    def write(writer: int) -> None:
        for call in range(30):
            log.append([event("A", f"call:{writer}-{call}", data=b"%d" % place) for place in range(3)])

    def write_all() -> None:
        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writing.clear()

    writers = threading.Thread(target=write_all)
    writers.start()
    before: list[tuple[int, str]] = []
    is_last_round = False
    while not is_last_round:
        is_last_round = not writing.is_set()
        reading = log.read()
        seen = [(each.sequence_number, each.id) for each in reading]
        assert [number for number, _ in seen] == list(range(1, reading.head + 1))
        assert reading.head % 3 == 0
        assert seen[: len(before)] == before
        backwards = log.read(backwards=True)
        assert numbers(backwards) == list(range(backwards.head, 0, -1))
        before = seen
    writers.join()
    assert len(before) == 360
    events = list(log.read())
    for start in range(0, 360, 3):
        assert len({each.tags for each in events[start : start + 3]}) == 1
        assert [each.data for each in events[start : start + 3]] == [b"0", b"1", b"2"]


def test_conditions_follow_their_own_writers_appends(log: EventLog) -> None:
    """Each writer's condition names its own last event, while the others append all the time."""

    def write(writer: int) -> list[int]:
        tag, after, mine = f"writer:{writer}", 0, []
        for _ in range(25):
            after = log.append([event("A", tag), event("B", tag)], unless(tags=[tag], after=after)).last
            mine.append(after)
        return mine

    with ThreadPoolExecutor(WRITERS) as pool:
        ends = list(pool.map(write, range(WRITERS)))
    assert len({number for mine in ends for number in mine}) == 25 * WRITERS
    assert log.head() == 50 * WRITERS
