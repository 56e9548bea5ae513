"""Subscriptions as Server-Sent Events (HTML standard, 9.2): catch up, then follow.

The message id is the sequence number. A block with an id and no data moves an EventSource's Last-Event-ID and raises no
event ("dispatch the event", steps 1 and 2): it moves the cursor past events that do not match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, suppress
from functools import partial
from typing import NamedTuple

import msgspec

from ...core.access import Right
from ...core.errors import InvalidInput, PositionOfOtherIncarnation, PositionTrimmed
from ...core.limits import show
from ...core.log import LargeEvent, Page, Selection
from ...core.query import Query
from ...core.readers import Reader, Waiting
from ...formats import jsontext
from ...formats.slices import PieceBytes, json_slices
from ...http import Exchange
from ...http.errors import InvalidParameter, misplaced
from ...http.exchange import EVENT_STREAM, whole_number
from ..events import envelope_texts, large_envelope
from ..host import Host, Opened
from ..queries import is_in_seed_form, query_of
from ..wire import QueryIn
from .pieces import send_piece
from .read import check_data_bytes_max

HEARTBEAT_S = 15.0
HEARTBEAT_S_MIN, HEARTBEAT_S_MAX = 0.1, 300.0
CURSOR_INTERVAL_S = 1.0
"""The minimum interval between cursor updates while no event matches."""
GOODBYE_S = 1.0
"""How long a stopping server waits for a slow client to read the end of its stream."""


class _Texts(NamedTuple):
    """The rendering of events."""

    has_partitions: bool
    in_seed_form: bool
    data_bytes_max: int | None

    def blocks(self, page: Page, is_idle: bool) -> bytes:
        """The messages for a page."""
        blocks = []
        if page.events:
            numbers = [event.sequence_number for event in page.events]
            texts = envelope_texts(page.events, self.has_partitions, self.in_seed_form, self.data_bytes_max)
            blocks = [b"id: %d\ndata: %b\n\n" % block for block in zip(numbers, texts, strict=True)]
        if is_idle:
            blocks.append(b": heartbeat\n")
        if not page.events or page.events[-1].sequence_number < page.cursor:
            blocks.append(b"id: %d\n\n" % page.cursor)
        return b"".join(blocks)

    def slices(self, large: LargeEvent, piece_bytes: PieceBytes) -> Iterator[bytes]:
        """The message for an event that is too large for a page."""
        encoded, data = large_envelope(large, self.has_partitions, self.in_seed_form, self.data_bytes_max)
        return json_slices(b"id: %d\ndata: %b\n\n" % (large.event.sequence_number, encoded), data, piece_bytes)


_query_decoder = msgspec.json.Decoder(QueryIn)


async def subscribe(host: Host, exchange: Exchange) -> None:
    """GET /logs/{log}/subscribe"""
    opened = await host.log(exchange, Right.READ)
    parameters = exchange.parameters("query", "from", "after", "partition", "heartbeat", "data_bytes_max")
    given = query_parameter(parameters)
    try:
        query = query_of(given, "")
    except InvalidInput as error:
        raise misplaced(error, "query") from None
    heartbeat_s = _heartbeat(parameters)
    data_bytes_max = _data_bytes_max(parameters)
    selection = _selection(exchange, opened, parameters)
    fields = [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"), *opened.view.headers(selection.head)]
    await exchange.start(EVENT_STREAM, fields, proves_itself=True)
    texts = _Texts(opened.view.has_partitions, is_in_seed_form(given), data_bytes_max)
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    reader = _reader(exchange, opened, parameters, selection, ended)
    stream = _stream(host, exchange, opened, query, selection, heartbeat_s, texts, reader)
    with host.readers.having(reader):
        is_there = await _run(stream, exchange, host, ended)
    if is_there:
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await exchange.finish(b": %b\n\n" % " ".join(ended.result().split()).encode() if ended.done() else b"")


def _reader(
    exchange: Exchange, opened: Opened, parameters: dict[str, str], selection: Selection, ended: asyncio.Future[str]
) -> Reader:
    """The subscription, as it is shown to operators."""
    client = exchange.scope.get("client")

    def end(reason: str) -> None:
        if not ended.done():
            ended.set_result(reason)

    return Reader(
        "http",
        opened.log,
        end,
        user=exchange.user_name,
        peer=(exchange.peer, client[1] if client else None),
        wants=parameters["query"],
        partition=selection.partition,
        position=selection.after,
    )


def query_parameter(parameters: dict[str, str]) -> QueryIn | str:
    """The query in the query parameter: JSON, or the word `all`. Raises InvalidParameter."""
    text = parameters.get("query")
    if text is None:
        raise InvalidParameter("query", "is missing; expected a query as JSON, or the word all")
    if text == "all":
        return text
    try:
        return jsontext.decode(_query_decoder, text.encode())
    except InvalidInput as error:
        raise misplaced(error, "query") from None
    except UnicodeEncodeError:
        raise InvalidParameter("query", "is not UTF-8") from None


async def _run(stream: Coroutine[None, None, None], exchange: Exchange, host: Host, ended: asyncio.Future[str]) -> bool:
    """Run the stream until it ends or is ended, the client disconnects, its login expires or the server stops.

    Returns whether the client is still connected.
    """
    streaming = asyncio.ensure_future(stream)
    gone = asyncio.ensure_future(exchange.disconnected())
    stopping = asyncio.ensure_future(host.stopping.wait())
    try:
        await asyncio.wait(
            (streaming, gone, stopping, ended), timeout=exchange.login_s, return_when=asyncio.FIRST_COMPLETED
        )
        if streaming.done():
            streaming.result()
        return not gone.done()
    finally:
        for task in (streaming, gone, stopping):
            task.cancel()
        await asyncio.gather(streaming, gone, stopping, return_exceptions=True)


async def _stream(
    host: Host,
    exchange: Exchange,
    opened: Opened,
    query: Query,
    selection: Selection,
    heartbeat_s: float,
    texts: _Texts,
    reader: Reader,
) -> None:
    """Send pages until the log closes or is trimmed past the cursor; each is read after the last is received."""
    share, flow = exchange.share, host.flow(exchange)
    await exchange.send(b"retry: 1000\n\n")
    loop = asyncio.get_running_loop()
    cursor: int | None = None
    told_at = loop.time()
    following = opened.asynchronous.follow(
        selection.after,
        query,
        partition=selection.partition,
        idle_s=heartbeat_s,
        flow=flow,
        page_bytes=lambda: share.piece_bytes,
    )
    async with aclosing(following) as pages:
        async for page in pages:
            if cursor is not None and _is_overtaken(opened, cursor):
                await exchange.send(b": the log was trimmed beyond this reader\n\n")
                return
            is_idle, count = page.cursor == cursor, len(page.events) + (page.large is not None)
            cursor = page.cursor
            if count or is_idle or loop.time() - told_at >= CURSOR_INTERVAL_S:
                host.logs.traffic.events_out += count
                reader.waits(Waiting.READING)
                share.begin_answer()
                if page.large is None:
                    step = partial(texts.blocks, page, is_idle)
                    del page
                    await send_piece(host, exchange, flow, step)
                    del step
                else:
                    slices = texts.slices(page.large, lambda: share.piece_bytes)
                    while await send_piece(host, exchange, flow, partial(next, slices, None)):
                        pass
                share.end_answer()
                reader.waits(Waiting.EVENTS)
                told_at = loop.time()
            reader.sent(cursor, count)


def _is_overtaken(opened: Opened, cursor: int) -> bool:
    """Whether events after the cursor may have been trimmed before they were read."""
    try:
        opened.log.check_position(cursor + 1)
    except (PositionTrimmed, PositionOfOtherIncarnation):
        return True
    return False


def _selection(exchange: Exchange, opened: Opened, parameters: dict[str, str]) -> Selection:
    """Where to begin. A reconnecting reader's Last-Event-ID wins, because its URL still has the original position."""
    partition = whole_number(parameters, "partition")
    from_, after = whole_number(parameters, "from"), whole_number(parameters, "after")
    last_event_id = exchange.header(b"last-event-id")
    if last_event_id:
        name = "Last-Event-ID"
        from_, after = None, whole_number({name: last_event_id.decode("latin-1")}, name)
    try:
        return opened.log.selection(from_, after, False, None, partition)
    except InvalidInput as error:
        raise InvalidParameter(error.where, error.problem) from None


def _data_bytes_max(parameters: dict[str, str]) -> int | None:
    value = whole_number(parameters, "data_bytes_max")
    try:
        if value is not None:
            check_data_bytes_max(value)
    except InvalidInput as error:
        raise InvalidParameter(error.where, error.problem) from None
    return value


def _heartbeat(parameters: dict[str, str]) -> float:
    text = parameters.get("heartbeat")
    if text is None:
        return HEARTBEAT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not HEARTBEAT_S_MIN <= seconds <= HEARTBEAT_S_MAX:
        allowed = f"{HEARTBEAT_S_MIN} to {HEARTBEAT_S_MAX:g} seconds"
        raise InvalidParameter("heartbeat", f"expected {allowed}, got {show(text)}")
    return seconds
