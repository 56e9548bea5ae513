"""Links (2.6), seen from this side: a `Sender` sends, a `Receiver` receives.

A link is created by the peer's attach or by `Session.attach_sender` and `attach_receiver`; its session feeds it. All
state of a link changes here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import conditions
from .conditions import LinkFault
from .events import CreditChanged, DeliveriesSettled, FlowReceived, LinkAttached, LinkDetached, MessagesReceived
from .large_delivery import Content
from .performatives import Attach, DeliveryState, Detach, ErrorCondition, Flow, Transfer
from .runs import TAG_BYTES_MAX, TransferRun
from .types import Described, Symbol
from .wire import TransferFields, TransferHead

if TYPE_CHECKING:
    from .session import Session

SERIAL = 0xFFFFFFFF
"""Delivery counts and ids are 32-bit serial numbers (RFC 1982)."""
SETTLED = 1
"""snd-settle-mode (2.8.2)."""
SECOND = 1
"""rcv-settle-mode (2.8.3)."""


class Delivery(NamedTuple):
    """A complete message."""

    id: int
    tag: bytes
    message_format: int
    is_settled: bool
    payload: bytes | None
    """The message's bytes; None if it was larger than the link's max-message-size, and was dropped."""
    bytes: int
    """The size of the message."""
    whole: Transfer | None
    """The first transfer itself, if it has a state or resumes a delivery."""


class Link:
    """Base of both ends."""

    is_sender: bool

    def __init__(self, session: Session, name: str, handle: int) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        """This side's handle."""
        self.local: Attach | None = None
        """This side's attach, once sent."""
        self.remote: Attach | None = None
        """The peer's attach, once received."""
        self.held_bytes = 0
        """Memory reserved for it and the peer's attach, for as long as it exists."""
        self.context: Any = None
        """For use by the owner."""
        self.is_detaching = False
        """This side has sent its detach, and the peer's has not arrived yet."""
        self.is_over = False
        """Whether the link is over; nothing can be done with it."""

    @property
    def is_attached(self) -> bool:
        """Whether both sides have attached, and neither has detached."""
        return self.local is not None and self.remote is not None and not self.is_detaching and not self.is_over

    @property
    def is_waiting(self) -> bool:
        """Whether the peer has attached and waits for an answer."""
        return self.remote is not None and self.local is None and not self.is_over

    def accept(self, **fields: Any) -> None:
        """Answer the peer's attach, with `fields` of our own attach; the modes are those of the peer's attach.

        Raises ValueError if it was already answered, or the peer has detached.
        """
        remote = self.remote
        if remote is None or not self.is_waiting:
            raise ValueError(f"link {self.name!r} is not waiting for an answer")
        fields.setdefault("snd_settle_mode", remote.snd_settle_mode)
        fields.setdefault("rcv_settle_mode", remote.rcv_settle_mode)
        if self.is_sender:
            fields.setdefault("initial_delivery_count", 0)
        self._send_attach(fields)

    def refuse(self, condition: Symbol, description: str, info: Mapping[Any, Any] | None = None) -> None:
        """Answer the peer's attach with one that has no terminus, and a closing detach with the error (2.6.3)."""
        assert self.remote is not None
        missing: dict[str, Any] = {"source": None} if self.is_sender else {"target": None}
        kept = {"target": self.remote.target} if self.is_sender else {"source": self.remote.source}
        self.accept(**missing, **kept)
        self.detach(ErrorCondition(condition, description, info and dict(info)))

    def detach(self, error: ErrorCondition | Described | None = None, *, is_closed: bool = True) -> None:
        """Detach or close the link from this side; the peer will answer. Does nothing if it has already ended."""
        if self.is_over or self.is_detaching or self.local is None:
            return
        self.is_detaching = True
        self.session.send(Detach(handle=self.handle, closed=is_closed, error=error))
        self._stop()

    def fail(self, fault: LinkFault) -> None:
        """Detach with the fault's error, and notify the owner."""
        error = ErrorCondition(fault.condition, fault.description, fault.info)
        if self.local is None:
            self.refuse(fault.condition, fault.description or "", fault.info)
        else:
            self.detach(error)
        self.session.tell(LinkDetached(self, True, error, is_by_peer=False))

    def on_attach(self, attach: Attach) -> None:
        """Handle the peer's attach: an answer, or a request of its own."""
        self.remote = attach
        self.session.tell(LinkAttached(self))

    def on_flow(self, flow: Flow) -> None:
        """Handle the peer's flow on this link."""
        raise NotImplementedError

    def on_detach(self, detach: Detach) -> None:
        """Handle the peer's detach. It is answered, unless it is itself an answer."""
        was_detaching = self.is_detaching
        if self.local is None:
            self._send_attach({"source": None, "target": None, "initial_delivery_count": 0})
        if not was_detaching:
            self.detach(is_closed=detach.closed)
        self.is_over = True
        self.session.connection.detached(self)
        if not was_detaching:
            self.session.tell(LinkDetached(self, detach.closed, detach.error))

    def end(self) -> None:
        """Handle the end of the session."""
        self.is_over = True
        self.session.connection.detached(self)
        self._stop()

    def _send_attach(self, fields: Mapping[str, Any]) -> None:
        attach = Attach(name=self.name, handle=self.handle, role=not self.is_sender, **fields)
        self.session.send(attach)
        self.local = attach

    def _stop(self) -> None:
        """Release what a detached link does not need."""


