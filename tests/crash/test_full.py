"""Short writes and full disks: no failure, and a failure that ends when there is room again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.core import AppendRequest, AppendResult, Query
from headwater.core.errors import AppendConditionFailed, DiskFull, DuplicateEventId
from headwater.storage import Engine
from headwater.storage.disk.free_space import RESERVE_BYTES

from ..builders import event, fill, numbers, unless
from .faults import FaultyDisk, ShortWritingDisk

NAME = "orders"


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def engine(tmp_path: Path, disk: FaultyDisk) -> Iterator[Engine]:
    with Engine(tmp_path, disk=disk) as engine:
        yield engine


def test_short_writes_are_finished(tmp_path: Path) -> None:
    with Engine(tmp_path, disk=ShortWritingDisk()) as engine:
        log = engine.create(NAME)
        for number in range(5):
            log.append([event("A", data=bytes([number]) * 3000), event("B", "x:1")])
        events = list(log.read())
    with Engine(tmp_path) as engine:
        assert list(engine.open(NAME).read()) == events
        assert len(events) == 10


def test_a_full_disk_refuses_appends_and_nothing_else(engine: Engine, disk: FaultyDisk, tmp_path: Path) -> None:
    log = engine.create(NAME)
    fill(log, 10)
    log.register_consumer("spark", "archiver", after=3)
    disk.free = RESERVE_BYTES - 1
    with pytest.raises(DiskFull) as caught:
        log.append([event("Refused")])
    assert (caught.value.free_bytes, caught.value.needed_bytes) == (RESERVE_BYTES - 1, RESERVE_BYTES)
    assert str(tmp_path) in str(caught.value)
    assert (numbers(log.read()), log.head()) == (list(range(1, 11)), 10)
    assert log.acknowledge("spark", "archiver", 6).acknowledged == 6
    assert log.trim(5) == 5
    assert log.statistics.refused == 1


def test_with_room_again_appends_go_on_without_a_gap(engine: Engine, disk: FaultyDisk) -> None:
    log = engine.create(NAME)
    fill(log, 3)
    for round in range(5):
        disk.free = 0
        with pytest.raises(DiskFull):
            log.append([event("Refused", f"new:{round}", id=f"refused {round}")], unless(tags=[f"new:{round}"]))
        disk.free = None
        assert log.append([event("Taken", id=f"{round}")]) == AppendResult(4 + round, 4 + round)
    assert [each.type for each in log.read()] == ["E1", "E2", "E3", *["Taken"] * 5]


def test_a_refused_append_leaves_no_trace(engine: Engine, disk: FaultyDisk, tmp_path: Path) -> None:
    """No id, no type, no tag that a later append, condition or query could meet, now or after opening again."""
    log = engine.create(NAME)
    fill(log, 2)
    disk.free = 0
    with pytest.raises(DiskFull):
        log.append([event("Refused", "new:1", id="1")])
    disk.free = None
    refused = Query.where(types=["Refused"])
    assert numbers(log.read(refused)) == numbers(log.read(Query.where(tags=["new"]))) == []
    assert log.append([event("Other", id="1")], unless(types=["Refused"])) == AppendResult(3, 3, False)
    assert log.append([event("Refused", "new:1")], unless(tags=["new:1"])) == AppendResult(4, 4)
    assert numbers(log.read(refused)) == [4]
    engine.close()
    with Engine(tmp_path) as again:
        assert numbers(again.open(NAME).read(refused)) == [4]
        with pytest.raises(DuplicateEventId):
            again.open(NAME).append([event("A", id="1")])


def test_a_segment_that_finds_no_room_refuses_appends(engine: Engine, disk: FaultyDisk) -> None:
    log = engine.create(NAME)
    disk.can_allocate = False
    for _ in range(3):
        with pytest.raises(DiskFull):
            log.append([event()])
    disk.can_allocate = True
    assert log.append([event()]) == AppendResult(1, 1)


def test_a_segment_that_finds_no_room_later_refuses_what_does_not_fit(engine: Engine, disk: FaultyDisk) -> None:
    """The events that still fit are taken; none is taken twice, and none is lost."""
    log = engine.create(NAME)
    log.append([event()])
    disk.can_allocate = False
    taken, refused = 1, 0
    while refused < 3:
        try:
            taken = log.append([event("A", data=bytes(8_000))]).last
        except DiskFull:
            refused += 1
    disk.can_allocate = True
    assert 1 < taken < 10
    assert log.append([event("A", data=bytes(8_000))]).first == taken + 1
    assert numbers(log.read()) == list(range(1, taken + 2))


def test_a_disk_that_is_full_now_and_then_loses_and_repeats_nothing(
    engine: Engine, disk: FaultyDisk, tmp_path: Path
) -> None:
    log = engine.create(NAME)
    results: list[tuple[AppendResult, str]] = []
    refusals = 0
    lock = threading.Lock()

    def write(writer: int) -> None:
        nonlocal refusals
        for call in range(60):
            id = f"{writer}-{call}"
            try:
                result = log.append([event(f"T{call % 7}", f"call:{id}", id=id)], unless(tags=[f"call:{id}"]))
            except DiskFull:
                with lock:
                    refusals += 1
            else:
                with lock:
                    results.append((result, id))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        disk.free = 0
        for thread in threads:
            thread.join(0.002)
        disk.free = None
        for thread in threads:
            thread.join(0.004)
    expected = {result.first: id for result, id in results}
    assert {each.sequence_number: each.id for each in log.read()} == expected
    assert sorted(expected) == list(range(1, log.head() + 1))
    assert len(results) + refusals == 360
    for number, id in list(expected.items())[:50]:
        assert numbers(log.read(Query.where(tags=[f"call:{id}"]))) == [number]
        with pytest.raises(AppendConditionFailed):
            log.append([event()], unless(tags=[f"call:{id}"]))
    engine.close()
    with Engine(tmp_path) as again:
        assert {each.sequence_number: each.id for each in again.open(NAME).read()} == expected


def test_closing_while_the_disk_is_full_answers_everybody(tmp_path: Path) -> None:
    answered = threading.Semaphore(0)

    def deliver(requests: list[AppendRequest]) -> None:
        answered.release(len(requests))

    for _ in range(20):
        disk = FaultyDisk()
        engine = Engine(tmp_path, disk=disk, maintains=False)
        log = engine.create(NAME)
        log.append([event()])
        disk.free = 0
        for _ in range(50):
            log.submit(log.request([event()], None, None, deliver))
        closing = threading.Thread(target=engine.close, daemon=True)
        closing.start()
        closing.join(30)
        assert not closing.is_alive()
        for _ in range(50):
            assert answered.acquire(timeout=10)
