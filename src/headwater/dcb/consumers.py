"""Registered reliable consumers, over HTTP: events are not trimmed before these consumers have acknowledged them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import msgspec

from ..core.access import Right
from ..core.consumer import Consumer
from ..core.errors import InvalidInput, InvalidPosition
from ..formats import jsontext
from ..http import Exchange
from ..http.arrays import answer_array, in_slices
from ..http.errors import InvalidParameter
from ..http.exchange import DROPS_AT_MOST, as_json, drops_at_most
from .host import Host
from .wire import AcknowledgeIn, RegisterIn, ResetIn

_register_decoder = msgspec.json.Decoder(RegisterIn)
_acknowledge_decoder = msgspec.json.Decoder(AcknowledgeIn)
_reset_decoder = msgspec.json.Decoder(ResetIn)


async def list_consumers(host: Host, exchange: Exchange) -> None:
    """GET /logs/{log}/consumers"""
    opened = await host.log(exchange, Right.READ)
    found = await asyncio.to_thread(opened.log.consumers)
    texts = map(msgspec.json.encode, found)
    await answer_array(exchange, in_slices(texts), b'{"consumers":[', b"]}")


async def register(host: Host, exchange: Exchange) -> None:
    """PUT /logs/{log}/consumers/{owner}/{component}"""
    opened = await host.log(exchange, Right.MANAGE)
    _, owner, component = exchange.arguments
    drops = drops_at_most(exchange.parameters(DROPS_AT_MOST))
    given = jsontext.decode(_register_decoder, await exchange.json_body() or b"{}")
    register_consumer = opened.log.register_consumer
    registering = asyncio.to_thread(register_consumer, owner, component, after=given.after, drops_at_most=drops)
    consumer = await _moved("after", registering)
    await exchange.answer(201 if consumer.epoch == 1 else 200, as_json(consumer))


async def acknowledge(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/consumers/{owner}/{component}/acknowledge"""
    opened = await host.log(exchange, Right.MANAGE)
    _, owner, component = exchange.arguments
    given = jsontext.decode(_acknowledge_decoder, await exchange.json_body())
    acknowledge = opened.asynchronous.acknowledge
    consumer = await _moved("sequence_number", acknowledge(owner, component, given.sequence_number, epoch=given.epoch))
    await exchange.answer(200, as_json(consumer))


async def reset(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/consumers/{owner}/{component}/reset"""
    opened = await host.log(exchange, Right.MANAGE)
    _, owner, component = exchange.arguments
    drops = drops_at_most(exchange.parameters(DROPS_AT_MOST))
    given = jsontext.decode(_reset_decoder, await exchange.json_body())
    moving = asyncio.to_thread(opened.log.reset_consumer, owner, component, given.after, drops_at_most=drops)
    consumer = await _moved("after", moving)
    await exchange.answer(200, as_json(consumer))


async def unregister(host: Host, exchange: Exchange) -> None:
    """DELETE /logs/{log}/consumers/{owner}/{component}"""
    opened = await host.log(exchange, Right.MANAGE)
    _, owner, component = exchange.arguments
    drops = drops_at_most(exchange.parameters(DROPS_AT_MOST))
    await asyncio.to_thread(opened.log.unregister_consumer, owner, component, drops_at_most=drops)
    await exchange.answer_empty(204)


async def _moved(field: str, moving: Coroutine[None, None, Consumer]) -> Consumer:
    """The consumer after a durable move.

    Errors name the body's `field` for a bad position, and the path parameter for a bad owner or component.
    """
    try:
        return await moving
    except InvalidPosition as error:
        raise InvalidPosition(error.problem, field) from None
    except InvalidInput as error:
        raise InvalidParameter(error.where, error.problem) from None
