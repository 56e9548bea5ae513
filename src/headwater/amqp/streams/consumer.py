"""A consumer's link: events go out in the log's order, as far as credit, window and the connection's buffer allow.

It holds a cursor, never a queue. What is unsettled, and what the receiver gave back, is in its `Position`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.errors import PositionOfOtherIncarnation, PositionTrimmed, StorageCorrupted
from ...core.event import SequencedEvent
from ..errors import refusal_of
from ..filters import SourceFilter
from ..protocol import conditions
from ..protocol.link import Sender
from ..protocol.performatives import DeliveryState
from ..protocol.types import Described
from ..terminus import Terminus
from .fields import EventFields
from .node import EventLogNode

if TYPE_CHECKING:
    from ..transport import Transport

TURN_EVENTS = 256
TURN_BYTES = 256 * 1024
"""What one consumer sends before it is the turn of others."""


class Consumer(Terminus):
    """One consumer's link to one log."""

    def __init__(
        self,
        transport: Transport,
        link: Sender,
        node: EventLogNode,
        source_filter: SourceFilter,
        partition: int | None,
        start: int,
    ) -> None:
        self._transport, self._link, self._node = transport, link, node
        self._filter, self._partition = source_filter, partition
        self._cursor = max(start, source_filter.after)
        """Everything up to this number was sent, or does not match."""
        self._is_turn_due = False
        self._is_over = False
        self._default_outcome: DeliveryState | Described | None = None
        self._associated: Sequence[int] | None = None
        """Partitions to be named with the next event (4.6.5)."""
        if partition is None and node.partitions > 1:
            self._associated = range(node.partitions)
        node.consumers.add(self)

    @property
    def link(self) -> Sender:
        """The link."""
        return self._link

    # Terminus

    def on_ready(self) -> None:
        """See Terminus: go on."""
        if not self._is_turn_due:
            self._turn()

    def on_outcomes(self, contexts: Sequence[int], state: DeliveryState | Described | None) -> None:
        """See Terminus; contexts are sequence numbers."""

    def on_detached(self, *, is_closed: bool) -> None:
        """See Terminus."""
        self._is_over = True
        self._node.waiting.discard(self)
        self._node.consumers.discard(self)

    def on_log_closed(self) -> None:
        """The log was deleted, or the server lets go of it."""
        self._transport.expel(self._link, conditions.RESOURCE_DELETED, f"log {self._node.log.name!r} is closed")

    # Sending

    def _turn(self) -> None:
        """Send what there is, up to a turn's worth."""
        self._is_turn_due = False
        room = self._room()
        if room <= 0:
            return
        try:
            has_more = self._send_again(room) or self._send_next(room)
        except (PositionTrimmed, PositionOfOtherIncarnation, StorageCorrupted) as error:
            refusal = refusal_of(error)
            self._transport.expel(self._link, refusal.condition, refusal.description)
            return
        if has_more:
            self._is_turn_due = True
            self._node.loop.call_soon(self._turn)
        else:
            if self._link.is_draining:
                self._link.drained()
            self._node.waiting.add(self)
        self._transport.flush_soon()

    def _room(self) -> int:
        if self._is_over or not self._transport.has_room:
            return 0
        return min(self._link.sendable, self._node.settings.unsettled_max - self._link.unsettled, TURN_EVENTS)

    def _send_again(self, room: int) -> bool:
        """What the receiver gave back comes first."""
        return False

    def _send_next(self, room: int) -> bool:
        """Events after the cursor; whether there may be more now."""
        node, wanted = self._node, self._filter
        page = node.log.read_page(
            wanted.query, self._cursor, upto=wanted.upto, partition=self._partition, limit=room, bytes_max=TURN_BYTES
        )
        for event in page.events:
            if wanted.matches is None or wanted.matches(EventFields(event, node.source)):
                self._send(event, 0)
        self._cursor = max(self._cursor, page.cursor)
        return not page.is_last

    def _send(self, event: SequencedEvent, failures: int) -> None:
        message = self._node.outbound.message(event, failures, self._associated)
        self._associated = None
        number = event.sequence_number
        self._link.send(message, number, number, is_settled=self._link.sends_settled)
