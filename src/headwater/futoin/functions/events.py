"""Renders stored events as FutoIn events, in pages that fit a message."""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec

from ...core.event import NO_ATTRIBUTES, Encoding, SequencedEvent
from ...core.local import LocalLog
from ...core.log import Page
from ...core.loop.slices import Slices
from ...formats.budget.values import holds_more
from ...formats.embedding import is_embeddable
from ...formats.stubs import handed_on, large_handed_on
from ...formats.tracing import headers_of
from ..messages.coders import JSON
from ..messages.message import PACKED_VALUES_MAX, Coder
from ..naming import OTHER, Naming, Selected
from ..outlet import Claim
from ..settings import PAGE_EVENTS

STEP_BYTES = 256 * 1024
"""How many bytes are read in one step. A page of 8M takes several steps."""
_BETWEEN_BYTES = 1
"""The bytes that a coder puts between two events."""


class Group(NamedTuple):
    """Some encoded events, and the position in the log that they reach."""

    events: list[bytes]
    upto: int
    """Every event up to this number is in this group or an earlier one, or is not wanted."""
    last: int
    """The number of the last event; 0 if there is none."""


def read(log: LocalLog, selected: Selected, after: int, bytes_max: int, limit: int = PAGE_EVENTS) -> Page:
    """The wanted events after that number, from one bounded step through the log."""
    if selected.is_nothing:
        head = log.head()
        return Page((), max(after, head), head, True)
    page = log.read_page(selected.query, after, limit=limit, bytes_max=bytes_max, is_bounded=True)
    if selected.accepts is None:
        return page
    if page.large is not None:
        return page if selected.accepts(page.large.event.type) else page._replace(large=None)
    return page._replace(events=[event for event in page.events if selected.accepts(event.type)])


Read = Callable[[int, int, int], Page]
"""Calls `read` for one log and selection."""
Turn = Callable[[Callable[[], Page]], Awaitable[Page]]
"""Runs some work when it is its caller's turn (`core.loop.scheduler`)."""


async def group_after(
    read: Read,
    turn: Turn,
    after: int,
    coder: Coder,
    naming: Naming,
    claim: Claim,
    bytes_max: int,
    page_bytes: int = 0,
    events_max: int = PAGE_EVENTS,
    *,
    is_traced: bool = False,
) -> tuple[Group, bool]:
    """The next wanted events, as many as fit into `bytes_max`, but at least one (as a stub if necessary) and at most
    `events_max`; and whether the log has no more. It may find none in its steps: then `upto` says how far it read.

    Several events take at most `page_bytes` together, if that is less; with `is_traced` each names its trace. All are
    counted in `claim`, which must have its turn. Other tasks get turns in between. Raises NoMemory if there is no room
    for one event.
    """
    slices = Slices()
    encoded: list[bytes] = []
    bytes_max = claim.event_bytes(bytes_max)
    size, last, together = 0, 0, claim.page_bytes(min(page_bytes or bytes_max, bytes_max))
    while True:
        room = min(STEP_BYTES, max(1, together - size))
        page = await turn(partial(read, after, room, events_max - len(encoded)))
        if page.large is not None:
            left = together - size - _BETWEEN_BYTES if encoded else bytes_max
            await slices.turn()  # this takes some ms, and so does its message, so each gets a turn of the loop
            one = _encoded_large(page, coder, naming, claim, bytes_max, left, is_traced=is_traced)
            await slices.turn()
            if not one:
                if not encoded:
                    raise claim.refusal(len(page.large.data))
                return Group(encoded, last, last), False
            encoded.append(one)
            size, last = size + len(one) + _BETWEEN_BYTES, page.large.event.sequence_number
        for event in handed_on(page):
            one = encode_event(event, coder, naming, bytes_max, is_traced=is_traced)
            size += len(one) + _BETWEEN_BYTES
            if (encoded and size > together) or not claim.take(len(one)):
                if not encoded:
                    raise claim.refusal(len(one))
                return Group(encoded, last, last), False
            encoded.append(one)
            last = event.sequence_number
            if slices.is_over:
                await slices.pause()
        after = max(after, page.cursor)
        if page.is_last or not (page.events or page.large) or len(encoded) >= events_max:
            return Group(encoded, after, last), page.is_last
        await slices.pause()


def _encoded_large(
    page: Page, coder: Coder, naming: Naming, claim: Claim, bytes_max: int, left: int, *, is_traced: bool
) -> bytes:
    """The large event of a page, counted in `claim`; empty if there is no memory for it now, or it is longer than
    `left`. Data that can never fit is not read, but replaced by a stub."""
    event, data = large_handed_on(page)
    if len(data) > bytes_max:
        one = _stub(event, len(data), coder, naming, bytes_max, is_traced=is_traced)
    elif len(data) > left or not claim.take(len(data)):
        return b""
    else:
        one = encode_event(event._replace(data=bytes(data)), coder, naming, bytes_max, is_traced=is_traced)
        claim.give(len(data))  # the encoded event counts instead of its data
    return one if len(one) <= left and claim.take(len(one)) else b""


def encode_event(
    event: SequencedEvent, coder: Coder, naming: Naming, bytes_max: int, *, is_traced: bool = False
) -> bytes:
    """One event, encoded; a stub if it exceeds `bytes_max`, so that it does not block its consumers."""
    trace = headers_of(event.attributes) if is_traced else NO_ATTRIBUTES
    ts = timestamp(event.recorded_at // 1000)
    name = naming.name(event.type)
    data = data_of(event, coder)
    if name == OTHER and event.type != OTHER:
        data = b'{"type":%b,"data":%b}' % (msgspec.json.encode(event.type), data)
    one = coder.event(event.sequence_number, name.encode(), data, ts, trace)
    if len(one) <= bytes_max:
        return one
    return _stub(event, len(event.data), coder, naming, bytes_max, is_traced=is_traced)


def _stub(event: SequencedEvent, size: int, coder: Coder, naming: Naming, bytes_max: int, *, is_traced: bool) -> bytes:
    trace = headers_of(event.attributes) if is_traced else NO_ATTRIBUTES
    stub = msgspec.json.encode({"too_large": {"bytes": size, "allowed": bytes_max, "type": event.type}})
    name, ts = naming.name(event.type), timestamp(event.recorded_at // 1000)
    return coder.event(event.sequence_number, name.encode(), stub, ts, trace)


def data_of(event: SequencedEvent, coder: Coder = JSON) -> bytes:
    """The event's data as JSON: unchanged, or {"data_base64": ...}, also if it has more values than the coder
    builds."""
    is_few = coder is JSON or not holds_more(event.data, PACKED_VALUES_MAX)
    if event.encoding is Encoding.DATA and is_few and is_embeddable(event.data):
        return event.data
    return b'{"data_base64":"%b"}' % base64.b64encode(event.data)


@lru_cache(maxsize=1024)
def timestamp(seconds: int) -> bytes:
    """Whole seconds since 1970 UTC as an EventTimestamp."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)).encode()
