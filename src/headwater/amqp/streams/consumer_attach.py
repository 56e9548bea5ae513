"""Links of consumers: where they start, what they filter, and the answers to their attaches (4.3, 4.5, 5).

A plain link starts where its filter specifies, or otherwise where its address or its log specifies. A durable link
resumes at its remembered position. A member of a consumer group resumes at the group's position in its partition; the
group's rules assign the partition, perhaps later."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ...core.errors import PositionTrimmed
from ...core.settings import EARLIEST
from ...core.watch.notification_types import NotificationType
from ..connections.link_end import Ending, LinkEnd
from ..connections.shared import EVENT_STREAMS
from ..connections.transport import Transport
from ..filters import InvalidFilter, SourceFilter, source_filter
from ..positions.position import Position
from ..positions.stored import Expiry, Remembered
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from ..protocol.link import Sender
from ..protocol.performatives import Attach, Source
from ..protocol.types import Symbol
from .consumer import ConsumerLink, is_final
from .link_properties import CONSUMER_GROUP, EPOCH, Binding, binding_of, bound_properties, partition_number
from .node import EventLogNode
from .termini import NOTHING_UNSETTLED, UNSETTLED_STATE, Unsettled, decoded_source, encoded_source, unsettled_of

OUTCOMES = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))
NODE_KINDS = frozenset({Symbol("queue"), Symbol("topic")})
"""Capabilities by which JMS clients name the kind of node they expect: a log is served as either."""


class Attaching:
    """A consumer's attach, until it is answered."""

    def __init__(
        self,
        transport: Transport,
        link: Sender,
        source: Source,
        node: EventLogNode,
        wanted: SourceFilter,
        head: int,
        default_start: str | None,
    ) -> None:
        """`wanted` are its filters, read against the head at that time; `default_start` comes from its address.

        Raises PositionOfOtherIncarnation: its offset belongs to another log.
        """
        assert link.remote is not None
        self.transport, self.link, self.source, self.node = transport, link, source, node
        self.remote: Attach = link.remote
        self.filter = wanted
        if default_start is None and is_browse(transport, self.remote, source):
            default_start = EARLIEST
        self.begins_earliest = wanted.names_position or _default_start(wanted, node, default_start) == EARLIEST
        """Whether it asks for every retained event that passes its filters."""
        self.start = wanted.after if self.begins_earliest else head
        with suppress(PositionTrimmed):  # the first message reports this to it
            node.log.check_position(self.start + 1)

    def answer(
        self,
        partition: int | None,
        position: Position,
        on_ended: Callable[[Ending], None],
        properties: dict[Symbol, object],
        unsettled: Unsettled = NOTHING_UNSETTLED,
    ) -> ConsumerLink:
        """Attach, and start sending."""
        remote, source = self.remote, self.source
        first_retained = self.skip_trimmed(position)
        self.accept(properties, unsettled)
        consumer = ConsumerLink(
            self.transport,
            self.link,
            self.node,
            self.filter,
            partition,
            position,
            default_outcome=source.default_outcome,
            first_retained=first_retained,
            resumed=_resumed(remote, position, unsettled),
            on_ended=on_ended,
            group=properties.get(CONSUMER_GROUP),  # type: ignore[arg-type]
            epoch=properties.get(EPOCH),  # type: ignore[arg-type]
        )
        self.transport.adopt(self.link, consumer)
        consumer.on_ready()
        self.transport.flush_soon()  # answers an attach that had to wait
        return consumer

    def accept(self, properties: dict[Symbol, object], unsettled: Unsettled = NOTHING_UNSETTLED) -> None:
        """Answer the attach, with these link properties."""
        self.link.accept(
            source=_answered_source(self.source, self.filter),
            target=self.remote.target,
            properties=properties or None,
            snd_settle_mode=self.remote.snd_settle_mode,
            unsettled=unsettled.named or None,
            incomplete_unsettled=not unsettled.is_all,
        )

    def skip_trimmed(self, position: Position) -> int | None:
        """Move a position below the first retained event to that event, and return its number.

        Returns None if no event is missed, or if the consumer asked for the earliest retained event.
        """
        try:
            self.node.log.check_position(position.cursor + 1)
        except PositionTrimmed as error:
            is_missed = position.cursor > 0 or not self.begins_earliest
            position.passed(error.first_retained - 1)
            return error.first_retained if is_missed else None
        return None


async def read_attach(
    transport: Transport, link: Sender, source: Source, node: EventLogNode, default_start: str | None = None
) -> Attaching | None:
    """The parsed attach of a consumer; `default_start` is the start that its address specifies.

    None if the peer no longer waits for an answer. Raises LinkFault and EventLogError if the attach is refused.
    """
    head = node.log.head()
    read = partial(_filter, source, node, head)
    wanted = await transport.shared.read_filter(transport.flow, link, source.filter, read)
    return None if wanted is None else Attaching(transport, link, source, node, wanted, head, default_start)


