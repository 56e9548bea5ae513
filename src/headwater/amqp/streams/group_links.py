"""Links whose address names a consumer group, `LOG/$group/NAME`, for clients that cannot set link properties.

Such a link is attached at once, and is partition-agnostic (event streams, 4.5.1): while it is attached, the group
assigns partitions to it and revokes them, and it may have none. It is one member of the group per partition that it
owns, and asks for one more while there are others. A `Part` reads each partition; the parts share the link's credit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count, groupby, islice
from operator import itemgetter

from ...core.clocks import wall_clock_ms
from ...core.limits import show
from ...core.watch.notification_types import NotificationType
from ..connections.link_end import Ending, LinkEnd
from ..connections.transport import Transport
from ..protocol import conditions
from ..protocol.link import Sender
from ..protocol.performatives import DeliveryState, Source
from ..protocol.settlement import Settlement
from ..protocol.types import Described, Symbol
from .consumer import ConsumerLink, settle_when_stored
from .consumer_attach import Attaching, is_browse, read_attach
from .groups import ASK_AGAIN_S
from .link_properties import CONSUMER_GROUP, EPOCH, PARTITION, RESET, check_group
from .node import EventLogNode

AT_ONCE = 32
"""The number of free partitions that a link gets in one turn of the loop."""


async def attach_group_link(transport: Transport, link: Sender, source: Source, node: EventLogNode, group: str) -> None:
    """Answer the attach of a receiver whose address names that group. Raises LinkFault if it is refused."""
    check_group(group, "address")
    assert link.remote is not None
    given = link.remote.properties or {}
    for name in (CONSUMER_GROUP, PARTITION, EPOCH, RESET):
        if given.get(name) is not None:
            problem = f"{show(given[name])} given; the address names the consumer group, which assigns the partitions"
            raise conditions.LinkFault(conditions.INVALID_FIELD, f"{name}: {problem}")
    if is_browse(transport, link.remote, source):
        problem = f"a browsing receiver would take events from the consumer group {show(group)}; browse the log"
        raise conditions.LinkFault(conditions.NOT_ALLOWED, f"{problem} {show(node.log.name)} instead")
    attaching = await read_attach(transport, link, source, node)
    if attaching is None:
        return
    attaching.accept({})
    link.owner_settles = True
    end = GroupLink(attaching, group)
    transport.adopt(link, end)
    end.ask()
    end.on_ready()


class GroupLink(LinkEnd):
    """This side's end of such a link: its partitions, and the state they share."""

    def __init__(self, attaching: Attaching, group: str) -> None:
        self.attaching, self.group = attaching, group
        self.node, self._link, self._transport = attaching.node, attaching.link, attaching.transport
        self.log = attaching.node.log
        self.parts: deque[Part] = deque()
        """The readers of its partitions; the first one is next in turn."""
        self.members: list[LinkMember] = []
        """One per partition that it owns; the last one may still wait for its partition."""
        self.tags = count(1)
        """Sequence numbers cannot be tags here: a partition may be assigned again while deliveries from it are
        unsettled.
        """
        self._unsettled = 0
        """How many messages await their outcome; its `Sender` counts outcomes before they are reported here."""
        self._sent_again = 0
        """How many messages were resent from partitions that it no longer owns."""
        self._idle: set[Part] = set()
        """The parts that have nothing to send while the receiver drains the link."""
        self._has_changed = False
        """Whether the next transfer must name the partitions (4.6.5)."""
        self._named: tuple[int, ...] | None = None
        """Their numbers, ascending; computed on first use."""
        self._asking: asyncio.TimerHandle | None = None
        self._is_over = False

    @property
    def name(self) -> str:
        """The receiver's name for its link."""
        return self._link.name

    @property
    def container(self) -> str:
        """The container id of the receiver."""
        return self._transport.container_id

    @property
    def unsettled_max(self) -> int:
        """How many messages may await their outcome."""
        return self.node.settings.unsettled_max

    @property
    def filters(self) -> Mapping[Symbol, object]:
        """The filters in effect, as they were given."""
        return self.attaching.filter.accepted

    @property
    def sent_again(self) -> int:
        """Messages that the receiver returned and that were resent."""
        return self._sent_again + sum(part.sent_again for part in self.parts)

    # Partitions

    def ask(self) -> None:
        """Ask for one more partition, unless there are no others or a request is pending."""
        waits = bool(self.members) and self.members[-1].part is None
        if self._is_over or waits or len(self.members) >= self.node.partitions:
            return
        member = LinkMember(self)
        self.members.append(member)
        self.node.perform(self.node.groups.attach(self.group, member, self, self.node.now(), has_several=True))

    def ask_later(self) -> None:
        """Ask again after a while."""
        if self._asking is None and not self._is_over:
            self._asking = self.node.loop.call_later(ASK_AGAIN_S, self._ask_again)

    def _ask_again(self) -> None:
        self._asking = None
        self.ask()

    def gain(self, part: Part) -> None:
        """Add a partition."""
        self.parts.append(part)
        self._has_changed, self._named = True, None
        self.node.loop.call_soon(part.on_ready)  # once it has all partitions that it gets at once

    def lose(self, part: Part) -> None:
        """Remove a partition; its unsettled messages go to the next owner."""
        self.parts.remove(part)
        self._sent_again += part.sent_again
        self._idle.discard(part)
        part.on_detached(Ending.DETACHED)
        if not self._is_over:
            self._has_changed, self._named = True, None
            self._end_drain()

    def expel(self, condition: Symbol, description: str) -> None:
        """Detach the link, with the reason."""
        self._transport.expel(self._link, condition, description)

    # Called by its parts

    def news(self) -> Sequence[int] | None:
        """The partitions that it owns, if they have changed since its last transfer named them."""
        if self._has_changed and self._named is None:
            self._named = tuple(sorted(part.number for part in self.parts))
        return self._named

    def has_sent(self, messages: int, unsettled: int, at: int) -> None:
        """Count messages sent by a part, and the unsettled ones; `at` is the last one's time, in ms since 1970."""
        self.deliveries += messages
        self._unsettled += unsettled
        self.message_at = at
        self._has_changed, self._named = False, None

    def has_drained(self, part: Part) -> None:
        """Record that the part has nothing more to send now. The drain ends when no part has anything to send."""
        self._idle.add(part)
        self._end_drain()

    def _end_drain(self) -> None:
        if self._link.is_draining and self._idle.issuperset(self.parts):
            self._idle.clear()
            self._link.drained()
            self._transport.flush_soon()

    # LinkEnd

    @property
    def waits_for(self) -> str | None:
        if not self.parts:
            return "partition"
        return next((found for part in self.parts if (found := part.waits_for) != "events"), "events")

    def on_ready(self) -> None:
        """See LinkEnd: let each part continue, starting with a different one each time."""
        self._idle.clear()
        self._end_drain()
        self.parts.rotate(-1)
        for part in tuple(self.parts):
            part.on_ready()

    def on_outcomes(self, contexts: Sequence[tuple[Part, int]], state: DeliveryState | Described | None) -> None:
        """See LinkEnd; contexts are parts and sequence numbers. Parts that have ended are not called."""
        self.outcome_at = wall_clock_ms()
        was_full = self._unsettled >= self.unsettled_max
        self._unsettled -= len(contexts)
        if was_full:  # all parts waited for that outcome, not only these
            self.on_ready()
        for part, settled in groupby(contexts, key=itemgetter(0)):
            part.on_outcomes([number for _, number in settled], state)

    def on_settlement(self, settlement: Settlement) -> None:
        """See LinkEnd."""
        settle_when_stored(self, self._link, self.node, self._transport, settlement)

    def on_detached(self, ending: Ending) -> None:
        self._is_over = True
        if self._asking is not None:
            self._asking.cancel()
        members, self.members = self.members, []
        for member in reversed(members):  # so that a waiting member is not given partitions of other members
            member.detach()


