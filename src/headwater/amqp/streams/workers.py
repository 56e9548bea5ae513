"""Workers in consumer groups: members like receivers, with the same rules, positions and epochs, but without a link.

A worker requests one partition after another until it has its share. While none is free, its last request waits, and
the group's rules ask members with more partitions to give one up. When a worker leaves, the group resumes at its
position."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from weakref import WeakKeyDictionary

from ...core.errors import ConsumerFenced, InvalidInput, InvalidPosition, LogNotFound, PositionTrimmed
from ...core.settings import EARLIEST
from ...core.watch.notification_types import NotificationType
from ...core.workers import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    WAIT_MS_MAX,
    HeldPartition,
    Holding,
    WorkerKey,
    Workers,
    check_worker_key,
    taken_over,
    too_many_workers,
)
from ..positions.position import Position
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from ..protocol.types import Symbol
from .groups import ASK_AGAIN_S
from .node import EventLogNode
from .nodes import Nodes

WORKERS_MAX = 1000
"""The limit per log."""
WORKERS_OF_USER_MAX = 100
"""The limit per log and user, or per address without authentication, so that one client cannot use all of the
capacity.
"""
CONTAINER = "http"
"""The container of a worker in notifications."""


class GroupWorkers(Workers):
    """The workers of all logs."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._of: WeakKeyDictionary[EventLogNode, dict[WorkerKey, GroupWorker]] = WeakKeyDictionary()
        self._versions = count(time.time_ns() // 1000)
        """Shared by all workers, so that versions never collide. Versions differ after each restart."""

    async def beat(
        self,
        key: WorkerKey,
        *,
        lease_ms: int,
        wait_ms: int = 0,
        version: int | None = None,
        begins_earliest: bool | None = None,
        peer: str = "",
    ) -> Holding:
        check_worker_key(key.group, key.name)
        _check("lease_ms", lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)
        _check("wait_ms", wait_ms, 0, WAIT_MS_MAX)
        node = await self._nodes.node_of(key.log)
        workers = self._of.setdefault(node, {})
        worker = workers.get(key)
        if worker is not None and not worker.is_told(version):
            if version is not None:
                raise taken_over(key, version, worker.version)
            worker.end(is_taken_over=True)
            worker = None
        if worker is None:
            _check_places(workers.values(), key, peer)
            worker = workers[key] = GroupWorker(
                node, key, peer, version, self._versions, lambda: workers.pop(key, None)
            )
        worker.begins_earliest = begins_earliest
        return await worker.beat(lease_ms / 1000, wait_ms / 1000, version)

    async def acknowledge(
        self, key: WorkerKey, partition: int, epoch: int, sequence_number: int, *, gives_up: bool = False
    ) -> HeldPartition:
        node = await self._nodes.node_of(key.log)
        head = node.log.head()
        if not 0 <= sequence_number <= head:
            raise InvalidPosition(f"expected 0 to the head {head}, got {sequence_number}", "sequence_number")
        worker = self._of.get(node, {}).get(key)
        member = None if worker is None else worker.holder_of(partition, epoch)
        if member is None:
            current = node.positions.of_group(key.group, node.partitions).epochs.get(partition, 0)
            raise ConsumerFenced(key.group, str(partition), epoch, current)
        held = member.acknowledge(sequence_number, gives_up=gives_up)
        if (error := await node.store_all()) is not None:
            raise error
        return held

    async def leave(self, key: WorkerKey, version: int | None = None) -> None:
        node = await self._nodes.node_of(key.log)
        worker = self._of.get(node, {}).get(key)
        if worker is not None and (version is None or worker.is_told(version)):
            worker.end()


class GroupWorker:
    """A worker, from its first beat until it leaves or its lease ends."""

    def __init__(
        self,
        node: EventLogNode,
        key: WorkerKey,
        peer: str,
        joined_with: int | None,
        versions: Iterator[int],
        forget: Callable[[], object],
    ) -> None:
        """`joined_with` is the version that its first beat named, possibly from before a restart."""
        self.node, self.key, self.peer, self._forget = node, key, peer, forget
        self.begins_earliest: bool | None = None
        self.members: list[WorkerMember] = []
        """The members with a partition, and at most one that waits for a partition."""
        self._versions, self._joined_with = versions, joined_with
        self.version = self._first = next(versions)
        """Sent with the partitions that it holds. It changes whenever they change."""
        self._changed = asyncio.Event()
        self._lease: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._limit: str | None = None
        """The limit that prevents it from getting a partition, if any."""
        self._is_over = self._is_taken_over = False
        node.on_end.add(self.end)

    def is_told(self, version: int | None) -> bool:
        """Whether that version is this worker's. Its first beat may be sent twice, if the response was lost."""
        return version is not None and (version >= self._first or version == self._joined_with)

    async def beat(self, lease_s: float, wait_s: float, version: int | None) -> Holding:
        """See Workers."""
        self._renew(lease_s + wait_s)
        self.ask()
        self._check_limit()
        self._changed.clear()
        if version == self.version and wait_s:
            with suppress(TimeoutError):  # nothing has changed, so this is the response
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
        if self.node.log.is_closed:
            raise LogNotFound(self.key.log)
        if self._is_taken_over:
            raise taken_over(self.key, version or 0, self.version)
        self._check_limit()
        if not self._is_over:
            self._renew(lease_s)
        return Holding(self.version, [member.held for member in self._holders()])

    def holder_of(self, partition: int, epoch: int) -> WorkerMember | None:
        """The member that owns that partition under that epoch."""
        return next((each for each in self._holders() if each.owned == (partition, epoch)), None)

    def ask(self) -> None:
        """Request another partition, unless there is none or a request is pending."""
        holds_all = len(self.members) >= self.node.partitions
        if self._is_over or holds_all or any(member.owned is None for member in self.members):
            return
        self._limit = None
        node, group = self.node, self.key.group
        try:
            self._make_room()
        except LinkFault as fault:
            self.limited(fault.description)
            return
        member = WorkerMember(self)
        self.members.append(member)
        node.perform(node.groups.attach(group, member, self.key, node.now(), raises_epoch=True, has_several=True))

    def ask_later(self) -> None:
        """Ask again after a while, without a beat."""
        if self._asking is None and not self._is_over:
            self._asking = self.node.loop.call_later(ASK_AGAIN_S, self._ask_again)

    def limited(self, problem: str) -> None:
        """A limit prevents it from getting another partition. If it has none, its beat fails with this problem."""
        self._limit = problem
        self._changed.set()

    def start(self) -> int:
        """The number after which its group starts in a partition that has no position."""
        log, begins_earliest = self.node.log, self.begins_earliest
        if begins_earliest is None:
            begins_earliest = log.settings.default_start == EARLIEST
        return 0 if begins_earliest else log.head()

    def changed(self) -> None:
        """Record that its partitions have changed."""
        self.version = next(self._versions)
        self._changed.set()

    def end(self, *, is_taken_over: bool = False) -> None:
        """End the worker. `is_taken_over`: another worker has its name."""
        self._is_over, self._is_taken_over = True, is_taken_over
        for timer in (self._lease, self._asking):
            if timer is not None:
                timer.cancel()
        self._forget()
        self.node.on_end.discard(self.end)
        members, self.members = self.members, []
        for member in members:
            member.detach()
        self.changed()

    def _holders(self) -> Iterator[WorkerMember]:
        return (member for member in self.members if member.owned is not None)

    def _make_room(self) -> None:
        """Reserve room for the position that it is about to get. Raises LinkFault if there is none left.

        This is done before an epoch is recorded, so that a refused worker leaves nothing behind.
        """
        groups, group = self.node.groups, self.key.group
        free = groups.next_free(group)
        if free is not None:
            self.node.positions.group_position(group, free, after=self.start())

    def _check_limit(self) -> None:
        """Raises InvalidInput if it has no partition, and a limit prevents it from getting one."""
        if self._limit is not None and not self.members:
            self.end()
            raise InvalidInput(self._limit, "group")

    def _ask_again(self) -> None:
        self._asking = None
        self.ask()

    def _renew(self, seconds: float) -> None:
        if self._lease is not None:
            self._lease.cancel()
        self._lease = self.node.loop.call_later(seconds, self.end)


class WorkerMember:
    """A partition that a worker owns or wants, as `Groups` sees it."""

    def __init__(self, worker: GroupWorker) -> None:
        self._worker, self._node, self._group = worker, worker.node, worker.key.group
        self.owned: tuple[int, int] | None = None
        """The partition that it owns, and its epoch."""
        self._position: Position | None = None
        self._is_leaving = False

    @property
    def link_name(self) -> str:
        """The name that its group shows."""
        return self._worker.key.name

    @property
    def held(self) -> HeldPartition:
        """The partition as reported to its worker."""
        assert self.owned is not None and self._position is not None, "it has a partition"
        return HeldPartition(*self.owned, self._position.after, self._is_leaving)

    def acknowledge(self, number: int, *, gives_up: bool) -> HeldPartition:
        """Mark everything up to that number as done."""
        assert self._position is not None, "it has a partition"
        self._position.finish_up_to(number)
        self._node.is_changed = True
        held = self.held
        if gives_up:
            self._worker.members.remove(self)
            self.detach()
            self._worker.changed()
            self._node.loop.call_soon(self._worker.ask)
        return held

    def detach(self) -> None:
        """Remove it. Its epoch remains recorded. The next owner's is higher, so late requests are recognized."""
        self._released(NotificationType.PARTITION_RELEASED)
        node = self._node
        node.perform(node.groups.detached(self, node.now(), is_closed_by_receiver=False))

    # Decisions of the group

    def assigned(self, partition: int, epoch: int) -> None:
        """It now owns the partition, under that epoch."""
        node = self._node
        if self not in self._worker.members:
            return  # its worker has ended in the meantime, which was reported
        try:
            position = node.positions.group_position(self._group, partition, after=self._worker.start())
        except LinkFault as fault:
            self.refused(fault.condition, fault.description)
            return
        try:
            node.log.check_position(position.cursor + 1)
        except PositionTrimmed as error:
            position.passed(error.first_retained - 1)
        node.is_changed = True
        self.owned, self._position = (partition, epoch), position
        self._notify(NotificationType.PARTITION_ASSIGNED)
        self._worker.changed()
        node.loop.call_soon(self._worker.ask)

    def refused(self, condition: Symbol, description: str) -> None:
        """No partition is available, or it must give up the one it owns. The next beat asks again."""
        worker, had_one = self._worker, self.owned is not None
        if self in worker.members:
            worker.members.remove(self)
        stolen = condition == conditions.LINK_STOLEN
        self._released(NotificationType.PARTITION_STOLEN if stolen else NotificationType.PARTITION_RELEASED)
        if had_one:
            worker.changed()
        elif condition == conditions.RESOURCE_LIMIT_EXCEEDED:
            worker.limited(description)
        else:
            worker.ask_later()
        self._node.perform(self._node.groups.detached(self, self._node.now(), is_closed_by_receiver=False))

    def drain(self) -> None:
        """Request that the worker give up its partition; see `acknowledge`."""
        self._is_leaving = True
        self._worker.changed()

    def _released(self, type: NotificationType) -> None:
        if self._position is not None:
            self._position.detached()
        self._notify(type)
        self.owned = self._position = None

    def _notify(self, type: NotificationType) -> None:
        if self.owned is None:
            return
        self._node.notify_owner(type, self._group, *self.owned, CONTAINER, self.link_name)


def _check_places(workers: Iterable[GroupWorker], key: WorkerKey, peer: str) -> None:
    """Raises Overloaded if there is no room for another worker."""
    of_user = total = 0
    for each in workers:
        total += 1
        of_user += each.key.user == key.user and (bool(key.user) or each.peer == peer)
    if total >= WORKERS_MAX:
        raise too_many_workers(f"log {key.log!r} has {total} workers")
    if of_user >= WORKERS_OF_USER_MAX:
        who = f"user {key.user!r}" if key.user else f"{peer or 'this peer'}, which has not logged in,"
        raise too_many_workers(f"{who} has {of_user} workers of log {key.log!r}")


def _check(name: str, given: int, lowest: int, highest: int) -> None:
    if not lowest <= given <= highest:
        raise InvalidInput(f"expected {lowest} to {highest}, got {given}", name)
