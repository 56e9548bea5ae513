"""Appends of one turn of the loop go to the log together; what is wrong with one of several events is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from headwater.core import AppendRequest, Event, LogSettings
from headwater.core.errors import DuplicateEventId, EventLogError, InvalidEvent, InvalidPosition, Overloaded, TooLarge
from headwater.core.limits import EventColumns, check_append
from headwater.core.log import AppendResult
from headwater.core.loop import batcher as batcher_module
from headwater.core.loop.async_log import AsyncLog
from headwater.core.loop.batcher import AppendBatcher, Ended, Joint, Outcome
from headwater.storage.memory import MemoryLog


class Watched(MemoryLog):
    """Knows how many events each append had that it was given, and has no room when it is told so."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__("l", settings)
        self.appends: list[int] = []
        self.is_full = False
        self.events_max = 10_000

    def submit(self, request: AppendRequest) -> None:
        self.appends.append(request.columns.count)
        if self.is_full or request.columns.count > self.events_max:
            raise Overloaded(1, 1)
        super().submit(request)


class OnLoop(Watched):
    """Gathers the appends of a loop itself, and answers in a callback of the loop, unless told to wait."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__(settings)
        self.waiting: list[AppendRequest] = []

    def submit_on(self, loop: asyncio.AbstractEventLoop) -> Callable[[AppendRequest], None]:
        def take(request: AppendRequest) -> None:
            self.appends.append(request.columns.count)
            if self.is_full or request.columns.count > self.events_max:
                raise Overloaded(1, 1)
            self.waiting.append(request)
            if len(self.waiting) == 1:
                loop.call_soon(self.judge)

        return take

    def judge(self) -> None:
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            MemoryLog.submit(self, request)


class Played:
    """A log, its asyncio face, and a batcher whose outcomes are noted."""

    def __init__(self, settings: LogSettings, log: type[Watched], *, waits_for_room: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self.log = log(settings)
        self.face = AsyncLog(self.log)
        self.batcher = AppendBatcher(self.log, waits_for_room=waits_for_room)
        self.join = self.face.submit_one

    @property
    def data(self) -> list[bytes]:
        return [event.data for event in self.log.read()]


def run(
    play: Callable[[Played], Awaitable[None]],
    *,
    log: type[Watched] = Watched,
    waits_for_room: bool = False,
    **settings: Any,
) -> None:
    async def on_loop() -> None:
        played = Played(LogSettings(**settings), log, waits_for_room=waits_for_room)
        try:
            await play(played)
        finally:
            played.face.close()

    asyncio.run(asyncio.wait_for(on_loop(), 20))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_events_of_one_turn_are_one_append_in_their_order() -> None:
    async def play(played: Played) -> None:
        results = await asyncio.gather(*(played.join(Event("T", b"%d" % each)) for each in range(5)))
        assert results == [(number, number, False) for number in range(1, 6)]
        assert played.data == [b"0", b"1", b"2", b"3", b"4"]
        assert await played.join(Event("T")) == (6, 6, False)
        assert played.log.appends == [5, 1]

    run(play)


def test_a_turn_ends_once_for_what_came_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[AppendBatcher] = []
    flush = AppendBatcher.flush

    def watched(self: AppendBatcher) -> None:
        ends.append(self)
        flush(self)

    monkeypatch.setattr(AppendBatcher, "flush", watched)

    async def play(played: Played) -> None:
        for number in range(1, 4):
            await played.join(Event("T"))
            await turns()
            assert len(ends) == number

    run(play)


def test_appends_and_single_events_of_one_turn_keep_their_order() -> None:
    async def play(played: Played) -> None:
        ends = [played.join(Event("T", b"1")), played.join(Event("T", b"2"))]
        ends += [played.face.submit([Event("T", b"3"), Event("T", b"4")]), played.join(Event("T", b"5"))]
        assert played.log.appends == []
        assert await asyncio.gather(*ends) == [(1, 1, False), (2, 2, False), (3, 4, False), (5, 5, False)]
        assert played.log.appends == [2, 2, 1]

    run(play)


def test_a_log_that_judges_on_the_loop_gets_each_append_at_once_and_in_order() -> None:
    async def play(played: Played) -> None:
        ends = [played.face.submit([Event("T", b"1")]), played.join(Event("T", b"2")), played.join(Event("T", b"3"))]
        assert played.log.appends == [1], "a joint append goes when it is complete"
        ends += [played.face.submit([Event("T", b"4"), Event("T", b"5")]), played.join(Event("T", b"6"))]
        assert played.log.appends == [1, 2, 2]
        await asyncio.sleep(0)
        assert [end.done() for end in ends] == [True, True, True, True, False], "one turn of the loop, for the append"
        assert await asyncio.gather(*ends) == [
            (1, 1, False),
            (2, 2, False),
            (3, 3, False),
            (4, 5, False),
            (6, 6, False),
        ]
        assert played.log.appends == [1, 2, 2, 1]

    run(play, log=OnLoop)


def test_an_append_that_such_a_log_refuses_is_answered_later_and_divided_in_its_place() -> None:
    async def play(played: Played) -> None:
        played.log.events_max = 1
        refused = played.face.submit([Event("T"), Event("T")])
        assert not refused.done(), "its caller is still on the stack"
        ends = [played.join(Event("T", b"1")), played.join(Event("T", b"2")), played.face.submit([Event("T", b"3")])]
        assert played.log.appends == [2, 2, 1, 1, 1]
        await asyncio.gather(*ends)
        assert played.data == [b"1", b"2", b"3"]
        with pytest.raises(Overloaded):
            await refused

    run(play, log=OnLoop)


@pytest.mark.parametrize("log", [Watched, OnLoop])
def test_whatever_waits_for_room_goes_in_the_order_of_the_calls(log: type[Watched]) -> None:
    async def play(played: Played) -> None:
        told: list[Outcome] = []
        played.log.is_full = True
        played.batcher.append([Event("T", b"a")], told.append)
        await turns()
        played.log.is_full = False
        played.batcher.append([Event("T", b"b")], told.append)
        played.batcher.join(Event("T", b"c"), told.append)
        await turns()
        assert (played.data, told, played.log.appends) == ([], [], [1])
        played.batcher.retry()
        await turns()
        assert (played.data, len(told)) == ([b"a", b"b", b"c"], 3)

    run(play, log=log, waits_for_room=True)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Event(""), InvalidEvent),
        (Event("T", bytes(2**21)), TooLarge),
        (Event("T", b"other", id="a", source="s"), DuplicateEventId),
    ],
)
def test_what_is_wrong_with_one_is_its_own(bad: Event, error: type[EventLogError]) -> None:
    async def play(played: Played) -> None:
        await played.join(Event("T", b"first", id="a", source="s"))
        ends = [played.join(each) for each in (Event("T", b"1"), bad, Event("T", b"2"))]
        one, failed, two = await asyncio.gather(*ends, return_exceptions=True)
        assert (one, two) == ((2, 2, False), (3, 3, False))
        assert isinstance(failed, error)

    run(play)


def test_an_event_that_cannot_be_appended_costs_those_behind_it_no_place() -> None:
    async def play(played: Played) -> None:
        ends = [played.join(Event("T", b"1")), played.join(Event("")), played.face.submit([Event("T", b"2")])]
        found = await asyncio.gather(*ends, return_exceptions=True)
        assert isinstance(found.pop(1), InvalidEvent) and found == [(1, 1, False), (2, 2, False)]

    run(play)


def test_who_has_gone_keeps_nobody_from_an_answer() -> None:
    async def play(played: Played) -> None:
        ends = [played.join(Event("T")) for _ in range(3)]
        ends[1].cancel()
        assert [(await end).first for end in (ends[0], ends[2])] == [1, 3]

    run(play)


def test_so_many_are_appended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "EVENTS_MAX", 2)
    monkeypatch.setattr(batcher_module, "BYTES_MAX", 10)

    async def play(played: Played) -> None:
        ends = [played.join(Event("T", data)) for data in (b"", b"", b"x" * 10, b"")]
        assert played.log.appends == [2, 1]
        await asyncio.gather(*ends)
        assert played.log.appends == [2, 1, 1]

    run(play)


def test_events_that_the_log_has_are_told_so() -> None:
    async def play(played: Played) -> None:
        events = [Event("T", b"1", id="a", source="s"), Event("T", b"2", id="b", source="s")]
        for was_stored in (False, True):
            found = await asyncio.gather(*map(played.join, events))
            assert found == [(1, 1, was_stored), (2, 2, was_stored)]

    run(play)


def test_a_log_that_is_closed_is_told_to_each() -> None:
    async def play(played: Played) -> None:
        ends = [played.join(Event("T")) for _ in range(2)]
        played.log.close()
        found = await asyncio.gather(*ends, return_exceptions=True)
        assert all(isinstance(each, EventLogError) for each in found)

    run(play)


def test_one_that_goes_alone_costs_no_other_its_place() -> None:
    async def play(played: Played) -> None:
        await played.join(Event("T", b"first", id="a", source="s"))
        ends = [played.join(Event("T", b"1")), played.join(Event("T", b"other", id="a", source="s"), alone=True)]
        ends += [played.join(Event("T", b"2")), played.join(Event("T", b"3"))]
        found = await asyncio.gather(*ends, return_exceptions=True)
        assert isinstance(found.pop(1), DuplicateEventId) and found == [(n, n, False) for n in (2, 3, 4)]
        assert played.data == [b"first", b"1", b"2", b"3"]
        assert played.log.appends == [1, 1, 1, 2]

    run(play)


def test_events_without_a_key_are_spread_over_partitions() -> None:
    async def play(played: Played) -> None:
        await asyncio.gather(*(played.join(Event("T")) for _ in range(8)))
        assert [event.partition for event in played.log.read()] == [0, 1, 2, 3] * 2

    run(play, partitions=4)


def test_who_cannot_be_told_keeps_nobody_from_an_answer() -> None:
    async def play(played: Played) -> None:
        told: list[Outcome] = []
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

        def fail(outcome: Outcome) -> None:
            raise RuntimeError(str(outcome))

        batcher = played.face.batcher
        for each in (told.append, fail, told.append):
            batcher.join(Event("T"), each)
        batcher.join(Event("T", bytes(2**21)), told.append, alone=True)
        assert (await played.join(Event("T"))).first == 4
        await turns()
        assert [each.first for each in told if isinstance(each, AppendResult)] == [1, 3]
        assert [type(each) for each in told if not isinstance(each, AppendResult)] == [TooLarge]
        assert [str(fault["exception"]) for fault in faults] == [str(AppendResult(2, 2))]

    run(play)


class Texts:
    """A joint append as a room makes it: one share for each text."""

    def __init__(self, partition: int | None = None) -> None:
        self.partition = partition
        self.shares: list[tuple[Event, Ended]] = []
        self.bytes = 0

    @property
    def count(self) -> int:
        return len(self.shares)

    def columns(self, settings: LogSettings) -> EventColumns:
        return check_append([event for event, _ in self.shares], settings.event_bytes_max)

    def outcomes(self, outcome: Outcome) -> list[tuple[Ended, Outcome]]:
        return [(ended, outcome) for _, ended in self.shares]

    def apart(self) -> Sequence[Joint] | None:
        return None if len(self.shares) == 1 else [text(*share, self.partition) for share in self.shares]


def text(event: Event, ended: Ended, partition: int | None = None) -> Texts:
    joint = Texts(partition)
    joint.shares.append((event, ended))
    return joint


def add(batcher: AppendBatcher, partition: int | None, event: Event, told: list[Outcome]) -> None:
    batcher.open(Texts, partition).shares.append((event, told.append))
    batcher.grown()


def test_shares_of_one_partition_are_one_append_and_others_keep_their_order() -> None:
    async def play(played: Played) -> None:
        told: list[Outcome] = []
        for partition, data in ((1, b"a"), (1, b"b"), (0, b"c"), (1, b"d"), (None, b"e"), (None, b"f")):
            add(played.batcher, partition, Event("T", data), told)
        played.batcher.join(Event("T", b"g"), told.append)
        await turns()
        assert played.log.appends == [2, 1, 1, 1, 1, 1], "what the log spreads is not joined"
        assert played.data == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
        assert len(told) == 7

    run(play, partitions=2)


def test_an_open_joint_append_that_nothing_was_added_to_is_none() -> None:
    async def play(played: Played) -> None:
        played.batcher.open(Texts, 0)
        await turns()
        assert played.log.appends == []

    run(play)


def test_joint_events_are_divided_once_and_each_has_its_own_refusal() -> None:
    async def play(played: Played) -> None:
        told: list[Outcome] = []
        for data in (b"a", b"b"):
            add(played.batcher, 9, Event("T", data), told)
        joint = text(Event("T", b"c"), told.append, 0)
        joint.shares.append((Event("", b"d"), told.append))
        played.batcher.add(joint)
        await turns()
        assert [type(each) for each in told if not isinstance(each, AppendResult)] == [
            InvalidPosition,
            InvalidPosition,
            InvalidEvent,
        ]
        assert played.data == [b"c"]

    run(play)


def test_without_room_each_event_is_refused() -> None:
    async def play(played: Played) -> None:
        played.log.is_full = True
        ends = [played.join(Event("T")) for _ in range(2)]
        found = await asyncio.gather(*ends, return_exceptions=True)
        assert [type(each) for each in found] == [Overloaded, Overloaded]
        assert played.log.appends == [2, 1, 1], "each may fit by itself"

    run(play)


def test_events_without_room_together_keep_their_place_when_each_has_room() -> None:
    async def play(played: Played) -> None:
        played.log.events_max = 1
        ends = [played.join(Event("T", b"1")), played.join(Event("T", b"2"))]
        played.loop.call_soon(lambda: ends.append(played.join(Event("T", b"4"))))  # behind the end of the turn
        ends.append(played.face.submit([Event("T", b"3")]))
        await turns()
        await asyncio.gather(*ends)
        assert played.data == [b"1", b"2", b"3", b"4"]
        assert played.log.appends == [2, 1, 1, 1, 1]

    run(play)


def test_what_waits_for_room_keeps_its_order() -> None:
    async def play(played: Played) -> None:
        told: list[Outcome] = []
        played.log.is_full = True
        add(played.batcher, 0, Event("T", b"a"), told)
        add(played.batcher, 0, Event("T", b"b"), told)
        await turns()
        played.batcher.append([Event("T", b"c")], told.append)
        await turns()
        played.batcher.retry()
        assert (played.log.appends, told) == ([2, 2], []), "what came later is not even tried"
        played.log.is_full = False
        played.batcher.append([Event("T", b"d")], told.append)
        await turns()
        assert played.data == [], "nobody overtakes"
        played.batcher.retry()
        await turns()
        assert played.data == [b"a", b"b", b"c", b"d"]
        assert len(told) == 4

    run(play, waits_for_room=True)


def test_what_waits_is_refused_when_the_log_is_closed() -> None:
    async def play(played: Played) -> None:
        told: list[Outcome] = []
        played.log.is_full = True
        add(played.batcher, 0, Event("T", b"a"), told)
        await turns()
        played.log.is_full = False
        played.log.close()
        played.batcher.retry()
        await turns()
        assert [isinstance(each, EventLogError) for each in told] == [True]

    run(play, waits_for_room=True)


def test_appends_that_are_flushed_go_before_the_end_of_the_turn() -> None:
    async def play(played: Played) -> None:
        told: list[Outcome] = []
        add(played.batcher, 0, Event("T", b"a"), told)
        played.batcher.append([Event("T", b"b")], told.append)
        played.batcher.flush()
        assert played.data == [b"a", b"b"]
        await turns()
        assert (len(told), played.log.appends) == (2, [1, 1])

    run(play)
