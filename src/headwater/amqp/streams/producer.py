"""A producer's link. Messages become events, and each delivery gets its outcome after its event is durable or refused.

Messages from one read are appended together, in their order. Credit is returned with outcomes, so a slow log slows its
producers down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from ...core.alike import Form
from ...core.clocks import wall_clock_ms
from ...core.errors import EventLogError, OutcomeUnknown
from ...core.event import Event
from ...core.limits import APPEND_BYTES_MAX, EventColumns, check_append
from ...core.log import AppendResult
from ...core.loop.batcher import Ended, Joint, Outcome
from ...core.quoting import show
from ...core.settings import LogSettings
from ...core.shared_bytes import FREE_BYTES
from ..connections.link_end import Ending, LinkEnd
from ..connections.refusals import refuse
from ..connections.transport import Transport
from ..errors import MessageFault, link_fault
from ..messages.inbound import read_message
from ..messages.plain import PlainEvents, read_plain
from ..protocol import conditions
from ..protocol.codec import DecodeError
from ..protocol.conditions import AmqpError
from ..protocol.link import Delivery, Receiver, deliveries_of
from ..protocol.message import decode_message
from ..protocol.performatives import Accepted, Target
from ..protocol.runs import TransferRun
from .consumer_attach import bound_partition
from .link_properties import binding_of, bound_properties, partition_number
from .node import EventLogNode
from .nodes import Nodes

_ACCEPTED = Accepted()
DELIVERY_BYTES = 512
"""Approximate memory of a delivery without an outcome, in addition to its message."""
MESSAGE_FACTOR = 2
"""Memory of a message until its outcome, as a multiple of its size: it is held as received, and as an event."""
LARGE_BYTES = 64 * 1024
"""Larger messages are released after they become events."""

UNLIKE_MESSAGES = 256
"""After messages that are not plain, this many are read one by one before the fast path is tried again."""


class _Append:
    """Deliveries of one link whose events are appended together (see `Joint`)."""

    __slots__ = ("_producer", "began_ns", "bytes", "deliveries", "events", "node", "partition")

    def __init__(self, producer: Producer, node: EventLogNode, partition: int | None) -> None:
        self._producer, self.node, self.partition = producer, node, partition
        self.deliveries: list[Delivery] = []
        self.events: list[Event] = []
        self.bytes = 0
        """The bytes of the deliveries."""
        self.began_ns = 0
        """When it was submitted, if spans are collected; in s."""

    @property
    def count(self) -> int:
        """See Joint."""
        return len(self.events)

    def take(self, delivery: Delivery, event: Event) -> None:
        """Add a delivery."""
        if delivery.bytes > LARGE_BYTES:
            delivery = delivery._replace(payload=None)
        self.deliveries.append(delivery)
        self.events.append(event)
        self.bytes += delivery.bytes

    def columns(self, settings: LogSettings) -> EventColumns:
        """See Joint. The messages were checked when they were read."""
        return check_append(self.events, settings.event_bytes_max, are_messages_checked=True)

    def outcomes(self, outcome: Outcome) -> tuple[tuple[Ended, Outcome]]:
        """See Joint."""
        return ((self._ended, outcome),)

    def apart(self) -> list[Joint] | None:
        """See Joint."""
        if len(self.events) == 1:
            return None
        return [self._one(*each) for each in zip(self.deliveries, self.events, strict=True)]

    def _one(self, delivery: Delivery, event: Event) -> _Append:
        one = _Append(self._producer, self.node, self.partition)
        one.began_ns = self.began_ns
        one.take(delivery, event)
        return one

    def _ended(self, outcome: Outcome) -> None:
        is_new = isinstance(outcome, AppendResult) and not outcome.was_stored
        self._producer.on_appended(self, error_of(outcome, self.node), is_new=is_new)


class _RunAppend:
    """A run of deliveries whose events are appended with those of other links (see `Share`)."""

    __slots__ = ("_producer", "node", "partition", "run")

    def __init__(self, producer: Producer, run: TransferRun, node: EventLogNode, partition: int | None) -> None:
        self._producer, self.run, self.node, self.partition = producer, run, node, partition

    def ended(self, outcome: Outcome) -> None:
        """See Share."""
        self._producer.on_run_appended(self, error_of(outcome, self.node))

    def apart(self) -> list[_Append]:
        """See Share."""
        return list(self._producer.appends_of(deliveries_of(self.run), self.node, self.partition, each=True))


class Producer(LinkEnd):
    """A producer's link to one log or, if it has no target address, to the log that each message names."""

    def __init__(
        self,
        nodes: Nodes,
        transport: Transport,
        link: Receiver,
        node: EventLogNode | None,
        partition: int | None,
        accepted: dict[bytes, None],
    ) -> None:
        """`accepted` are tags of an earlier attach of the link that the sender has not settled (2.6.13)."""
        self._nodes, self._transport, self._link = nodes, transport, link
        self._node, self._partition = node, partition
        self.log = None if node is None else node.log
        self._statistics, self._spans = transport.shared.statistics, transport.shared.spans
        self._window = transport.shared.settings.credit
        self._outstanding = 0
        """Deliveries that have arrived and have no outcome yet."""
        self._unsettled = dict(accepted)
        """Tags of accepted deliveries that the sender has yet to settle (rcv-settle-mode second)."""
        self._is_over = False
        self._form: Form | None = None
        """The common form of the link's messages."""
        self._unlike_left = 0
        """How many more messages skip the check for a form."""
        self._anonymous: asyncio.Queue[Delivery | None] | None = None
        """Messages to forward to the logs they name; None ends it."""

    @property
    def waits_for(self) -> str | None:
        return "messages" if self._link.credit > 0 else "the log"

    def grant(self) -> None:
        """Give the sender as much credit as there is room for, but at least half a window at a time."""
        room = self._window - self._outstanding
        if room - self._link.credit >= self._window >> 1 and self._link.is_attached:
            self._link.grant(room)

    def on_messages(self) -> None:
        received = self._link.take_runs()
        if not received:
            self.grant()  # the sender aborted one, which used up credit
            return
        count = size = 0
        for each in received:
            count += len(each.tags) if isinstance(each, TransferRun) else 1
            size += each.bytes if isinstance(each, TransferRun) else _kept_bytes(each)
        self._statistics.messages_received += count
        self.deliveries += count
        self.message_at = wall_clock_ms()
        held = MESSAGE_FACTOR * size + DELIVERY_BYTES * count
        if not self._transport.share.take(held):
            self._refuse_all(held, count)
            return
        self._outstanding += count
        self._transport.hold(held)
        if self._node is None:
            self._forward(
                [
                    delivery
                    for each in received
                    for delivery in (deliveries_of(each) if isinstance(each, TransferRun) else (each,))
                ]
            )
        else:
            self._take(received, self._node)

    def _refuse_all(self, held: int, count: int) -> None:
        """There is no memory for the message. End the link, and store no part of it."""
        self._statistics.messages_rejected += count
        if not self._is_over:
            fault = link_fault(self._transport.share.refusal(held, f"the data that you sent ({count} messages)"))
            self._transport.expel(self._link, fault.condition, fault.description, fault.info)

    def _take(self, received: Sequence[Delivery | TransferRun], node: EventLogNode) -> None:
        """Append runs of plain messages as such, and other messages one by one, in their order."""
        between: list[Delivery] = []
        for each in received:
            if not isinstance(each, TransferRun):
                between.append(each)
            elif self._spans is not None or self._unlike_left > 0:
                self._unlike_left -= len(each.tags)
                between += deliveries_of(each)
            else:
                if between:
                    self._append(between, node, self._partition)
                between = [] if self._is_gathered(each, node) else deliveries_of(each)
        if between:
            self._append(between, node, self._partition)

    def on_settled(self, tags: Sequence[bytes]) -> None:
        for tag in tags:
            self._unsettled.pop(tag, None)

    def on_detached(self, ending: Ending) -> None:
        """See LinkEnd. Pending events are still stored, but the peer gets no answer."""
        self._is_over = True
        if self._anonymous is not None:
            self._anonymous.put_nowait(None)
        if self._unsettled and ending is not Ending.CLOSED:
            shared, key = self._transport.shared, self._transport.key(self._link)
            target = self._link.remote.target if self._link.remote is not None else None
            address = target.address if isinstance(target, Target) else None
            self._nodes.suspended.put(key, self._unsettled, shared.loop.time(), address)

    def on_appended(self, append: _Append, error: EventLogError | None, *, is_new: bool = False) -> None:
        """Give the deliveries of a finished append their outcome. `is_new`: they were not stored before."""
        if error is None:
            self._statistics.messages_appended += len(append.deliveries) if is_new else 0
            self._accept(append.deliveries)
        elif isinstance(error, OutcomeUnknown):
            self._give_up(error)
        else:
            fault = link_fault(error)
            for delivery in append.deliveries:
                self._reject(delivery, fault)
        self._done(len(append.deliveries), append.bytes)
        if self._spans is not None:
            problem = "" if error is None else f"{type(error).__name__}: {error}"
            self._spans.appended(append.node.log.name, append.events, append.began_ns, problem)

    def on_run_appended(self, append: _RunAppend, error: EventLogError | None) -> None:
        """Give the deliveries of a finished run their outcome."""
        run = append.run
        if error is None:
            self._statistics.messages_appended += len(run.tags)
            self._accept_run(run)
        elif isinstance(error, OutcomeUnknown):
            self._give_up(error)
        else:
            fault = link_fault(error)
            for delivery in deliveries_of(run):
                self._reject(delivery, fault)
        self._done(len(run.tags), run.bytes)

    # From messages to events

    def _is_gathered(self, run: TransferRun, node: EventLogNode) -> bool:
        """Collect the events of a run of plain messages. If they are not plain, do nothing and return False."""
        events = node.appends.open(PlainEvents, self._partition)
        self._form = read_plain(run.payloads, self._form, node.log.settings, events)
        if self._form is None:
            self._unlike_left = UNLIKE_MESSAGES
            return False
        events.claim(_RunAppend(self, run, node, self._partition))
        node.appends.grown()
        return True

    def _append(self, deliveries: Sequence[Delivery], node: EventLogNode, bound: int | None) -> None:
        """Append the deliveries that become events."""
        for append in self.appends_of(deliveries, node, bound):
            if self._spans is not None:
                append.began_ns = self._spans.now_ns()
            node.appends.add(append)

    def appends_of(
        self,
        deliveries: Sequence[Delivery],
        node: EventLogNode,
        bound: int | None,
        *,
        each: bool = False,
    ) -> Iterator[_Append]:
        """The appends of these deliveries. A delivery that does not become an event gets its outcome here. An event
        with its own id is appended alone, so that a known id does not affect other events. With `each`, every event is
        appended alone."""
        append: _Append | None = None
        for delivery in deliveries:
            try:
                event, partition = self._event(delivery, node, bound)
            except (MessageFault, AmqpError) as fault:
                self._reject(delivery, fault)
                self._done(1, _kept_bytes(delivery))
                continue
            if event is None:
                self._accept([delivery])
                self._done(1, _kept_bytes(delivery))
                continue
            is_alone = each or bool(event.id)
            if append is not None and (is_alone or partition != append.partition):
                yield append
                append = None
            if append is None:
                append = _Append(self, node, partition)
            append.take(delivery, event)
            if is_alone:
                yield append
                append = None
        if append is not None:
            yield append

    def _event(self, delivery: Delivery, node: EventLogNode, bound: int | None) -> tuple[Event | None, int | None]:
        """The event of a delivery, and its partition; None if it is already stored. Raises MessageFault, AmqpError."""
        if delivery.whole is not None and delivery.whole.resume and self._is_known(delivery):
            return None, None
        if delivery.payload is None:
            problem = f"the message has {delivery.bytes} bytes, at most {self._link.message_bytes_max} are allowed"
            raise AmqpError(conditions.LINK_MESSAGE_SIZE_EXCEEDED, problem)
        if delivery.message_format:
            raise AmqpError(conditions.NOT_IMPLEMENTED, f"message-format {delivery.message_format:#x} is not supported")
        event, target = read_message(delivery.payload, node.log.settings)
        if target is None:
            return event, bound
        partition = partition_number(target, node.partitions)
        if partition is None:
            problem = f"expected target partition 0 to {node.partitions - 1}, got {show(target)}"
            raise AmqpError(conditions.NOT_FOUND, problem)
        if bound is not None and partition != bound:
            raise AmqpError(
                conditions.NOT_ALLOWED, f"the link is bound to partition {bound}, but the target is {target}"
            )
        return event, partition

    def _is_known(self, delivery: Delivery) -> bool:
        """Whether a resumed delivery was accepted before (2.6.13)."""
        assert delivery.whole is not None
        return isinstance(delivery.whole.state, Accepted) or delivery.tag in self._unsettled

    # Without a target address: each message names its log

    def _forward(self, deliveries: Sequence[Delivery]) -> None:
        """Forward messages, in their order, to logs that may have to be opened first."""
        if self._anonymous is None:
            self._anonymous = asyncio.Queue()
            self._nodes.spawn(self._forward_all(self._anonymous))
        for delivery in deliveries:
            self._anonymous.put_nowait(delivery)

    async def _forward_all(self, queue: asyncio.Queue[Delivery | None]) -> None:
        """Forward messages until the link has ended and all earlier messages have been forwarded."""
        while (delivery := await queue.get()) is not None:
            try:
                if delivery.payload is None:
                    raise AmqpError(
                        conditions.LINK_MESSAGE_SIZE_EXCEEDED, f"the message of {delivery.bytes} bytes is too large"
                    )
                node = await self._nodes.producers_node(self._transport, destination(delivery.payload))
            except (AmqpError, MessageFault) as fault:
                self._reject(delivery, fault)
                self._done(1, _kept_bytes(delivery))
            except EventLogError as error:
                self._reject(delivery, link_fault(error))
                self._done(1, _kept_bytes(delivery))
            else:
                self._append([delivery], node, None)
            self._transport.flush_soon()

    # Outcomes

    def _accept(self, deliveries: Sequence[Delivery]) -> None:
        """Accept deliveries, with one disposition per run of consecutive deliveries."""
        if self._is_over:
            return
        link = self._link
        if link.is_second:
            self._unsettled.update((delivery.tag, None) for delivery in deliveries if not delivery.is_settled)
        first = last = -1
        for delivery in deliveries:
            if delivery.is_settled:
                continue
            if delivery.id != last + 1 or first < 0:
                if first >= 0:
                    link.settle(first, last, _ACCEPTED)
                first = delivery.id
            last = delivery.id
        if first >= 0:
            link.settle(first, last, _ACCEPTED)

    def _accept_run(self, run: TransferRun) -> None:
        if self._is_over or run.is_settled:
            return
        if self._link.is_second:
            self._unsettled.update(dict.fromkeys(run.tags))
        self._link.settle(run.first, run.last, _ACCEPTED)

    def _reject(self, delivery: Delivery, fault: AmqpError | MessageFault) -> None:
        self._statistics.messages_rejected += 1
        if self._is_over:
            return
        refuse(self._transport, self._link, delivery, fault)

    def _give_up(self, error: OutcomeUnknown) -> None:
        """End the link without outcomes. Its sender then knows that the deliveries may or may not have arrived."""
        if not self._is_over:
            fault = link_fault(error)
            self._transport.expel(self._link, fault.condition, fault.description or "", fault.info)

    def _done(self, count: int, size: int) -> None:
        self._outstanding -= count
        held = MESSAGE_FACTOR * size + DELIVERY_BYTES * count
        self._transport.share.give(held)
        self._transport.release(held)
        if not self._is_over:
            self.grant()
            self._transport.flush_soon()


