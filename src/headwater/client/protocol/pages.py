"""The state of a read: its next request, and the events of the pages that arrive. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from email.message import Message

import msgspec

from ...core.errors import InvalidInput
from ...core.event import SequencedEvent
from ...core.limits import SEQUENCE_NUMBER_MAX
from ...formats.clients.answer import Answer
from ...formats.decoders import json_decoder
from ...formats.packed import MEDIA_TYPE, MEDIA_TYPE_WITH_END, PageParser
from . import wire
from .identity import check_same, incarnation_of
from .problems import UnexpectedAnswer, another_form
from .request import JSON, Request, UnderWay
from .routes import LogRoutes
from .terms import ConnectionLost


class ServerBehind(ConnectionLost):
    """The server at another address lacks the events with which the read began. The request is repeated there or
    elsewhere.
    """


class _Numbered(msgspec.Struct):
    """The number of an event."""

    sequence_number: int


def _promises_end(content_type: bytes) -> bool:
    """Whether a Content-Type repeats the requested end parameter, in any spelling (RFC 9110, 8.3.1)."""
    if content_type == _WITH_END:
        return True
    field = Message()
    field["content-type"] = content_type.decode("latin-1")
    return field.get_content_type() == MEDIA_TYPE and str(field.get_param("end")).lower() == "page"


_WITH_END = MEDIA_TYPE_WITH_END.encode()


class PagedRead:
    """One read, over several answers if connections break: up to the head that the first one names.

    An answer that is complete by HTTP may still be cut: proxies end an answer that broke off behind them, and give it a
    length. So each must have an empty page at its end. If an answer neither has it nor promises it (from a server of
    0.1.x, or through a gateway that changes header fields), the client asks whether anything is left, as a JSON array
    of at most one event, whose closing bracket shows that it is complete.
    """

    __slots__ = (
        "_asked", "_coding", "_content_type", "_has_moved", "_left", "_parser", "_routes", "_status", "_was_refuted",
        "has_ended", "head", "incarnation",
    )  # fmt: skip

    def __init__(self, routes: LogRoutes, asked: wire.ReadBody, incarnation: str | None = None) -> None:
        """`asked` is updated to the part that is left to read; `incarnation` is that of the log, if already known."""
        self._routes, self._asked = routes, asked
        self._parser: PageParser
        """The state of the answer that `begin` received."""
        self._status = 0
        self._content_type = self._coding = b""
        self._has_moved = False
        """Whether this answer had events."""
        self.has_ended = False
        """Whether the whole read has arrived, regardless of the rest of the answer."""
        self._left: bytearray | None = None
        """The answer received so far to the question whether anything is left; None while that is not asked."""
        self._was_refuted = False
        """Whether something was left although the previous answer had no events."""
        self.head: int | None = None
        """The number of the last durable event when the read began; None until then."""
        self.incarnation = incarnation

    def request(self, under_way: UnderWay | None = None) -> Request[None]:
        """The request to send: first, and after each broken connection. `under_way`: see Request."""
        ask = self._routes.read if self._left is None else self._routes.read_one
        return ask(self._asked, under_way)

    def begin(self, answer: Answer) -> None:
        """Process the head of an answer. Raises UnexpectedAnswer, PositionOfOtherIncarnation, ServerBehind."""
        if self._left is not None:
            self._left = bytearray()
        self._status, self._has_moved, self.has_ended = answer.status, False, False
        self._content_type = answer.fields.get(b"content-type", b"")
        self._coding = answer.fields.get(b"content-encoding", b"")
        head, incarnation = wire.number_of(answer, b"headwater-head"), incarnation_of(answer)
        if self.incarnation is not None:
            check_same(self._routes.name, head, self.incarnation, incarnation)
        self.incarnation = incarnation
        if self.head is None:
            self.head = head
            if self._asked.backwards:
                self._begin_at_head(head)
        elif head < self.head:
            raise ServerBehind(f"this server's log ends at {head}, but the read began with events up to {self.head}")
        self._parser = PageParser(self._beyond(), backwards=self._asked.backwards)

    def receive_data(self, piece: bytes) -> Sequence[SequencedEvent]:
        """The events of pages completed so far. Raises UnexpectedAnswer for anything but a page."""
        if self._left is not None:
            self._left += piece
            return ()
        try:
            events = self._parser.receive_data(piece)
        except InvalidInput as error:
            raise UnexpectedAnswer(self._status, f"{error.problem}; {self._form(MEDIA_TYPE_WITH_END)}") from None
        self.has_ended = self._parser.has_ended
        return self._taken(events) if events else events

    def _form(self, asked: str) -> str:
        return another_form(asked, self._content_type, self._coding)

    def receive_end(self) -> bool:
        """Process the end of an answer that is complete by HTTP. Returns whether the read is complete, or needs another
        request.

        Raises ConnectionLost for an answer that broke off, and if answers leave that open and contradict each other.
        """
        if self._left is not None:
            return self._is_nothing_left(self._left)
        if self.has_ended or (self._asked.limit == 0 and self._parser.is_between_pages):
            return True
        if _promises_end(self._content_type) or not self._parser.is_between_pages:
            raise ConnectionLost("the answer was cut off before its end")
        if self._was_refuted and not self._has_moved:
            raise ConnectionLost(
                "the answer does not show whether it is complete: upgrade the server to "
                "0.2.0, have gateways pass Accept and "
                "Content-Type unchanged, or read with a limit"
            )
        self._left = bytearray()
        return False

    def _is_nothing_left(self, text: bytearray) -> bool:
        """Decode that answer. Raises ConnectionLost if it broke off, UnexpectedAnswer for another form."""
        try:
            events = json_decoder(list[_Numbered]).decode(text)
        except msgspec.ValidationError as error:
            raise UnexpectedAnswer(self._status, str(error)) from None
        except msgspec.DecodeError:
            if self._coding:
                raise UnexpectedAnswer(self._status, self._form(JSON)) from None
            raise ConnectionLost("the answer was cut off: its array is not closed") from None
        assert self.head is not None, "the head comes first"
        self._left = None
        self._was_refuted = any(self._asked.backwards or each.sequence_number <= self.head for each in events)
        return not self._was_refuted

    def _beyond(self) -> int | None:
        """The number after which the read continues, in its direction; None before the first event."""
        asked = self._asked
        if asked.from_ is None:
            return asked.after
        return asked.from_ + 1 if asked.backwards else asked.from_ - 1

    def _begin_at_head(self, head: int) -> None:
        """Limit further requests to the head of the first answer: the log may have grown since."""
        asked, above = self._asked, self._beyond()
        if head < SEQUENCE_NUMBER_MAX and (above is None or above > head + 1):
            asked.from_, asked.after = None, head + 1

    def _taken(self, events: list[SequencedEvent]) -> list[SequencedEvent]:
        """Record where to resume. Leave out events appended since the read began, which occur only after a
        reconnection.
        """
        asked, head = self._asked, self.head
        assert head is not None, "the head comes first"
        self._has_moved, self._was_refuted = True, False
        last = events[-1][0]
        if last > head and not asked.backwards:
            self.has_ended = True
            events = [event for event in events if event.sequence_number <= head]
            if not events:
                return events
            last = events[-1][0]
        asked.from_, asked.after = None, last
        if asked.limit is not None:
            asked.limit -= len(events)
        return events
