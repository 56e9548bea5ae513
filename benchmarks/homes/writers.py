"""The contenders: a log at a home, a log in a local directory, and what a Python program takes else for PostgreSQL.

All are used by clients of this process, each of which waits for its append before the next. Headwater's are tasks of
one event loop, as in its server; those of `eventsourcing` are threads with a connection each, as its recorder blocks.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvloop
from psycopg.conninfo import conninfo_to_dict

from headwater.core import AppendCondition, AsyncLog, Event, Query, QueryItem
from headwater.core.errors import AppendConditionFailed
from headwater.homes.postgres.home import PostgresHome
from headwater.storage import Engine

from ..stores.headwater_store import HeadwaterStore

CONNECTIONS = 64
IN_FLIGHT = 8
Pair = tuple[str, str]
"""The two tags that a command asks for."""


class Writer(ABC):
    """One log, and clients of it."""

    @abstractmethod
    def append(self, clients: int, seconds: float, work: Sequence[Sequence[Event]]) -> list[float]:
        """So many clients append one piece of the work after the other; how long each append took, in seconds."""

    @abstractmethod
    def command(self, clients: int, seconds: float, work: Sequence[tuple[Pair, Event]]) -> list[float]:
        """The same, where each reads two tags, and appends unless something was appended to either meanwhile."""

    @abstractmethod
    def append_all(self, batches: Sequence[Sequence[Event]]) -> None:
        """Append every batch, some of them unanswered at a time."""

    @abstractmethod
    def head(self) -> int:
        """The last number."""

    @abstractmethod
    def close(self) -> None:
        """Close in order."""


class HeadwaterWriter(Writer):
    """Headwater's engine in this process; with a home, or with a directory alone."""

    def __init__(self, directory: Path, home_url: str | None) -> None:
        self._home = None if home_url is None else PostgresHome(home_url)
        if self._home is not None:
            self._home.begin_term()
        self._store = HeadwaterStore(directory, Engine(directory, home=self._home))

    def append(self, clients: int, seconds: float, work: Sequence[Sequence[Event]]) -> list[float]:
        """See Writer."""

        async def step(log: AsyncLog, events: Sequence[Event]) -> None:
            await log.append(events)

        return self._run(clients, seconds, work, step)

    def command(self, clients: int, seconds: float, work: Sequence[tuple[Pair, Event]]) -> list[float]:
        """See Writer."""

        async def step(log: AsyncLog, given: tuple[Pair, Event]) -> None:
            pair, event = given
            query = Query.of(*(QueryItem(tags=(tag,)) for tag in pair))
            while True:
                reading = self._store.log.read(query)
                assert list(reading), "events are missing from a read"
                try:
                    await log.append([event], AppendCondition(query, reading.head))
                    return
                except AppendConditionFailed:
                    continue

        return self._run(clients, seconds, work, step)

    def append_all(self, batches: Sequence[Sequence[Event]]) -> None:
        """See Writer."""
        self._store.append_all(batches, IN_FLIGHT)

    def head(self) -> int:
        """See Writer."""
        return self._store.head()

    def close(self) -> None:
        """See Writer."""
        self._store.close()
        if self._home is not None:
            self._home.close()

    def _run(self, clients: int, seconds: float, work: Sequence[Any], step: Callable[..., Any]) -> list[float]:
        latencies: list[float] = []
        pieces = iter(work)

        async def client(log: AsyncLog, end: float) -> None:
            while (piece := next(pieces, None)) is not None:
                began = time.perf_counter()
                await step(log, piece)
                latencies.append((ended := time.perf_counter()) - began)
                if ended > end:
                    return

        async def all_of_them() -> None:
            log = AsyncLog(self._store.log)
            try:
                end = time.perf_counter() + seconds
                await asyncio.gather(*(client(log, end) for _ in range(clients)))
            finally:
                log.close()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(all_of_them())
        return latencies


class EventsourcingWriter(Writer):
    """The recorder for PostgreSQL of the library `eventsourcing`: a function of the database for each append."""

    def __init__(self, directory: Path, url: str) -> None:
        from eventsourcing.dcb import api, postgres_tt
        from eventsourcing.persistence import IntegrityError
        from eventsourcing.utils import Environment

        self._api, self._conflict = api, IntegrityError
        given = conninfo_to_dict(url)
        names = {"DBNAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user"}
        settings = {f"POSTGRES_{theirs}": str(given[ours]) for theirs, ours in names.items()}
        settings |= {"POSTGRES_PASSWORD": "none", "POSTGRES_POOL_SIZE": str(CONNECTIONS)}
        self._factory = postgres_tt.PostgresTTDCBFactory(Environment("bench", settings))
        self._recorder = self._factory.dcb_recorder()

    def append(self, clients: int, seconds: float, work: Sequence[Sequence[Event]]) -> list[float]:
        """See Writer."""
        return self._run(clients, seconds, [self._given(events) for events in work], self._recorder.append)

    def command(self, clients: int, seconds: float, work: Sequence[tuple[Pair, Event]]) -> list[float]:
        """See Writer."""
        api = self._api

        def step(given: tuple[Any, list[Any]]) -> None:
            query, events = given
            while True:
                response = self._recorder.read(query)
                assert list(response), "events are missing from a read"
                try:
                    self._recorder.append(events, api.DCBAppendCondition(query, response.head))
                    return
                except self._conflict:
                    continue

        prepared = [
            (api.DCBQuery(items=[api.DCBQueryItem(tags=[tag]) for tag in pair]), self._given([event]))
            for pair, event in work
        ]
        return self._run(clients, seconds, prepared, step)

    def append_all(self, batches: Sequence[Sequence[Event]]) -> None:
        """See Writer."""
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            list(pool.map(lambda events: self._recorder.append(self._given(events)), batches))

    def head(self) -> int:
        """See Writer."""
        return self._recorder.read(limit=None, after=2**62).head or 0

    def close(self) -> None:
        """See Writer."""
        self._factory.close()

    def _given(self, events: Sequence[Event]) -> list[Any]:
        return [self._api.DCBEvent(type=event.type, data=event.data, tags=list(event.tags)) for event in events]

    def _run(self, clients: int, seconds: float, work: Sequence[Any], step: Callable[[Any], object]) -> list[float]:
        latencies: list[float] = []
        pieces, taking = iter(work), threading.Lock()

        def client(end: float) -> None:
            while True:
                with taking:
                    piece = next(pieces, None)
                if piece is None:
                    return
                began = time.perf_counter()
                step(piece)
                latencies.append((ended := time.perf_counter()) - began)
                if ended > end:
                    return

        with ThreadPoolExecutor(clients) as pool:
            end = time.perf_counter() + seconds
            for ended in [pool.submit(client, end) for _ in range(clients)]:
                ended.result()
        return latencies