def _kept_bytes(delivery: Delivery) -> int:
    """The size of the message, unless it has been released."""
    return 0 if delivery.payload is None else delivery.bytes


def destination(message: bytes) -> str:
    """The address in the `to` of a message. Raises MessageFault, AmqpError."""
    try:
        properties = decode_message(message).properties
    except DecodeError as error:
        raise MessageFault(conditions.DECODE_ERROR, str(error)) from None
    if properties is None or not isinstance(properties.to, str):
        problem = "the link has no target address and the message has no `to`; set one of them"
        raise AmqpError(conditions.INVALID_FIELD, problem)
    return properties.to


def error_of(outcome: Outcome, node: EventLogNode) -> EventLogError | None:
    """Why events were not stored; None if they were stored. After an internal error, this is unknown."""
    if isinstance(outcome, AppendResult):
        return None
    return outcome if isinstance(outcome, EventLogError) else OutcomeUnknown(node.log.name)


async def attach_producer(nodes: Nodes, transport: Transport, link: Receiver, target: Target) -> None:
    """Answer a producer's attach, with its first credit. Raises LinkFault and EventLogError if it is refused."""
    assert link.remote is not None
    if target.address is None:
        node, partition, bytes_max = None, None, APPEND_BYTES_MAX
    else:
        node = await nodes.producers_node(transport, target.address)
        partition = bound_partition(binding_of(link.remote.properties), node.partitions)
        bytes_max = node.log.settings.event_bytes_max
    if not link.is_waiting:
        return  # the peer has changed its mind in the meantime, made a mistake, or disconnected
    transport.steal(link)
    accepted = nodes.suspended.take(transport.key(link))
    producer = Producer(nodes, transport, link, node, partition, accepted)
    link.accept(
        source=link.remote.source,
        target=Target(
            address=target.address, capabilities=target.capabilities
        ),  # none of its state outlives the server
        unsettled={tag: Accepted() for tag in accepted} or None,
        max_message_size=min(bytes_max, (transport.share.largest - FREE_BYTES) // MESSAGE_FACTOR),
        properties=bound_properties(partition) or None,
    )
    transport.adopt(link, producer)
    producer.grant()
