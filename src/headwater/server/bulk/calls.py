"""What the server answers its bulk process: who a user is, where a log lies, and every write, which only it may do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec
import pyarrow as pa

from ...core.access import Credentials, Guard, Right, User
from ...core.condition import AppendCondition
from ...core.consumer import Consumer
from ...core.errors import LogNotFound
from ...core.log import LogInfo
from ...core.mark import WriterState
from ...core.query import Query
from ...core.settings import LogSettings
from ...core.store import LogStore
from ...storage import StoredLog
from ...storage.staging import Committed, Staging, commit_staged
from .link import Call

P = ParamSpec("P")
T = TypeVar("T")
THREADS_MAX = 16
"""Calls that may block at the same time; more wait."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a log lies, and from where to where it can be read at this moment."""

    directory: str
    incarnation: str
    head: int
    first_retained: int
    partitions: int


class BulkCalls:
    """The calls by name: what `link.Answering` is given."""

    def __init__(self, store: LogStore, guard: Guard) -> None:
        self._store, self._guard = store, guard
        self._slots = asyncio.Semaphore(THREADS_MAX)

    def table(self) -> Mapping[str, Call]:
        """Every call that the bulk process may make."""
        return {
            name: getattr(self, name)
            for name in (
                "authenticate", "user", "authorize", "logs", "info", "place", "position_at", "append", "commit",
                "writer", "consumers", "register_consumer", "acknowledge", "unregister_consumer", "create_log", "trim",
            )
        }  # fmt: skip

    # Who

    async def authenticate(self, name: str, secret: str | None, peer: str) -> User:
        """The user behind credentials; `secret` None = there are none. Raises Unauthenticated."""
        return await self._guard.authenticate(None if secret is None else Credentials(name, secret), peer)

    async def user(self, name: str, peer: str) -> User:
        """The user of that name as the accounts are now. Raises Unauthenticated: there is none any more."""
        return self._guard.trusted(name, peer)

    async def authorize(self, name: str, right: str, log: str) -> None:
        """See Guard. Asked only where a user seemed to lack the right."""
        self._guard.authorize(self._guard.trusted(name, ""), Right(right), log)

    # Logs

    async def logs(self) -> list[str]:
        """See LogStore.names."""
        return await self._blocking(self._store.names)

    async def info(self, log: str) -> LogInfo:
        """See EventLog.info."""
        return await self._blocking(lambda: self._store.open(log).info())

    async def place(self, log: str) -> Place:
        """Where it lies. Raises LogNotFound, StorageCorrupted."""
        stored = await self._opened(log)
        return Place(
            str(stored.directory),
            stored.meta.incarnation,
            stored.head(),
            stored.first_retained,
            stored.settings.partitions,
        )

    async def position_at(self, log: str, recorded_at: int) -> int:
        """See LocalLog.sequence_number_at."""
        stored = await self._opened(log)
        return await self._blocking(stored.sequence_number_at, recorded_at)

    async def create_log(self, log: str, settings: dict[str, object]) -> LogInfo:
        """See LogStore.create. Raises LogExists, InvalidLogName, InvalidSettings."""
        wanted = LogSettings(**settings) if settings else None  # type: ignore[arg-type]  # it checks its types itself
        return await self._blocking(lambda: self._store.create(log, wanted).info())

    async def trim(self, log: str, below: int) -> int:
        """See EventLog.trim."""
        stored = await self._opened(log)
        return await self._blocking(stored.trim, below)

    # Writes
