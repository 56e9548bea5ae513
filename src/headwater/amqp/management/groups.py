"""Consumer groups, and receivers whose positions outlive their links, as entities.

For a log with a node, they come from the node; for any other, from the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from ...core.access import Right, User
from ...core.errors import LogNotFound, StorageCorrupted, StorageUnavailable
from ...core.followers import Lag, lag_of
from ...core.limits import show
from ...management.logs import LogRights
from ...management.ports import Attributes, ReadOnly, joined, parted
from ...management.statuses import OperationRefused, Status
from ..container import Container
from ..positions.stored import GroupRecord, Positions, Remembered, load_group
from ..protocol.conditions import LinkFault
from ..streams.node import EventLogNode, Member


class ConsumerGroups(ReadOnly):
    """Consumer groups of all logs; their names are `LOG/GROUP`."""

    def __init__(self, container: Container, rights: LogRights) -> None:
        self._container, self._rights = container, rights

    async def names(self, user: User) -> Sequence[str]:
        found = []
        for log in await self._rights.visible(user):
            try:
                positions = await self._positions(log)
            except (LogNotFound, StorageCorrupted, StorageUnavailable):
                continue  # deleted in the meantime, or shown as a problem of the log itself
            found += [joined(log, group) for group in _groups(positions)]
        return found

    async def read(self, user: User, name: str) -> Attributes:
        log, group = self._key(name)
        self._rights.check_seen(user, log)
        node = self._container.nodes.node_if_there(log)
        if node is None:
            known, owners = await asyncio.to_thread(self._stored, log, group), []
        else:
            known, owners = node.positions.of_group(group, node.partitions), node.groups.owners(group)
        if not (known.afters or known.epochs or any(owners)):
            raise OperationRefused(Status.NOT_FOUND, f"log {log!r} has no consumer group {show(group)}")
        named = {str(number): owner.link_name for number, owner in enumerate(owners) if isinstance(owner, Member)}
        lags = await asyncio.to_thread(self._lags, log, known.afters)
        return {
            "log": log,
            "group": group,
            "positions": {str(number): after for number, after in known.afters.items()},
            "lags": {str(number): lag.events for number, lag in lags.items()},
            "lagsMs": {str(number): lag.age_ms for number, lag in lags.items()},
            "epochs": {str(number): epoch for number, epoch in known.epochs.items()},
            "owners": named,
            "members": len(named),
        }

    async def update(self, user: User, name: str, changes: Attributes) -> Attributes:
        """See Entities. Moves the group's positions. A group with members is not moved.

        Raises PositionTrimmed, PositionOfOtherIncarnation.
        """
        log, group = self._key(name)
        self._rights.check_managed(user, log)
        node = await self._idle(user, name)
        if "positions" in changes:
            afters = _checked(changes["positions"], node)
            try:
                node.move_group(group, afters)
            except LinkFault as fault:
                raise OperationRefused(Status.CONFLICT, f"positions: {fault.description}") from None
            await check_stored(node)
        return await self.read(user, name)

    async def delete(self, user: User, name: str) -> None:
        """See Entities. Forgets the group's positions. A group with members is not deleted."""
        log, group = self._key(name)
        self._rights.check_managed(user, log)
        node = await self._idle(user, name)
        node.forget_group(group)
        await check_stored(node)

    async def _idle(self, user: User, name: str) -> EventLogNode:
        """The node for the log of a group without members. There is no await after this check.

        Raises OperationRefused if it has members, or there is no such group.
        """
        log, group = self._key(name)
        await self.read(user, name)
        node: EventLogNode = await self._container.nodes.node_of(log)
        members = sum(owner is not None for owner in node.groups.owners(group))
        if members:
            problem = f"the group has {members} members; delete the receivers' links and stop the workers first"
            raise OperationRefused(Status.CONFLICT, problem)
        return node

    def _key(self, name: str) -> tuple[str, str]:
        parts = parted(name, 2)
        if parts is None:
            raise OperationRefused(
                Status.NOT_FOUND, f"expected the name of a consumer group, LOG/GROUP, got {show(name)}"
            )
        log, group = parts
        return log, group

    def _lags(self, log: str, afters: Mapping[int, int]) -> dict[int, Lag]:
        opened, now_ms = self._rights.opened(log), time.time_ns() // 1_000_000
        return {number: lag_of(opened, after, now_ms, partition=number) for number, after in afters.items()}

    def _stored(self, log: str, group: str) -> GroupRecord:
        store, partitions = self._container.nodes.store, self._rights.opened(log).settings.partitions
        return load_group(store.state, store.incarnation_of(log), group, partitions)

    async def _positions(self, log: str) -> Positions:
        return await positions_of(self._container, log)


