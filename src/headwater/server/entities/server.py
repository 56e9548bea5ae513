"""The server as an entity: its AMQP attributes, and the attributes that belong to no protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...amqp.container import Container
from ...amqp.management.peers import Servers
from ...core.access import User
from ...core.errors import StorageUnavailable
from ...core.store import LogStore
from ...management.ports import Attributes, ReadOnly


class ServerEntity(ReadOnly):
    """The server; see `management.entities`."""

    def __init__(
        self,
        container: Container,
        store: LogStore,
        unready: Callable[[], str | None],
        troubles: Callable[[], Sequence[str]],
        http_connections_max: int,
    ) -> None:
        """`unready` and `troubles`: see Health."""
        self._http_connections_max = http_connections_max
        self._of_amqp, self._store, self._unready, self._troubles = Servers(container), store, unready, troubles

    async def names(self, user: User) -> Sequence[str]:
        return await self._of_amqp.names(user)

    async def read(self, user: User, name: str) -> Attributes:
        told = {**await self._of_amqp.read(user, name), "httpConnectionsMax": self._http_connections_max}
        return {**told, **await asyncio.to_thread(self._disk), **await asyncio.to_thread(self._health)}

    def _health(self) -> Attributes:
        return {"unready": self._unready(), "troubles": list(self._troubles())}

    def _disk(self) -> Attributes:
        """Empty if logs are in memory, or the disk does not answer."""
        from ...storage import Engine  # not needed by a server that keeps its logs in memory

        if not isinstance(self._store, Engine):
            return {}
        try:
            standing = self._store.room.look()
            size = self._store.room.size_bytes
        except (StorageUnavailable, OSError):
            return {}
        return {
            "diskBytes": size,
            "diskFreeBytes": standing.free_bytes,
            "diskReserveBytes": standing.reserve_bytes,
        }