async def attach_consumer(
    transport: Transport, link: Sender, source: Source, node: EventLogNode, default_start: str | None = None
) -> None:
    """Answer a consumer's attach; `default_start` is the start that its address specifies.

    Raises LinkFault and EventLogError if it is refused.
    """
    attaching = await read_attach(transport, link, source, node, default_start)
    if attaching is None:
        return
    binding = binding_of(attaching.remote.properties)
    partition = bound_partition(binding, node.partitions)
    if binding.group is not None:
        link.owner_settles = True
        member = GroupMember(attaching, binding)
        transport.adopt(link, member)
        node.perform(node.groups.attach(binding.group, member, transport.number, node.now(), partition, binding.epoch))
        return
    positions = node.positions
    remembered = positions.remembered(transport.remembered_as, link.name)
    is_another = remembered is not None and is_kept(source) and await _is_another(attaching, remembered)
    if not link.is_waiting:
        return
    if is_kept(source) or remembered is not None:
        remembered = positions.attached(
            transport.remembered_as,
            link.name,
            after=attaching.start,
            expiry=Expiry.of(source.expiry_policy),
            timeout_s=source.timeout,
            is_durable=bool(source.durable),
            source=encoded_source(source),
            is_another=is_another,
        )
        link.owner_settles = remembered.is_durable
        _settle_recovered(remembered.position, attaching.remote)
        node.is_changed = True
    asks = source.durable == UNSETTLED_STATE and attaching.remote.unsettled is not None
    unsettled = unsettled_of(remembered) if asks and remembered else NOTHING_UNSETTLED
    if remembered is not None:
        remembered.is_loaded = False
    position = remembered.position if remembered is not None else Position(attaching.start)
    keeper = PositionKeeper(attaching, remembered, position)
    attaching.answer(partition, position, keeper.on_ended, bound_properties(partition), unsettled)


class PositionKeeper:
    """Keeps the position of a plain link for as long as its source requests."""

    def __init__(self, attaching: Attaching, remembered: Remembered | None, position: Position) -> None:
        self._attaching, self._remembered, self._position = attaching, remembered, position

    def on_ended(self, ending: Ending) -> None:
        """Handle the end of the link."""
        node, remembered = self._attaching.node, self._remembered
        if ending is Ending.CLOSED:
            if remembered is not None:
                node.positions.closed(remembered)
            return
        policy = Expiry.of(self._attaching.source.expiry_policy)
        if remembered is None and ending is Ending.DETACHED and policy is not Expiry.LINK_DETACH:
            try:
                remembered = self._remembered = node.positions.attached(
                    self._attaching.transport.remembered_as,
                    self._attaching.link.name,
                    after=self._position.after,
                    expiry=Expiry.SESSION_END,
                    timeout_s=0,
                    is_durable=False,
                    source=encoded_source(self._attaching.source),
                )
            except LinkFault:
                return  # too many are remembered, and this one did not ask to be kept longer
            remembered.position = self._position
        if remembered is not None:
            node.positions.ended(remembered, Expiry(ending - 1), node.now_ms())
            if ending < Ending.CONNECTION:
                self._attaching.transport.linger(self._attaching.link.session, self.on_more_ended)

    def on_more_ended(self, ending: Ending) -> None:
        """Handle the end of the session or connection of a link that ended earlier."""
        node, remembered = self._attaching.node, self._remembered
        if remembered is None or node.positions.remembered(remembered.container, remembered.link) is not remembered:
            return
        if not node.is_attached(remembered):
            node.positions.ended(remembered, Expiry(ending - 1), node.now_ms())


class GroupMember(LinkEnd):
    """A receiver that wants or owns a partition for its consumer group, as `Groups` sees it."""

    def __init__(self, attaching: Attaching, binding: Binding) -> None:
        assert binding.group is not None
        self._attaching, self._group, self._is_reset = attaching, binding.group, binding.is_reset
        self._node = attaching.node
        self.log = attaching.node.log
        self._consumer: ConsumerLink | None = None
        self._position: Position | None = None
        self._owned: tuple[int, int] | None = None
        """The partition that it owns, and its epoch."""

    @property
    def link_name(self) -> str:
        """The receiver's name for its link."""
        return self._attaching.link.name

    # Decisions of the group

    def assigned(self, partition: int, epoch: int) -> None:
        """Attach to that partition."""
        attaching = self._attaching
        link, node = attaching.link, self._node
        if not link.is_waiting:
            return  # it has detached in the meantime, and its detach is about to arrive
        try:
            position = node.positions.group_position(
                self._group, partition, after=attaching.start, is_reset=self._is_reset
            )
        except LinkFault as fault:
            attaching.transport.expel(link, fault.condition, fault.description)
            return
        self._position = position
        node.is_changed = True
        properties = bound_properties(partition, self._group, epoch)
        self._owned = partition, epoch
        self._notify(NotificationType.PARTITION_ASSIGNED)
        self._consumer = attaching.answer(partition, position, self.on_detached, properties)

    def refused(self, condition: Symbol, description: str) -> None:
        """No partition is available, or it must give up the one it owns."""
        if condition == conditions.LINK_STOLEN:
            self._notify(NotificationType.PARTITION_STOLEN)
            self._owned = None
        self._attaching.transport.expel(self._attaching.link, condition, description)
        self._attaching.transport.flush_soon()

    def drain(self) -> None:
        """Give up the partition once no message awaits its outcome."""
        node = self._node
        if self._consumer is not None:
            self._consumer.leave(lambda: node.perform(node.groups.drained(self, node.now())))

    # LinkEnd, until a partition is assigned; then the consumer's end takes over

    def on_detached(self, ending: Ending) -> None:
        if self._position is not None:
            self._position.detached()
            self._position = None
        self._notify(NotificationType.PARTITION_RELEASED)
        self._owned = None
        node = self._node
        is_closed = ending is Ending.CLOSED
        node.perform(node.groups.detached(self, node.now(), is_closed_by_receiver=is_closed))

    def _notify(self, type: NotificationType) -> None:
        """Emit a notification about the partition that it owns, if it owns one."""
        if self._owned is None:
            return
        container = self._attaching.transport.container_id
        self._node.notify_owner(type, self._group, *self._owned, container, self.link_name)


