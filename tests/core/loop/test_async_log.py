"""The asyncio face of a local log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import ALL, AppendRequest, AsyncLog, Event, LogSettings, Page, Query
from headwater.core.consumer import Acknowledgement
from headwater.core.errors import (
    AppendConditionFailed,
    Closed,
    ConsumerNotFound,
    InvalidEvent,
    Overloaded,
    StorageUnavailable,
)
from headwater.core.loop.scheduler import FairScheduler
from headwater.storage.memory import MemoryLog

from ...builders import event, fill, numbers, unless
from ...interleaved import interleave
from ...volatile import VolatileStore


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in a loop of its own, and not for ever."""
    asyncio.run(asyncio.wait_for(test(), 20))


class HeldLog(MemoryLog):
    """Takes appends, and answers them all at once, as one commit, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[AppendRequest] = []

    def submit(self, request: AppendRequest) -> None:
        self._held.append(request)

    def commit(self) -> None:
        held, self._held = self._held, []
        for request in held:
            deliver, request.deliver = request.deliver, lambda finished: None
            super().submit(request)
        deliver(held)


def test_an_append_answers_where_its_events_are() -> None:
    async def test() -> None:
        log = AsyncLog(MemoryLog())
        assert await log.append([event(), event()]) == (1, 2, False)
        assert await log.append([event()]) == (3, 3, False)

    run(test)


def test_appends_of_one_turn_of_the_loop_go_to_the_log_together_and_in_order() -> None:
    class Noted(MemoryLog):
        taken: list[int]

        def submit(self, request: AppendRequest) -> None:
            self.taken.append(request.columns.count)
            super().submit(request)

    async def test() -> None:
        log = Noted()
        log.taken = []
        face = AsyncLog(log)
        ends = [face.submit([event()] * count) for count in (1, 2, 3)]
        assert log.taken == []
        await asyncio.sleep(0)
        assert log.taken == [1, 2, 3]
        assert [(await end).last for end in ends] == [1, 3, 6]

    run(test)


def test_an_append_that_the_log_does_not_take_is_refused_alone() -> None:
    class Choosing(MemoryLog):
        def submit(self, request: AppendRequest) -> None:
            if request.columns.count == 2:
                raise Overloaded(1, 1)
            super().submit(request)

    async def test() -> None:
        face = AsyncLog(Choosing())
        first, refused, last = [face.submit([event()] * count) for count in (1, 2, 1)]
        with pytest.raises(Overloaded):
            await refused
        assert ((await first).last, (await last).last) == (1, 2)

    run(test)


def test_an_append_raises_what_the_log_refuses_with() -> None:
    async def test() -> None:
        log = AsyncLog(MemoryLog())
        await log.append([event("A")])
        with pytest.raises(AppendConditionFailed):
            await log.append([event("A")], unless(types=["A"]))
        with pytest.raises(InvalidEvent):
            await log.append([event("")])
        log.log.close()  # type: ignore[attr-defined]
        with pytest.raises(Closed):
            await log.append([event("A")])

    run(test)


def test_a_commit_is_awaited_by_what_was_taken_before_looking() -> None:
    async def test() -> None:
        memory = MemoryLog()
        log = AsyncLog(memory)
        before = log.next_commit
        assert not before.done()
        threading.Thread(target=memory.append, args=([event()],)).start()
        await before
        assert memory.head() == 1
        assert not log.next_commit.done()
        last = log.next_commit
        log.close()
        assert last.done()

    run(test)


def test_a_cancelled_append_leaves_its_events_and_disturbs_no_other() -> None:
    async def test() -> None:
        held = HeldLog()
        log = AsyncLog(held)
        tasks = [asyncio.create_task(log.append([event(f"E{number}")])) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        held.commit()
        assert [(await tasks[0]).first, (await tasks[2]).first] == [1, 3]
        assert tasks[1].cancelled()
        assert [each.type for each in held.read()] == ["E0", "E1", "E2"]

    run(test)


def test_a_commit_wakes_the_loop_once_for_all_its_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        held = HeldLog()
        log = AsyncLog(held)
        log.close()  # so that what is counted is the delivery alone
        tasks = [asyncio.create_task(log.append([event()])) for _ in range(100)]
        await asyncio.sleep(0)  # they begin
        await asyncio.sleep(0)  # and go to the log
        loop, wakes = asyncio.get_running_loop(), []
        original = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: (wakes.append(call), original(*call))[1])
        held.commit()
        results = await asyncio.gather(*tasks)
        assert len(wakes) == 1
        assert [result.first for result in results] == list(range(1, 101))

    run(test)


def test_appends_from_the_loop_and_from_threads_mix() -> None:
    async def test() -> None:
        plain = MemoryLog()
        log = AsyncLog(plain)
        thread = threading.Thread(target=fill, args=(plain, 200))
        thread.start()
        results = await asyncio.gather(*(log.append([event("loop")]) for _ in range(200)))
        await asyncio.to_thread(thread.join)
        assert len({result.first for result in results}) == 200
        assert plain.head() == 400

    run(test)


def test_the_pages_of_a_read_end_at_the_head_of_its_begin() -> None:
    async def test() -> None:
        plain = MemoryLog()
        plain.append([event("A")] * 2500)
        log = AsyncLog(plain)
        selection = plain.selection(None, None, False, 2100, None)
        found: list[int] = []
        async for page in log.pages(Query.all(), selection):
            plain.append([event("B")])
            found += numbers(page.events)
        assert found == list(range(1, 2101))

    run(test)


def test_following_catches_up_and_goes_on_across_commits() -> None:
    async def test() -> None:
        plain = MemoryLog()
        fill(plain, 1500)
        log = AsyncLog(plain)
        thread = threading.Thread(target=fill, args=(plain, 1500))
        thread.start()
        found: list[int] = []
        async for page in log.follow(10):
            found += numbers(page.events)
            if len(found) >= 2990:
                break
        await asyncio.to_thread(thread.join)
        assert found == list(range(11, 3001))

    run(test)


def test_following_tells_that_the_cursor_moves_over_what_does_not_match() -> None:
    async def test() -> None:
        plain = MemoryLog()
        log = AsyncLog(plain)
        pages = log.follow(0, Query.where(types=["Other"]))
        plain.append([event("A"), event("A")])
        page = await anext(pages)
        assert (list(page.events), page.cursor) == ([], 2)
        plain.append([event("Other")])
        page = await anext(pages)
        assert (numbers(page.events), page.cursor) == ([3], 3)
        await pages.aclose()  # type: ignore[attr-defined]

    run(test)


def test_following_one_partition_leaves_the_others_out() -> None:
    async def test() -> None:
        plain = MemoryLog("log", LogSettings(partitions=2))
        log = AsyncLog(plain)
        for partition in (0, 1, 0, 1):
            plain.append([event()], partition=partition)
        pages = log.follow(0, partition=1)
        page = await anext(pages)
        assert (numbers(page.events), page.cursor) == ([2, 4], 4)
        await pages.aclose()  # type: ignore[attr-defined]

    run(test)


def test_following_an_idle_log_tells_so() -> None:
    async def test() -> None:
        plain = MemoryLog()
        plain.append([event()])
        pages = AsyncLog(plain).follow(0, idle_s=0.001)
        assert numbers((await anext(pages)).events) == [1]
        for _ in range(3):
            page = await anext(pages)
            assert (list(page.events), page.cursor, page.head) == ([], 1, 1)
        await pages.aclose()  # type: ignore[attr-defined]

    run(test)


def follow_until_the_end_of(close: Callable[[AsyncLog], None]) -> list[Page]:
    found: list[Page] = []

    async def test() -> None:
        plain = MemoryLog()
        plain.append([event(), event()])
        log = AsyncLog(plain)

        async def follow() -> None:
            async for page in log.follow(0):
                found.append(page)

        follower = asyncio.create_task(follow())
        while not found:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        close(log)
        await follower

    run(test)
    return found


def test_following_ends_when_the_log_closes() -> None:
    pages = follow_until_the_end_of(lambda log: log.log.close())  # type: ignore[attr-defined]
    assert [numbers(page.events) for page in pages] == [[1, 2]]


def test_following_ends_when_another_thread_closes_the_log() -> None:
    def close(log: AsyncLog) -> None:
        threading.Thread(target=log.log.close).start()  # type: ignore[attr-defined]

    assert [numbers(page.events) for page in follow_until_the_end_of(close)] == [[1, 2]]


def test_following_ends_when_the_face_closes() -> None:
    assert [numbers(page.events) for page in follow_until_the_end_of(AsyncLog.close)] == [[1, 2]]


def test_a_follower_of_a_closed_log_gets_what_is_there_and_the_end() -> None:
    async def test() -> None:
        plain = MemoryLog()
        fill(plain, 3)
        plain.close()
        pages = [page async for page in AsyncLog(plain).follow(0)]
        assert [numbers(page.events) for page in pages] == [[1, 2, 3]]

    run(test)


def test_a_loop_that_is_gone_does_not_disturb_the_log() -> None:
    """The log's own thread must survive a front end that stopped before its appends were answered."""
    held = HeldLog()

    async def test() -> None:
        log = AsyncLog(held)
        task = asyncio.create_task(log.append([event()]))
        await asyncio.sleep(0)
        task.cancel()

    run(test)
    held.commit()
    assert held.head() == 1


