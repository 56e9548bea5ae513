"""A program that uses every way into a log at the same time, and knows what must have come of it.

Its server may be killed and started again, as often as one likes, behind a proxy that stays.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

from eventsourcing.dcb.api import DCBEvent, DCBQuery, DCBQueryItem
from tests.waiting import eventually

from headwater.client import ServerUnreachable, aio, connect
from headwater.core import Event
from headwater.core.errors import Closed, OutcomeUnknown
from headwater.core.event import SequencedEvent
from headwater.decisions import Decision, Projection, ReadModel, Runner, decide, event
from headwater.decisions.aio import decide as decide_in_a_task
from headwater.eventsourcing.recorder import HeadwaterRecorder

LOG, LAST = "orders", "Last"
PATIENCE_S, PAUSE_S = 60.0, 0.01
WRITTEN = 3
"""Events of each append."""


@event
class Written:
    """What the writers append."""


@event
class Sold:
    """What a decision of a thread leads to: the ticket after the last one."""

    number: int


@event
class SoldByTask:
    """What one of a task leads to."""

    number: int


def _seller(kind: type[Any]) -> Decision[int]:
    return Decision(Projection(0).on(kind, lambda sold, _: sold + 1), lambda sold: [kind(sold + 1)])


def _numbers(events: Iterable[SequencedEvent]) -> list[int]:
    return [each.sequence_number for each in events]


class Application:
    """Each way in is a thread and a client, or a task, and goes on until `end`. Those of tasks have one client."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ending, self._has_written = threading.Event(), threading.Event()
        self._is_given_up = False
        self.acknowledged: dict[str, int] = {}
        """The number of each event of the writers, by its id."""
        self.counts: Counter[str] = Counter()
        """What each way in has done so far; `cut` and `unknown`: reads and appends that were given up."""
        self.seen: dict[str, list[int]] = {}
        """The numbers that came to those who follow, by way in."""
        self._sold: dict[type[Any], list[int]] = {Sold: [], SoldByTask: []}
        self._ways: dict[str, Callable[[], None]] = {
            "patient": partial(self._write, "patient", PATIENCE_S), "impatient": partial(self._write, "impatient", 0),
            "read": self._read, "decide": self._decide, "record": self._record,
            "task": lambda: asyncio.run(self._run_tasks()),
            "model": self._model, "follow": self._follow, "work": self._work,
        }  # fmt: skip
        self._threads = ThreadPoolExecutor(len(self._ways))
        self._running: dict[str, Future[None]] = {name: self._threads.submit(way) for name, way in self._ways.items()}

    def goes_on(self) -> None:
        """Wait until each way in has done something more."""
        before = self.counts.copy()
        names = [name for name in self._ways if name != "task"]
        names += [f"{name} by task" for name in ("append", "read", "decide", "follow", "work")]
        self.wait_for(lambda: all(self.counts[name] > before[name] for name in names))

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so. Raises what one of them raised."""
        eventually(lambda: is_so() or self._ended(), lambda: self.counts)
        for ended in self._ended():
            ended.result()

    def end(self) -> None:
        """End it: those who follow do so with an event of the type LAST. Raises what one of them raised."""
        self._ending.set()
        for name in ("patient", "impatient", "read", "decide", "record"):
            self._running[name].result(PATIENCE_S)
        self._has_written.set()  # the read model has all of it to see
        self._running["model"].result(PATIENCE_S)
        with connect(self._url, retry_s=PATIENCE_S) as client:
            client.log(LOG).append([Event(LAST)])
        for way in self._running.values():
            way.result(PATIENCE_S)

    def give_up(self) -> None:
        """Let all of them end, whatever they have done: in vain they try for PATIENCE_S at most."""
        self._is_given_up = True
        self._ending.set()
        self._has_written.set()

    def check(self, events: list[SequencedEvent], head: int) -> None:
        """Nothing is lost, nothing is there twice, and everybody saw all: these are all events of the log."""
        numbers = {each.event.id: each.sequence_number for each in events}
        assert len(numbers) == len(events) == head, "each event is there once"
        assert {id: numbers.get(id) for id in self.acknowledged} == self.acknowledged
        for kind, sold in self._sold.items():
            there = [each.sequence_number for each in events if each.event.type == kind.__name__]
            assert sold == there, "each decision was taken once"
        every = list(range(1, head + 1))
        assert self.seen["follow"] == self.seen["follow by task"] == every
        assert set(self.seen["work"]) == set(self.seen["work by task"]) == set(every)
        assert self.seen["model"] == [each.sequence_number for each in events if each.event.type == "Written"]
        assert self.seen["record"] == [each.sequence_number for each in events if each.event.type == "Recorded"]

    def _ended(self) -> list[Future[None]]:
        return [way for way in self._running.values() if way.done()]

    def _batch(self, name: str, round: int) -> list[Event]:
        return [Event("Written", b"{}", id=f"{name}-{round}-{index}") for index in range(WRITTEN)]

    def _note(self, name: str, batch: list[Event], first: int) -> None:
        self.acknowledged |= {str(each.id): first + index for index, each in enumerate(batch)}
        self.counts[name] += 1

    def _write(self, name: str, retry_s: float) -> None:
        with connect(self._url, retry_s=retry_s) as client:
            log = client.log(LOG)
            for round in itertools.count():
                batch = self._batch(name, round)
                while True:
                    try:
                        first = log.append(batch).first
                        break
                    except OutcomeUnknown as error:
                        assert "append them again with the same ids" in str(error)
                        self.counts["unknown"] += 1
                    except (Closed, ServerUnreachable):
                        pass
                    if self._is_given_up:
                        return
                    assert name == "impatient", "who is patient is answered in the end"
                    self._ending.wait(PAUSE_S)
                self._note(name, batch, first)
                if self._ending.wait(PAUSE_S):
                    return

    def _read(self) -> None:
        with connect(self._url, retry_s=0) as client:
            log = client.log(LOG)
            while not self._ending.wait(PAUSE_S):
                try:
                    reading = log.read()
                    numbers = _numbers(reading)
                except (Closed, ServerUnreachable):
                    self.counts["cut"] += 1
                    continue
                assert numbers == list(range(1, reading.head + 1)), "a read was short, and nothing said so"
                self.counts["read"] += 1

    def _decide(self) -> None:
        with connect(self._url, retry_s=PATIENCE_S) as client:
            while not self._ending.wait(PAUSE_S):
                self._sold[Sold].append(decide(client.log(LOG), _seller(Sold)).last)
                self.counts["decide"] += 1

    def _record(self) -> None:
        recorded = DCBQuery(items=[DCBQueryItem(types=["Recorded"])])
        positions: list[int] = []
        with connect(self._url, retry_s=PATIENCE_S) as client:
            recorder = HeadwaterRecorder(client.log(LOG))
            with recorder.subscribe(recorded) as subscription:
                while not self._ending.wait(PAUSE_S):
                    positions.append(recorder.append([DCBEvent("Recorded", b"{}", [])]))
                    assert next(subscription).position == positions[-1]
                    assert [each.position for each in recorder.read(recorded)] == positions
                    self.counts["record"] += 1
        self.seen["record"] = positions

    def _model(self) -> None:
        model = ReadModel("written", {"one": "number INTEGER"}).on_stored(
            Written,
            lambda transaction, _, stored: transaction.execute("INSERT INTO {one} VALUES (?)", (stored[0],)),
        )
        with (
            closing(sqlite3.connect(":memory:", isolation_level="DEFERRED")) as connection,
            connect(self._url, retry_s=PATIENCE_S) as client,
        ):
            runner = Runner(client.log(LOG), connection, model)
            is_last = False
            while not is_last:
                is_last = self._has_written.wait(PAUSE_S)
                runner.catch_up()
                self.counts["model"] = int(connection.execute("SELECT count(*) FROM one_1").fetchone()[0])
            rows = connection.execute("SELECT number FROM one_1 ORDER BY rowid")
            self.seen["model"] = [row[0] for row in rows]

    def _follow(self) -> None:
        with connect(self._url, retry_s=PATIENCE_S) as client, client.log(LOG).subscribe() as subscription:
            for each in subscription:
                if self._has_seen("follow", [each]):
                    return

    def _work(self) -> None:
        with (
            connect(self._url, retry_s=PATIENCE_S) as client,
            client.log(LOG).work("billing", start="earliest", batch_events=1000) as work,
        ):
            for batch in work:
                if self._has_seen("work", batch.events):
                    return

    def _has_seen(self, name: str, events: Iterable[SequencedEvent]) -> bool:
        """Whether the last event is among these."""
        listed = list(events)
        self.seen.setdefault(name, []).extend(_numbers(listed))
        self.counts[name] += 1
        return listed[-1].event.type == LAST

    async def _run_tasks(self) -> None:
        async with aio.connect(self._url, retry_s=PATIENCE_S) as client, asyncio.TaskGroup() as tasks:
            ways: list[Callable[[aio.RemoteLog], Coroutine[Any, Any, None]]] = [
                self._write_by_task, self._read_by_task, self._decide_by_task, self._follow_by_task, self._work_by_task,
            ]  # fmt: skip
            for way in ways:
                tasks.create_task(way(client.log(LOG)))

    async def _write_by_task(self, log: aio.RemoteLog) -> None:
        for round in itertools.count():
            batch = self._batch("task", round)
            self._note("append by task", batch, (await log.append(batch)).first)
            if await self._is_ending():
                return

    async def _read_by_task(self, log: aio.RemoteLog) -> None:
        while not await self._is_ending():
            reading = await log.read()
            numbers = _numbers(await reading.rest())
            assert numbers == list(range(1, reading.head + 1)), "a read was short, and nothing said so"
            self.counts["read by task"] += 1

    async def _decide_by_task(self, log: aio.RemoteLog) -> None:
        while not await self._is_ending():
            self._sold[SoldByTask].append((await decide_in_a_task(log, _seller(SoldByTask))).last)
            self.counts["decide by task"] += 1

    async def _follow_by_task(self, log: aio.RemoteLog) -> None:
        async with await log.subscribe() as subscription:
            async for each in subscription:
                if self._has_seen("follow by task", [each]):
                    return

    async def _work_by_task(self, log: aio.RemoteLog) -> None:
        async with log.work("shipping", start="earliest", batch_events=1000) as work:
            async for batch in work:
                if self._has_seen("work by task", batch.events):
                    return

    async def _is_ending(self) -> bool:
        await asyncio.sleep(PAUSE_S)
        return self._ending.is_set()