class Sender(Link):
    """A link on which this side sends."""

    is_sender = True

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.delivery_count = 0
        self.credit = 0
        self.is_draining = False
        self.unsettled = 0
        """How many deliveries have not been settled yet."""
        self.owner_settles = False
        """Whether outcomes that the receiver leaves for this side to settle wait for the owner: see `Settlement`."""
        self._owes_drained = False
        """Whether to end a drain once the whole of the current delivery has been sent."""
        self._head = TransferHead(session.channel, handle)

    @property
    def sends_settled(self) -> bool:
        """Whether every delivery on this link is sent settled."""
        return self.local is not None and self.local.snd_settle_mode == SETTLED

    @property
    def sendable(self) -> int:
        """How many deliveries the credit and the session's window allow now."""
        if self.local is None or self.is_detaching or self.is_over:
            return 0
        return min(self.credit, self.session.sendable)

    def check_size(self, size: int) -> None:
        """Raises LinkFault if a message of that size is larger than the receiver accepts (2.7.3, max-message-size)."""
        bytes_max = self.remote.max_message_size if self.remote is not None else None
        if bytes_max and size > bytes_max:
            problem = f"the next message has {size} bytes, but the receiver's maximum is {bytes_max}"
            raise LinkFault(conditions.LINK_MESSAGE_SIZE_EXCEEDED, problem)

    def send(
        self,
        message: bytes,
        tag: int,
        context: Any = None,
        *,
        is_settled: bool = False,
        is_resumed: bool = False,
        rest: Content = b"",
    ) -> int:
        """Send a message of format 0, if `sendable` is not 0. Returns its delivery id.

        `rest` follows it as part of the same message, and is not copied before its frames are made. Raises LinkFault if
        there is no memory for it.

        `context` is returned with the outcome, unless the delivery is settled. The tag must be unique among the
        unsettled deliveries. `is_resumed`: the receiver has it unsettled from an earlier attach of the link (2.6.13).
        """
        session = self.session
        delivery_id = session.next_delivery_id
        if is_resumed or rest or session._large or not self.send_run((message,), (tag,), (context,), is_settled):
            self._use_credit(1, is_settled)
            its_tag = tag.to_bytes(8, "big")
            session.send_large(self, its_tag, (message, rest), context, is_settled=is_settled, is_resumed=is_resumed)
            if self.is_draining and not self.credit:
                self.drained()
        return delivery_id

    def send_run(
        self, messages: Sequence[bytes], tags: Sequence[int], contexts: Sequence[Any], is_settled: bool
    ) -> int:
        """Send messages like `send`, if `sendable` is enough for all, up to the first that does not fit into a frame.

        Returns how many were sent.
        """
        session = self.session
        frames = self._head.frames(
            messages, session.next_delivery_id, tags, session.connection.frame_bytes_max, is_settled
        )
        if count := len(frames) // 2:
            self._use_credit(count, is_settled)
            session.send_run(self, frames, contexts[:count], is_settled)
            if self.is_draining and not self.credit:
                self.drained()
        return count

    def _use_credit(self, count: int, is_settled: bool) -> None:
        assert self.credit >= count
        self.credit -= count
        self.delivery_count = (self.delivery_count + count) & SERIAL
        if not is_settled:
            self.unsettled += count

    def drained(self) -> None:
        """Report that there is nothing more to send now: use up the credit that a draining receiver gave (2.6.7).

        If messages use up the credit, this is reported without a call, since a receiver may wait for it. The report
        follows the last transfer.
        """
        if self.session.is_sending(self):
            self._owes_drained = True
            return
        self._owes_drained = False
        self.delivery_count = (self.delivery_count + self.credit) & SERIAL
        self.credit = 0
        self.is_draining = False
        self.session.send_flow(self, drain=True, available=0)

    def sent_large(self) -> None:
        """Record that the whole of a large delivery has been sent."""
        if self._owes_drained and self.is_draining:
            self.drained()

    def on_flow(self, flow: Flow) -> None:
        """Update credit, which counts from what the receiver had received when it sent the flow (2.6.7)."""
        if flow.link_credit is not None:
            seen = 0 if flow.delivery_count is None else flow.delivery_count
            if self.local is not None and flow.delivery_count is None:
                seen = self.local.initial_delivery_count or 0
            ahead = (self.delivery_count - seen) & SERIAL
            self.credit = max(0, flow.link_credit - ahead) if ahead < 0x80000000 else flow.link_credit
        self.is_draining = bool(flow.drain)
        if self.local is not None:
            if self.is_draining and not self.credit:
                self.drained()
            elif flow.echo:
                self.session.send_flow(self)
        self.session.tell(CreditChanged(self, flow.properties))

    def _stop(self) -> None:
        self.credit = 0
        self.is_draining = False
        self.session.forget(self)


