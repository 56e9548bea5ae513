"""Whoever sits on the clients reads all behind a proxy that cuts, or fails: commands, read models, recorders,
decisions."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.client.gateway import Gateway
from tests.client.served_memory import ServedMemory
from tests.server.running import headwater

from headwater.client import RemoteLog, aio, connect
from headwater.core import Event, reading
from headwater.core.log import EventLog
from headwater.decisions import Decision, Projection, ReadModel, Runner, decide, event
from headwater.decisions.aio import decide as decide_in_a_task
from headwater.eventsourcing.recorder import HeadwaterRecorder

EVENTS, PAGE_EVENTS = 10, 3
CUTS = (0, 100, 250, 300)
"""Of the first answer of each read: nothing, and into each of its pages."""


@event
class Taken:
    """A ticket is sold."""

    number: int


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE_EVENTS", PAGE_EVENTS)


@pytest.fixture
def filled(log: RemoteLog) -> RemoteLog:
    log.append([Event("Taken", b'{"number": %d}' % number) for number in range(EVENTS)])
    return log


def _by_a_recorder(log: EventLog) -> int:
    return sum(1 for _ in HeadwaterRecorder(log).read())


def _by_a_limited_recorder(log: EventLog) -> int:
    return sum(1 for _ in HeadwaterRecorder(log).read(limit=EVENTS))


def _by_a_read_model(log: EventLog) -> int:
    model = ReadModel("sold", {"ticket": "number INTEGER"}).on(
        Taken, lambda transaction, taken: transaction.execute("INSERT INTO {ticket} VALUES (?)", (taken.number,))
    )
    with closing(sqlite3.connect(":memory:", isolation_level="DEFERRED")) as connection:
        assert Runner(log, connection, model).run_once() == EVENTS
        return int(connection.execute("SELECT count(*) FROM ticket_1").fetchone()[0])


SOLD = Projection(0).on(Taken, lambda sold, _: sold + 1)


def _by_a_decision(log: EventLog) -> int:
    seen: list[int] = []

    def nothing(sold: int) -> list[object]:
        seen.append(sold)
        return []

    decide(log, Decision(SOLD, nothing))
    return seen[-1]


@pytest.mark.parametrize("read", [_by_a_recorder, _by_a_limited_recorder, _by_a_read_model, _by_a_decision])
def test_programs_see_all(served: ServedMemory, filled: RemoteLog, read: Callable[[EventLog], int]) -> None:
    with Gateway(served.port, http="1.1") as gateway, connect(gateway.url, retry_s=10) as client:
        log = client.log("orders")
        assert read(log) == EVENTS
        for cut in CUTS:
            gateway.cuts += [cut, cut]
            assert read(log) == EVENTS, cut
            gateway.cuts.clear()


def test_a_decision_of_a_task_sees_all(served: ServedMemory, filled: RemoteLog) -> None:
    seen: list[int] = []

    def nothing(sold: int) -> list[object]:
        seen.append(sold)
        return []

    async def scenario(gateway: Gateway) -> None:
        async with aio.connect(gateway.url, retry_s=10) as client:
            for cut in CUTS:
                gateway.cuts += [cut, cut]
                await decide_in_a_task(client.log("orders"), Decision(SOLD, nothing))
                gateway.cuts.clear()

    with Gateway(served.port, http="1.1") as gateway:
        asyncio.run(scenario(gateway))
    assert seen == [EVENTS] * len(CUTS)


@pytest.mark.parametrize("cut", [0, 250])
def test_commands_write_all_or_fail(served: ServedMemory, filled: RemoteLog, tmp_path: Path, cut: int) -> None:
    with Gateway(served.port, http="1.1") as gateway:
        read = ("read", "orders", "--json", "--url", gateway.url)
        export = ("export", "orders", "orders.ndjson", "--overwrite", "--url", gateway.url)
        for command in (read, export):
            gateway.cuts += [cut, cut]
            done = headwater(*command, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            gateway.cuts.clear()
            if command is read:
                assert [json.loads(line)["sequence_number"] for line in done.stdout.splitlines()] == list(range(1, 11))
            gateway.cuts += [cut, cut]
            done = headwater(*command, "--retry-s", "0", cwd=tmp_path)
            assert done.returncode == 3, done.stdout
            gateway.cuts.clear()
        assert len((tmp_path / "orders.ndjson").read_text().splitlines()) == EVENTS
