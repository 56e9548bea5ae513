"""Adding events: futoin.evt.gen (FTN18, 3.2), and headwater.evt.gen with idempotency keys and batches."""

from __future__ import annotations

from typing import Any

from ..core.access import Right
from ..core.event import Event
from .calls import Call
from .plain import json_text


async def ping(call: Call) -> bytes:
    """futoin.ping: the number that was given (FTN4)."""
    return call.coder.value({"echo": int(call.parameters["echo"])})


async def add_event(call: Call) -> bytes:
    """addEvent: durable when it is answered, with its number as EventID."""
    hosted = await call.log(Right.APPEND)
    given = call.parameters
    result = await hosted.asynchronous.append([_event(call, given["type"], given["data"], given.get("key"))])
    return call.coder.value(str(result.first))


async def add_events(call: Call) -> bytes:
    """addEvents: all of them, under consecutive numbers, or none."""
    hosted = await call.log(Right.APPEND)
    given: list[dict[str, Any]] = call.parameters["events"]
    size = call.message.size
    events = [_event(call, its["type"], json_text(its["data"], size), its.get("key")) for its in given]
    result = await hosted.asynchronous.append(events)
    return call.coder.value([str(number) for number in range(result.first, result.last + 1)])


def _event(call: Call, type: str, data: bytes, key: str | None) -> Event:
    """A key is the event's id, among the ids of its user: so a repeated call is recognised."""
    if key is None:
        return Event(type, data)
    return Event(type, data, id=key, source=f"/futoin/{call.caller.owner}")
