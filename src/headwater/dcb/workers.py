"""Workers that share the partitions of a log as a named group, over HTTP: beat, acknowledge, leave."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import msgspec

from ..core.access import Right
from ..core.errors import InvalidInput
from ..core.workers import HeldPartition, Holding, WorkerKey, Workers
from ..formats import jsontext
from ..http import Exchange
from ..http.errors import InvalidParameter, RouteNotFound, Stopping
from ..http.exchange import as_json, whole_number
from .host import Host
from .wire import BeatIn, DoneIn, HoldingOut, PartitionOut

_beat_decoder = msgspec.json.Decoder(BeatIn)
_done_decoder = msgspec.json.Decoder(DoneIn)
_OF_PATH = ("group", "worker")


async def beat(host: Host, exchange: Exchange) -> None:
    """PUT /logs/{log}/groups/{group}/workers/{worker}"""
    workers, key = await _asked(host, exchange)
    given = jsontext.decode(_beat_decoder, await exchange.json_body() or b"{}")
    beating = workers.beat(
        key,
        lease_ms=given.lease_ms,
        wait_ms=given.wait_ms,
        version=given.version,
        begins_earliest=None if given.start is None else given.start == "earliest",
        peer=exchange.peer,
    )
    try:
        holding = await _unless_gone(host, exchange, beating)
    except InvalidInput as error:
        if error.where not in _OF_PATH:
            raise
        raise InvalidParameter(error.where, error.problem) from None
    if holding is not None:
        await exchange.answer(200, as_json(HoldingOut(holding.version, [_out(held) for held in holding.partitions])))


async def acknowledge(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/groups/{group}/workers/{worker}/acknowledge"""
    workers, key = await _asked(host, exchange)
    given = jsontext.decode(_done_decoder, await exchange.json_body())
    held = await workers.acknowledge(key, given.partition, given.epoch, given.sequence_number, gives_up=given.gives_up)
    await exchange.answer(200, as_json(_out(held)))


async def leave(host: Host, exchange: Exchange) -> None:
    """DELETE /logs/{log}/groups/{group}/workers/{worker}"""
    workers, key = await _asked(host, exchange)
    await workers.leave(key, whole_number(exchange.parameters("version"), "version"))
    await exchange.answer_empty(204)


async def _asked(host: Host, exchange: Exchange) -> tuple[Workers, WorkerKey]:
    await host.log(exchange, Right.READ)
    if host.workers is None:
        raise RouteNotFound(exchange.scope["path"])
    log, group, name = exchange.arguments
    return host.workers, WorkerKey(log, group, exchange.user_name, name)


async def _unless_gone(host: Host, exchange: Exchange, beating: Coroutine[None, None, Holding]) -> Holding | None:
    """The answer to a beat, which may wait; None if the client has disconnected. Raises Stopping."""
    answering = asyncio.ensure_future(beating)
    gone = asyncio.ensure_future(exchange.disconnected())
    stopping = asyncio.ensure_future(host.stopping.wait())
    try:
        await asyncio.wait((answering, gone, stopping), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        if gone.done():
            return None
        raise Stopping
    finally:
        for task in (answering, gone, stopping):
            task.cancel()
        await asyncio.gather(answering, gone, stopping, return_exceptions=True)


def _out(held: HeldPartition) -> PartitionOut:
    return PartitionOut(*held)
