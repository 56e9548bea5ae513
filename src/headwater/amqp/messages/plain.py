"""Plain messages as columns of events: a sender's messages that differ only in message-id and data.

`inbound` reads the first of them, and determines its event. Later messages with the same bytes around message-id and
data become events that differ only in data and envelope. So they are compared rather than parsed (`core.alike`)."""

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
"""If the form changes more often than this within a batch, its messages are read one by one."""
_AROUND_BYTES_MAX = 4096
"""Messages with more bytes around their data are not compared."""


class Share(Protocol):
    """The owner of some events of a joint append."""

    def ended(self, outcome: Outcome) -> None:
        """The events are stored or were refused."""

    def apart(self) -> Sequence[Joint]:
        """Each event as an append of its own."""


class PlainEvents(AlikeEvents):
    """Plain events of one log from all links in one turn of the event loop, which form one append (see `Joint`)."""

    __slots__ = ("_shares", "partition")

    def __init__(self, partition: int | None = None) -> None:
        super().__init__()
        self.partition = partition
        self._shares: list[Share] = []

    def claim(self, share: Share) -> None:
        """Assign the events added last to that share."""
        self._shares.append(share)

    def outcomes(self, outcome: Outcome) -> list[tuple[Ended, Outcome]]:
        """See Joint."""
        return [(share.ended, outcome) for share in self._shares]

    def apart(self) -> list[Joint]:
        """See Joint."""
        return [joint for share in self._shares for joint in share.apart()]

    def columns(self, settings: LogSettings) -> EventColumns:
        """See Joint. The events were checked when they were added."""
        return self.as_columns()


def read_plain(messages: Sequence[bytes], form: Form | None, settings: LogSettings, events: PlainEvents) -> Form | None:
    """Add the events of messages, expected to have that form; returns the form to expect next.

    Returns None, and adds nothing, unless all of them are plain and every receiver can decode them.
    """
    count, size = events.count, events.bytes
    found = None
    with suppress(DecodeError):
        found = _read(messages, form, settings, events)
    if found is None:
        events.cut(count, size)
    return found


def _read(messages: Sequence[bytes], form: Form | None, settings: LogSettings, events: PlainEvents) -> Form | None:
    """Like `read_plain`, but on failure some events may have been added."""
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
    """The form of a plain message; None for any other, such as a structured-mode document, which is read by itself."""
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