class Receiver(Link):
    """A link on which this side receives."""

    is_sender = False

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.delivery_count = 0
        self.credit = 0
        """How many deliveries the peer may still send."""
        self.message_bytes_max: int | None = None
        self._received: list[Delivery | TransferRun] = []
        self._partial: _Partial | None = None

    @property
    def is_second(self) -> bool:
        """Whether this side settles after the sender (rcv-settle-mode second)."""
        return self.local is not None and self.local.rcv_settle_mode == SECOND

    def accept(self, **fields: Any) -> None:
        """See Link; max-message-size is enforced by dropping larger messages (`Delivery.payload`)."""
        self.message_bytes_max = fields.get("max_message_size") or None
        super().accept(**fields)

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Let the peer send this many deliveries from now on; replaces its earlier credit."""
        self.credit = credit
        self.session.send_flow(self, drain=drain)

    @property
    def takes_runs(self) -> bool:
        """Whether the next transfer may be a whole message."""
        return self._partial is None and not self.is_detaching and not self.is_over

    def take(self) -> list[Delivery]:
        """Return the deliveries that arrived since the last call."""
        taken: list[Delivery] = []
        for each in self.take_runs():
            if isinstance(each, TransferRun):
                taken += deliveries_of(each)
            else:
                taken.append(each)
        return taken

    def take_runs(self) -> list[Delivery | TransferRun]:
        """Like `take`, but deliveries that arrived as a run stay together."""
        received, self._received = self._received, []
        return received

    def settle(self, first: int, last: int, state: DeliveryState | Described | None) -> None:
        """Give the deliveries `first` to `last` (all of this link) an outcome.

        They are settled with it, unless the link's mode is second: then the sender settles them (DeliveriesSettled).
        """
        self.session.give_outcome(self, first, last, state, is_settled=not self.is_second)

    def on_attach(self, attach: Attach) -> None:
        self.delivery_count = attach.initial_delivery_count or 0
        super().on_attach(attach)

    def on_flow(self, flow: Flow) -> None:
        """Update the sender's state: what is available, and whether it used up its credit to end a drain."""
        is_drained = False
        if flow.delivery_count is not None:
            used = (flow.delivery_count - self.delivery_count) & SERIAL
            if 0 < used <= self.credit:
                self.delivery_count = flow.delivery_count
                self.credit -= used
            is_drained = bool(flow.drain) and self.credit == 0
        if flow.echo and self.local is not None:
            self.session.send_flow(self)
        self.session.tell(FlowReceived(self, flow.available, is_drained, flow.properties))

    def on_transfer(self, fields: TransferFields, buffer: bytes, end: int) -> None:
        """Handle a transfer, usually a whole message. Raises LinkFault, SessionFault."""
        if self._partial is None and not fields.has_more and fields.whole is None:
            self._admit(fields)
            payload = buffer[fields.payload_at : end]
            self._complete(fields, bool(fields.is_settled), len(payload), payload)
        else:
            self._take_piece(fields, buffer[fields.payload_at : end])

    def on_run(self, run: TransferRun) -> None:
        """Handle a run of whole messages within the credit."""
        count = len(run.tags)
        self.credit -= count
        self.delivery_count = (self.delivery_count + count) & SERIAL
        if not self._received:
            self.session.tell(MessagesReceived(self))
        self._received.append(run)

    def on_settled(self, tags: list[bytes]) -> None:
        """The sender settled these deliveries."""
        self.session.tell(DeliveriesSettled(self, tags))

    def _admit(self, fields: TransferFields) -> None:
        """Admit the first transfer of a delivery. Raises LinkFault, SessionFault."""
        delivery_id, tag = fields.delivery_id, fields.tag
        if delivery_id is not None:
            self.session.expect_delivery_id(delivery_id)
        if delivery_id is None or tag is None:
            raise LinkFault(
                conditions.INVALID_FIELD, "the first transfer of a delivery requires a delivery-id and a delivery-tag"
            )
        if len(tag) > TAG_BYTES_MAX:
            problem = f"expected a delivery-tag of at most {TAG_BYTES_MAX} bytes, got {len(tag)}"
            raise LinkFault(conditions.INVALID_FIELD, problem)
        if self.credit <= 0:
            raise LinkFault(conditions.LINK_TRANSFER_LIMIT_EXCEEDED, "a transfer was sent without credit")
        if fields.whole is not None and not self.is_second:
            _check_settle_mode(fields.whole)
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & SERIAL
        if not fields.is_settled:
            self.session.expect_outcome(delivery_id, self, tag)

    def _complete(self, first: TransferFields, is_settled: bool, size: int, payload: bytes | None) -> None:
        """Complete a delivery; `first` is its first transfer."""
        _, delivery_id, tag, message_format, _, _, _, whole = first
        assert delivery_id is not None and tag is not None
        if self.message_bytes_max is not None and size > self.message_bytes_max:
            payload = None
        if not self._received:
            self.session.tell(MessagesReceived(self))
        self._received.append(Delivery(delivery_id, tag, message_format or 0, is_settled, payload, size, whole))

    def _take_piece(self, fields: TransferFields, payload: bytes) -> None:
        """Handle one of several transfers of a delivery, including the first and the last (2.6.14)."""
        whole = fields.whole
        partial = self._partial
        if partial is None:
            self._admit(fields)
            partial = self._partial = _Partial(fields)
        else:
            partial.check_continued(fields)
            if whole is not None and not self.is_second:
                _check_settle_mode(whole)
        is_aborted = whole is not None and whole.aborted
        if fields.is_settled or is_aborted:
            self.session.settled_by_sender(partial.delivery_id)
        if is_aborted:
            self._abandon()
            if not self._received:
                self.session.tell(MessagesReceived(self))  # it used up credit, which the owner must know
            return
        partial.take(payload, self.session.connection, self.message_bytes_max)
        if not fields.has_more:
            self._partial = None
            self.session.connection.release(partial.held)
            is_settled = not self.session.is_unsettled(partial.delivery_id)
            self._complete(partial.first, is_settled, partial.bytes, partial.payload)

    def _abandon(self) -> None:
        if (partial := self._partial) is not None:
            self._partial = None
            self.session.connection.release(partial.held)

    def _stop(self) -> None:
        self.credit = 0
        self._abandon()
        self.session.forget(self)


