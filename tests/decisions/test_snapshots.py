"""Snapshots: whatever is in their store, decisions are as without them; and where they fit, little is read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import SequencedEvent
from headwater.decisions import (
    Decision,
    DirectorySnapshots,
    InvalidDefinition,
    MemorySnapshots,
    Projection,
    SnapshotStore,
    decide,
    event,
    project,
    write,
)
from headwater.decisions.testing import assert_serializable, memory_log
from headwater.storage.memory import MemoryLog, MemoryStore

from .conftest import Asked
from .courses import CourseDefined, SeatLeft, SeatTaken, courses_of, seats_left


def students(store: SnapshotStore, every: int = 1, version: str = "1", course: str = "go") -> Projection[list[str]]:
    """Who has a seat, in order: a state that shows whether an event was left out, or counted twice."""
    return (
        Projection.made_by(list[str], tags={"course": course})
        .on(SeatTaken, lambda seen, taken: [*seen, taken.student])
        .on(SeatLeft, lambda seen, left: [each for each in seen if each != left.student])
        .with_snapshots(store, list[str], version=version, every=every)
    )


def enter(log: MemoryLog, *names: str, course: str = "go") -> None:
    log.append([write(SeatTaken(course, name)) for name in names])


def read_for(log: MemoryLog, projection: Projection[Any]) -> tuple[Any, int]:
    """The state, and how many events were read for it."""
    before = log.statistics.events_read
    return project(log, projection), log.statistics.events_read - before


def test_only_what_came_since_is_read_and_the_last_event_of_the_snapshot_which_proves_it() -> None:
    log, store = memory_log(), MemorySnapshots()
    enter(log, "a", "b", "c")
    assert read_for(log, students(store)) == (["a", "b", "c"], 3)
    assert read_for(log, students(store)) == (["a", "b", "c"], 1)
    enter(log, "d")
    assert read_for(log, students(store)) == (["a", "b", "c", "d"], 2)
    assert read_for(log, students(store)) == (["a", "b", "c", "d"], 1)


def test_a_snapshot_is_made_after_so_many_events() -> None:
    log, store = memory_log(), MemorySnapshots()
    enter(log, "a", "b")
    assert read_for(log, students(store, every=3))[1] == 2
    assert store.kept == {}
    enter(log, "c")
    assert [read_for(log, students(store, every=3))[1] for _ in range(2)] == [3, 1]


def test_decisions_of_every_kind_of_log_go_on_from_snapshots(asked: Asked) -> None:
    store = MemorySnapshots()

    def join(name: str) -> Decision[SeatTaken]:
        return Decision(
            seats_left("go"), students(store), lambda left, names: SeatTaken("go", f"{name}{len(names)}:{left}")
        )

    asked.log.append([write(CourseDefined("go", 9))])
    assert [asked.decide(join("x")).event.student for _ in range(3)] == ["x0:9", "x1:8", "x2:7"]
    assert asked.decide(join("y"), key="k").event == asked.decide(join("y"), key="k").event
    assert asked.project(students(store)) == ["x0:9", "x1:8", "x2:7", "y3:6"]
    assert len(store.kept) == 1


def test_other_code_another_query_and_another_log_have_other_snapshots() -> None:
    store = MemoryStore()
    one, other, snapshots = store.create("one"), store.create("other"), MemorySnapshots()
    for log in (one, other):
        enter(log, "a")
        enter(log, "b", course="chess")
    for log in (one, other):
        for version in "12":
            for course in ("go", "chess"):
                project(log, students(snapshots, version=version, course=course))
    assert len(snapshots.kept) == 8


def test_another_version_of_a_class_has_another_snapshot() -> None:
    log, snapshots = memory_log(), MemorySnapshots()
    enter(log, "a")

    def seen(version: int) -> Projection[int]:
        @event(type="SeatTaken", version=version)
        class Taken:
            course: str
            student: str

        return Projection(0).on(Taken, lambda n, _: n + 1).with_snapshots(snapshots, int, version="1", every=1)

    assert [project(log, seen(version)) for version in (1, 2, 1)] == [1, 1, 1]
    assert len(snapshots.kept) == 2


def test_a_snapshot_of_another_log_of_that_name_is_not_believed() -> None:
    store = MemorySnapshots()
    for names in (["a", "b"], ["x", "y", "z"], ["p"], []):
        log = memory_log()
        if names:
            enter(log, *names)
        assert project(log, students(store)) == names


def test_a_log_that_was_made_anew_has_no_old_states() -> None:
    logs, snapshots = MemoryStore(), MemorySnapshots()
    enter(logs.create("courses"), "a", "b")
    assert project(logs.open("courses"), students(snapshots)) == ["a", "b"]
    logs.delete("courses")
    new = logs.create("courses")
    assert project(new, students(snapshots)) == []
    enter(new, "c")
    assert [project(new, students(snapshots)) for _ in range(2)] == [["c"]] * 2


def test_what_was_trimmed_is_gone_as_without_snapshots(caplog: pytest.LogCaptureFixture) -> None:
    log, store = memory_log(), MemorySnapshots()
    enter(log, "a", "b", "c")
    project(log, students(store))
    enter(log, "d")
    log.trim(4)
    assert project(log, students(store)) == ["d"]
    assert "a snapshot includes events that are not in the log, and was not used" in caplog.text


@given(st.data())
def test_whatever_is_in_the_store_the_state_is_that_of_the_events(data: st.DataObject) -> None:
    store = MemorySnapshots()
    names = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4)
    for _ in range(data.draw(st.integers(1, 2), label="logs")):
        log = memory_log()
        for _ in range(data.draw(st.integers(1, 4), label="rounds")):
            enter(log, *data.draw(names, label="names"))
            if data.draw(st.booleans(), label="elsewhere"):
                enter(log, "z", course="chess")
            for key, kept in list(store.kept.items()):
                store.kept[key] = spoilt(data, kept)
            expected = [each for each in project(log, plain()) if each]
            assert project(log, students(store, every=data.draw(st.integers(1, 4)))) == expected


def plain() -> Projection[list[str]]:
    return Projection.made_by(list[str], tags={"course": "go"}).on(SeatTaken, lambda seen, each: [*seen, each.student])


def spoilt(data: st.DataObject, kept: bytes) -> bytes:
    """The snapshot, or what is left of it."""
    way = data.draw(st.sampled_from(["whole", "cut", "bit", "noise"]), label="way")
    if way == "cut":
        return kept[: data.draw(st.integers(0, len(kept) - 1))]
    if way == "bit":
        place = data.draw(st.integers(0, len(kept) - 1))
        return kept[:place] + bytes([kept[place] ^ 1 << data.draw(st.integers(0, 7))]) + kept[place + 1 :]
    return data.draw(st.binary(max_size=40)) if way == "noise" else kept


def test_a_damaged_snapshot_is_reported_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    log, store = memory_log(), MemorySnapshots()
    enter(log, "a")
    project(log, students(store))
    ((key, good),) = store.kept.items()
    store.kept[key] = good[:-1]
    assert project(log, students(store)) == ["a"]
    assert caplog.messages == [f"a snapshot is damaged and was not used: {key}: its checksum is wrong"]
    assert store.kept[key] == good


def test_a_snapshot_that_was_copied_to_another_key_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    log, store = memory_log(), MemorySnapshots()
    enter(log, "a")
    enter(log, "b", course="chess")
    project(log, students(store))
    ((_, of_go),) = store.kept.items()
    project(log, students(store, course="chess"))
    store.kept = dict.fromkeys(store.kept, of_go)
    assert project(log, students(store, course="chess")) == ["b"]
    assert "it belongs to another key" in caplog.text


class Failing:
    """A store that is not there."""

    def load(self, key: str) -> bytes | None:
        raise OSError("no load")

    def save(self, key: str, snapshot: bytes) -> None:
        raise OSError("no save")


def test_a_store_that_fails_is_reported_and_hinders_nobody(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    join = Decision(students(Failing()), lambda names: SeatTaken("go", f"s{len(names)}"))
    with caplog.at_level(logging.WARNING, "headwater.decisions.snapshots"):
        assert [asked.decide(join).event.student for _ in range(2)] == ["s0", "s1"]
    told = [each for each in caplog.messages if "snapshot" in each]
    assert [each.partition(":")[0] for each in told] == ["a snapshot cannot be loaded"] * 2 + [
        "a snapshot cannot be saved"
    ]


def test_a_state_that_cannot_be_encoded_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    log = memory_log()
    enter(log, "a")
    odd = Projection[object](None, tags={"course": "go"}).on(SeatTaken, lambda _, __: object())
    assert project(log, odd.with_snapshots(MemorySnapshots(), object, version="1", every=1)) is not None
    assert "a snapshot cannot be saved" in caplog.text


def test_snapshots_in_a_directory_are_there_for_the_next_process(tmp_path: Path) -> None:
    log = memory_log()
    enter(log, "a", "b")
    directory = tmp_path / "snapshots"
    assert [read_for(log, students(DirectorySnapshots(directory)))[1] for _ in range(3)] == [2, 1, 1]
    (file,) = directory.iterdir()
    assert len(file.name) == 64


def test_a_directory_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    store = DirectorySnapshots(tmp_path)
    (tmp_path / "key").mkdir()
    with pytest.raises(OSError):
        store.save("key", b"x")
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_decisions_with_snapshots_race_as_others_do() -> None:
    store = MemorySnapshots()

    def join(name: str) -> Decision[SeatTaken]:
        return Decision(students(store), courses_of(name), lambda names, _: SeatTaken("go", f"{name}{len(names)}"))

    assert assert_serializable(join("a"), join("b"), given=[CourseDefined("go", 9)]) > 6
    assert store.kept == {}


def test_a_snapshot_of_a_later_head_is_not_used() -> None:
    log, store = memory_log(), MemorySnapshots()
    enter(log, "a")

    class Growing:
        """While the first read is under way, others append and make a snapshot of that."""

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def read(self, *arguments: Any, **more: Any) -> Any:
            reading = log.read(*arguments, **more)
            enter(log, "b")
            project(log, students(store))
            return reading

    seen: list[object] = []
    decide(Growing(), Decision(seats_left("go"), students(store), lambda *states: seen.extend(states)))  # type: ignore[arg-type]
    assert seen == [None, ["a"]]


@pytest.mark.parametrize("every", [0, -1])
def test_what_cannot_have_snapshots_is_refused(every: int) -> None:
    with pytest.raises(InvalidDefinition, match="snapshots need a projection of all events"):
        students(MemorySnapshots(), every=every)
    newest = Projection(0, newest_only=True).on(SeatTaken, lambda n, _: n)
    with pytest.raises(InvalidDefinition, match="snapshots need a projection of all events"):
        newest.with_snapshots(MemorySnapshots(), int, version="1")


def test_an_event_that_cannot_be_read_is_in_no_snapshot() -> None:
    log, store = memory_log(), MemorySnapshots()
    enter(log, "a")

    def fail(state: int, taken: SeatTaken, stored: SequencedEvent) -> int:
        raise LookupError(taken.student)

    failing = Projection(0, tags={"course": "go"}).on_stored(SeatTaken, fail)
    with pytest.raises(LookupError, match="a"):
        project(log, failing.with_snapshots(store, int, version="1", every=1))
    assert store.kept == {}
