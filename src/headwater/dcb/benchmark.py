"""Endpoints for the HTTP adapter of the dcb.events benchmark suite: `{base}/read` and `{base}/append`.

It reads an array of flat events with a `position`, and expects status 200 for a failed condition.
"""

from __future__ import annotations

import time

import msgspec

from ..core.access import Right
from ..core.errors import AppendConditionFailed, InvalidInput
from ..core.event import Event
from ..formats import jsontext
from ..http import Exchange
from ..http.errors import misplaced
from ..http.exchange import as_json
from .appends.append import builder_of, in_trace
from .appends.large import LARGE_BYTES, Form, read_json
from .events import suite_array
from .host import Host
from .queries import condition_of, query_of
from .reads.read import answer_events
from .reads.subscribe import query_parameter
from .wire import SuiteAppendIn, SuiteAppendOut, SuiteEventIn, SuiteOptionsIn

_append_decoder = msgspec.json.Decoder(SuiteAppendIn)
_options_decoder = msgspec.json.Decoder(SuiteOptionsIn)


async def read(host: Host, exchange: Exchange) -> None:
    """GET /dcb/{log}/read"""
    opened = await host.log(exchange, Right.READ)
    parameters = exchange.parameters("query", "options")
    try:
        query = query_of(query_parameter(parameters), "", none_is_all=True)
    except InvalidInput as error:
        raise misplaced(error, "query") from None
    try:
        options = jsontext.decode(_options_decoder, parameters.get("options", "{}").encode("utf-8", "replace"))
        selection = opened.log.selection(options.from_, None, options.backwards, options.limit, None)
    except InvalidInput as error:
        raise misplaced(error, "options") from None
    await answer_events(host, exchange, opened, query, selection, suite_array())


async def append(host: Host, exchange: Exchange) -> None:
    """POST /dcb/{log}/append"""
    started = time.perf_counter_ns()
    opened = await host.log(exchange, Right.APPEND)
    body = await exchange.json_body()
    builder = builder_of(exchange, opened)
    is_large = len(body) > LARGE_BYTES
    given = await read_json(body, _FORM, builder) if is_large else jsontext.decode(_append_decoder, body)
    condition = condition_of(given.condition, none_is_all=True)
    append, append_columns = opened.asynchronous.append, opened.asynchronous.append_columns
    try:
        if is_large:
            result = await append_columns(builder.columns(), condition)
        else:
            result = await append(in_trace(exchange, _events_of(given.events)), condition)
        outcome = SuiteAppendOut(_microseconds_since(started), False, result.last)
    except AppendConditionFailed:
        outcome = SuiteAppendOut(_microseconds_since(started), True)
    await exchange.answer(200, as_json(outcome))


def _events_of(given: list[SuiteEventIn]) -> list[Event]:
    return [Event(event.type, event.data.encode(), tuple(event.tags)) for event in given]


_FORM = Form(_append_decoder, msgspec.json.Decoder(list[SuiteEventIn]), _events_of)


def _microseconds_since(started: int) -> int:
    return (time.perf_counter_ns() - started) // 1000
