"""Appends as a stream of Arrow IPC: their columns are read and checked in a thread, beside the event loop.

A stream holds nothing but events, so that a condition and a partition are query parameters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from ..core.condition import AppendCondition
from ..core.errors import InvalidInput
from ..core.event import Event
from ..core.limits import EventColumns
from ..core.log import AppendResult
from ..core.settings import LogSettings
from ..formats import jsontext
from ..formats.tracing import trace_of_headers, traced
from ..http import Exchange
from ..http.errors import InvalidParameter, misplaced
from ..http.exchange import whole_number
from .host import Opened
from .large import check_query
from .queries import condition_of
from .wire import ConditionIn

_condition_decoder = msgspec.json.Decoder(ConditionIn)


async def append_arrow(exchange: Exchange, opened: Opened) -> AppendResult:
    """Append what the body holds. Raises InvalidInput with the path of the culprit, and as `AsyncLog.append`."""
    parameters = exchange.parameters("condition", "partition")
    condition, partition = _condition(parameters), whole_number(parameters, "partition")
    trace = trace_of_headers(exchange.scope["headers"])
    completed = partial(traced, trace=trace) if trace else None
    columns = await asyncio.to_thread(_columns, await exchange.body(), opened.log.settings, completed)
    return await opened.asynchronous.append_columns(columns, condition, partition=partition)


def _columns(
    body: bytes, settings: LogSettings, completed: Callable[[Sequence[Event]], Sequence[Event]] | None
) -> EventColumns:
    from ..formats.arrow_events import columns_of  # Arrow is loaded when it is needed, and not on the event loop
    from ..formats.arrow_stream import batch_of_stream

    return columns_of(batch_of_stream(body), settings, completed)


def _condition(parameters: Mapping[str, str]) -> AppendCondition | None:
    text = parameters.get("condition")
    if text is None:
        return None
    try:
        content = text.encode()
        check_query(content, "condition")
        return condition_of(jsontext.decode(_condition_decoder, content))
    except UnicodeEncodeError:
        raise InvalidParameter("condition", "is not UTF-8") from None
    except InvalidInput as error:
        error.where = error.where.removeprefix("condition").lstrip(".")
        raise misplaced(error, "condition") from None
