"""Exactly-once writers: an append with a mark goes in once, whatever is repeated, and in the order of its batches."""

from __future__ import annotations

import threading

import pytest

from headwater.core import AppendCondition, AppendResult, LocalLog, LogSettings, Mark, Query, WriterState
from headwater.core.errors import AppendConditionFailed, DuplicateEventId, InvalidInput, TooLarge
from headwater.core.limits import EventColumns, check_append
from headwater.core.mark import BATCH_MAX
from headwater.storage.append import writer_table
from headwater.storage.home.replicated_log import ReplicatedLog

from ..builders import event, numbers, unless
from .conftest import LogFactory, ManualClock
from .kinds import Bench

pytestmark = pytest.mark.on(local=True)


def columns(count: int, *ids: str) -> EventColumns:
    """So many events, or one of each id."""
    events = [event("E", id=id) for id in ids] if ids else [event("E") for _ in range(count)]
    return check_append(events, LogSettings().event_bytes_max)


def test_the_newest_batch_of_a_writer_is_known(log: LocalLog) -> None:
    assert (log.writer("w"), log.writers()) == (None, [])
    assert log.append_columns(columns(2), mark=Mark("w", 7, 2, False)) == AppendResult(1, 2)
    assert log.writer("w") == WriterState("w", 7, 2, 1, 2, 2, False)
    log.append([event("between")])
    assert log.append_columns(columns(3), mark=Mark("w", 7, 5, True)) == AppendResult(4, 6)
    assert log.writer("w") == WriterState("w", 7, 5, 1, 6, 5, True)
    log.append_columns(columns(1), mark=Mark("w", 8, 1, True))
    log.append_columns(columns(1), mark=Mark("a", 0, 1, False))
    assert log.writers() == [WriterState("a", 0, 1, 8, 8, 1, False), WriterState("w", 8, 1, 7, 7, 1, True)]


def test_a_batch_that_comes_again_is_not_appended_again(log: LocalLog) -> None:
    log.append_columns(columns(2), mark=Mark("w", 1, 2, True))
    log.append([event("other")])
    assert log.append_columns(columns(5), mark=Mark("w", 1, 5, True)) == AppendResult(1, 2, True)
    assert log.append_columns(columns(5), mark=Mark("w", 0, 5, True)) == AppendResult(0, 0, True)
    assert log.head() == 3


def test_an_incomplete_batch_goes_on_after_its_rows(log: LocalLog) -> None:
    log.append_columns(columns(2), mark=Mark("w", 1, 2, False))
    assert log.append_columns(columns(2), mark=Mark("w", 1, 2, False)) == AppendResult(1, 2, True)
    assert log.append_columns(columns(1), mark=Mark("w", 1, 1, False)) == AppendResult(1, 2, True)
    assert log.append_columns(columns(1), mark=Mark("w", 1, 3, False)) == AppendResult(3, 3)
    assert log.append_columns(EventColumns.none(), mark=Mark("w", 1, 3, True)) == AppendResult(0, 0)
    assert log.writer("w") == WriterState("w", 1, 3, 1, 3, 3, True)
    assert log.append_columns(columns(1), mark=Mark("w", 1, 9, True)) == AppendResult(1, 3, True)


def test_an_empty_batch_is_recorded(log: LocalLog) -> None:
    log.append([event("E")])
    assert log.append_columns(EventColumns.none(), mark=Mark("w", 4, 0, True)) == AppendResult(0, 0)
    assert log.writer("w") == WriterState("w", 4, 0, 0, 0, 0, True)
    assert log.append_columns(columns(1), mark=Mark("w", 4, 1, True)) == AppendResult(0, 0, True)
    assert log.append_columns(columns(1), mark=Mark("w", 5, 1, True)) == AppendResult(2, 2)
    assert log.head() == 2


def test_writers_do_not_know_of_each_other(log: LocalLog) -> None:
    log.append_columns(columns(1), mark=Mark("a", 9, 1, True))
    assert log.append_columns(columns(1), mark=Mark("b", 0, 1, True)) == AppendResult(2, 2)


