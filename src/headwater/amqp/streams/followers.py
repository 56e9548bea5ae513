"""The readers of each log over AMQP, and their positions: groups, durable links and plain receivers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from weakref import WeakKeyDictionary

from ...core.clocks import wall_clock_ms
from ...core.errors import EventLogError
from ...core.followers import Follower, FollowerKind
from ...core.local import LocalLog
from ...core.loop.slices import Slices
from ...core.settings import is_own
from ..positions.stored import Positions
from .consumer import ConsumerLink
from .node import EventLogNode
from .nodes import Nodes


class Following:
    """All positions that one container knows. For a log that has not been used over AMQP yet, these are the stored
    positions.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._unused: WeakKeyDictionary[LocalLog, Positions] = WeakKeyDictionary()
        """Positions of logs without a node. Only a node changes the stored positions."""

    async def followers(self) -> list[Follower]:
        """The followers of every open log. It yields to the loop between logs, because there may be many."""
        nodes = self._nodes.all
        found: list[Follower] = []
        slices = Slices()
        for node in nodes:
            for index, follower in enumerate(_of_node(node)):
                found.append(follower)
                if index % 128 == 127:
                    await slices.pause()
            await slices.pause()
        return found + await asyncio.to_thread(self._of_unused, {node.log for node in nodes})

    def _of_unused(self, used: Collection[LocalLog]) -> list[Follower]:
        found: list[Follower] = []
        for log in self._nodes.store.opened():
            if log in used or is_own(log.name):
                self._unused.pop(log, None)
                continue
            if log not in self._unused:
                try:
                    self._unused[log] = self._nodes.stored_positions(log.info().incarnation)
                except EventLogError:  # closed in the meantime, or its state is unreadable, which is reported elsewhere
                    continue
            positions = self._unused[log]
            positions.expire(wall_clock_ms())
            found += _of_positions(log, positions)
        return found


def _of_node(node: EventLogNode) -> Iterator[Follower]:
    """The followers of one log. They may include some that end during the iteration."""
    readers = {id(consumer.position): consumer for consumer in node.consumers if isinstance(consumer, ConsumerLink)}
    users = {position: consumer.user for position, consumer in readers.items()}
    for position in node.positions.all():
        readers.pop(id(position), None)
    yield from _of_positions(node.log, node.positions, users)
    for consumer in readers.values():
        yield Follower(
            node.log,
            FollowerKind.RECEIVER,
            consumer.container,
            consumer.link_name,
            consumer.position.after,
            consumer.partition,
            consumer.upto,
            consumer.user,
        )


def _of_positions(
    log: LocalLog, positions: Positions, users: dict[int, str | None] | None = None
) -> Iterator[Follower]:
    for (group, partition), after in positions.groups().items():
        yield Follower(log, FollowerKind.GROUP, group, str(partition), after, partition)
    for each in positions.durable():
        user = (users or {}).get(id(each.position))
        yield Follower(log, FollowerKind.DURABLE, each.container, each.link, each.position.after, user=user)