class Part(ConsumerLink):
    """Reads one partition of a group link, from the group's position."""

    def __init__(self, shared: GroupLink, partition: int) -> None:
        """Raises LinkFault if too many positions of groups are remembered."""
        attaching, node = shared.attaching, shared.node
        position = node.positions.group_position(shared.group, partition, after=attaching.start)
        super().__init__(
            attaching.transport,
            attaching.link,
            node,
            attaching.filter,
            partition,
            position,
            default_outcome=attaching.source.default_outcome,
            first_retained=attaching.skip_trimmed(position),
            resumed=set(),
            on_ended=lambda ending: position.detached(),
            group=shared.group,
        )
        node.is_changed = True
        self.number = partition
        self._shared = shared
        self._unsettled = 0
        """How many of its messages await their outcome. Other parts send over the same link."""

    def on_outcomes(self, contexts: Sequence[int], state: DeliveryState | Described | None) -> None:
        """See LinkEnd. If the partition has another owner by now, the position belongs to that owner too."""
        self._unsettled -= len(contexts)
        if not self._is_over:
            super().on_outcomes(contexts, state)

    def _turn(self) -> None:
        deliveries = self.deliveries
        self._associated = self._shared.news() if self._link.sendable else None
        super()._turn()
        if sent := self.deliveries - deliveries:
            unsettled = 0 if self._is_presettled else sent
            self._unsettled += unsettled
            self._shared.has_sent(sent, unsettled, self.message_at)

    def _tags_and_contexts(self, numbers: Sequence[int]) -> tuple[Sequence[int], Sequence[object]]:
        return list(islice(self._shared.tags, len(numbers))), [(self, number) for number in numbers]

    @property
    def _has_outcomes(self) -> bool:
        return not self._unsettled

    def _has_drained(self) -> None:
        self._shared.has_drained(self)


