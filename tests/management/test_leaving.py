"""Who asks over HTTP and goes away is not worked for any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.http import Exchange
from headwater.http.errors import Disconnected
from headwater.management.operations import Answer
from headwater.management.server import _while_there
from headwater.management.statuses import Status


def exchange(leaves: asyncio.Event) -> Exchange:
    async def receive() -> dict[str, Any]:
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError("nobody is there")

    return Exchange({"type": "http", "method": "GET", "headers": []}, receive, send)


def test_work_ends_when_its_client_has_gone() -> None:
    ended: list[str] = []

    async def work() -> Answer:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        raise AssertionError

    async def scenario() -> None:
        leaves = asyncio.Event()
        asked = asyncio.create_task(_while_there(exchange(leaves), work()))
        await asyncio.sleep(0.01)
        leaves.set()
        with pytest.raises(Disconnected):
            await asked
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert ended == ["cancelled"]


def test_its_answer_is_given_while_the_client_waits() -> None:
    async def work() -> Answer:
        return Answer(Status.OK, {}, "done")

    async def scenario() -> None:
        assert (await _while_there(exchange(asyncio.Event()), work())).status is Status.OK

    asyncio.run(scenario())
