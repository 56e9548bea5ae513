"""Stubs of stored events that may hurt their readers: an earlier version took them.

Some messages end the process of every receiver that decodes them, and a group never gets past one. Appends are checked
now, and frames say so (`core.log.Page.is_gated`). Events of other frames are checked here, when a front end sends them.
One that fails becomes a stub that says why, with its number, type, tags, id, source and group key. An event with an
attribute that CloudEvents does not know comes without it, and names it.
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
"""The attribute that names the attributes that were left out, joined with commas."""


def handed_on(page: Page) -> Sequence[SequencedEvent]:
    """The events of a page, each either fit for every reader or a stub."""
    return page.events if page.is_gated else list(map(fit_or_stub, page.events))


def large_handed_on(page: Page) -> LargeEvent:
    """The large event of a page in the same way. Only of messages, the data is looked at, whole."""
    assert page.large is not None, "only of pages that have one"
    event, data = page.large
    if page.is_gated:
        return page.large
    is_message = bool(event.envelope or event.encoding)
    handed = fit_or_stub(event._replace(data=bytes(data)) if is_message else event)
    is_stub = handed.attributes is _STUB_ATTRIBUTES
    return LargeEvent(handed._replace(data=b""), memoryview(handed.data) if is_stub else data)


def fit_or_stub(event: SequencedEvent) -> SequencedEvent:
    """The event, perhaps without some attributes, or the stub in its place."""
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
    """What may hurt a reader of an event, and whether a stub stands in for it: else it comes without an attribute.

    None where nothing does.
    """
    if (fault := _fault(event)) is None:
        return None
    _, _, rest = _without_unfit(event, fault)
    return str(rest or fault), rest is not None


def _without_unfit(
    event: SequencedEvent, fault: InvalidInput | None
) -> tuple[dict[str, str], list[str], InvalidInput | None]:
    """The attributes that may stay, the names of the others, and the fault that is left without these."""
    attributes, unfit = dict(event.attributes), list[str]()
    while fault is not None and (name := fault.where.removeprefix("attributes.")) in attributes:
        del attributes[name]
        unfit.append(name)
        fault = _fault(event._replace(attributes=attributes))
    return attributes, unfit, fault


def _fault(event: SequencedEvent) -> InvalidInput | None:
    """What may hurt a reader of the event; its path begins at the event. What a message says of itself hurts none."""
    producers = event.event
    is_message = bool(event.envelope or event.encoding)
    if is_message and (fault := message_fault(event.envelope, event.data, bool(event.encoding))) is not None:
        return InvalidInput(f"no message of AMQP: {fault}", "data" if event.encoding else "envelope")
    if plain_bytes(producers, APPEND_BYTES_MAX) is None:
        try:
            check_append([producers], APPEND_BYTES_MAX, are_messages_checked=True)
        except InvalidInput as error:
            error.move(error.where.removeprefix("events[0]").removeprefix("."))
            return error
    return None