def _checked(given: Mapping[str, object], node: EventLogNode) -> dict[int, int]:
    """Positions by partition, as given. Raises OperationRefused, PositionTrimmed, PositionOfOtherIncarnation."""
    head, afters = node.log.head(), dict[int, int]()
    partitions = {str(number): number for number in range(node.partitions)}
    for key, after in given.items():
        if key not in partitions:
            problem = f"positions: expected partition 0 to {node.partitions - 1}, got {show(key)}"
            raise OperationRefused(Status.BAD_REQUEST, problem)
        if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after <= head:
            problem = f"positions: partition {key}: expected 0 to the head {head}, got {show(after)}"
            raise OperationRefused(Status.BAD_REQUEST, problem)
        node.log.check_position(after + 1)
        afters[partitions[key]] = after
    return afters


async def positions_of(container: Container, log: str) -> Positions:
    """The remembered positions of a log's receivers. Does not open the log. Call it on the loop, which owns a node's
    positions.

    Raises LogNotFound, StorageCorrupted, StorageUnavailable.
    """

    def stored() -> Positions:
        return container.nodes.stored_positions(container.nodes.store.incarnation_of(log))

    node = container.nodes.node_if_there(log)
    return await asyncio.to_thread(stored) if node is None else node.positions


async def check_stored(node: EventLogNode) -> None:
    """Store a change before the request is answered. Raises OperationRefused if that fails."""
    if await node.store_all() is not None:
        problem = "the change was made but not stored, and will be lost if the server stops now; see the server's log"
        raise OperationRefused(Status.OUTCOME_UNKNOWN, problem)


def _groups(positions: Positions) -> list[str]:
    return sorted({group for group, _ in positions.groups()} | {group for group, _ in positions.epochs})


class DurableLinks(ReadOnly):
    """Durable links of all logs. Only managers of the server see them, because they name users and their containers."""

    def __init__(self, container: Container, rights: LogRights) -> None:
        self._container, self._rights, self._guard = container, rights, container.shared.guard

    async def names(self, user: User) -> Sequence[str]:
        if not user.may(Right.MANAGE, "*"):
            return []
        found = []
        for log in await asyncio.to_thread(self._container.nodes.store.names):
            try:
                positions = await positions_of(self._container, log)
            except (LogNotFound, StorageCorrupted, StorageUnavailable):
                continue  # deleted in the meantime, or shown as a problem of the log itself
            found += sorted(joined(log, each.container, each.link) for each in positions.durable())
        return found

    async def read(self, user: User, name: str) -> Attributes:
        self._guard.authorize(user, Right.MANAGE, "*")
        log, positions, found = await self._found(name)
        node = self._container.nodes.node_if_there(log)
        lag = await asyncio.to_thread(self._lag, log, found.position.after)
        return {
            "log": log,
            "container": found.container,
            "linkName": found.link,
            "position": found.position.after,
            "lag": lag.events,
            "lagMs": lag.age_ms,
            "expiryPolicy": found.expiry.symbol,
            "expiresAt": positions.expires_at(found),
            "detachedAt": found.left_at,
            "isDurable": found.is_durable,
            "isAttached": node is not None and node.is_attached(found),
        }

    async def delete(self, user: User, name: str) -> None:
        """See Entities. Forgets the link's position. A durable link that is attached is not deleted."""
        self._guard.authorize(user, Right.MANAGE, "*")
        log, _, _ = await self._found(name)
        node = await self._container.nodes.node_of(log)
        _, _, found = await self._found(name)
        if node.is_attached(found):
            raise OperationRefused(Status.CONFLICT, f"{show(name)} is in use by a link; delete the link first")
        node.forget(found)
        await check_stored(node)

    async def _found(self, name: str) -> tuple[str, Positions, Remembered]:
        parts = parted(name, 3)
        if parts is None:
            raise OperationRefused(
                Status.NOT_FOUND, f"expected the name of a durable link, LOG/CONTAINER/LINK, got {show(name)}"
            )
        log, container, link = parts
        positions = await positions_of(self._container, log)
        found = positions.remembered(container, link)
        if found is None:
            raise OperationRefused(Status.NOT_FOUND, f"log {log!r} has no durable link {show(name)}")
        return log, positions, found

    def _lag(self, log: str, after: int) -> Lag:
        return lag_of(self._rights.opened(log), after, time.time_ns() // 1_000_000)
