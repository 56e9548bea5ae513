"""Reads: page by page, in the form that the client accepts, each with the head that bounds it."""

from __future__ import annotations

from functools import partial

import msgspec

from ...core.access import Right
from ...core.bounded_cache import remembered
from ...core.errors import InvalidInput
from ...core.limits import APPEND_BYTES_MAX, show
from ...core.log import Selection
from ...core.query import Query
from ...core.reading import read_pages
from ...formats import cloudevents, jsontext, packed
from ...formats.budget.values import check_values
from ...http import Exchange
from ...http.exchange import as_json, preferred
from ..counts.count import check_upto
from ..events import (
    NDJSON,
    NDJSON_WITH_END,
    PACKED,
    PACKED_WITH_END,
    Rendering,
    arrow_stream,
    cloudevents_batch,
    json_array,
    ndjson,
)
from ..host import Host, Opened
from ..queries import QUERY_VALUES_MAX, is_in_seed_form, query_of
from ..wire import ARROW, HeadOut, ReadIn
from .pieces import AnswerPieces, send_all

_read_decoder = msgspec.json.Decoder(ReadIn)

_JSON, _CLOUDEVENTS = "application/json", cloudevents.BATCH
_OFFERED = {
    NDJSON: NDJSON,
    NDJSON_WITH_END: NDJSON_WITH_END,
    "application/ndjson": NDJSON,
    "application/ndjson;end=line": NDJSON_WITH_END,
    "application/json": _JSON,
    packed.MEDIA_TYPE: packed.MEDIA_TYPE,
    packed.MEDIA_TYPE_WITH_END: packed.MEDIA_TYPE_WITH_END,
    ARROW: ARROW,
    cloudevents.BATCH: _CLOUDEVENTS,
    cloudevents.STRUCTURED: _CLOUDEVENTS,
}


async def read(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/read"""
    opened = await host.log(exchange, Right.READ)
    body = await exchange.json_body()
    check_values(body, QUERY_VALUES_MAX, "query")
    given = jsontext.decode(_read_decoder, body)
    query = query_of(given.query, "query")
    selection = opened.log.selection(given.from_, given.after, _is_backwards(given), given.limit, given.partition)
    if given.upto is not None:
        check_upto(given.upto)
        selection = selection._replace(upto=given.upto)
    form = accepted_form(exchange.header(b"accept"))
    if given.data_bytes_max is not None:
        check_data_bytes_max(given.data_bytes_max, form)
    rendering = _rendering(given, form, exchange.arguments[0], opened, selection.head)
    await answer_events(host, exchange, opened, query, selection, rendering)


async def head(host: Host, exchange: Exchange) -> None:
    """GET /logs/{log}/head"""
    opened = await host.log(exchange, Right.READ)
    head = opened.log.head()
    await exchange.answer(200, as_json(HeadOut(head, opened.view.incarnation)), headers=opened.view.headers(head))


async def answer_events(
    host: Host, exchange: Exchange, opened: Opened, query: Query, selection: Selection, rendering: Rendering
) -> None:
    """Answer a read: at once if it is one page, otherwise page by page, as fast as the client reads them.

    Each page is one of the user's turns; the first page needs none while no reader is waiting.
    """
    headers, share = opened.view.headers(selection.head), exchange.share
    account = share.account
    pages = read_pages(opened.log, query, selection, packs=rendering.packs, page_bytes=lambda: account.piece_bytes)
    if host.turns.is_waited_for:
        first = await host.turns.do(host.flow(exchange), partial(next, pages, None))
    else:
        first = next(pages, None)
    if first is None:  # a limit of 0
        await exchange.answer(200, rendering.opening + rendering.closing, rendering.media_type, headers)
        return
    traffic, count = host.logs.traffic, len(first.events)
    is_whole = first.is_last or (selection.limit is not None and count >= selection.limit)
    if is_whole and first.large is None:
        traffic.events_out += count
        body = rendering.opening + (rendering.page(first) if count else b"")
        await exchange.answer(200, body + rendering.closing, rendering.media_type, headers)
        return
    pieces = AnswerPieces(first, pages, rendering, traffic, share)
    del first
    await exchange.start(rendering.media_type, headers, proves_itself=rendering.proves_itself)
    await send_all(host, exchange, pieces.next)
    await exchange.finish(pieces.closing)


@remembered(256)
def accepted_form(accept: bytes | None) -> str:
    """The offered media type that an Accept header prefers; NDJSON by default."""
    return preferred(accept, _OFFERED, NDJSON)


def check_data_bytes_max(value: int, form: str = NDJSON) -> None:
    """Raises InvalidInput if it is out of range, or the form has no sizes."""
    if not 0 <= value <= APPEND_BYTES_MAX:
        raise InvalidInput(f"expected 0 to {APPEND_BYTES_MAX}, got {show(value)}", "data_bytes_max")
    if form not in (NDJSON, NDJSON_WITH_END, _JSON):
        raise InvalidInput(
            f"{form} always contains all of the data; {NDJSON} and {_JSON} can contain part of it", "data_bytes_max"
        )


def _rendering(given: ReadIn, form: str, log: str, opened: Opened, head: int) -> Rendering:
    if form == packed.MEDIA_TYPE_WITH_END:
        return PACKED_WITH_END
    if form == packed.MEDIA_TYPE:
        return PACKED
    if form == _CLOUDEVENTS:
        return cloudevents_batch(default_source(log))
    if form == ARROW:
        return arrow_stream()
    make = json_array if form == _JSON else partial(ndjson, end=head if form == NDJSON_WITH_END else None)
    return make(
        has_partitions=opened.view.has_partitions,
        in_seed_form=is_in_seed_form(given.query),
        data_bytes_max=given.data_bytes_max,
    )


def default_source(log: str) -> str:
    """The CloudEvents source of events that have none."""
    return f"/logs/{log}"


def _is_backwards(given: ReadIn) -> bool:
    if given.backwards is given.read_backwards is given.read_backwards_camel is None:
        return False
    spellings = {
        "backwards": given.backwards,
        "read_backwards": given.read_backwards,
        "readBackwards": given.read_backwards_camel,
    }
    said = [name for name, value in spellings.items() if value is not None]
    if len(said) > 1:
        raise InvalidInput(f"`{said[0]}` and `{said[1]}` are two names of one field; use one", said[1])
    return bool(spellings[said[0]])
