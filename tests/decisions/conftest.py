"""Logs of every kind, each asked by whoever asks logs of that kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.databases import mysql_server, postgresql_server
from tests.contract.awaited import LoopThread
from tests.contract.serving import Serving

from headwater import decisions
from headwater.client import aio as aio_client
from headwater.client import connect
from headwater.core import AsyncLog, EventLog
from headwater.decisions import Decided, Decision, Projection, aio
from headwater.storage import Engine
from headwater.storage.memory import MemoryLog, MemoryStore


class Asked:
    """A log, and who decides on it."""

    def __init__(self, log: EventLog, decide: Callable[..., Any], project: Callable[[Any], Any]) -> None:
        self.log = log
        """Where the events really are."""
        self._decide, self._project = decide, project

    def decide(self, decision: Decision[Any], **more: Any) -> Decided[Any]:
        decided: Decided[Any] = self._decide(decision, **more)
        return decided

    def project(self, projection: Projection[Any]) -> Any:
        return self._project(projection)


def blocking(log: EventLog, behind: EventLog | None = None) -> Asked:
    return Asked(
        behind or log,
        lambda decision, **more: decisions.decide(log, decision, **more),
        lambda projection: decisions.project(log, projection),
    )


def awaited(log: Any, behind: EventLog, wait: Callable[[Awaitable[Any]], Any]) -> Asked:
    return Asked(
        behind,
        lambda decision, **more: wait(aio.decide(log, decision, **more)),
        lambda projection: wait(aio.project(log, projection)),
    )


def in_memory(directory: Path) -> Iterator[Asked]:
    yield blocking(MemoryLog())


def on_disk(directory: Path) -> Iterator[Asked]:
    with Engine(directory) as engine:
        yield blocking(engine.create("courses"))


def served(directory: Path) -> Iterator[Asked]:
    store = MemoryStore()
    serving = Serving(store)
    with connect(serving.url) as server:
        server.create("courses")
        yield blocking(server.log("courses"), store.open("courses"))
    serving.close()


def served_to_tasks(directory: Path) -> Iterator[Asked]:
    store = MemoryStore()
    log = store.create("courses")
    serving, loop = Serving(store), LoopThread()

    async def connected() -> aio_client.Server:
        return aio_client.connect(serving.url)

    server = loop.wait(connected())
    yield awaited(server.log("courses"), log, loop.wait)
    loop.wait(server.close())
    loop.close()
    serving.close()


def on_a_loop(directory: Path) -> Iterator[Asked]:
    loop = LoopThread()
    with Engine(directory) as engine:
        log = engine.create("courses")

        async def face() -> AsyncLog:
            return AsyncLog(log)

        async def close() -> None:
            here.close()
            await asyncio.sleep(0)

        here = loop.wait(face())
        yield awaited(here, log, loop.wait)
        loop.wait(close())
    loop.close()


KINDS = (in_memory, on_disk, served, served_to_tasks, on_a_loop)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Asked]:
    """A log of each kind."""
    yield from request.param(tmp_path)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server."""
    with postgresql_server() as address:
        yield address


@pytest.fixture(scope="module")
def mysql() -> Iterator[str]:
    """The address of a database of a MySQL server."""
    with mysql_server() as address:
        yield address
