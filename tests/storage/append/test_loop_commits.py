"""Appends of an event loop, which it judges while a thread writes: alone, among others, and when the disk fails."""

from __future__ import annotations

import asyncio
import errno
import random
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headwater.core import AppendRequest, AppendResult, Event
from headwater.core.errors import (
    AppendConditionFailed,
    Closed,
    DiskFull,
    OutcomeUnknown,
    StorageUnavailable,
)
from headwater.core.loop.async_log import AsyncLog
from headwater.core.mark import Mark
from headwater.storage import Engine, StoredLog
from headwater.storage.append.sequencer import SMALL_FRAME_EVENTS, SMALL_GROUP_BYTES
from headwater.storage.disk.background_writer import BackgroundWriter
from headwater.storage.disk.locks import LOCK
from headwater.storage.disk.system import Disk

from ...speedups.needing import needs_native
from ...waiting import eventually
from ..builders import Fatal, columns, engine, event, numbers, unless
from ..disks import BehindDisk, HeldDisk

Scenario = Callable[[StoredLog, AsyncLog], Coroutine[Any, Any, None]]


@pytest.fixture
def disk() -> BehindDisk:
    return BehindDisk()


def run(data: Path, disk: BehindDisk, scenario: Scenario, fatal: Fatal | None = None) -> None:
    """Do that with a log of one event and its face on a loop, then close the log in another thread."""

    async def test() -> None:
        one = engine(data, disk=disk, reserve_bytes=1, fatal=fatal)
        log = one.create("orders")
        begin(log)
        disk.is_writing.clear()
        face = AsyncLog(log)
        try:
            async with asyncio.timeout(30):
                await scenario(log, face)
        finally:
            face.close()
            await asyncio.to_thread(one.close)

    asyncio.run(test())


def begin(log: StoredLog) -> None:
    """Have the committer make the first segment, and wait until it rests: it has the turn a little longer."""
    log.append([event("Begin")])
    rest(log)


def rest(log: StoredLog) -> None:
    [committer] = [each for each in threading.enumerate() if each.name == f"{log.name}-committer"]
    eventually(lambda: sys._current_frames()[committer.ident or 0].f_code.co_name == "_take")


def never(*_: object) -> None:
    raise AssertionError("another thread wrote")


async def goes_on(face: AsyncLog, disk: BehindDisk) -> None:
    """The loop judges again, once the committer has ended."""
    behind = disk.behind
    for _ in range(1000):
        await face.append([event("Again")])
        if disk.behind > behind:
            return
    raise AssertionError("the committer keeps the appends of the loop")


def types(data: Path) -> list[str]:
    """The types of all events but the first, when the log is opened again."""
    with engine(data) as again:
        return [each.type for each in again.open("orders").read(after=1)]


async def written(disk: BehindDisk) -> None:
    await asyncio.to_thread(disk.is_writing.wait, 30)


