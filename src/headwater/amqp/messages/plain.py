"""Plain messages as columns of events: a sender's messages that differ in message-id and data alone.

`inbound` reads the first of them, and says what its event is; those that follow with the same bytes around message-id
and data have events that differ in data and envelope alone. They are compared, not read (`core.alike`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from ...core.alike import AlikeEvents, Form
from ...core.errors import InvalidInput
from ...core.limits import EventColumns
from ...core.loop.batcher import Ended, Joint, Outcome
from ...core.message.sections import DATA_SECTION, DELIVERY_ANNOTATIONS
from ...core.message.spans import usual_spans
from ...core.message.values import DecodeError
from ...core.settings import LogSettings
from ...formats.cloudevents import is_structured
from ..errors import MessageFault
from .inbound import read_message

FORMS_MAX = 4
"""Messages that change their form more often, among some that came together, are read one by one."""
_AROUND_BYTES_MAX = 4096
"""More than that around its data is not compared."""


class Share(Protocol):
    """Whose events some of a joint append are."""

    def ended(self, outcome: Outcome) -> None:
        """They are stored, or were refused."""

    def apart(self) -> Sequence[Joint]:
        """Each of the events as an append of its own."""


class PlainEvents(AlikeEvents):
    """Plain events of one log that come in one turn of the event loop, from all links: one append (see `Joint`)."""

    __slots__ = ("_shares", "partition")

    def __init__(self, partition: int | None = None) -> None:
        super().__init__()
        self.partition = partition
        self._shares: list[Share] = []

    def claim(self, share: Share) -> None:
        """The events that were added last are of that share."""
        self._shares.append(share)

    def outcomes(self, outcome: Outcome) -> list[tuple[Ended, Outcome]]:
        """See Joint."""
        return [(share.ended, outcome) for share in self._shares]

    def apart(self) -> list[Joint]:
        """See Joint."""
        return [joint for share in self._shares for joint in share.apart()]

    def columns(self, settings: LogSettings) -> EventColumns:
        """See Joint. They were checked as they were added."""
        return self.as_columns()


def read_plain(messages: Sequence[bytes], form: Form | None, settings: LogSettings, events: PlainEvents) -> Form | None:
    """Add the events of messages, of which that form is expected; answers the form that the next should have.

    None, and nothing was added, if not all of them are plain and can be decoded by every receiver.
    """
    count, size = events.count, events.bytes
    found = None
    with suppress(DecodeError):
        found = _read(messages, form, settings, events)
    if found is None:
        events.cut(count, size)
    return found


def _read(messages: Sequence[bytes], form: Form | None, settings: LogSettings, events: PlainEvents) -> Form | None:
    """As `read_plain`, but that events may have been added in vain."""
    at, forms_left = 0, FORMS_MAX
    while True:
        if form is not None:
            at = form.take(messages, at, settings.event_bytes_max, events)
            if at == len(messages):
                return form
        form = form_of(messages[at], settings) if forms_left else None
        if form is None:
            return None
        forms_left -= 1


def form_of(message: bytes, settings: LogSettings) -> Form | None:
    """The form of a plain message; None for any other, such as a document of structured mode: it is read by itself."""
    spans = usual_spans(message)
    if spans is None or spans[DATA_SECTION][1] != len(message) or DELIVERY_ANNOTATIONS in spans:
        return None
    if spans[DATA_SECTION][0] > _AROUND_BYTES_MAX:
        return None
    with suppress(MessageFault, InvalidInput, ValueError):
        event, target = read_message(message, settings)
        if target is None and not is_structured(event.attributes):
            return Form(message, spans, event, settings.event_bytes_max)
    return None
