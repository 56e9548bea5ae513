"""Consumer groups: the assignment of partitions to readers (event streams 4.5). It has state and rules only; callers
pass the time, in seconds.

Every call returns actions. The caller performs them in order, before those of any later call. A partition never has
more than one owner, because the action that ends the old ownership precedes the one that names the new owner.

- A link that names its partition gets it if it has no owner, or if the link's epoch is strictly greater than the
  recorded one (4.5.2). An epoch below the recorded one is refused even without an owner: it belongs to a consumer that
  lost the partition and reconnects late.
- A link that names no partition gets the lowest free one. If none is free, its attach waits, for a bounded time and up
  to a limit on waiting attaches; then it is refused with `amqp:link:detach-forced` (4.5.1).
- Rebalancing: if an attach waits, and another connection has at least two links more than the waiting one's, the newest
  of those links is asked to leave: it gets no more messages, may settle its messages, and is closed. So partitions
  are shared evenly. Connections are counted, not container ids, because many processes may share a container id. A link
  that named its partition is never asked to leave.
- A worker, and a link whose address names the group, may own several partitions (`has_several`). Each counts as its
  own connection, and asks for one more partition than it has, like another link of that connection. Its attach was
  answered when it joined, so it waits without a time limit, and does not count as a waiting attach once it owns a
  partition. It may wait even if attaches may not, because otherwise it would never get its share.
- Epochs are recorded before an owner is named. They reset to zero only if the receiver that set the epoch closes its
  link properly; receivers without an epoch do not affect it.
- A worker over another protocol gets each partition under the next epoch (`raises_epoch`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..protocol import conditions
from ..protocol.types import Symbol
from ..settings import AmqpSettings
from .spread import Held, Waiting, moved

EPOCH_MAX = 2**64 - 1
ASK_AGAIN_S = 1.0
"""The time after which a refused member that may own several partitions asks again."""
Link = Hashable
"""Identifies one attached link, or one waiting attach; never reused."""


class RecordEpoch(NamedTuple):
    """Make this epoch durable before the next action."""

    group: str
    partition: int
    epoch: int


class Assign(NamedTuple):
    """Complete the attach: the link is bound to the partition, and its answer names the epoch."""

    link: Link
    partition: int
    epoch: int


class Refuse(NamedTuple):
    """Refuse the attach."""

    link: Link
    condition: Symbol
    description: str


class Drain(NamedTuple):
    """Send nothing more on the link; call `drained` when no message awaits its outcome."""

    link: Link


class Close(NamedTuple):
    """Detach the link permanently. It is no longer a member. Its unsettled messages are sent to the next owner."""

    link: Link
    condition: Symbol
    description: str


Action = RecordEpoch | Assign | Refuse | Drain | Close


@dataclass(slots=True)
class _Member:
    connection: Hashable
    partition: int
    is_asked_for: bool
    """Whether the link named its partition."""
    holds_epoch: bool
    """Whether the link set the epoch that is recorded."""
    drained_by: float | None = None
    """The time at which it is closed; None if it was not asked to leave."""


class _Pending(NamedTuple):
    connection: Hashable
    until: float | None
    """The time at which it is refused; None if never."""
    epoch: int | None
    raises_epoch: bool
    has_several: bool


class Groups:
    """The consumer groups of one log."""

    def __init__(self, partitions: int, settings: AmqpSettings, epochs: Mapping[tuple[str, int], int]) -> None:
        """`epochs` are the recorded ones, by group and partition."""
        self._partitions, self._settings = partitions, settings
        self._groups: dict[str, Group] = {}
        self._of: dict[Link, Group] = {}
        for (name, partition), epoch in epochs.items():
            if partition < partitions and epoch:
                self._groups.setdefault(name, Group(name, partitions, settings)).epochs[partition] = epoch

    def attach(
        self,
        name: str,
        link: Link,
        connection: Hashable,
        now: float,
        partition: int | None = None,
        epoch: int | None = None,
        *,
        raises_epoch: bool = False,
        has_several: bool = False,
    ) -> list[Action]:
        """Join the group, for that partition or for any.

        With `raises_epoch`, used without a partition or an epoch, its epoch is the next one after that of the partition
        it gets. With `has_several`, the receiver counts as the connection, and asks for one more partition: see the
        module."""
        group = self._groups.get(name)
        if group is None:
            if self._is_full:
                problem = f"there are {len(self._groups)} consumer groups, the maximum"
                return [Refuse(link, conditions.RESOURCE_LIMIT_EXCEEDED, problem)]
            group = self._groups[name] = Group(name, self._partitions, self._settings)
        wanted = _Pending(connection, None, epoch, raises_epoch, has_several)
        actions = group.attach(link, wanted, now, partition)
        return self._after(group, actions, link)

    def detached(self, link: Link, now: float, *, is_closed_by_receiver: bool) -> list[Action]:
        """Handle the end of a link or a waiting attach. `is_closed_by_receiver`: the receiver closed it properly."""
        group = self._of.get(link)
        if group is None:
            return []
        actions = group.detached(link, now, is_closed_by_receiver=is_closed_by_receiver)
        del self._of[link]
        return self._after(group, actions)

    def drained(self, link: Link, now: float) -> list[Action]:
        """Handle that every message on a link that was asked to leave has its outcome."""
        group = self._of.get(link)
        return [] if group is None else self._after(group, group.drained(link, now))

    def tick(self, now: float) -> list[Action]:
        """Return the actions that are now due."""
        actions: list[Action] = []
        for group in list(self._groups.values()):
            actions += self._after(group, group.tick(now))
        return actions

    def due(self) -> float | None:
        """When to call `tick` next; None if nothing is pending."""
        return min((due for group in self._groups.values() if (due := group.due()) is not None), default=None)

    def owners(self, name: str) -> list[Link | None]:
        """The link that reads each partition for the group, by partition."""
        group = self._groups.get(name)
        return [None] * self._partitions if group is None else list(group.owners)

    def next_free(self, name: str) -> int | None:
        """The partition that a link without one would get at once; None if it would wait or be refused."""
        group = self._groups.get(name)
        if group is None:
            return None if self._is_full else 0
        return group.owners.index(None) if None in group.owners else None

    @property
    def _is_full(self) -> bool:
        return len(self._groups) >= self._settings.groups_max

    def forget(self, name: str) -> None:
        """Forget a group without members, and reset its epochs. A group with members stays."""
        group = self._groups.get(name)
        if group is not None and not any(group.owners):
            del self._groups[name]

    def _after(self, group: Group, actions: list[Action], link: Link | None = None) -> list[Action]:
        """Update which links belong to which group, and forget an empty group."""
        if link is not None:
            self._of[link] = group
        for action in actions:
            if isinstance(action, Refuse | Close):
                self._of.pop(action.link, None)
        if group.is_empty:
            self._groups.pop(group.name, None)
        return actions


class Group:
    """One consumer group: see the module. Use it through `Groups`."""

    def __init__(self, name: str, partitions: int, settings: AmqpSettings) -> None:
        self.name = name
        self.owners: list[Link | None] = [None] * partitions
        self.epochs: list[int] = [0] * partitions
        self._settings = settings
        self._members: dict[Link, _Member] = {}
        self._pending: dict[Link, _Pending] = {}
        """In the order of their attaches."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no state to keep."""
        return not self._members and not self._pending and not any(self.epochs)

    def attach(self, link: Link, wanted: _Pending, now: float, partition: int | None) -> list[Action]:
        """See Groups."""
        connection, _, epoch, raises_epoch, has_several = wanted
        if epoch is not None and not 0 <= epoch <= EPOCH_MAX:
            return [
                Refuse(link, conditions.INVALID_FIELD, f"event-streams-epoch: expected 0 to {EPOCH_MAX}, got {epoch}")
            ]
        if partition is not None:
            return self._claim(link, connection, now, partition, epoch)
        if None in self.owners:
            free = self.owners.index(None)
            return list(self._bind(link, connection, free, self._raised(free, epoch, raises_epoch), is_asked_for=False))
        holding = {member.connection for member in self._members.values()}
        if not (has_several and connection in holding):
            waiting = sum(not (each.has_several and each.connection in holding) for each in self._pending.values())
            if waiting >= (self._settings.group_pending_max or int(has_several)):
                problem = f"all {len(self.owners)} partitions of the group {self.name!r} have a receiver"
                more = f", and {waiting} more receivers wait for a partition" if waiting else ""
                return [Refuse(link, conditions.LINK_DETACH_FORCED, problem + more)]
        until = None if has_several else now + self._settings.group_pending_ms / 1000
        self._pending[link] = wanted._replace(until=until)
        return self._rebalance(now)

    def detached(self, link: Link, now: float, *, is_closed_by_receiver: bool) -> list[Action]:
        """See Groups."""
        if self._pending.pop(link, None) is not None:
            return []
        member = self._members.pop(link)
        self.owners[member.partition] = None
        actions: list[Action] = []
        if is_closed_by_receiver and member.holds_epoch and self.epochs[member.partition]:
            actions.append(self._record(member.partition, 0))
        actions += self._hand_out()
        return actions + self._rebalance(now)

    def drained(self, link: Link, now: float) -> list[Action]:
        """See Groups."""
        member = self._members.get(link)
        if member is None or member.drained_by is None:
            return []
        return [*self._dismiss(link), *self._hand_out(), *self._rebalance(now)]

    def tick(self, now: float) -> list[Action]:
        """See Groups."""
        actions: list[Action] = []
        for link, member in list(self._members.items()):
            if member.drained_by is not None and member.drained_by <= now:
                actions += self._dismiss(link)
        actions += self._hand_out()
        for link, pending in list(self._pending.items()):
            if pending.until is not None and pending.until <= now:
                del self._pending[link]
                pending_s = self._settings.group_pending_ms / 1000
                problem = f"no partition became free for the group {self.name!r} in {pending_s:g} s"
                actions.append(Refuse(link, conditions.LINK_DETACH_FORCED, problem))
        return actions + self._rebalance(now)

    def due(self) -> float | None:
        """See Groups."""
        times = [pending.until for pending in self._pending.values() if pending.until is not None]
        times += [member.drained_by for member in self._members.values() if member.drained_by is not None]
        return min(times, default=None)

    def _claim(self, link: Link, connection: Hashable, now: float, partition: int, epoch: int | None) -> list[Action]:
        """A link claims a named partition (4.5.2)."""
        recorded = self.epochs[partition]
        owner = self.owners[partition]
        given = "none" if epoch is None else str(epoch)
        if owner is not None and (epoch is None or epoch <= recorded):
            problem = (
                f"has a receiver in the group {self.name!r}; a takeover requires an epoch above {recorded}, got {given}"
            )
            return [Refuse(link, conditions.RESOURCE_LOCKED, f"partition {partition} {problem}")]
        if epoch is not None and epoch < recorded:
            problem = f"was taken over in the group {self.name!r} with epoch {recorded}, got {given}"
            return [Refuse(link, conditions.RESOURCE_LOCKED, f"partition {partition} {problem}")]
        actions: list[Action] = []
        if owner is not None:
            problem = f"a receiver with epoch {epoch} took over partition {partition} of the group {self.name!r}"
            actions.append(Close(owner, conditions.LINK_STOLEN, problem))
            del self._members[owner]
        actions += self._bind(link, connection, partition, epoch, is_asked_for=True)
        return actions + self._rebalance(now)

    def _bind(
        self, link: Link, connection: Hashable, partition: int, epoch: int | None, *, is_asked_for: bool
    ) -> Iterator[Action]:
        self.owners[partition] = link
        holds_epoch = epoch is not None and epoch >= self.epochs[partition]
        self._members[link] = _Member(connection, partition, is_asked_for, holds_epoch)
        if epoch is not None and epoch > self.epochs[partition]:
            yield self._record(partition, epoch)
        yield Assign(link, partition, self.epochs[partition])

    def _record(self, partition: int, epoch: int) -> RecordEpoch:
        self.epochs[partition] = epoch
        return RecordEpoch(self.name, partition, epoch)

    def _dismiss(self, link: Link) -> Iterator[Action]:
        """Close a link that was asked to leave. The close is proper, but has a condition that shows its consumer what
        to do.
        """
        member = self._members.pop(link)
        self.owners[member.partition] = None
        problem = f"the partitions of the group {self.name!r} are being rebalanced; attach again"
        yield Close(link, conditions.LINK_DETACH_FORCED, problem)

    def _hand_out(self) -> list[Action]:
        """Give free partitions to waiting attaches."""
        if not self._pending or None not in self.owners:
            return []
        actions: list[Action] = []
        free = (partition for partition, owner in enumerate(self.owners) if owner is None)
        held = Held(member.connection for member in self._members.values())
        waiting = self._waiting(held)
        for partition in list(free):
            if (link := waiting.take()) is None:
                break
            pending = self._pending.pop(link)
            epoch = self._raised(partition, pending.epoch, pending.raises_epoch)
            actions += self._bind(link, pending.connection, partition, epoch, is_asked_for=False)
        return actions

    def _waiting(self, held: Held) -> Waiting:
        return Waiting(held, ((link, pending.connection) for link, pending in self._pending.items()))

    def _raised(self, partition: int, epoch: int | None, raises_epoch: bool) -> int | None:
        return min(self.epochs[partition] + 1, EPOCH_MAX) if raises_epoch else epoch

    def _rebalance(self, now: float) -> list[Action]:
        """Ask links of connections above their share to leave, in favor of waiting ones."""
        if not self._pending:
            return []
        staying = {link: member for link, member in self._members.items() if member.drained_by is None}
        held = Held(member.connection for member in staying.values())
        waiting = self._waiting(held)
        for _ in range(len(self._members) - len(staying)):  # partitions already on their way to another link
            waiting.take()
        movable = ((link, member.connection) for link, member in staying.items() if not member.is_asked_for)
        actions: list[Action] = []
        for link in moved(held, movable, waiting):
            staying[link].drained_by = now + self._settings.group_drain_ms / 1000
            actions.append(Drain(link))
        return actions
