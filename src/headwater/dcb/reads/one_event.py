"""One event in its forms: as in a read, as raw data, as a CloudEvent, and in the forms of other packages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from ...core.access import Right
from ...core.errors import InvalidInput
from ...core.event import SequencedEvent
from ...core.limits import SEQUENCE_NUMBER_MAX, show
from ...core.log import Page
from ...core.query import ALL
from ...formats import cloudevents
from ...formats.slices import json_slices, raw_slices
from ...formats.stubs import handed_on, large_handed_on
from ...http import JSON, Exchange, Header
from ...http.errors import EventNotFound, InvalidParameter
from ...http.exchange import whole_number
from ..events import envelope_texts, large_envelope
from ..host import Host, Opened
from .pieces import send_all
from .read import check_data_bytes_max, default_source

BYTES = b"application/octet-stream"


class Shown(NamedTuple):
    """One event in one form."""

    media_type: bytes
    body: bytes


FormOf = Callable[[SequencedEvent, str, int], Shown]
"""Renders an event, given its log's name and number of partitions. Called in a thread."""
EventForms = Mapping[str, FormOf]
"""By name: the value of `?form=`."""
_ENVELOPE, _DATA, _CLOUDEVENT = "envelope", "data", "cloudevent"
_SAFE: tuple[Header, ...] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
)
"""Event data must never be shown as a page of this server, whatever it contains."""
_WHOLE_FACTOR = 4
"""The memory to render an event whole, as a multiple of its size."""
_ATTACHED: Header = (b"content-disposition", b"attachment")


class OneEvent:
    """The handler; a server adds the forms of other packages."""

    def __init__(self, forms: EventForms) -> None:
        self._forms = forms
        self._names = (_ENVELOPE, _DATA, _CLOUDEVENT, *forms)

    async def __call__(self, host: Host, exchange: Exchange) -> None:
        """GET /logs/{log}/events/{number}"""
        opened = await host.log(exchange, Right.READ)
        number = _number(exchange.arguments[1])
        parameters = exchange.parameters("form", "data_bytes_max")
        form = parameters.get("form", _ENVELOPE)
        if form not in self._names:
            raise InvalidParameter("form", f"expected one of {', '.join(self._names)}, got {show(form)}")
        bytes_max = _data_bytes_max(parameters, form)
        log = opened.log
        log.check_position(number)
        share = exchange.share
        read = partial(
            log.read_page, ALL, number - 1, upto=number, limit=1, bytes_max=share.piece_bytes, is_bounded=True
        )
        page = await host.turns.do(host.flow(exchange), read)
        headers = [*opened.view.headers(page.head), *_SAFE]
        if not page.events and page.large is None:
            raise EventNotFound(log.name, number, log.first_retained, page.head)
        host.logs.traffic.events_out += 1
        if page.large is not None:
            await self._answer_large(host, exchange, opened, page, form, bytes_max, headers)
            return
        shown = await asyncio.to_thread(self._shown, opened, page, form, bytes_max)
        attached = (_ATTACHED,) if shown.media_type == BYTES else ()
        await exchange.answer(200, shown.body, shown.media_type, [*headers, *attached])

    async def _answer_large(
        self,
        host: Host,
        exchange: Exchange,
        opened: Opened,
        page: Page,
        form: str,
        bytes_max: int | None,
        headers: list[Header],
    ) -> None:
        """Send it in slices; forms of other packages are rendered whole, if memory allows."""
        assert page.large is not None, "the caller looked"
        share, name = exchange.share, opened.log.name
        if form in self._forms:
            size = len(page.large.data) * _WHOLE_FACTOR
            share.claim(size, f"event {page.large.event.sequence_number} in the form {form}")
            try:
                shown = await asyncio.to_thread(self._shown_whole, opened, page, form)
                attached = (_ATTACHED,) if shown.media_type == BYTES else ()
                await exchange.answer(200, shown.body, shown.media_type, [*headers, *attached])
            finally:
                share.give(size)
            return
        length = None
        if form == _DATA:
            data = page.large.data[:bytes_max]
            slices, media_type, length = raw_slices(data, lambda: share.piece_bytes), BYTES, len(data)
            headers = [*headers, _ATTACHED]
        elif form == _ENVELOPE:
            encoded, data = large_envelope(page.large, opened.view.has_partitions, False, bytes_max)
            slices, media_type = json_slices(encoded, data, lambda: share.piece_bytes), JSON
        else:
            large = large_handed_on(page)
            slices = cloudevents.large_to_json(large, default_source(name), lambda: share.piece_bytes)
            media_type = cloudevents.STRUCTURED.encode()
        await exchange.start(media_type, headers, length=length)
        await send_all(host, exchange, lambda: next(slices, None))
        await exchange.finish()

    def _shown_whole(self, opened: Opened, page: Page, form: str) -> Shown:
        event, data = large_handed_on(page)
        return self._forms[form](event._replace(data=bytes(data)), opened.log.name, opened.log.settings.partitions)

    def _shown(self, opened: Opened, page: Page, form: str, bytes_max: int | None) -> Shown:
        name, event = opened.log.name, page.events[0]
        if form == _ENVELOPE:
            (text,) = envelope_texts([event], opened.view.has_partitions, False, bytes_max)
            return Shown(JSON, text)
        if form == _DATA:
            return Shown(BYTES, event.data if bytes_max is None else event.data[:bytes_max])
        (event,) = handed_on(page)
        if form == _CLOUDEVENT:
            return Shown(cloudevents.STRUCTURED.encode(), cloudevents.event_to_json(event, default_source(name)))
        return self._forms[form](event, name, opened.log.settings.partitions)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18 and text[0] != "0"):
        raise InvalidParameter("number", f"expected 1 to {SEQUENCE_NUMBER_MAX}, got {show(text)}")
    return int(text)


def _data_bytes_max(parameters: dict[str, str], form: str) -> int | None:
    value = whole_number(parameters, "data_bytes_max")
    if value is None:
        return None
    if form not in (_ENVELOPE, _DATA):
        raise InvalidParameter(
            "data_bytes_max", f"{form} always contains all of the data; {_ENVELOPE} and {_DATA} can contain part of it"
        )
    try:
        check_data_bytes_max(value)
    except InvalidInput as error:
        raise InvalidParameter(error.where, error.problem) from None
    return value
