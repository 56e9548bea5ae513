"""Receivers whose positions outlive their links, as entities: of a log that has a node from there, else as stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ...core.access import Right, User
from ...core.errors import LogNotFound, StorageCorrupted, StorageUnavailable
from ...core.following import Lag, lag_of
from ...core.limits import show
from ...management.logs import LogRights
from ...management.ports import Attributes, ReadOnly, joined, parted
from ...management.statuses import Refusal, Status
from ..container import Container
from ..streams.positions import Positions, Remembered
from .groups import check_stored, positions_of


class DurableLinks(ReadOnly):
    """Durable links of all logs, for who manages the server: they name users and their containers."""

    def __init__(self, container: Container, rights: LogRights) -> None:
        self._container, self._rights, self._guard = container, rights, container.shared.guard

    async def names(self, user: User) -> Sequence[str]:
        """See Entities."""
        if not user.may(Right.MANAGE, "*"):
            return []
        found = []
        for log in await asyncio.to_thread(self._container.store.names):
            try:
                positions = await positions_of(self._container, log)
            except (LogNotFound, StorageCorrupted, StorageUnavailable):
                continue  # deleted meanwhile; or shown as the problem of the log itself
            found += sorted(joined(log, each.container, each.link) for each in positions.durable())
        return found

    async def read(self, user: User, name: str) -> Attributes:
        """See Entities."""
        self._guard.authorize(user, Right.MANAGE, "*")
        log, positions, found = await self._found(name)
        node = self._container.node_if_there(log)
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
        """See Entities: its position is forgotten. One that has a link is not deleted."""
        self._guard.authorize(user, Right.MANAGE, "*")
        log, _, _ = await self._found(name)
        node = await self._container.node_of(log)
        _, _, found = await self._found(name)
        if node.is_attached(found):
            raise Refusal(Status.CONFLICT, f"{show(name)} has a link; delete that first")
        node.forget(found)
        await check_stored(node)

    async def _found(self, name: str) -> tuple[str, Positions, Remembered]:
        parts = parted(name, 3)
        if parts is None:
            raise Refusal(Status.NOT_FOUND, f"a durable link's name is LOG/CONTAINER/LINK, {show(name)} given")
        log, container, link = parts
        positions = await positions_of(self._container, log)
        found = positions.remembered(container, link)
        if found is None:
            raise Refusal(Status.NOT_FOUND, f"log {log!r} has no durable link {show(name)}")
        return log, positions, found

    def _lag(self, log: str, after: int) -> Lag:
        return lag_of(self._rights.opened(log), after, time.time_ns() // 1_000_000)
