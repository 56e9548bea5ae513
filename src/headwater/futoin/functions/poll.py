"""Registering consumers and polling (FTN18, 3.3.1), and headwater.evt.poll, which waits for events and returns traces.

A consumer is identified by user and component, and is a reliable consumer of the log: its `last_id` acknowledges. The
stored position never moves back; a page starts after the `last_id` of its call.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from ...core.access import Right
from ...core.errors import ConsumerNotFound
from ..calls import Call
from ..errors import LIVE_NOT_ALLOWED, FutoInError, invalid, security
from ..host import Opened
from ..naming import Selected
from .events import Group, group_after, read

LIVE = "LIVE"
"""The component that is never registered and has no stored position (FTN18, 2.2.4)."""

SIGNED_COPIES = 2
"""Extra copies of a page in memory while its reply is signed: its values and their text."""


def check_reliable(call: Call) -> None:
    """Raises FutoInError (SecurityError) if reliable consumers are disabled."""
    if not call.host.settings.allow_reliable:
        raise security(f"Only {LIVE} delivery is allowed here: futoin.allow_reliable is false")


async def register_consumer(call: Call) -> bytes:
    """registerConsumer: a new consumer begins at the oldest event; a known one keeps its position.

    A new registration needs the right to manage the log, because it holds back trimming; repeating one needs the right
    to read.
    """
    component = call.parameters["component"]
    if component == LIVE:
        raise FutoInError(LIVE_NOT_ALLOWED, "Live consumer should not register")
    check_reliable(call)
    opened = await call.log(Right.READ)
    owner = call.caller.owner
    if opened.log.consumer(owner, component) is None:
        await call.log(Right.MANAGE)
    await asyncio.to_thread(opened.log.register_consumer, owner, component, after=0)
    return call.coder.value(True)


async def poll_events(call: Call) -> bytes:
    """pollEvents: the wanted events after `last_id`, or after the stored position if there is none."""
    if not call.host.settings.allow_polling:
        raise security("Only event push is allowed here: futoin.allow_polling is false")
    given = call.parameters
    component = given["component"]
    if component != LIVE:
        check_reliable(call)
    opened = await call.log(Right.READ)
    last_id = None if given["last_id"] is None else int(given["last_id"])
    if last_id is not None and last_id > (head := opened.log.head()):
        raise invalid(f"last_id {last_id} is beyond the last event, {head}")
    after = last_id or 0 if component == LIVE else await _acknowledged(call, opened, component, last_id)
    selected = opened.view.select(given["want"])
    group = await _next_group(call, opened, selected, after, given.get("wait_ms", 0) / 1000)
    if component != LIVE and not group.events:
        await _acknowledged(call, opened, component, group.upto)  # unwanted events count as delivered
    size = SIGNED_COPIES * sum(map(len, group.events))
    if call.caller.signature is not None and not call.claim.take(size):
        raise call.claim.refusal(size)
    call.host.statistics.traffic.events_out += len(group.events)
    return call.coder.array(group.events)


async def _acknowledged(call: Call, opened: Opened, component: str, position: int | None) -> int:
    """Store the acknowledgement, and return where the page starts. Raises ConsumerNotFound."""
    owner = call.caller.owner
    consumer = opened.log.consumer(owner, component)
    if consumer is None:
        raise ConsumerNotFound(owner, component)
    start = consumer.acknowledged if position is None else position
    was_just_seen = time.time() * 1000 - consumer.seen_at < call.host.settings.seen_interval_s * 1000
    if start > consumer.acknowledged or not was_just_seen:
        await opened.asynchronous.acknowledge(owner, component, max(start, consumer.acknowledged))
    return start


async def _next_group(call: Call, opened: Opened, selected: Selected, after: int, wait_s: float) -> Group:
    """The next wanted events; empty only at the end of the log, after waiting `wait_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while True:
        next_commit = opened.asynchronous.next_commit
        await call.claim.turn()
        group, is_last = await group_after(
            partial(read, opened.log, selected),
            call.turn,
            after,
            call.coder,
            opened.view,
            call.claim,
            call.result_bytes_max,
            call.page_bytes_max,
            call.host.settings.max_chunk_events,
            is_traced=call.function.is_traced,
        )
        if group.events:
            return group
        call.claim.end()
        after = max(after, group.upto)
        if not is_last:
            await asyncio.sleep(0)
            continue
        left_s = 0 if opened.log.is_closed else deadline - loop.time()
        if left_s <= 0 or not await _is_done(next_commit, left_s, call.host.stopping):
            return Group([], after, 0)


async def _is_done(next_commit: asyncio.Future[None], timeout_s: float, stopping: asyncio.Future[None]) -> bool:
    """Wait for that commit. Returns False if it did not happen in time, or the server stops."""
    await asyncio.wait((next_commit, stopping), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    return next_commit.done() and not stopping.done()
