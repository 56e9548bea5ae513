"""Sessions (2.5): windows, handles, delivery ids, and unsettled deliveries. All state of a session changes here."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from . import conditions
from .conditions import ConnectionFault, LinkFault, SessionFault
from .events import Event, OutcomesReceived, SessionBegun, SessionEnded, WindowOpened
from .large_delivery import Content, LargeDelivery
from .link import SERIAL, Link, Receiver, Sender
from .performatives import (
    Accepted,
    Attach,
    Begin,
    DeliveryState,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Flow,
    Performative,
    Received,
    Transfer,
)
from .runs import handle_of, read_run
from .settlement import Sending, Settlement
from .types import Described
from .wire import DispositionFields, TransferFields

if TYPE_CHECKING:
    from .connection import Connection

_HALF = 0x80000000
_USUAL_RANGE = 1024
UNSETTLED_BYTES = 256
"""Memory of an unsettled delivery. Measured."""
COVERED_STEP = 32
"""For how many unsettled deliveries memory is reserved at a time."""
_SURPLUS = 4 * COVERED_STEP
"""If memory is reserved for more surplus deliveries than this, it is released."""


class Session:
    """A session, seen from this side."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        """The channel on which this side sends."""
        self.context: Any = None
        """For use by the owner."""
        self.remote: Begin | None = None
        self.is_ending = False
        """This side has sent its end, and the peer's has not arrived yet."""
        self.is_over = False
        self._links: dict[int, Link] = {}
        """By our handle."""
        self._by_remote_handle: dict[int, Link] = {}
        settings = connection.settings
        self._incoming_window_max = self._incoming_window = settings.incoming_window
        self._next_incoming_id: int | None = None
        self._next_outgoing_id = 0
        self._remote_window = 0
        """How many transfers the peer currently accepts."""
        self.next_delivery_id = 0
        """The id of the next delivery that is sent."""
        self._expected_delivery_id: int | None = None
        self._sent: dict[int, tuple[Sender, Any]] = {}
        """Unsettled deliveries that were sent, in the order of their ids, with their contexts."""
        self._received: dict[int, tuple[Receiver, bytes]] = {}
        """Unsettled deliveries that were received, in the order of their ids, with their tags."""
        self._covered = 0
        """For how many unsettled deliveries memory is reserved."""
        self._large: deque[LargeDelivery] = deque()
        """Deliveries in several transfers, in order; others wait for them."""

    @property
    def links(self) -> Iterable[Link]:
        """The open links of this session."""
        return tuple(self._links.values())

    @property
    def sendable(self) -> int:
        """How many transfers the window currently allows."""
        return 0 if self._large or self.is_ending or self.is_over else self._remote_window

    def attach_sender(self, name: str, **fields: Any) -> Sender:
        """Attach a link on which this side sends; the peer's answer is reported as LinkAttached."""
        link = Sender(self, name, self._free_handle())
        self._links[link.handle] = link
        fields.setdefault("initial_delivery_count", 0)
        link._send_attach(fields)
        return link

    def attach_receiver(self, name: str, **fields: Any) -> Receiver:
        """Attach a link on which this side receives; the peer's answer is reported as LinkAttached."""
        link = Receiver(self, name, self._free_handle())
        self._links[link.handle] = link
        link.message_bytes_max = fields.get("max_message_size") or None
        link._send_attach(fields)
        return link

    def end(self, error: ErrorCondition | None = None) -> None:
        """End the session and all its links from this side. Does nothing if it has already ended."""
        if self.is_ending or self.is_over:
            return
        self.is_ending = True
        self.connection.send(self.channel, End(error=error))
        self._close_links()

    def fail(self, fault: SessionFault) -> None:
        """End with the fault's error, and notify the owner."""
        links = tuple(self._links.values())
        error = ErrorCondition(fault.condition, fault.description, fault.info)
        self.end(error)
        self.tell(SessionEnded(self, error, links))

    # Called by links

    def tell(self, event: Event) -> None:
        """Report an event to the owner."""
        self.connection.tell(event)

    def send(self, performative: Performative) -> None:
        """Send a performative without payload."""
        if not (self.is_ending or self.is_over):
            self.connection.send(self.channel, performative)

    def send_flow(self, link: Link | None = None, *, drain: bool = False, available: int | None = None) -> None:
        """Send the state of the session, and of the link, if any."""
        flow = Flow(
            next_incoming_id=self._next_incoming_id,
            incoming_window=self._incoming_window,
            next_outgoing_id=self._next_outgoing_id,
            outgoing_window=self._incoming_window_max,
        )
        if isinstance(link, Sender | Receiver):
            flow.handle, flow.delivery_count, flow.link_credit = link.handle, link.delivery_count, link.credit
            flow.drain, flow.available = drain, available
            if isinstance(link, Sender) and self._large:
                self._look_before(link, flow)
            if isinstance(link, Receiver) and link.remote is None:
                flow.delivery_count = None  # not known yet (2.7.4)
        self.send(flow)

    def take_delivery_ids(self, link: Sender, contexts: Sequence[Any], is_settled: bool) -> int:
        """The first id of new deliveries with these contexts, which are remembered unless they are settled.

        Raises LinkFault if there is no memory for that.
        """
        first = delivery_id = self.next_delivery_id
        if is_settled:
            self.next_delivery_id = (first + len(contexts)) & SERIAL
            return first
        sent = self._sent
        if len(sent) + len(self._received) + len(contexts) > self._covered and not self._cover(len(contexts)):
            problem = "there is not enough memory for another unsettled delivery; try again later"
            raise LinkFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem)
        for context in contexts:
            sent[delivery_id] = link, context
            delivery_id = (delivery_id + 1) & SERIAL
        self.next_delivery_id = delivery_id
        return first

    def send_run(self, link: Sender, frames: Sequence[bytes], contexts: Sequence[Any], is_settled: bool) -> None:
        """Send the frames of deliveries of one transfer each, which have the next ids. Raises LinkFault, as above."""
        self.take_delivery_ids(link, contexts, is_settled)
        self._next_outgoing_id = (self._next_outgoing_id + len(contexts)) & SERIAL
        self._remote_window -= len(contexts)
        self.connection.send_frames(frames)

    def is_sending(self, link: Sender) -> bool:
        """Whether a delivery of that link waits for its next transfer."""
        return any(large.link is link for large in self._large)

    def send_large(
        self, link: Sender, tag: bytes, parts: tuple[Content, ...], context: Any, *, is_settled: bool, is_resumed: bool
    ) -> None:
        """Send a message that is larger than a frame, or resumed, as the window and the owner allow (2.6.14). Raises
        LinkFault if there is no memory to hold it until then."""
        held_bytes = sum(len(part) for part in parts if not isinstance(part, memoryview))
        if not self.connection.settings.take(held_bytes):
            problem = f"there is not enough memory for a message of {sum(map(len, parts))} bytes; try again later"
            raise LinkFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem)
        try:
            delivery_id = self.take_delivery_ids(link, (context,), is_settled)
        except LinkFault:
            self.connection.settings.give(held_bytes)
            raise
        first = Transfer(
            handle=link.handle,
            delivery_id=delivery_id,
            delivery_tag=tag,
            message_format=0,
            settled=is_settled,
            resume=is_resumed,
        )
        self._large.append(LargeDelivery(link, first, parts, held_bytes))
        if self._remote_window > 0:
            self.connection.may_send_large(self)

    def send_part(self) -> bool:
        """Make the next transfer of a large delivery, if the window allows it. Returns whether another may follow
        now.
        """
        if not self._large or self._remote_window <= 0:
            return False
        large = self._large[0]
        self._next_outgoing_id = (self._next_outgoing_id + 1) & SERIAL
        self._remote_window -= 1
        head, payload = large.transfer(self.connection.frame_bytes_max - 8)
        self.connection.send_body(self.channel, head, *payload)
        if large.is_whole:
            self._large.popleft()
            self.connection.settings.give(large.held_bytes)
            large.link.sent_large()
            if self.sendable > 0:
                self.tell(WindowOpened(self))
        return bool(self._large) and self._remote_window > 0

    def expect_delivery_id(self, delivery_id: int) -> None:
        """Check that a new delivery has the next id. Raises SessionFault."""
        if self._expected_delivery_id not in (None, delivery_id):
            problem = f"expected delivery-id {self._expected_delivery_id}, got {delivery_id}"
            raise SessionFault(conditions.INVALID_FIELD, problem)
        self._expected_delivery_id = (delivery_id + 1) & SERIAL

    def expect_outcome(self, delivery_id: int, link: Receiver, tag: bytes) -> None:
        """Track a delivery whose sender expects an outcome. Raises SessionFault if too many deliveries are
        unsettled.
        """
        if len(self._received) >= self.connection.settings.unsettled_max:
            problem = f"{len(self._received)} deliveries of this session are unsettled, the maximum"
            raise SessionFault(conditions.RESOURCE_LIMIT_EXCEEDED, problem)
        if len(self._sent) + len(self._received) >= self._covered and not self._cover(1):
            raise SessionFault(conditions.RESOURCE_LIMIT_EXCEEDED, self._no_room)
        self._received[delivery_id] = (link, tag)

    def is_unsettled(self, delivery_id: int) -> bool:
        """Whether the sender of a delivery still expects an outcome."""
        return delivery_id in self._received

    def settled_by_sender(self, delivery_id: int) -> None:
        """Record that the sender settled a delivery while sending it."""
        self._received.pop(delivery_id, None)

    def give_outcome(
        self, link: Receiver, first: int, last: int, state: DeliveryState | Described | None, *, is_settled: bool
    ) -> None:
        """Send the outcome of deliveries. Deliveries that the sender has settled in the meantime are ignored."""
        if is_settled:
            received = self._received
            for delivery_id in range(first, (last if first <= last else last + SERIAL + 1) + 1):
                received.pop(delivery_id & SERIAL, None)
            self._uncover()
        if is_settled and isinstance(state, Accepted):
            if not (self.is_ending or self.is_over):
                self.connection.send_accepted(self.channel, first, last)
        else:
            self.send(Disposition(role=True, first=first, last=last, settled=is_settled, state=state))
        if is_settled:
            self._open_window()

    def forget(self, link: Link) -> None:
        """Forget the deliveries of a link that is no longer attached."""
        if isinstance(link, Sender):
            if self._large:
                self._forget_large(link)
            if link.unsettled:
                self._sent = {id: sent for id, sent in self._sent.items() if sent[0] is not link}
                link.unsettled = 0
        else:
            self._received = {id: known for id, known in self._received.items() if known[0] is not link}
            self._open_window()
        self._uncover()

    # Input from the peer

    def on_begin(self, begin: Begin) -> None:
        """Handle the peer's begin."""
        self.remote = begin
        self._next_incoming_id = begin.next_outgoing_id
        self._remote_window = begin.incoming_window
        self.tell(SessionBegun(self))

    def on_transfer(self, fields: TransferFields, buffer: bytes, end: int) -> None:
        """Handle a transfer. Raises SessionFault."""
        assert self._next_incoming_id is not None
        self._next_incoming_id = (self._next_incoming_id + 1) & SERIAL
        self._incoming_window -= 1
        if self._incoming_window < 0:
            raise SessionFault(conditions.SESSION_WINDOW_VIOLATION, "a transfer was sent beyond the incoming window")
        link = self._by_remote_handle.get(fields.handle)
        if link is None:
            raise SessionFault(
                conditions.SESSION_UNATTACHED_HANDLE, f"a transfer on handle {fields.handle}, which is not attached"
            )
        if link.is_detaching or link.is_over or not isinstance(link, Receiver):
            if fields.delivery_id is not None:  # it was sent before the peer saw our detach, so it counts
                self._expected_delivery_id = (fields.delivery_id + 1) & SERIAL
            if not (link.is_detaching or link.is_over):
                link.fail(LinkFault(conditions.NOT_ALLOWED, "a transfer was sent on a link whose peer is the receiver"))
        else:
            try:
                link.on_transfer(fields, buffer, end)
            except LinkFault as fault:
                link.fail(fault)
        self._open_window()

    def on_run(self, buffer: bytes, at: int) -> int:
        """Handle consecutive transfers of one link, starting with the frame at `at`, as long as they have the usual
        form. Returns where the first other frame begins. This is `at` itself if the link, window, credit or id does not
        allow a run."""
        link = self._by_remote_handle.get(handle_of(buffer, at))
        if not isinstance(link, Receiver) or not link.takes_runs:
            return at
        settings = self.connection.settings
        count_max = min(link.credit, self._incoming_window, settings.unsettled_max - len(self._received))
        if count_max <= 0:
            return at
        bytes_max = settings.frame_bytes_max
        run = read_run(buffer, at, bytes_max, link.message_bytes_max or bytes_max, count_max)
        if run is None or self._expected_delivery_id not in (None, run.first):
            return at
        assert self._next_incoming_id is not None
        count = len(run.tags)
        if not run.is_settled and not self._cover(count):
            self.fail(SessionFault(conditions.RESOURCE_LIMIT_EXCEEDED, self._no_room))
            return run.end
        self._next_incoming_id = (self._next_incoming_id + count) & SERIAL
        self._incoming_window -= count
        self._expected_delivery_id = (run.first + count) & SERIAL
        if not run.is_settled:
            self._received.update(zip(range(run.first, run.first + count), zip(repeat(link), run.tags), strict=False))
        link.on_run(run)
        self._open_window()
        return run.end

    def on_flow(self, flow: Flow) -> None:
        """Update the peer's windows, and a link's credit. Raises SessionFault."""
        seen = flow.next_incoming_id
        ahead = 0 if seen is None else (self._next_outgoing_id - seen) & SERIAL
        if seen is None:
            ahead = self._next_outgoing_id  # the peer has not seen anything yet, so our ids begin at 0
        if ahead >= _HALF:
            raise SessionFault(conditions.INVALID_FIELD, f"next-incoming-id {seen} has not been sent yet")
        was_shut = self._remote_window <= 0
        self._remote_window = flow.incoming_window - ahead
        if self._large and self._remote_window > 0:
            self.connection.may_send_large(self)
        if flow.handle is None:
            if flow.echo:
                self.send_flow()
        else:
            link = self._link(flow.handle, "flow")
            if not link.is_detaching:
                link.on_flow(flow)
        if was_shut and self.sendable > 0:
            self.tell(WindowOpened(self))

    def on_attach(self, attach: Attach) -> None:
        """Handle the peer's attach, which may answer ours. Raises SessionFault, ConnectionFault."""
        if attach.handle in self._by_remote_handle:
            raise SessionFault(conditions.SESSION_HANDLE_IN_USE, f"handle {attach.handle} is already attached")
        if attach.handle > self.connection.settings.handle_max:
            problem = f"expected a handle of at most {self.connection.settings.handle_max}, got {attach.handle}"
            raise ConnectionFault(conditions.CONNECTION_FRAMING_ERROR, problem)
        link = self._awaited(attach)
        if link is None:
            handle = self._free_handle()
            link = Sender(self, attach.name, handle) if attach.role else Receiver(self, attach.name, handle)
            self._links[handle] = link
        self._by_remote_handle[attach.handle] = link
        self.connection.attached(link, attach)
        link.on_attach(attach)

    def on_detach(self, detach: Detach) -> None:
        """Handle the peer's detach. Raises SessionFault."""
        link = self._link(detach.handle, "detach")
        del self._by_remote_handle[detach.handle]
        self._links.pop(link.handle, None)
        link.on_detach(detach)

    def on_disposition(self, fields: DispositionFields) -> None:
        """Handle outcomes of deliveries that we sent, or the settlement of deliveries that we received (2.6.12)."""
        first, last = fields.first, fields.last
        if (last - first) & SERIAL >= _HALF:
            raise SessionFault(
                conditions.INVALID_FIELD, f"a disposition of deliveries {first} to {last}, which is not a valid range"
            )
        if fields.is_receiver:
            self._on_outcomes(fields)
        elif fields.is_settled:
            self._on_settled(first, last)

    def on_end(self, end: End) -> None:
        """Handle the peer's end. It is answered, unless it is itself an answer."""
        was_ending = self.is_ending
        links = tuple(self._links.values())
        self.end()
        self.is_over = True
        if not was_ending:
            self.tell(SessionEnded(self, end.error, links))

    def on_connection_closed(self) -> None:
        """Handle the end of the connection: nothing can be sent afterwards."""
        self.is_over = True
        self._close_links()

    # Implementation

    def _on_outcomes(self, fields: DispositionFields) -> None:
        _, first, last, is_settled, state = fields
        if not is_settled and (state is None or isinstance(state, Received)):
            return  # no outcome yet
        by_link: dict[Sender, list[Any]] = {}
        if first == last:
            if (sent := self._sent.pop(first, None)) is not None:
                by_link[sent[0]] = [sent[1]]
        else:
            each = map(self._sent.pop, _within(self._sent, first, last))
            for link, deliveries in groupby(each, key=itemgetter(0)):
                by_link.setdefault(link, []).extend([context for _, context in deliveries])
        if self._covered - len(self._sent) > _SURPLUS:
            self._uncover()
        if is_settled:
            for link, contexts in by_link.items():
                link.unsettled -= len(contexts)
                self.tell(OutcomesReceived(link, contexts, state))
            return
        answer = Disposition(role=False, first=first, last=last, settled=True, state=state)
        waiting: dict[Sending, int] = {link: len(its) for link, its in by_link.items() if link.owner_settles}
        settlement = Settlement(self.send, answer, waiting) if waiting else None
        for link, contexts in by_link.items():
            if link in waiting:
                self.tell(OutcomesReceived(link, contexts, state, settlement))
                continue
            link.unsettled -= len(contexts)
            self.tell(OutcomesReceived(link, contexts, state))
        if by_link and settlement is None:
            self.send(answer)

    def _on_settled(self, first: int, last: int) -> None:
        known = self._received
        by_link: dict[Receiver, list[bytes]] = {}
        for delivery_id in _within(known, first, last):
            link, tag = known.pop(delivery_id)
            by_link.setdefault(link, []).append(tag)
        self._uncover()
        for link, tags in by_link.items():
            link.on_settled(tags)
        self._open_window()

    def _open_window(self) -> None:
        """Open the incoming window by at least half, up to the limit on unsettled deliveries, regardless of credit."""
        room = self.connection.settings.unsettled_max - len(self._received)
        if min(self._incoming_window_max, room) - self._incoming_window >= self._incoming_window_max >> 1:
            self._incoming_window = min(self._incoming_window_max, room)
            self.send_flow()

    def _cover(self, more: int) -> bool:
        """Reserve memory for that many more unsettled deliveries, unless enough is reserved. Returns whether it
        succeeded.
        """
        lacking = len(self._sent) + len(self._received) + more - self._covered
        if lacking > 0:
            lacking = -(-lacking // COVERED_STEP) * COVERED_STEP
            if not self.connection.settings.take(lacking * UNSETTLED_BYTES):
                return False
            self._covered += lacking
        return True

    def _uncover(self) -> None:
        """Release the memory of settled deliveries, for many at a time."""
        surplus = self._covered - len(self._sent) - len(self._received)
        if surplus > _SURPLUS:
            surplus -= surplus % COVERED_STEP
            self._covered -= surplus
            self.connection.settings.give(surplus * UNSETTLED_BYTES)

    @property
    def _no_room(self) -> str:
        count = len(self._received)
        return f"there is not enough memory for more than {count} unsettled deliveries; try again later"

    def _forget_large(self, link: Sender) -> None:
        """Drop the incomplete deliveries of a link that is no longer attached."""
        kept, next_id = deque[LargeDelivery](), None
        for large in self._large:
            if large.first is not None and next_id is None:
                next_id = large.first.delivery_id
            if large.link is link:
                self.connection.settings.give(large.held_bytes)
                continue
            kept.append(large)
            if large.first is not None and next_id is not None:  # ids are consecutive; the peer has not seen this one
                sent = self._sent.pop(large.first.delivery_id or 0, None)
                if sent is not None:
                    self._sent[next_id] = sent
                large.first.delivery_id = next_id
                next_id = (next_id + 1) & SERIAL
        self._large = kept
        if not kept:
            self.connection.has_sent_large(self)
        if next_id is not None:
            self.next_delivery_id = next_id
        if self.sendable > 0:
            self.tell(WindowOpened(self))

    def _look_before(self, link: Sender, flow: Flow) -> None:
        """Adjust a flow: the receiver does not know of deliveries that have not begun (2.6.7)."""
        waiting = sum(large.link is link and not large.is_begun for large in self._large)
        if flow.delivery_count is not None and flow.link_credit is not None:
            flow.delivery_count = (flow.delivery_count - waiting) & SERIAL
            flow.link_credit += waiting

    def _link(self, handle: int, frame: str) -> Link:
        link = self._by_remote_handle.get(handle)
        if link is None:
            raise SessionFault(
                conditions.SESSION_UNATTACHED_HANDLE, f"a {frame} on handle {handle}, which is not attached"
            )
        return link

    def _awaited(self, attach: Attach) -> Link | None:
        """Our link that this attach is the answer to."""
        for link in self._links.values():
            if link.remote is None and link.name == attach.name and link.is_sender == attach.role:
                return link
        return None

    def _free_handle(self) -> int:
        highest = self.connection.settings.handle_max
        if self.remote is not None:
            highest = min(highest, self.remote.handle_max)
        if len(self._links) > highest:
            raise SessionFault(conditions.RESOURCE_LIMIT_EXCEEDED, f"a session can have at most {highest + 1} links")
        handle = 0
        while handle in self._links:
            handle += 1
        return handle

    def _close_links(self) -> None:
        links = tuple(self._links.values())
        self._links.clear()
        self._by_remote_handle.clear()
        self._sent.clear()
        self._received.clear()
        settings = self.connection.settings
        settings.give(self._covered * UNSETTLED_BYTES + sum(large.held_bytes for large in self._large))
        self._covered = 0
        self._large.clear()
        for link in links:
            link.end()


def _within(known: dict[int, Any], first: int, last: int) -> list[int]:
    """The known ids (in order) within a range that a peer named.

    The cost depends neither on the size of the range nor on the ids outside it, because peers may send many ranges. A
    range as receivers usually name it does not copy all known ids."""
    count = ((last - first) & SERIAL) + 1
    if count <= _USUAL_RANGE:
        ordered = range(first, last + 1) if first <= last else chain(range(first, SERIAL + 1), range(last + 1))
        return [id for id in ordered if id in known]
    ids = list(known)
    if not ids:
        return []
    oldest = ids[0]

    def place(id: int) -> int:
        return (id - oldest) & SERIAL

    begin, end = place(first), place(last)
    if end >= _HALF:
        return []  # all known ids are older
    begin = 0 if begin >= _HALF else begin
    return ids[bisect_left(ids, begin, key=place) : bisect_right(ids, end, key=place)]