def test_a_refused_append_leaves_no_mark(log: LocalLog) -> None:
    log.append([event("E", "x:1", id="taken")])
    with pytest.raises(AppendConditionFailed):
        log.append_columns(columns(1), unless(tags=["x:1"]), mark=Mark("w", 1, 1, True))
    with pytest.raises(AppendConditionFailed):
        log.append_columns(EventColumns.none(), unless(tags=["x:1"]), mark=Mark("w", 1, 0, True))
    with pytest.raises(DuplicateEventId):
        log.append_columns(columns(0, "new", "taken"), mark=Mark("w", 1, 2, True))
    assert log.writer("w") is None


def test_a_mark_goes_with_a_condition_that_is_not_looked_at_again(log: LocalLog) -> None:
    condition = AppendCondition(Query.where(types=["E"]), 0)
    assert log.append_columns(columns(1), condition, mark=Mark("w", 1, 1, True)) == AppendResult(1, 1)
    assert log.append_columns(columns(1), condition, mark=Mark("w", 1, 1, True)) == AppendResult(1, 1, True)
    with pytest.raises(AppendConditionFailed):
        log.append_columns(columns(1), condition, mark=Mark("w", 2, 1, True))


def test_events_that_are_stored_already_are_recognised_without_their_mark(log: LocalLog) -> None:
    log.append_columns(columns(0, "a", "b"))
    assert log.append_columns(columns(0, "a", "b"), mark=Mark("w", 1, 2, True)) == AppendResult(1, 2, True)
    assert log.writer("w") is None


