"""A consumer's link. It sends events in log order, as far as credit, window and the connection's buffer allow.

It holds a cursor, never a queue. Its `Position` tracks unsettled and released events.
"""

from __future__ import annotations

import logging
from asyncio import TimerHandle
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from ...core.clocks import wall_clock_ms
from ...core.errors import EventLogError, TooLarge
from ...core.event import SequencedEvent
from ...core.log import Page
from ...core.loop.scheduler import BUDGET_S, STEP_S, BatchSizer
from ...core.query import ALL
from ...core.quoting import cut
from ...formats.stubs import handed_on, large_handed_on
from ..connections.link_end import Ending, LinkEnd
from ..connections.transport import Transport
from ..errors import refusal_of
from ..filters import SourceFilter
from ..messages.fields import EventFields
from ..positions.position import Position
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from ..protocol.link import Sender
from ..protocol.performatives import Accepted, DeliveryState, Modified, Rejected
from ..protocol.settlement import Settlement
from ..protocol.types import Described, Symbol
from .node import EventLogNode

_logger = logging.getLogger("headwater.amqp")

TURN_EVENTS = 256
TURN_BYTES = 256 * 1024
"""The maximum number of events that one consumer sends or examines in one step."""
COVERED_STEP = 4096
"""Memory for a position is reserved and released in steps of this many bytes."""
RUN_EVENTS = 64
"""The maximum number of messages that are made together. A large one makes those behind it wait, and they are made
again."""
TURN_EVENTS_FIRST = 16
"""The number of events that a consumer with a filter to evaluate examines in its first step."""


