"""Adding events: futoin.evt.gen (FTN18, 3.2), and headwater.evt.gen with idempotency keys, batches and traces."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ...core.access import Right
from ...core.errors import EventLogError
from ...core.event import Event
from ...core.log import AppendResult
from ...core.loop.append_builder import PART_EVENTS, AppendBuilder
from ...core.loop.slices import Slices
from ...formats.tracing import TRACEPARENT, TRACESTATE, trace_of
from ..calls import Call, Channel, check_size, checked
from ..errors import FutoInError
from ..host import Host, Opened
from ..identity import recall
from ..messages.message import Message
from ..outlet import Claim
from .batches import new_events


async def ping(call: Call) -> bytes:
    """futoin.ping: return the given number (FTN4)."""
    return call.coder.value({"echo": int(call.parameters["echo"])})


async def add_event(call: Call) -> bytes:
    """addEvent: the event is durable when answered, with its number as EventID."""
    opened = await call.log(Right.APPEND)
    append = _added(opened, _given_event(call))
    call.begun()
    return call.coder.value(str((await append).first))


def begin_add_event(
    host: Host, log_name: str, channel: Channel, message: Message
) -> asyncio.Future[AppendResult] | None:
    """Begin an addEvent and return its future result, if it needs no waiting; None decides nothing.

    Most messages are like this and arrive one by one, so they need no task of their own.
    """
    try:
        caller = recall(host.guard, message.sec, channel.authorization)
        if caller is None or host.stopping.done():
            return None
        check_size(message)
        call = checked(host, log_name, channel, Claim(channel.outlet), message, caller)
        opened = host.opened(log_name, caller, Right.APPEND)
        if opened is None:
            return None  # or it is refused, which is counted where it is reported
        append = _added(opened, _given_event(call))
    except (FutoInError, EventLogError):
        return None  # this is found again and reported later
    host.statistics.calls[".".join(call.function.key)] += 1
    return append


def _added(opened: Opened, event: Event) -> asyncio.Future[AppendResult]:
    """The future result of adding an event. An event with a key is appended alone, because peers send more events
    before they get a reply.
    """
    return opened.asynchronous.submit_one(event, alone=bool(event.id))


async def add_events(call: Call) -> bytes:
    """addEvents: add all events, with consecutive numbers, or none."""
    opened = await call.log(Right.APPEND)
    event_bytes_max = opened.log.settings.event_bytes_max
    slices, builder = Slices(), AppendBuilder(event_bytes_max)
    some: list[Event] = []
    for new in new_events(call, event_bytes_max):
        if new is not None:
            some.append(_event(call, new.type, new.data, new.key, new.trace))
        if len(some) == PART_EVENTS or slices.is_over:
            builder.add(some)
            some = []
            await slices.pause()
    builder.add(some)
    columns = builder.columns()
    call.begun()
    result = await opened.asynchronous.append_columns(columns)  # begins before any other task gets its turn
    return call.coder.value([str(number) for number in range(result.first, result.last + 1)])


def _given_event(call: Call) -> Event:
    """The event of addEvent."""
    given = call.parameters
    return _event(call, given["type"], given["data"], given.get("key"), given)


def _event(call: Call, type: str, data: bytes, key: str | None, given: Mapping[str, str]) -> Event:
    """The key becomes the event's id, scoped to its user, so that a repeated call is recognised.

    Its trace is the given one, or otherwise that of the request.
    """
    trace = trace_of(given.get(TRACEPARENT), given.get(TRACESTATE)) or call.channel.trace
    if key is None:
        return Event(type, data, attributes=trace)
    return Event(type, data, id=key, source=f"/futoin/{call.caller.owner}", attributes=trace)