@pytest.mark.parametrize(
    ("mark", "where"),
    [
        (Mark("", 1, 1, True), "mark.writer"),
        (Mark("w" * 257, 1, 1, True), "mark.writer"),
        (Mark("a\nb", 1, 1, True), "mark.writer"),
        (Mark("w", -1, 1, True), "mark.batch"),
        (Mark("w", 2**63, 1, True), "mark.batch"),
        (Mark("w", 1, -1, True), "mark.rows"),
        (Mark("w", 1, True, True), "mark.rows"),
        (Mark("w", 1, 1, 1), "mark.is_last"),  # type: ignore[arg-type]
    ],
)
def test_a_malformed_mark_is_refused(log: LocalLog, mark: Mark, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        log.append_columns(columns(1), mark=mark)
    assert caught.value.where == where
    assert log.head() == 0


def test_an_append_without_events_needs_a_mark_that_ends_its_batch(log: LocalLog) -> None:
    with pytest.raises(InvalidInput, match="at least one event"):
        log.append_columns(EventColumns.none())
    with pytest.raises(InvalidInput, match="ends its batch"):
        log.append_columns(EventColumns.none(), mark=Mark("w", 1, 0, False))


def test_one_batch_sent_at_the_same_time_from_many_goes_in_once(log: LocalLog) -> None:
    results: list[AppendResult] = []

    def send(count: int) -> None:
        results.append(log.append_columns(columns(count), mark=Mark("w", 1, 3, True)))
        log.append_columns(columns(1), mark=Mark(f"own {count}", 1, 1, True))

    threads = [threading.Thread(target=send, args=(count,)) for count in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (applied,) = [each for each in results if not each.was_stored]
    state = log.writer("w")
    assert state is not None
    assert {(each.first, each.last) for each in results} == {(applied.first, applied.last)}
    assert (applied.first, applied.last) == (state.first, state.last)
    assert log.head() == state.events + 8
    assert len(log.writers()) == 9


def test_the_number_of_writers_is_bounded(log: LocalLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_table, "WRITERS_MAX", 3)
    for name in ("a", "b", "c"):
        log.append_columns(columns(1), mark=Mark(name, 1, 1, name != "a"))
        clock.now += 1
    with pytest.raises(TooLarge) as caught:
        log.append_columns(columns(1), mark=Mark("d", 1, 1, True))
    assert (caught.value.given, caught.value.allowed, caught.value.unit) == (4, 3, "writers")
    clock.now += writer_table.WRITER_IDLE_MS
    log.append_columns(columns(1), mark=Mark("d", 1, 1, True))
    assert [state.writer for state in log.writers()] == ["a", "c", "d"], "b was idle longest, and a is not complete"
    assert log.append_columns(columns(1), mark=Mark("a", 1, 1, False)).was_stored


def test_a_writer_that_never_finishes_a_batch_is_forgotten_in_the_end(
    log: LocalLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_table, "WRITERS_MAX", 2)
    for name in ("a", "b"):
        log.append_columns(columns(1), mark=Mark(name, 1, 1, is_last=False))
        clock.now += 1
    clock.now += writer_table.UNFINISHED_MS - 3
    with pytest.raises(TooLarge):
        log.append_columns(columns(1), mark=Mark("c", 1, 1, is_last=True))
    clock.now += 1
    log.append_columns(columns(1), mark=Mark("c", 1, 1, is_last=True))
    assert [state.writer for state in log.writers()] == ["b", "c"]


def test_writers_that_have_ended_do_not_count_and_go_after_an_hour(
    log: LocalLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_table, "WRITERS_MAX", 2)
    for name in ("nightly", "daily"):
        log.append_columns(columns(1), mark=Mark(name, 1, 1, True))
    for number in range(5):
        once = Mark(f"once {number}", BATCH_MAX, 1, True)
        log.append_columns(columns(1), mark=once)
        assert log.append_columns(columns(1), mark=once).was_stored
    with pytest.raises(TooLarge):
        log.append_columns(columns(1), mark=Mark("another", 1, 1, True))
    clock.now += writer_table.ENDED_MS - 1
    assert log.append_columns(columns(1), mark=Mark("once 0", BATCH_MAX, 1, True)).was_stored
    log.append_columns(columns(1), mark=Mark("late", BATCH_MAX, 1, True))
    assert len(log.writers()) == 8
    clock.now += 1
    log.append_columns(columns(1), mark=Mark("last", BATCH_MAX, 1, True))
    assert [state.writer for state in log.writers()] == ["daily", "last", "late", "nightly"]


def test_of_too_many_that_have_ended_the_oldest_go_sooner(
    log: LocalLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_table, "ENDED_BYTES_MAX", 3 * writer_table.entry_bytes("once 0"))
    for number in range(5):
        log.append_columns(columns(1), mark=Mark(f"once {number}", BATCH_MAX, 1, True))
        clock.now += 1
    log.append_columns(columns(1), mark=Mark("nightly", 1, 1, True))
    assert [state.writer for state in log.writers()] == ["nightly", "once 2", "once 3", "once 4"]


def test_a_writer_that_has_ended_is_forgotten_at_once_where_that_is_asked_for(log: LocalLog) -> None:
    log.append_columns(columns(1), mark=Mark("once", 3, 1, True))
    log.append_columns(columns(1), mark=Mark("once", BATCH_MAX, 1, True))
    log.append_columns(columns(1), mark=Mark("another", BATCH_MAX, 1, True))
    log.forget_writer("once")
    assert log.writer("once") is None and [state.writer for state in log.writers()] == ["another"]
    log.forget_writer("once")
    log.forget_writer("nothing")
    assert log.append_columns(columns(1), mark=Mark("once", BATCH_MAX, 1, True)) == AppendResult(4, 4), "as a new one"
    assert log.append_columns(columns(1), mark=Mark("another", BATCH_MAX, 1, True)).was_stored


@pytest.mark.parametrize("mark", [Mark("w", 1, 1, True), Mark("w", BATCH_MAX, 1, False)])
def test_a_writer_that_has_not_ended_is_not_forgotten(log: LocalLog, mark: Mark) -> None:
    log.append_columns(columns(1), mark=mark)
    with pytest.raises(InvalidInput, match=f"'w' is unfinished.*batch {mark.batch}.*9223372036854775807") as caught:
        log.forget_writer("w")
    assert caught.value.where == "writer"
    assert log.append_columns(columns(1), mark=mark).was_stored


def test_a_batch_of_several_appends_counts_until_it_is_complete(log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_table, "WRITERS_MAX", 1)
    log.append_columns(columns(1), mark=Mark("large", BATCH_MAX, 1, False))
    with pytest.raises(TooLarge):
        log.append_columns(columns(1), mark=Mark("nightly", 1, 1, True))
    log.append_columns(columns(1), mark=Mark("large", BATCH_MAX, 2, True))
    log.append_columns(columns(1), mark=Mark("nightly", 1, 1, True))
    assert [state.writer for state in log.writers()] == ["large", "nightly"]


def test_ids_are_found_where_they_are_stored(log_factory: LogFactory) -> None:
    log = log_factory(id_horizon=5)
    assert isinstance(log, LocalLog)
    log.append([event(id="a"), event(id="a", source="shop"), *[event(id=str(n)) for n in range(4)]])
    assert log.stored(["", "shop", "", "x"], ["a", "a", "3", "3"]) == [None, 2, 6, None], "a is behind the horizon"
    log.trim(4)
    assert log.stored(["shop", "", ""], ["a", "1", "0"]) == [None, 4, None]
    assert log.stored([], []) == []


def test_only_new_events_are_appended_where_that_is_asked_for(log: LocalLog) -> None:
    log.append([event(id="a"), event(id="c")])
    result, skipped = log.append_new(columns(0, "a", "b", "b", "c", "d"))
    assert (result, skipped) == (AppendResult(3, 4), 3)
    assert [each.id for each in log.read()] == ["a", "c", "b", "d"]
    assert log.append_new(columns(0, "a", "b")) == (None, 2)


def test_new_events_are_told_from_those_of_another_append_at_the_same_time(log: LocalLog) -> None:
    def send(start: int) -> None:
        for low in range(start, 200, 5):
            log.append_new(columns(0, *map(str, range(low, low + 20))))

    threads = [threading.Thread(target=send, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [each.id for each in log.read()]
    assert len(ids) == len(set(ids)) == log.head()
    assert set(ids) == set(map(str, range(max(map(int, ids)) + 1)))


@pytest.mark.on(durable=True)
class TestReopened:
    """What a durable log knows of writers when it is opened again."""

    def test_writers_are_known_again(self, bench: Bench) -> None:
        log = bench.create("orders")
        assert isinstance(log, LocalLog)
        log.append_columns(columns(2), mark=Mark("w", 7, 2, False))
        log.append_columns(EventColumns.none(), mark=Mark("empty", 3, 0, True))
        log.append([event()])
        before = log.writers()
        for _ in range(2):
            bench.reopen()
            log = bench.log("orders")
            assert isinstance(log, LocalLog)
            assert log.writers() == before
        assert log.append_columns(columns(2), mark=Mark("w", 7, 2, True)).was_stored
        assert log.append_columns(columns(2), mark=Mark("w", 7, 4, True)) == AppendResult(4, 5)
        assert log.writer("w") == WriterState("w", 7, 4, 1, 5, 4, True)
        assert numbers(log.read()) == [1, 2, 3, 4, 5]

    def test_a_writer_that_was_forgotten_is_not_known_again(self, bench: Bench) -> None:
        log = bench.create("orders")
        assert isinstance(log, LocalLog)
        log.append_columns(columns(1), mark=Mark("w", 1, 1, True))
        log.append_columns(columns(1), mark=Mark("once", 1, 1, True))
        log.append_columns(columns(1), mark=Mark("once", BATCH_MAX, 1, True))
        log.forget_writer("once")
        for _ in range(2):
            bench.reopen()
            log = bench.log("orders")
            assert isinstance(log, LocalLog)
            known = log.writers()
            if isinstance(getattr(log, "frames", None), ReplicatedLog):  # its table is made from the home's frames
                assert all(state.is_ended for state in known if state.writer == "once")
            else:
                assert [state.writer for state in known] == ["w"]
