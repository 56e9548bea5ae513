"""Single events of one turn of the loop are one append; what is wrong with one of them is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from headwater.core import Event, LogSettings
from headwater.core import joining as joining_module
from headwater.core.asynchronous import AsyncLog
from headwater.core.errors import DuplicateEventId, EventLogError, InvalidEvent, TooLarge
from headwater.core.joining import Joining
from headwater.core.local import LocalLog
from headwater.core.log import AppendResult
from headwater.storage.memory import MemoryStore


class Watched(AsyncLog):
    """Knows how many events each append had."""

    def __init__(self, log: LocalLog) -> None:
        super().__init__(log)
        self.appends: list[int] = []

    def submit(self, events: Sequence[Event], *more: object, **options: object) -> asyncio.Future[object]:  # type: ignore[override]
        self.appends.append(len(events))
        return super().submit(events, *more, **options)  # type: ignore[arg-type,return-value]


def run(play: Callable[[Watched, Joining], Awaitable[None]], **settings: Any) -> None:
    async def on_loop() -> None:
        store = MemoryStore()
        log = Watched(store.create("l", LogSettings(**settings)))
        try:
            await play(log, Joining(log))
        finally:
            log.close()
            store.close()

    asyncio.run(on_loop())


def test_events_of_one_turn_are_one_append_in_their_order() -> None:
    async def play(log: Watched, joining: Joining) -> None:
        results = await asyncio.gather(*(joining.append(Event("T", b"%d" % each)) for each in range(5)))
        assert results == [(number, number, False) for number in range(1, 6)]
        assert [event.data for event in log.log.read()] == [b"0", b"1", b"2", b"3", b"4"]
        assert await joining.append(Event("T")) == (6, 6, False)
        assert log.appends == [5, 1]

    run(play)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Event(""), InvalidEvent),
        (Event("T", bytes(2**21)), TooLarge),
        (Event("T", b"other", id="a", source="s"), DuplicateEventId),
    ],
)
def test_what_is_wrong_with_one_is_its_own(bad: Event, error: type[EventLogError]) -> None:
    async def play(log: Watched, joining: Joining) -> None:
        await joining.append(Event("T", b"first", id="a", source="s"))
        ends = [joining.append(each) for each in (Event("T", b"1"), bad, Event("T", b"2"))]
        one, failed, two = await asyncio.gather(*ends, return_exceptions=True)
        assert (one, two) == ((2, 2, False), (3, 3, False))
        assert isinstance(failed, error)

    run(play)


def test_who_has_gone_keeps_nobody_from_an_answer() -> None:
    async def play(log: Watched, joining: Joining) -> None:
        ends = [joining.append(Event("T")) for _ in range(3)]
        ends[1].cancel()
        assert [(await end).first for end in (ends[0], ends[2])] == [1, 3]

    run(play)


def test_so_many_are_appended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining_module, "JOINED_EVENTS_MAX", 2)
    monkeypatch.setattr(joining_module, "JOINED_BYTES_MAX", 10)

    async def play(log: Watched, joining: Joining) -> None:
        ends = [joining.append(Event("T", data)) for data in (b"", b"", b"x" * 10, b"")]
        assert log.appends == [2, 1]
        await asyncio.gather(*ends)
        assert log.appends == [2, 1, 1]

    run(play)


def test_events_that_the_log_has_are_told_so() -> None:
    async def play(log: Watched, joining: Joining) -> None:
        events = [Event("T", b"1", id="a", source="s"), Event("T", b"2", id="b", source="s")]
        for was_stored in (False, True):
            found = await asyncio.gather(*map(joining.append, events))
            assert found == [(1, 1, was_stored), (2, 2, was_stored)]

    run(play)


def test_a_log_that_is_closed_is_told_to_each() -> None:
    async def play(log: Watched, joining: Joining) -> None:
        ends = [joining.append(Event("T")) for _ in range(2)]
        log.log.close()  # type: ignore[attr-defined]
        found = await asyncio.gather(*ends, return_exceptions=True)
        assert all(isinstance(each, EventLogError) for each in found)

    run(play)


def test_one_that_goes_alone_costs_no_other_its_place() -> None:
    async def play(log: Watched, joining: Joining) -> None:
        await joining.append(Event("T", b"first", id="a", source="s"))
        ends = [joining.append(Event("T", b"1")), joining.append(Event("T", b"other", id="a", source="s"), alone=True)]
        ends += [joining.append(Event("T", b"2")), joining.append(Event("T", b"3"))]
        found = await asyncio.gather(*ends, return_exceptions=True)
        assert isinstance(found.pop(1), DuplicateEventId) and found == [(n, n, False) for n in (2, 3, 4)]
        assert [event.data for event in log.log.read()] == [b"first", b"1", b"2", b"3"]
        assert log.appends == [1, 1, 1, 2]

    run(play)


def test_events_without_a_key_are_spread_over_partitions() -> None:
    async def play(log: Watched, joining: Joining) -> None:
        await asyncio.gather(*(joining.append(Event("T")) for _ in range(8)))
        assert [event.partition for event in log.log.read()] == [0, 1, 2, 3] * 2

    run(play, partitions=4)


def test_who_cannot_be_told_keeps_nobody_from_an_answer() -> None:
    async def play(log: Watched, joining: Joining) -> None:
        told: list[AppendResult | BaseException] = []
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

        def fail(outcome: AppendResult | BaseException) -> None:
            raise RuntimeError(str(outcome))

        for each in (told.append, fail, told.append):
            joining.append_telling(Event("T"), each)
        joining.append_telling(Event("T", bytes(2**21)), told.append, alone=True)
        assert (await joining.append(Event("T"))).first == 4
        assert [each.first for each in told if isinstance(each, AppendResult)] == [1, 3]
        assert [type(each) for each in told if not isinstance(each, AppendResult)] == [TooLarge]
        assert [str(fault["exception"]) for fault in faults] == [str(AppendResult(2, 2))]

    run(play)
