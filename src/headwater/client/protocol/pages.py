"""A read as it goes: what is to be asked for, now and again, and the events of the pages that come. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.errors import InvalidInput
from ...core.event import SequencedEvent
from ...core.limits import SEQUENCE_NUMBER_MAX
from ...formats.clients.answer import Answer
from ...formats.packed import MEDIA_TYPE_WITH_END, PageParser
from . import wire
from .identity import check_same, incarnation_of
from .problems import UnexpectedAnswer
from .request import Request
from .routes import LogRoutes
from .terms import ConnectionLost


class ServerBehind(ConnectionLost):
    """The server at another address does not have yet what the read began with: it is asked again, or another one."""


_WITH_END = MEDIA_TYPE_WITH_END.encode()


class PagedRead:
    """One read, over one answer after the other where connections break: up to the head that the first one names.

    That an answer is complete by HTTP does not prove that it is whole: proxies end what broke off behind them. So each
    must have an empty page at its end. A server of 0.1.x does not write that page. It is asked on until an answer says
    how long it is.
    """

    __slots__ = (
        "_asked", "_fields", "_has_moved", "_is_past_head", "_parser", "_routes", "_status", "head", "incarnation",
    )  # fmt: skip

    def __init__(self, routes: LogRoutes, asked: wire.ReadBody, incarnation: str | None = None) -> None:
        """`asked` becomes what is left to read; `incarnation` is that of the log, where it is known already."""
        self._routes, self._asked = routes, asked
        self._parser = PageParser()
        self._status = 0
        self._fields: Mapping[bytes, bytes] = {}
        self._has_moved = self._is_past_head = False
        """Whether this answer brought events; whether it went on behind the head, with which the read ends."""
        self.head: int | None = None
        """The number of the last durable event when the read began; None until then."""
        self.incarnation = incarnation

    def request(self) -> Request[None]:
        """What is to be sent: at first, and whenever a connection broke."""
        return self._routes.read(self._asked)

    def begin(self, answer: Answer) -> None:
        """The head of an answer has come. Raises UnexpectedAnswer, PositionOfOtherIncarnation, ServerBehind."""
        self._parser = PageParser()
        self._status, self._fields, self._has_moved = answer.status, answer.fields, False
        head, incarnation = wire.number_of(answer, b"headwater-head"), incarnation_of(answer)
        check_same(self._routes.name, head, self.incarnation, incarnation)
        self.incarnation = incarnation
        if self.head is None:
            self.head = head
            if self._asked.backwards:
                self._begin_at_head(head)
        elif head < self.head:
            raise ServerBehind(f"this server's log ends at {head}, and the read began with events up to {self.head}")

    def receive_data(self, piece: bytes) -> Sequence[SequencedEvent]:
        """The events of pages that are whole by now. Raises UnexpectedAnswer for what is no page."""
        try:
            events = self._parser.receive_data(piece)
        except InvalidInput as error:
            raise UnexpectedAnswer(self._status, error.problem) from None
        return self._taken(events) if events else events

    @property
    def has_ended(self) -> bool:
        """Whether all of the read has come, whatever else may come of the answer."""
        return self._parser.has_ended or self._is_past_head

    def receive_end(self) -> bool:
        """The answer is complete by HTTP: whether the read is, or goes on with another request.

        Raises ConnectionLost for an answer that broke off, and for one that leaves that open and brought nothing.
        """
        if self.has_ended or (self._asked.limit == 0 and self._parser.is_between_pages):
            return True
        if self._fields.get(b"content-type") == _WITH_END or not self._parser.is_between_pages:
            raise ConnectionLost("the answer broke off: it does not have its end")
        if b"content-length" in self._fields:
            return True
        if not self._has_moved:
            raise ConnectionLost("the answer does not say whether it is whole: its server is older than 0.2.0")
        return False

    def _begin_at_head(self, head: int) -> None:
        """Whatever is asked for again lies below the head of the first answer, which may have grown since."""
        asked = self._asked
        above = asked.after if asked.from_ is None else asked.from_ + 1
        if head < SEQUENCE_NUMBER_MAX and (above is None or above > head + 1):
            asked.from_, asked.after = None, head + 1

    def _taken(self, events: list[SequencedEvent]) -> list[SequencedEvent]:
        """Note where to go on; leave out what was appended since the read began (seen only after a reconnection)."""
        asked, head = self._asked, self.head
        assert head is not None, "the head comes first"
        self._has_moved = True
        last = events[-1][0]
        if last > head and not asked.backwards:
            self._is_past_head = True
            events = [event for event in events if event.sequence_number <= head]
            if not events:
                return events
            last = events[-1][0]
        asked.from_, asked.after = None, last
        if asked.limit is not None:
            asked.limit -= len(events)
        return events