def test_small_appends_of_a_loop_need_no_other_thread_of_the_log(
    data: Path, disk: BehindDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        monkeypatch.setattr(log.frames, "append_frames", never)
        assert [await face.append([event("A")]) for _ in range(3)] == [AppendResult(n, n) for n in (2, 3, 4)]
        results = await asyncio.gather(*[face.append([event("B")] * 2) for _ in range(10)])
        assert results == [AppendResult(n, n + 1) for n in range(5, 25, 2)]
        assert (log.statistics.commits, disk.behind) == (5, 4)
        assert numbers(log.read()) == list(range(1, 25))

    run(data, disk, scenario)
    assert types(data) == ["A"] * 3 + ["B"] * 20


@needs_native
def test_a_real_disk_writes_behind_a_loop_with_the_extension(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Disk().writes_durably(data.parent):
        pytest.skip("the file system of the tests writes and syncs in two calls")

    async def test() -> None:
        with engine(data) as one:
            log = one.create("orders")
            begin(log)
            monkeypatch.setattr(log.frames, "append_frames", never)
            face = AsyncLog(log)
            for number in range(100):
                assert await face.append([event(data=bytes(number))]) == AppendResult(number + 2, number + 2)
            face.close()

    asyncio.run(test())
    with engine(data) as again:
        assert [len(each.data) for each in again.open("orders").read(after=1)] == list(range(100))


@needs_native
def test_a_writer_reports_each_error_once(tmp_path: Path) -> None:
    writer = BackgroundWriter()
    with open(tmp_path / "file", "w+b") as file:
        writer.begin(file.fileno(), b"abc", 5)
        assert writer.has_ended(waits=True)
        assert not writer.has_ended()
        assert file.read() == bytes(5) + b"abc"
    with open(tmp_path / "file", "rb") as file:
        writer.begin(file.fileno(), b"abc", 0)
        with pytest.raises(OSError) as caught:
            writer.has_ended(waits=True)
        assert caught.value.errno == errno.EBADF
    assert not writer.has_ended()
    writer.close()


def test_conditions_are_judged_within_a_turn_and_against_what_is_being_written(data: Path, disk: BehindDisk) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        disk.may_write.clear()
        first = asyncio.create_task(face.append([event("A", "seat:1")], unless(tags=["seat:1"])))
        await written(disk)
        later = [
            asyncio.create_task(face.append([event("A", tag)], unless(tags=[tag])))
            for tag in ("seat:1", "seat:2", "seat:2", "seat:3")
        ]
        await asyncio.sleep(0.01)
        assert log.head() == 1 and not first.done()
        disk.may_write.set()
        outcomes = await asyncio.gather(first, *later, return_exceptions=True)
        refused = [isinstance(each, AppendConditionFailed) for each in outcomes]
        assert refused == [False, True, False, True, False]
        with pytest.raises(AppendConditionFailed):  # all of a turn is refused, and nothing is written
            await face.append([event("A", "seat:3")], unless(tags=["seat:3"]))
        assert (log.head(), log.statistics.commits, disk.behind) == (4, 3, 2)

    run(data, disk, scenario)


@pytest.mark.parametrize(
    "events",
    [[event(id="known")], [event()] * (SMALL_FRAME_EVENTS + 1), [event(data=bytes(SMALL_GROUP_BYTES))]],
    ids=["a known id", "many events", "many bytes"],
)
def test_what_may_take_long_goes_to_the_committer_and_the_loop_goes_on(
    data: Path, disk: BehindDisk, events: list[Event]
) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        await face.append([event(id="known")])
        small = [face.append([event("Small")]) for _ in range(3)]
        results = await asyncio.gather(small[0], face.append(events), *small[1:])
        assert results[1].was_stored is (events[0].id == "known")
        await goes_on(face, disk)
        assert numbers(log.read()) == list(range(1, log.head() + 1))
        assert sum(each.type == "Small" for each in log.read()) == 3

    run(data, disk, scenario)


def test_marks_go_to_the_committer(data: Path, disk: BehindDisk) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[list[AppendRequest]] = loop.create_future()

        def deliver(done: list[AppendRequest]) -> None:
            loop.call_soon_threadsafe(ended.set_result, done)

        submit = log.submit_on(loop)
        assert submit is not None
        submit(log.request_columns(columns([event()]), None, None, deliver, mark=Mark("writer", 1, 1, True)))
        assert [each.result for each in await ended] == [AppendResult(2, 2)]
        writer = log.writer("writer")
        assert writer is not None and writer.batch == 1 and disk.behind == 0

    run(data, disk, scenario)


def test_a_thread_that_appends_meanwhile_lands_what_the_loop_writes(data: Path, disk: BehindDisk) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        disk.may_write.clear()
        first = asyncio.create_task(face.append([event("Loop", "x:1")]))
        await written(disk)
        second = asyncio.create_task(face.append([event("Loop", "x:2")]))
        await asyncio.sleep(0.01)
        other = threading.Thread(target=lambda: log.append([event("Thread")]))
        other.start()
        await asyncio.sleep(0.05)
        assert log.head() == 1
        disk.may_write.set()
        results = await asyncio.gather(first, second)
        assert results[0] == AppendResult(2, 2) and results[1] in (AppendResult(3, 3), AppendResult(4, 4))
        await asyncio.to_thread(other.join)
        assert sorted(each.type for each in log.read(after=1)) == ["Loop", "Loop", "Thread"]

    run(data, disk, scenario)


def test_a_full_disk_refuses_and_with_room_again_the_loop_goes_on(data: Path, disk: BehindDisk) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        await face.append([event("A", "x:1")])
        disk.free = 0
        for _ in range(3):
            refused = await asyncio.gather(
                *[face.append([event("Refused", "x:2", id=f"{n}")]) for n in range(3)], return_exceptions=True
            )
            assert [type(each) for each in refused] == [DiskFull] * 3
        disk.free = None
        await face.append([event("B", "x:2", id="0")], unless(tags=["x:2"]))
        assert [each.type for each in log.read(after=1)] == ["A", "B"]
        await goes_on(face, disk)

    run(data, disk, scenario)


def test_a_failed_sync_ends_the_process_and_acknowledges_nothing(data: Path, disk: BehindDisk) -> None:
    fatal = Fatal()
    failures: list[dict[str, Any]] = []

    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await face.append([event()])
        disk.failure = errno.EIO
        lost = asyncio.create_task(face.append([event()]))
        await asyncio.to_thread(eventually, lambda: bool(fatal.reasons))
        disk.failure = 0
        assert "writing failed" in fatal.reasons[0]
        assert not lost.done() and log.head() == 2
        lost.cancel()

    run(data, disk, scenario, fatal)
    assert failures == []


def test_an_error_while_judging_ends_the_process(data: Path, disk: BehindDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    fatal = Fatal()

    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(log.index, "apply_columns", broken)
        lost = asyncio.create_task(face.append([event()]))
        await asyncio.to_thread(eventually, lambda: bool(fatal.reasons))
        assert "ZeroDivisionError" in fatal.reasons[0] and not lost.done()
        lost.cancel()

    run(data, disk, scenario, fatal)


def test_without_its_lock_the_loop_writes_nothing(data: Path, disk: BehindDisk) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        await face.append([event()])
        behind = disk.behind
        (data / LOCK).unlink()
        with pytest.raises(StorageUnavailable):
            await face.append([event()])
        assert (disk.behind, log.head()) == (behind, 2)

    run(data, disk, scenario)


def test_a_lock_lost_during_a_write_of_the_loop_leaves_its_outcome_unknown(data: Path, disk: BehindDisk) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        await face.append([event()])
        disk.may_write.clear()
        disk.is_writing.clear()
        unknown = asyncio.create_task(face.append([event()]))
        await written(disk)
        (data / LOCK).unlink()
        disk.may_write.set()
        with pytest.raises(OutcomeUnknown):
            await unknown
        assert log.head() == 2
        with pytest.raises(StorageUnavailable):
            await face.append([event()])

    run(data, disk, scenario)


def test_closing_answers_what_is_being_written_and_what_waits(data: Path, disk: BehindDisk) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        disk.may_write.clear()
        first = asyncio.create_task(face.append([event("First")]))
        await written(disk)
        second = asyncio.create_task(face.append([event("Second")]))
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(asyncio.to_thread(log.close))
        await asyncio.sleep(0.01)
        disk.may_write.set()
        await closing
        assert await asyncio.gather(first, second) == [AppendResult(2, 2), AppendResult(3, 3)]
        with pytest.raises(Closed):
            await face.append([event("Late")])

    run(data, disk, scenario)
    assert types(data) == ["First", "Second"]


def test_a_log_closed_on_the_loop_leaves_no_descriptor_to_it(data: Path, disk: BehindDisk) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):  # descriptors are used again
            with engine(data, disk=disk, maintains=False) as one:
                log = one.create("orders")
                begin(log)
                face = AsyncLog(log)
                await goes_on(face, disk)
                face.close()
            await asyncio.sleep(0)
            assert len(loop._selector.get_map()) == 1, "the loop's own"  # type: ignore[attr-defined]

    asyncio.run(test())


def test_a_loop_that_is_gone_leaves_the_log_to_the_next_one_and_to_threads(data: Path, disk: BehindDisk) -> None:
    with engine(data, disk=disk, maintains=False) as one:
        log = one.create("orders")
        begin(log)

        async def append() -> None:
            await AsyncLog(log).append([event("Whole")])

        async def leave() -> None:
            task = asyncio.create_task(AsyncLog(log).append([event("Left")]))
            await written(disk)
            task.cancel()

        asyncio.run(append())
        disk.is_writing.clear()
        disk.may_write.clear()
        asyncio.run(leave())
        disk.may_write.set()
        asyncio.run(append())
        log.append([event("Thread")])
        rest(log)
        asyncio.run(append())
        assert [each.type for each in log.read(after=1)] == ["Whole", "Left", "Whole", "Thread", "Whole"]
        assert disk.behind == 4


def test_a_second_loop_appends_through_the_committer(data: Path, disk: BehindDisk) -> None:
    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        async def other() -> AppendResult:
            assert log.submit_on(asyncio.get_running_loop()) is None
            return await AsyncLog(log).append([event("Other")])

        await face.append([event("One")])
        assert await asyncio.to_thread(asyncio.run, other()) == AppendResult(3, 3)
        assert disk.behind == 1

    run(data, disk, scenario)


def test_a_disk_without_a_writer_leaves_all_to_the_committer(data: Path) -> None:
    async def test() -> None:
        with engine(data, disk=HeldDisk()) as one:
            log = one.create("orders")
            face = AsyncLog(log)
            assert [await face.append([event()]) for _ in range(3)] == [AppendResult(n, n) for n in (1, 2, 3)]
            face.close()

    asyncio.run(test())


def test_loops_and_threads_mix_without_loss_or_repetition(data: Path, disk: BehindDisk) -> None:
    """Each seat is taken once, each id stored once, however many try at the same time."""
    chance = random.Random(5)
    taken: list[str] = []

    async def scenario(log: StoredLog, face: AsyncLog) -> None:
        def by_thread(seed: int) -> None:
            own = random.Random(seed)
            for call in range(60):
                seat = f"seat:{own.randrange(150)}"
                try:
                    log.append([event("Taken", seat, id=f"t{seed}.{call}")], unless(tags=[seat]))
                    taken.append(seat)
                except AppendConditionFailed:
                    continue

        async def by_loop(task: int) -> None:
            for call in range(60):
                seat = f"seat:{chance.randrange(150)}"
                events = [event("Taken", seat, id=f"l{task}.{call}")]
                if chance.random() < 0.05:
                    events += [event("Filler")] * 200
                try:
                    await face.append(events, unless(tags=[seat]))
                    taken.append(seat)
                except AppendConditionFailed:
                    continue

        threads = [threading.Thread(target=by_thread, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*[by_loop(task) for task in range(12)])
        for thread in threads:
            await asyncio.to_thread(thread.join)
        stored = [each.tags[0] for each in log.read() if each.type == "Taken"]
        assert sorted(stored) == sorted(taken) and len(set(stored)) == len(stored)
        assert numbers(log.read()) == list(range(1, log.head() + 1))
        assert disk.behind > 0

    run(data, disk, scenario)
    with Engine(data) as again:
        stored = [each.tags[0] for each in again.open("orders").read() if each.type == "Taken"]
        assert sorted(stored) == sorted(taken)