def bound_partition(binding: Binding, partitions: int) -> int | None:
    """The partition that a link requests, or None. Raises LinkFault if there is no such partition."""
    if binding.partition is None:
        return None
    partition = partition_number(binding.partition, partitions)
    if partition is None:
        problem = f"expected partition 0 to {partitions - 1}, got {binding.partition!r}"
        raise LinkFault(conditions.NOT_FOUND, problem)
    return partition


def _settle_recovered(position: Position, remote: Attach) -> None:
    """Settle the deliveries that the receiver of a recovered link had settled, but whose outcome never arrived
    (2.6.13).
    """
    for tag, state in (remote.unsettled or {}).items():
        if state is not None and is_final(state):
            position.finish((_number_of(tag),))


def _resumed(remote: Attach, position: Position, unsettled: Unsettled) -> set[int]:
    """The deliveries that both attaches name as unsettled (2.6.13); our attach is marked as incomplete if it omits
    some.
    """
    tags = [tag for tag in remote.unsettled or () if tag in unsettled.named or not unsettled.is_all]
    return {number for tag in tags if position.is_open(number := _number_of(tag))}


def _number_of(tag: bytes) -> int:
    """The event number of a delivery; 0 if the tag is not one of ours."""
    return int.from_bytes(tag, "big") if len(tag) == 8 else 0


def _default_start(wanted: SourceFilter, node: EventLogNode, asked: str | None) -> str:
    """Where a receiver without a position starts: as its address, its filter or the log specifies.

    A filter of the event streams draft applies to all retained events (5.2).
    """
    return asked or (EARLIEST if wanted.is_delivery_filter else node.log.settings.default_start)


def is_kept(source: Source) -> bool:
    """Whether a source asks to outlive its session. Raises LinkFault if its expiry policy does not exist."""
    return bool(source.durable or Expiry.of(source.expiry_policy) > Expiry.SESSION_END or source.timeout)


async def _is_another(attaching: Attaching, remembered: Remembered) -> bool:
    """Whether the receiver wants other events than the remembered source, which makes it another subscription. Only
    filters without a position are compared, because a position only sets where a new subscription starts."""
    transport, link = attaching.transport, attaching.link
    had = decoded_source(remembered, attaching.node.log.name).filter
    if not remembered.source or had == attaching.source.filter:
        return False
    read = partial(source_filter, had, latest=0)
    try:
        before = await transport.shared.read_filter(transport.flow, link, had, read)
    except InvalidFilter:  # an older server accepted it
        return True
    return before is not None and before.selecting != attaching.filter.selecting


def is_browse(transport: Transport, remote: Attach, source: Source) -> bool:
    """Whether it browses the log, like JMS's QueueBrowser, for a client that does not use the extensions.

    Such a source is neither durable nor kept after its link is detached, and asks for copies.
    """
    peer = transport.engine.remote
    return (
        source.distribution_mode == "copy"
        and not source.durable
        and source.expiry_policy == Expiry.LINK_DETACH.symbol
        and binding_of(remote.properties).group is None
        and not (peer is not None and EVENT_STREAMS in peer.desired_capabilities)
    )


def _filter(source: Source, node: EventLogNode, head: int) -> SourceFilter:
    """The filter of a source, with times resolved to numbers. Raises LinkFault (FILTEX: amqp:invalid-field)."""
    try:
        wanted = source_filter(source.filter, latest=head)
    except InvalidFilter as error:
        raise LinkFault(conditions.INVALID_FIELD, str(error)) from None
    if wanted.recorded_from is not None:
        wanted = replace(wanted, after=max(wanted.after, node.log.sequence_number_at(wanted.recorded_from) - 1))
    return wanted


def _answered_source(source: Source, wanted: SourceFilter) -> Source:
    """The source that the consumer gets: only the requested filters that are in effect (3.5.3)."""
    return Source(
        address=source.address,
        durable=source.durable,
        expiry_policy=source.expiry_policy,
        timeout=source.timeout,
        distribution_mode=Symbol("copy"),
        filter=wanted.accepted or None,
        default_outcome=source.default_outcome,
        outcomes=source.outcomes or OUTCOMES,
        capabilities=tuple(each for each in source.capabilities or () if each in NODE_KINDS),
    )
