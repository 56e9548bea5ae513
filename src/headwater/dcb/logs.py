"""Log management: list, create, get, change, delete and trim logs, and list segments page by page."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec

from ..core.access import Right
from ..core.errors import InvalidLogName, LogNotFound
from ..core.extent import ForeseenTrim
from ..core.log import LogInfo
from ..core.loop.slices import Slices
from ..core.settings import LogSettings
from ..core.store import LogStore
from ..formats import jsontext
from ..formats.settings.logs import SettingsJson, named_settings
from ..http import Exchange
from ..http.errors import InvalidParameter
from ..http.exchange import DROPS_AT_MOST, as_json, drops_at_most, whole_number
from .host import Host
from .wire import ForeseenTrimOut, HeldOut, SegmentsOut, TrimIn

LIMIT, LIMIT_MAX = 100, 1000


async def list_segments(host: Host, exchange: Exchange) -> None:
    """GET /logs/{log}/segments"""
    opened = await host.log(exchange, Right.READ)
    parameters = exchange.parameters("after", "limit")
    after, limit = whole_number(parameters, "after") or 0, whole_number(parameters, "limit")
    if limit is not None and not 1 <= limit <= LIMIT_MAX:
        raise InvalidParameter("limit", f"expected 1 to {LIMIT_MAX}, got {limit}")
    limit = limit or LIMIT
    found = await asyncio.to_thread(opened.log.segments, after, limit + 1)
    more = found[limit - 1].first if len(found) > limit else None
    log = opened.log
    await exchange.answer(
        200, as_json(SegmentsOut(found[:limit], log.first_retained, log.head(), opened.view.incarnation, more))
    )


_settings_decoder = msgspec.json.Decoder(SettingsJson)
_trim_decoder = msgspec.json.Decoder(TrimIn)
_DEFAULTS = LogSettings()


async def list_logs(host: Host, exchange: Exchange) -> None:
    """GET /logs"""
    user = await host.user(exchange)
    names = await asyncio.to_thread(host.logs.store.names)
    found, slices = [], Slices()
    for name in names:
        await slices.pause()
        if user.may(Right.READ, name):
            found.append(name)
    await exchange.answer(200, as_json({"logs": found}))


async def get(host: Host, exchange: Exchange) -> None:
    """GET /logs/{log}"""
    opened = await host.log(exchange, Right.READ)
    await exchange.answer(200, as_json(await asyncio.to_thread(opened.log.info)))


async def create(host: Host, exchange: Exchange) -> None:
    """PUT /logs/{log}"""
    name = await host.authorize(exchange, Right.MANAGE)
    body = await exchange.json_body()
    settings = LogSettings(**_given_settings(body)) if body else _DEFAULTS
    try:
        info, is_new = await host.logs.change(name, lambda: _create(host.logs.store, name, settings))
    except InvalidLogName as error:
        raise InvalidParameter("log", error.problem) from None
    await exchange.answer(201 if is_new else 200, as_json(info))


async def change(host: Host, exchange: Exchange) -> None:
    """PATCH /logs/{log}"""
    name = await host.authorize(exchange, Right.MANAGE)
    drops = drops_at_most(exchange.parameters(DROPS_AT_MOST))
    given = _given_settings(await exchange.json_body())
    info = await host.logs.change(name, lambda: _change(host.logs.store, name, given, drops))
    await exchange.answer(200, as_json(info))


async def delete(host: Host, exchange: Exchange) -> None:
    """DELETE /logs/{log}"""
    name = await host.authorize(exchange, Right.MANAGE)
    incarnation = exchange.parameters("incarnation").get("incarnation")
    await host.logs.change(name, lambda: host.logs.store.delete(name, incarnation))
    await exchange.answer_empty(204)


async def trim(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/trim"""
    opened = await host.log(exchange, Right.MANAGE)
    given = jsontext.decode(_trim_decoder, await exchange.json_body())
    if given.dry_run:
        foreseen = await asyncio.to_thread(opened.log.foresee_trim, given.below)
        await exchange.answer(200, as_json(_shown(foreseen)))
        return
    first_retained = await asyncio.to_thread(opened.log.trim, given.below)
    await exchange.answer(200, as_json({"first_retained": first_retained}))


def _shown(foreseen: ForeseenTrim) -> ForeseenTrimOut:
    held = [
        HeldOut(each.owner, each.component, each.acknowledged, each.seen_at, weight.events, weight.bytes)
        for each, weight in foreseen.held_back
    ]
    weight = foreseen.weight
    return ForeseenTrimOut(
        foreseen.first_retained,
        weight.events,
        weight.bytes,
        foreseen.freed_segments,
        foreseen.freed_bytes,
        foreseen.held_back_by,
        held,
    )


def _given_settings(body: bytes) -> dict[str, Any]:
    """The settings named in a body; null means the default."""
    return named_settings(jsontext.decode(_settings_decoder, body))


def _create(store: LogStore, name: str, settings: LogSettings) -> tuple[LogInfo, bool]:
    try:
        store.open(name)
        is_new = False
    except LogNotFound:
        is_new = True
    return store.create(name, settings).info(), is_new


def _change(store: LogStore, name: str, given: dict[str, Any], drops: int) -> LogInfo:
    return store.change(name, replace(store.open(name).settings, **given), drops_at_most=drops).info()
