"""Appends: the log's own JSON, as MessagePack too, Arrow IPC, and CloudEvents in structured, batch and binary mode."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec

from ...core.access import Right
from ...core.condition import AppendCondition
from ...core.errors import InvalidInput, TooLarge
from ...core.event import Event
from ...core.limits import EventColumns, check_attribute_name, show
from ...core.log import AppendResult
from ...core.loop.append_builder import AppendBuilder
from ...core.loop.slices import Slices
from ...core.settings import LogSettings
from ...formats import cloudevents, jsontext, packed
from ...formats.budget.values import check_values
from ...formats.tracing import trace_of_headers, traced
from ...http import Exchange
from ...http.errors import InvalidParameter, UnsupportedMediaType, misplaced
from ...http.exchange import JSON, as_json, whole_number
from .. import seed
from ..events import events_of
from ..host import Host, Opened
from ..queries import QUERY_VALUES_MAX, condition_is_in_seed_form, condition_of
from ..wire import ARROW, AppendIn, AppendOut, ConditionIn, EventIn, PackedAppendIn
from .large import LARGE_BYTES, Form, read_batch, read_cloudevent, read_json
from .packed import read_packed

_condition_decoder = msgspec.json.Decoder(ConditionIn)


async def append_arrow(exchange: Exchange, opened: Opened) -> AppendResult:
    """Append the events of the body.

    Raises InvalidInput with the path of the invalid part, and the errors of `AsyncLog.append`.
    """
    parameters = exchange.parameters("condition", "partition")
    condition, partition = _condition(parameters), whole_number(parameters, "partition")
    trace = trace_of_headers(exchange.scope["headers"])
    completed = partial(traced, trace=trace) if trace else None
    columns = await asyncio.to_thread(_columns, await exchange.body(), opened.log.settings, completed)
    return await opened.asynchronous.append_columns(columns, condition, partition=partition)


def _columns(
    body: bytes, settings: LogSettings, completed: Callable[[Sequence[Event]], Sequence[Event]] | None
) -> EventColumns:
    from ...formats.arrow.events import columns_of  # Arrow is loaded on demand, and not on the event loop
    from ...formats.arrow.stream import batch_of_stream

    return columns_of(batch_of_stream(body), settings, completed)


def _condition(parameters: Mapping[str, str]) -> AppendCondition | None:
    text = parameters.get("condition")
    if text is None:
        return None
    try:
        content = text.encode()
        check_values(content, QUERY_VALUES_MAX, "condition")
        return condition_of(jsontext.decode(_condition_decoder, content))
    except UnicodeEncodeError:
        raise InvalidParameter("condition", "is not UTF-8") from None
    except InvalidInput as error:
        error.where = error.where.removeprefix("condition").lstrip(".")
        raise misplaced(error, "condition") from None


_append_decoder = msgspec.json.Decoder(AppendIn)
_FORM = Form(_append_decoder, msgspec.json.Decoder(list[EventIn]), events_of)
_packed_decoder = msgspec.msgpack.Decoder(PackedAppendIn)
_PACKED = packed.MEDIA_TYPE.encode()
_BOOLEANS = {"true": True, "false": False}


async def append(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/append"""
    opened = await host.log(exchange, Right.APPEND)
    content_type = exchange.header(b"content-type")
    is_packed = content_type == _PACKED
    if content_type not in (_PACKED, JSON) and exchange.media_type() == ARROW:
        await _answer_result(exchange, await append_arrow(exchange, opened))
        return
    body = await (exchange.body() if is_packed else exchange.json_body("application/json", packed.MEDIA_TYPE, ARROW))
    if len(body) > LARGE_BYTES:
        await _append_large(exchange, opened, body, is_packed=is_packed)
        return
    given: AppendIn | PackedAppendIn
    events: Sequence[Event]
    if is_packed:
        given = packed.decode(_packed_decoder, body)
        events = given.events
    else:
        given = jsontext.decode(_append_decoder, body)
        events = events_of(given.events)
    is_strict = _is_strict(exchange, given)
    condition = None if given.condition is None else condition_of(given.condition, is_strict=is_strict)
    if is_strict:
        seed.check_events(events)
    if trace := trace_of_headers(exchange.scope["headers"]):
        events = traced(events, trace)
    appended = opened.asynchronous.submit(events, condition, partition=given.partition)
    await _answer_result(exchange, await appended)


async def _append_large(exchange: Exchange, opened: Opened, body: bytes, *, is_packed: bool) -> None:
    """Append a long body, in slices."""
    builder = builder_of(exchange, opened)
    try:
        given = await (read_packed(body, builder) if is_packed else read_json(body, _FORM, builder))
        is_strict = _is_strict(exchange, given)
        condition = condition_of(given.condition, is_strict=is_strict)
        if is_strict:
            await _check_strictly(builder.columns())
        result = await _append_gathered(opened, builder, condition, given.partition)
        await _answer_result(exchange, result)
    finally:
        await builder.let_go()