class LinkMember:
    """A partition that a group link owns or wants, as `Groups` sees it."""

    def __init__(self, shared: GroupLink) -> None:
        self._shared, self._node = shared, shared.node
        self.part: Part | None = None
        """The reader of the partition that it owns."""
        self._epoch = 0

    @property
    def link_name(self) -> str:
        """The receiver's name for its link."""
        return self._shared.name

    def detach(self) -> None:
        """Handle the end of its link."""
        self._release(NotificationType.PARTITION_RELEASED)
        self._leave()

    # Decisions of the group

    def assigned(self, partition: int, epoch: int) -> None:
        """Add the partition to the link."""
        shared = self._shared
        if self not in shared.members:
            return  # its link has ended in the meantime, which was reported
        try:
            self.part = Part(shared, partition)
        except (
            conditions.LinkFault
        ) as fault:  # there is no memory for its position; a link that silently lacked partitions would miss events
            shared.expel(fault.condition, fault.description)
            return
        self._epoch = epoch
        self._notify(NotificationType.PARTITION_ASSIGNED, self.part)
        shared.gain(self.part)
        if len(shared.members) % AT_ONCE:
            shared.ask()
        else:
            self._node.loop.call_soon(shared.ask)

    def refused(self, condition: Symbol, description: str) -> None:
        """No partition is available, or it must give up the one it owns. The link stays, and asks again.

        The link is detached if it has no partition, and a limit or a fault prevents it from getting one.
        """
        shared, had_one = self._shared, self.part is not None
        if self not in shared.members:
            return
        shared.members.remove(self)
        stolen = condition == conditions.LINK_STOLEN
        self._release(NotificationType.PARTITION_STOLEN if stolen else NotificationType.PARTITION_RELEASED)
        self._leave()
        if condition == conditions.RESOURCE_LIMIT_EXCEEDED and shared.members:
            shared.ask_later()
        elif condition not in (conditions.LINK_DETACH_FORCED, conditions.LINK_STOLEN):
            shared.expel(condition, description)
        elif had_one:
            self._node.loop.call_soon(shared.ask)
        else:
            shared.ask_later()

    def drain(self) -> None:
        """Give up the partition once none of its messages awaits its outcome."""
        node = self._node
        if self.part is not None:
            self.part.leave(lambda: node.perform(node.groups.drained(self, node.now())))

    def _release(self, type: NotificationType) -> None:
        part, self.part = self.part, None
        if part is not None:
            self._shared.lose(part)
            self._notify(type, part)

    def _leave(self) -> None:
        node = self._node
        node.perform(node.groups.detached(self, node.now(), is_closed_by_receiver=False))

    def _notify(self, type: NotificationType, part: Part) -> None:
        shared = self._shared
        self._node.notify_owner(type, shared.group, part.number, self._epoch, shared.container, shared.name)
