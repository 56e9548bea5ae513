"""What a room counts of what it appends, whoever waits for it."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core.condition import AppendCondition
from headwater.core.errors import AppendConditionFailed
from headwater.core.event import Event
from headwater.core.loop.async_log import AsyncLog
from headwater.core.loop.traffic import Traffic
from headwater.core.query import ALL
from headwater.storage.memory import MemoryStore


def test_events_are_counted_when_they_are_stored_and_once() -> None:
    async def scenario() -> None:
        traffic = Traffic()
        log = AsyncLog(MemoryStore().create("orders"), traffic=traffic)
        await log.append([Event("A", b"")] * 3)
        assert traffic.events_in == 3
        left = log.submit([Event("B", b"")] * 2)
        left.cancel()  # who asked has gone; the events stay
        await log.append([Event("C", b"", id="known", source="/s")])
        assert (traffic.events_in, log.log.head()) == (6, 6)
        assert (await log.append([Event("C", b"", id="known", source="/s")])).was_stored
        with pytest.raises(AppendConditionFailed):
            await log.append([Event("D", b"")], AppendCondition(ALL, 0))
        assert (traffic.events_in, traffic.events_out) == (6, 0)
        log.close()

    asyncio.run(scenario())


def test_faces_of_a_log_count_their_own() -> None:
    async def scenario() -> None:
        log = MemoryStore().create("orders")
        faces = [AsyncLog(log, traffic=Traffic()) for _ in range(2)]
        await faces[0].append([Event("A", b"")])
        assert [face.traffic.events_in for face in faces] == [1, 0]
        for face in faces:
            face.close()

    asyncio.run(scenario())