async def _check_strictly(columns: EventColumns) -> None:
    slices = Slices()
    for index in range(columns.count):
        seed.check_event(columns.ids[index], columns.types[index], columns.tags[index], index)
        await slices.pause()


def builder_of(exchange: Exchange, opened: Opened) -> AppendBuilder:
    """A builder for the events of a long body; events without a trace get the trace of the request."""
    trace = trace_of_headers(exchange.scope["headers"])
    completed = partial(traced, trace=trace) if trace else None
    return AppendBuilder(opened.log.settings.event_bytes_max, completed)


async def _append_gathered(
    opened: Opened, builder: AppendBuilder, condition: AppendCondition | None = None, partition: int | None = None
) -> AppendResult:
    return await opened.asynchronous.append_columns(builder.columns(), condition, partition=partition)


async def append_cloudevents(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/events"""
    opened = await host.log(exchange, Right.APPEND)
    media_type = exchange.media_type()
    try:
        if media_type in (cloudevents.STRUCTURED, cloudevents.BATCH):
            body, is_batch = await exchange.body(), media_type == cloudevents.BATCH
            if len(body) > LARGE_BYTES:
                builder = builder_of(exchange, opened)
                try:
                    await (read_batch if is_batch else read_cloudevent)(body, builder)
                    await _answer_result(exchange, await _append_gathered(opened, builder))
                finally:
                    await builder.let_go()
                return
            events = cloudevents.events_from_json_batch(body) if is_batch else [cloudevents.event_from_json(body)]
        elif exchange.header(b"ce-specversion") is not None:
            await _append_binary(exchange, opened)
            return
        else:
            allowed = [cloudevents.STRUCTURED, cloudevents.BATCH, "any media type with ce- header fields"]
            raise UnsupportedMediaType(media_type, allowed)
        await _answer_result(exchange, await opened.asynchronous.submit(in_trace(exchange, events)))
    except InvalidInput as error:
        error.move(_in_cloudevent(error.where, is_batch=media_type == cloudevents.BATCH))
        raise


async def _append_binary(exchange: Exchange, opened: Opened) -> None:
    """The attributes are header fields, so errors name a header field."""
    body = await exchange.body()
    attributes: Mapping[str, str] = {}
    try:
        event = cloudevents.event_from_headers(exchange.scope["headers"], body)
        attributes = event.attributes
        await _answer_result(exchange, await opened.asynchronous.submit(in_trace(exchange, [event])))
    except TooLarge:
        raise
    except InvalidInput as error:
        attribute = _in_cloudevent(error.where, is_batch=False)
        if not attribute and attributes:  # the error concerns all of them: an invalid name, or too many
            attribute = next(filter(check_attribute_name, attributes), "*")
        is_named = attribute != "datacontenttype" or exchange.header(b"ce-datacontenttype") is not None
        field = (f"ce-{attribute}" if is_named else "content-type") if attribute else "body"
        raise InvalidParameter(field, error.problem) from None


def in_trace(exchange: Exchange, events: Sequence[Event]) -> Sequence[Event]:
    """The events; events without a trace get the trace of the request."""
    trace = trace_of_headers(exchange.scope["headers"])
    return traced(events, trace) if trace else events


def _answer_result(exchange: Exchange, result: AppendResult) -> Awaitable[None]:
    return exchange.answer(200, as_json(AppendOut(result.last, result.first, result.was_stored)))


def _is_strict(exchange: Exchange, given: AppendIn | PackedAppendIn) -> bool:
    """The query parameter, otherwise the field, otherwise whether the request is in the seed's form."""
    parameter = exchange.parameters("strict").get("strict")
    if parameter is not None:
        if parameter not in _BOOLEANS:
            raise InvalidParameter("strict", f"expected true or false, got {show(parameter)}")
        return _BOOLEANS[parameter]
    if given.strict is not None or given.condition is None:
        return bool(given.strict)
    return condition_is_in_seed_form(given.condition)


def _in_cloudevent(where: str, *, is_batch: bool) -> str:
    """Translates a path into the events of an append into a path in the CloudEvent or the batch."""
    found = re.fullmatch(r"events(\[\d+\])?(?:\.(?:attributes\.)?(.*))?", where)
    if found is None:
        return where
    index, rest = found.groups()
    name = (rest or "").replace("group_key", "partitionkey").partition("[")[0]
    if name == "attributes":
        name = ""  # in a CloudEvent, attributes are members of the object
    if is_batch and index:
        return f"{index}.{name}" if name else index
    return name
