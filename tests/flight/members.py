"""Servers of one home, as far as a client sees them: what each has of a log, and whether it is the primary."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headwater.core import Query
from headwater.core.access import Right
from headwater.core.errors import LogNotFound, NotPrimary, StorageUnavailable
from headwater.flight.server.server import BulkServer
from headwater.flight.wire import ACTIONS, LOGS, LogNames, encode
from headwater.storage.memory import MemoryStore

from .memory_backend import MemoryBackend


class Member(MemoryBackend):
    """A server of a home: what it has of the log, whether it is the primary, and what it was asked."""

    def __init__(self, store: MemoryStore, *, is_primary: bool = False) -> None:
        super().__init__(store)
        self.is_primary = is_primary
        self.head: int | None = None
        """It has caught up so far only."""
        self.lacks = False
        self.problem: Exception | None = None
        self.breaks_after: int | None = None
        self.asked: list[str] = []
        self.appends = 0

    def place(self, log: str) -> Any:
        if self.problem is not None:
            raise self.problem
        if self.lacks:
            raise LogNotFound(log)
        place = super().place(log)
        head = place.extent.head if self.head is None else min(self.head, place.extent.head)
        extent = type(place.extent)(head, place.extent.first_retained, place.extent.incarnation)
        return place._replace(extent=extent, may_append=self.is_primary)

    def scan(
        self, log: str, span: Any, query: Query, columns: Any, batch_bytes: Any = None
    ) -> Iterator[pa.RecordBatch]:
        self.asked.append("scan")
        for each in super().scan(log, span, query, columns):
            if self.breaks_after is None:
                yield each
                continue
            yield each.slice(0, self.breaks_after)
            self.problem = StorageUnavailable(reason="it broke")
            raise self.problem

    def append(self, command: Any, batch: pa.RecordBatch) -> Any:
        if not self.is_primary:
            raise NotPrimary(command.log)
        self.appends += 1
        return super().append(command, batch)

    def act(self, user: Any, name: str, body: bytes) -> bytes:
        self.asked.append(name)
        if self.problem is not None:
            raise self.problem
        if self.lacks and name == LOGS.name:
            return encode(LogNames([]))
        if ACTIONS[name].right in (Right.APPEND, Right.MANAGE) and not self.is_primary:
            raise NotPrimary("orders")
        return super().act(user, name, body)


def url_of(server: BulkServer) -> str:
    return f"grpc://127.0.0.1:{server.port}"


def refusing() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"grpc://127.0.0.1:{listener.getsockname()[1]}"