class ConsumerLink(LinkEnd):
    """One consumer's link to a log."""

    def __init__(
        self,
        transport: Transport,
        link: Sender,
        node: EventLogNode,
        source_filter: SourceFilter,
        partition: int | None,
        position: Position,
        *,
        default_outcome: DeliveryState | Described | None,
        first_retained: int | None,
        resumed: set[int],
        on_ended: Callable[[Ending], None],
        group: str | None = None,
        epoch: int | None = None,
    ) -> None:
        """`first_retained` is sent with the first event: the consumer asked for earlier events, which have been
        trimmed.

        `resumed` are events that the receiver has unsettled from an earlier attach of the link; `group` and `epoch` are
        those under which it owns its partition.
        """
        self._resumed = resumed
        self._transport, self._link, self._node, self.log = transport, link, node, node.log
        self._statistics = transport.shared.statistics
        self._filter, self.partition, self.position = source_filter, partition, position
        self.group, self.epoch = group, epoch
        self.sent_again = 0
        """Messages that the receiver returned and that were resent."""
        self._default_outcome, self._on_ended = default_outcome, on_ended
        self._first_retained = first_retained
        self._associated: Sequence[int] | None = range(node.partitions) if partition is None else None
        """Partitions that the next event must name (4.6.5)."""
        self._is_presettled = link.sends_settled
        self._bytes_max = (link.remote and link.remote.max_message_size) or None
        """The largest message that the receiver accepts (2.7.3)."""
        self._turns, self._flow = transport.shared.turns, transport.flow
        self._sizer = (
            BatchSizer(
                TURN_EVENTS, TURN_EVENTS, BUDGET_S
            )  # it sends everything that it reads, so larger pages are cheaper
            if source_filter.matches is None
            else BatchSizer(TURN_EVENTS, TURN_EVENTS_FIRST)
        )
        self._activity = "amqp", f"receiver of {self.log.name}"
        self._is_turn_due = False
        self._is_over = False
        self._covered = 0
        """Memory reserved for the contents of the position."""
        self._pause: TimerHandle | None = None
        """The timer for the next event that is delayed after several returns."""
        self._pause_ends = 0.0
        """When it is due: uvloop's handle of a timer does not always say."""
        self._on_drained: Callable[[], None] | None = None
        node.consumers.add(self)

    # Identity

    @property
    def container(self) -> str:
        """The container name under which its position would be remembered."""
        return self._transport.remembered_as

    @property
    def link_name(self) -> str:
        """The peer's name for its link."""
        return self._link.name

    @property
    def user(self) -> str | None:
        """The user of the link, if users are configured."""
        return (self._transport.user.name or None) if self._transport.user is not None else None

    @property
    def upto(self) -> int | None:
        """The last number to send; None if there is no end."""
        return self._filter.upto

    @property
    def filters(self) -> Mapping[Symbol, object]:
        """The filters in effect, as they were given."""
        return self._filter.accepted

    @property
    def unsettled_max(self) -> int:
        """The number of messages that may await their outcome."""
        return self._node.settings.unsettled_max

    @property
    def waits_for(self) -> str | None:
        if self._is_full or (self._link.credit <= 0 < self._link.unsettled):
            return "outcomes"
        if self._link.credit <= 0:
            return "credit"
        if self in self._node.waiting:
            return "events"
        if not self._link.sendable:
            return "window"
        return None if self._transport.has_room else "reading"

    # LinkEnd

    def on_ready(self) -> None:
        """See LinkEnd: continue sending."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._turns.now(self._flow, self._turn)

    def on_outcomes(self, contexts: Sequence[int], state: DeliveryState | Described | None) -> None:
        """See LinkEnd; contexts are sequence numbers."""
        state = state or self._default_outcome
        self.outcome_at = wall_clock_ms()
        if is_final(state):
            self.position.finish(contexts)
        else:
            has_failed = isinstance(state, Modified) and state.delivery_failed
            self.position.give_back(contexts, has_failed=has_failed, now=self._node.now())
        self._node.is_changed = True
        self._take_turn_soon()  # this follows all outcomes of the read, because messages to resend come first

    def on_settlement(self, settlement: Settlement) -> None:
        """See LinkEnd."""
        settle_when_stored(self, self._link, self._node, self._transport, settlement)

    def on_detached(self, ending: Ending) -> None:
        self._is_over = True
        self._transport.share.give(self._covered)
        self._covered = 0
        self._on_drained = None  # break reference cycles, so that it is freed at once
        if self._pause is not None:
            self._pause.cancel()
        self._node.waiting.discard(self)
        self._node.consumers.discard(self)
        self._node.is_changed = True
        self._on_ended(ending)

    # Requests of the node

    def expel(self, condition: Symbol, description: str) -> None:
        """Detach the consumer, with the reason."""
        self._transport.expel(self._link, condition, description)

    def leave(self, on_drained: Callable[[], None]) -> None:
        """Stop sending, and call `on_drained` when no message awaits its outcome."""
        self._on_drained = on_drained
        self._node.loop.call_soon(self._turn)

    # Sending

    def _turn(self) -> None:
        """Send available events, up to one step."""
        self._is_turn_due = False
        self._turns.activity.what = self._activity
        if self._on_drained is not None:
            if self._link.is_draining and not self._is_over:
                self._has_drained()
                self._transport.flush_soon()
            if self._has_outcomes and not self._is_over:
                self._on_drained()
            return
        room = self._room()
        if room <= 0:
            # A drain ends when the credit is used up, or when further messages depend on outcomes that may arrive later
            # it.
            if self._link.is_draining and (self._is_full or not self._link.credit) and not self._is_over:
                self._has_drained()
                self._transport.flush_soon()
            return
        try:
            until, deliveries = self._turns.cpu() + STEP_S, self.deliveries
            has_returned, has_more = self.position.has_returned, True
            sent = self._send_again(room, until) if has_returned else 0
            if sent < room and self._turns.cpu() < until:
                has_more = not self.position.is_full and self._send_next(room - sent)
            self._cover()
            if has_returned and (at := self.position.next_at) is not None:
                self._go_on_at(at)
        except (EventLogError, LinkFault) as error:
            refusal = refusal_of(error)
            self.expel(refusal.condition, refusal.description)
            return
        except Exception:  # other consumers wait for their turn after this one
            _logger.exception(
                "a consumer failed", extra={"fields": {"log": self._node.log.name, "link": cut(self._link.name)}}
            )
            self.expel(conditions.INTERNAL_ERROR, "internal error; see the server's log")
            return
        if self.deliveries > deliveries:
            self.message_at = wall_clock_ms()
        if has_more:
            self._take_turn_soon()
        else:
            if self._link.is_draining:
                self._has_drained()
            self._node.waiting.add(self)
        self._transport.flush_soon()

    def _cover(self) -> None:
        """Reserve memory for the contents of the position, or release it. Raises LinkFault if there is not enough."""
        more = self.position.held_bytes - self._covered
        if more > 0:
            more += -more % COVERED_STEP
            if not self._transport.share.take(more):
                problem = f"there is not enough memory to track {self.position.open} unsettled events; try again later"
                raise LinkFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem)
            self._covered += more
        elif more < -4 * COVERED_STEP:
            more += -more % COVERED_STEP
            self._transport.share.give(-more)
            self._covered += more

    def _take_turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._turns.soon(self._flow, self._turn)

    def _go_on_at(self, at: float) -> None:
        """Take a turn at that time or earlier."""
        if self._pause is not None:
            if self._pause_ends <= at:
                return
            self._pause.cancel()
        self._pause, self._pause_ends = self._node.loop.call_at(at, self._pause_over), at

    def _pause_over(self) -> None:
        self._pause = None  # it may end a little early, and is then repeated
        self._take_turn_soon()

    @property
    def _has_outcomes(self) -> bool:
        """Whether every message that it has sent has an outcome."""
        return not self._link.unsettled

    def _has_drained(self) -> None:
        """Handle a drain by the receiver when nothing is left to send."""
        self._link.drained()

    @property
    def _is_full(self) -> bool:
        """Whether it must wait for outcomes before it sends more."""
        return self.position.is_full or self._link.unsettled >= self._node.settings.unsettled_max

    def _room(self) -> int:
        """The number of events that may be sent now."""
        if self._is_over or not self._transport.has_room:
            return 0
        return min(self._link.sendable, self._node.settings.unsettled_max - self._link.unsettled, self._sizer.size)

    def _send_again(self, room: int, until: float) -> int:
        """Resend returned events, as time allows. Returns how many were sent."""
        sent, now = 0, self._node.now()
        while (
            sent < room
            and self._link.sendable
            and self._turns.cpu() < until
            and (again := self.position.next_again(now)) is not None
        ):
            number, failures = again
            page = self._node.log.read_page(
                ALL, number - 1, upto=number, limit=1, bytes_max=self._page_bytes, is_bounded=True
            )
            if page.large is not None:
                self._send(*large_handed_on(page), failures=failures)
            elif page.events:
                self._send(handed_on(page)[0], failures=failures)
            else:
                self.position.finish((number,))  # trimmed
                continue
            sent += 1
            self._statistics.messages_sent_again += 1
            self.sent_again += 1
        return sent

    def _send_next(self, room: int) -> bool:
        """Send events after the cursor. Returns whether more may be available now."""
        node, wanted, position = self._node, self._filter, self.position
        node.log.check_position(position.cursor + 1)
        began = self._turns.cpu()
        page = node.log.read_page(
            wanted.query,
            position.cursor,
            upto=wanted.upto,
            partition=self.partition,
            limit=room if wanted.matches is None else self._sizer.size,
            bytes_max=self._page_bytes,
            is_bounded=True,
        )
        if page.large is not None:
            return self._send_large(page, room)
        looked_at = self._send_those_wanted(handed_on(page), room, began + STEP_S)
        self._sizer.took(looked_at, self._turns.cpu() - began)
        if looked_at < len(page.events):
            position.passed(page.events[looked_at].sequence_number - 1)
            return True
        position.passed(page.cursor)
        return not page.is_last

    @property
    def _page_bytes(self) -> int:
        """The bytes of one page; a larger event is sent from where it is stored."""
        return min(TURN_BYTES, self._transport.share.piece_bytes)

    def _send_large(self, page: Page, room: int) -> bool:
        """Like `_send_next`, for a large event."""
        large, position, matches = large_handed_on(page), self.position, self._filter.matches
        event, data = large
        if matches is not None:  # a filter may examine a message that is stored whole
            seen = event._replace(data=bytes(data)) if event.encoding else event
            if not matches(EventFields(seen, self._node.source)):
                position.passed(page.cursor)
                return not page.is_last
        if not room or not self._link.sendable:
            position.passed(event.sequence_number - 1)
            return True
        self._send(event, data)
        self._has_sent((event.sequence_number,))
        position.passed(page.cursor)
        return not page.is_last

    def _send_those_wanted(self, events: Sequence[SequencedEvent], room: int, until: float) -> int:
        """Send the events that pass the filter, as credit and filter time allow. Returns how many events were examined.

        It examines at least one, so that even the most expensive filter makes progress. `until` is CPU time.
        """
        matches, cpu = self._filter.matches, self._turns.cpu
        if matches is None:
            return self._send_run(events[:room])
        wanted: list[int] = []
        index = 0
        for index, event in enumerate(events):
            if index and cpu() > until:
                break
            if matches(EventFields(event, self._node.source)):
                if len(wanted) == room:
                    break
                wanted.append(index)
        else:
            index = len(events)
        sent = self._send_run([events[each] for each in wanted])
        return index if sent == len(wanted) else wanted[sent]

    def _send_run(self, events: Sequence[SequencedEvent]) -> int:
        """Send events for the first time. Returns how many were sent: a large message uses more of the window."""
        sent = 0
        while sent < len(events) and self._link.sendable:
            run = events[sent : sent + RUN_EVENTS]
            numbers = [event.sequence_number for event in run]
            count = self._send_usual(run, numbers)
            if not count:
                self._send(run[0])
                count = 1
            self._has_sent(numbers[:count])
            sent += count
        return sent

    def _has_sent(self, numbers: Sequence[int]) -> None:
        """Update the position, after new events were sent."""
        if self._is_presettled:
            self.position.passed(numbers[-1])
        else:
            self.position.sent(numbers)

    def _send_usual(self, events: Sequence[SequencedEvent], numbers: Sequence[int]) -> int:
        """Send events up to the first whose message carries more, or is large. Returns how many were sent."""
        if self._associated is not None or self._first_retained is not None:
            return 0
        messages, bytes_max = self._node.outbound.messages(events), self._bytes_max
        if bytes_max is not None:
            messages = list(takewhile(lambda message: len(message) <= bytes_max, messages))
        tags, contexts = self._tags_and_contexts(numbers[: len(messages)])
        sent = self._link.send_run(messages, tags, contexts, self._is_presettled)
        self._count(sent)
        return sent

    def _send(self, event: SequencedEvent, data: memoryview | None = None, failures: int = 0) -> None:
        """Send an event. For a large event, `data` contains its data, which the event itself lacks."""
        outbound, number, rest = self._node.outbound, event.sequence_number, data
        if rest is None:
            message = outbound.message(event, failures, self._associated, self._first_retained)
            size = len(message)
        else:
            message, rest = outbound.large(event, rest, failures, self._associated, self._first_retained)
            size = len(message) + len(rest)
        if self._bytes_max is not None and size > self._bytes_max:
            raise TooLarge(size, self._bytes_max, "bytes", f"event {number} as a message")
        self._associated = self._first_retained = None
        (tag,), (context,) = self._tags_and_contexts((number,))
        is_resumed = number in self._resumed
        self._resumed.discard(number)
        self._link.send(message, tag, context, is_settled=self._is_presettled, is_resumed=is_resumed, rest=rest or b"")
        self._count(1)

    def _tags_and_contexts(self, numbers: Sequence[int]) -> tuple[Sequence[int], Sequence[object]]:
        """The delivery tags of events, and the contexts that their outcomes return: both are their numbers."""
        return numbers, numbers

    def _count(self, sent: int) -> None:
        self._statistics.messages_sent += sent
        self.deliveries += sent


def settle_when_stored(
    end: LinkEnd, link: Sender, node: EventLogNode, transport: Transport, settlement: Settlement
) -> None:
    """Answer outcomes when the position that they moved is durable. This may make room for more events."""

    def settle() -> None:
        settlement.settle(link)
        if not link.is_over:
            end.on_ready()
        transport.flush_soon()

    node.when_stored(settle)


def is_final(state: DeliveryState | Described | None) -> bool:
    """Whether a delivery is finished; this includes settlement without an outcome."""
    if isinstance(state, Modified):
        return state.undeliverable_here
    return state is None or isinstance(state, Accepted | Rejected)