def deliveries_of(run: TransferRun) -> list[Delivery]:
    """The separate deliveries of a run."""
    each = zip(range(run.first, run.last + 1), run.tags, run.payloads, strict=True)
    return [Delivery(id, tag, 0, run.is_settled, payload, len(payload), None) for id, tag, payload in each]


def _check_settle_mode(transfer: Transfer) -> None:
    """Raises LinkFault if a transfer on a link of mode first asks for second (2.7.5)."""
    if transfer.rcv_settle_mode == SECOND and not transfer.settled:
        raise LinkFault(conditions.INVALID_FIELD, "rcv-settle-mode: got second, but the link was attached with first")


class _Partial:
    """A delivery whose last transfer has not arrived yet."""

    __slots__ = ("_kept", "bytes", "delivery_id", "first", "held")

    def __init__(self, first: TransferFields) -> None:
        self.first = first
        assert first.delivery_id is not None
        self.delivery_id = first.delivery_id
        self.bytes = 0
        self.held = 0
        """How many bytes are kept, and counted by the connection, for this delivery."""
        self._kept = bytearray()
        """The pieces are joined at once, because a list of tiny pieces would use many times their size."""

    def check_continued(self, fields: TransferFields) -> None:
        """Raises LinkFault if a further transfer contradicts the first one (2.7.5)."""
        first = self.first
        if fields.delivery_id is not None and fields.delivery_id != self.delivery_id:
            problem = f"delivery {fields.delivery_id} begins before the last transfer of delivery {self.delivery_id}"
            raise LinkFault(conditions.INVALID_FIELD, problem)
        if fields.tag is not None and fields.tag != first.tag:
            problem = f"delivery-tag: a further transfer of delivery {self.delivery_id} differs from its first"
            raise LinkFault(conditions.INVALID_FIELD, problem)
        if fields.message_format is not None and fields.message_format != (first.message_format or 0):
            problem = f"message-format: got {fields.message_format:#x}, but the first transfer of delivery"
            raise LinkFault(
                conditions.INVALID_FIELD, f"{problem} {self.delivery_id} has {first.message_format or 0:#x}"
            )

    @property
    def payload(self) -> bytes | None:
        return bytes(self._kept) if self.held == self.bytes else None

    def take(self, payload: bytes, connection: Any, bytes_max: int | None) -> None:
        """Keep a piece. If the message is already too large, drop all pieces."""
        self.bytes += len(payload)
        if self.held + len(payload) < self.bytes or (bytes_max is not None and self.bytes > bytes_max):
            connection.release(self.held)
            self.held = 0
            self._kept = bytearray()
        else:
            connection.hold(len(payload))
            self.held += len(payload)
            self._kept += payload
