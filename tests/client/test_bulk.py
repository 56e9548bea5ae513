import pytest

from headwater.client import BulkProgress, append_all
from headwater.core import Event
from headwater.core.errors import DuplicateEventId, InvalidEvent
from headwater.storage.memory import MemoryLog


def numbered(count: int) -> list[Event]:
    return [Event("A", b"%d" % number, id=str(number)) for number in range(count)]


def ids(log: MemoryLog) -> list[str]:
    return [event.id for event in log.read()]


def test_all_events_go_in_once_and_in_order() -> None:
    log = MemoryLog()
    progress = append_all(log, numbered(25), batch_events=10)
    assert (progress.batches, progress.appended, progress.stored, progress.last) == (3, 25, 0, 25)
    assert ids(log) == [str(number) for number in range(25)]


def test_a_second_run_adds_nothing() -> None:
    log = MemoryLog()
    append_all(log, numbered(25), batch_events=10)
    progress = append_all(log, numbered(25), batch_events=10)
    assert (progress.appended, progress.stored, progress.events) == (0, 25, 25)
    assert log.head() == 25


@pytest.mark.parametrize("batch_events", [3, 7, 10, 11, 100])
def test_an_interrupted_run_is_resumed_whatever_the_batches_are_now(batch_events: int) -> None:
    log = MemoryLog()
    append_all(log, numbered(10), batch_events=4)
    log.append([Event("B", id="somebody else's")])
    progress = append_all(log, numbered(25), batch_events=batch_events)
    assert (progress.appended, progress.stored) == (15, 10)
    assert [id for id in ids(log) if id.isdigit()] == [str(number) for number in range(25)]


def test_progress_is_told_after_each_batch() -> None:
    seen: list[int] = []

    def note(progress: BulkProgress) -> None:
        seen.append(progress.events)

    append_all(MemoryLog(), numbered(25), batch_events=10, on_progress=note)
    assert seen == [10, 20, 25]


def test_large_events_make_smaller_batches() -> None:
    log = MemoryLog()
    large = [Event("A", bytes(1024 * 1024 - 100), id=str(number)) for number in range(6)]
    assert append_all(log, large).batches == 2


def test_an_id_of_another_event_is_refused_with_its_place() -> None:
    log = MemoryLog()
    log.append([Event("B", id="17")])
    with pytest.raises(DuplicateEventId, match=r"events\[17\]: id '17' is already stored as event 1"):
        append_all(log, numbered(25), batch_events=10)
    assert ids(log) == ["17", *(str(number) for number in range(17))]


def test_an_invalid_event_is_refused_with_its_place_and_nothing_after_it_goes_in() -> None:
    log = MemoryLog()
    events = numbered(100)
    events[42] = events[42]._replace(type="")
    with pytest.raises(InvalidEvent, match=r"^events\[42\]\.type: a type must have 1 to 200 characters, got 0"):
        append_all(log, events, batch_events=10)
    assert log.head() == 42


@pytest.mark.parametrize("batch_events", [1, 3, 100])
def test_an_event_that_comes_twice_is_stored_once(batch_events: int) -> None:
    log = MemoryLog()
    events = numbered(10)
    progress = append_all(log, [*events, events[3], *events, Event("A")], batch_events=batch_events)
    assert (progress.appended, progress.stored, log.head()) == (11, 11, 11)
    other = events[5]._replace(data=b"other")
    with pytest.raises(DuplicateEventId, match=r"events\[4\]: id '5' is already stored as event 6"):
        append_all(log, [Event("B", id="b"), *events[5:7], events[5], other, Event("C")], batch_events=batch_events)
    assert ids(log)[11:] == ["b"]
