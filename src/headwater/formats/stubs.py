"""Stubs for stored events that may harm their readers, accepted by an earlier version.

Some messages crash every receiver that decodes them, and a group never gets past one. Appends are checked now, and
frames say so (`core.log.Page.is_gated`). Events of other frames are checked here, when a front end sends them. One that
fails becomes a stub with the reason and its number, type, tags, id, source and group key. An event with an attribute
that CloudEvents does not allow is sent without it, and names it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..core.errors import InvalidInput
from ..core.event import Encoding, SequencedEvent
from ..core.limits import APPEND_BYTES_MAX, check_append, plain_bytes
from ..core.log import LargeEvent, Page
from ..core.message.validity import message_fault

_REASON_CHARS_MAX = 1000
_STUB_ATTRIBUTES = {"datacontenttype": "application/json"}
UNFIT = "headwaterunfit"
"""The attribute that lists the attributes that were left out, joined with commas."""


def handed_on(page: Page) -> Sequence[SequencedEvent]:
    """The events of a page, each either safe for every reader or a stub."""
    return page.events if page.is_gated else list(map(fit_or_stub, page.events))


def large_handed_on(page: Page) -> LargeEvent:
    """The large event of a page, likewise. The data is checked, completely, only for messages."""
    assert page.large is not None, "only of pages that have one"
    event, data = page.large
    if page.is_gated:
        return page.large
    is_message = bool(event.envelope or event.encoding)
    handed = fit_or_stub(event._replace(data=bytes(data)) if is_message else event)
    is_stub = handed.attributes is _STUB_ATTRIBUTES
    return LargeEvent(handed._replace(data=b""), memoryview(handed.data) if is_stub else data)


def fit_or_stub(event: SequencedEvent) -> SequencedEvent:
    """The event, perhaps without some attributes, or its stub."""
    if (fault := _fault(event)) is None:
        return event
    attributes, unfit, rest = _without_unfit(event, fault)
    if rest is None:
        return event._replace(attributes=attributes | {UNFIT: ",".join(unfit)})
    said = {"unfit": {"reason": str(rest)[:_REASON_CHARS_MAX], "bytes": len(event.data) + len(event.envelope)}}
    return event._replace(
        data=msgspec.json.encode(said), attributes=_STUB_ATTRIBUTES, envelope=b"", encoding=Encoding.DATA
    )


def event_fault(event: SequencedEvent) -> tuple[str, bool] | None:
    """How an event may harm a reader, and whether it becomes a stub; otherwise it is sent without an attribute.

    None if it is safe.
    """
    if (fault := _fault(event)) is None:
        return None
    _, _, rest = _without_unfit(event, fault)
    return str(rest or fault), rest is not None


def _without_unfit(
    event: SequencedEvent, fault: InvalidInput | None
) -> tuple[dict[str, str], list[str], InvalidInput | None]:
    """The attributes to keep, the names of the others, and the fault that remains without these."""
    attributes, unfit = dict(event.attributes), list[str]()
    while fault is not None and (name := fault.where.removeprefix("attributes.")) in attributes:
        del attributes[name]
        unfit.append(name)
        fault = _fault(event._replace(attributes=attributes))
    return attributes, unfit, fault


def _fault(event: SequencedEvent) -> InvalidInput | None:
    """How the event may harm a reader; the path begins at the event. What a message declares of itself harms none."""
    producers = event.event
    is_message = bool(event.envelope or event.encoding)
    if is_message and (fault := message_fault(event.envelope, event.data, bool(event.encoding))) is not None:
        return InvalidInput(f"not an AMQP message: {fault}", "data" if event.encoding else "envelope")
    if plain_bytes(producers, APPEND_BYTES_MAX) is None:
        try:
            check_append([producers], APPEND_BYTES_MAX, are_messages_checked=True)
        except InvalidInput as error:
            error.move(error.where.removeprefix("events[0]").removeprefix("."))
            return error
    return None