def test_every_page_of_a_read_or_a_subscription_is_a_step_of_its_flow() -> None:
    async def scenario() -> None:
        memory = MemoryLog()
        memory.append([Event("A", b"")] * 2500)
        turns = FairScheduler()
        log, flow = AsyncLog(memory, turns), turns.flow("alice", "")
        pages = [page async for page in log.pages(ALL, memory.selection(None, None, False, None, None), flow)]
        assert (len(pages), turns.steps) == (3, 4)  # and one that finds the end
        assert flow.user.start > 0
        async with aclosing(log.follow(0, flow=flow)) as following:
            async for page in following:
                if page.is_last:
                    break
        assert turns.steps == 7

    asyncio.run(scenario())


def calls_to(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What threads call on the loop from now on."""
    calls: list[object] = []
    original = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: (calls.append(call), original(*call))[1])
    return calls


def test_a_commit_that_nobody_waits_for_does_not_wake_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        memory = MemoryLog()
        log = AsyncLog(memory)
        calls = calls_to(asyncio.get_running_loop(), monkeypatch)
        fill(memory, 10)
        assert calls == []
        await log.append([event()])
        assert len(calls) == 1, "its answer, and nothing else"

    run(test)


def test_commits_wake_the_loop_once_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        memory = MemoryLog()
        log = AsyncLog(memory)
        first, second = log.next_commit, log.next_commit
        calls = calls_to(asyncio.get_running_loop(), monkeypatch)
        fill(memory, 10)
        assert len(calls) == 1
        await asyncio.gather(first, second)
        fill(memory, 10)
        assert len(calls) == 1, "nobody has waited again"
        third = log.next_commit
        assert not third.done()
        memory.append([event()])
        await third
        assert len(calls) == 2

    run(test)


class CountingLog(MemoryLog):
    """Only a head that moves, and who is told of that."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def commit(self) -> None:
        self.number += 1
        self._wake_all()


RUNS = st.lists(st.integers(0, 120), max_size=8)


def lost_wakes(face: type[AsyncLog], runs: list[int]) -> list[int]:
    """The heads of those who still wait after all commits, though the head went on since they looked.

    One thread commits twice; the other is the event loop: it does what was called, takes `next_commit` and looks at
    the head, again and again. The runs say how many instructions each of them does before the other goes on.
    """
    log = CountingLog()
    ready: list[Callable[[], None]] = []
    waiting: list[tuple[asyncio.Future[None], int]] = []
    loop = asyncio.new_event_loop()

    async def make() -> AsyncLog:
        return face(log)

    watching = loop.run_until_complete(make())
    loop.call_soon_threadsafe = ready.append  # type: ignore[method-assign, assignment]

    def turn() -> None:
        while ready:
            ready.pop(0)()

    def follow() -> None:
        for _ in range(3):
            turn()
            future = watching.next_commit
            waiting.append((future, log.number))

    def commit() -> None:
        log.commit()
        log.commit()

    taking = face.next_commit.fget
    assert taking is not None
    interleave(
        runs,
        commit,
        follow,
        [CountingLog.commit, face._wake_soon, AsyncLog._call_soon, face._wake, taking, follow, turn],
    )
    turn()
    loop.close()
    return [head for future, head in waiting if head < log.number and not future.done()]


@given(RUNS)
@settings(max_examples=100, deadline=None)
def test_no_wake_is_lost_whoever_goes_first(runs: list[int]) -> None:
    assert lost_wakes(AsyncLog, runs) == []


class ClearingLate(AsyncLog):
    """Clears the flag behind the wake: who takes the future between them is forgotten."""

    def _wake_soon(self) -> None:
        if self._is_awaited:
            self._call_soon(self._wake)
            self._is_awaited = False


def test_the_proof_finds_a_wake_that_is_lost() -> None:
    """The loop takes the future, the commit goes on for so long, the loop takes the next one and looks, and so on."""
    assert any(lost_wakes(ClearingLate, [0, 40, length, 100]) for length in range(80))
    assert not any(lost_wakes(AsyncLog, [0, 40, length, 100]) for length in range(80))


def test_acknowledgements_are_answered_by_the_commit_that_carries_them_and_share_it() -> None:
    async def test() -> None:
        store = VolatileStore()
        log, state = store.create("orders"), store.volatile
        fill(log, 9)
        for name in "abcdef":
            log.register_consumer("me", name, after=0)
        face = AsyncLog(log)
        state.hold()
        first = asyncio.ensure_future(face.acknowledge("me", "a", 1))
        await asyncio.to_thread(state.is_flushing.wait, 10)
        others = [asyncio.ensure_future(face.acknowledge("me", name, 2)) for name in "bcdef"]
        unknown = asyncio.ensure_future(face.acknowledge("me", "nobody", 2))
        await asyncio.sleep(0)
        assert not first.done() and not any(each.done() for each in others)
        state.let_go()
        assert (await first).acknowledged == 1
        assert [each.acknowledged for each in await asyncio.gather(*others)] == [2] * 5
        with pytest.raises(ConsumerNotFound, match="nobody"):
            await unknown
        assert state.flushes == 2
        assert sum(b'"acknowledged": 2' in each for each in state.kept_values("consumer")) == 5

    run(test)


def test_an_acknowledgement_that_cannot_be_committed_fails_and_may_be_repeated() -> None:
    async def test() -> None:
        store = VolatileStore()
        log, state = store.create("orders"), store.volatile
        fill(log, 3)
        log.register_consumer("me", "a", after=0)
        face = AsyncLog(log)
        state.failure = StorageUnavailable("the home does not answer")
        with pytest.raises(StorageUnavailable):
            await face.acknowledge("me", "a", 2)
        with pytest.raises(StorageUnavailable):
            log.acknowledge("me", "a", 2)
        state.failure = None
        assert (await face.acknowledge("me", "a", 2)).acknowledged == 2
        assert b'"acknowledged": 2' in state.kept_values("consumer")[0]

    run(test)


def test_where_the_state_takes_nothing_a_batch_of_acknowledgements_waits_for_it_once() -> None:
    """As with a home that is away: each change is refused after some seconds."""
    store = VolatileStore()
    log = store.create("orders")
    fill(log, 3)
    for name in "abc":
        log.register_consumer("me", name)
    asked: list[str] = []

    def refuse(kind: str, key: str, *_: object, **__: object) -> int:
        asked.append(key)
        raise StorageUnavailable("the home does not answer")

    store.volatile.put = refuse  # type: ignore[method-assign]
    given = [Acknowledgement("me", name, 2) for name in ("a", "unknown", "b", "c")]
    outcomes = log.acknowledge_all(given)
    assert len(asked) == 1, asked
    assert [type(each) for each in outcomes] == [StorageUnavailable] * 4
