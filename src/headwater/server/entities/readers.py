"""Readers that use protocols other than AMQP, and recent refusals, as entities."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ...core.access import Guard, Right, User
from ...core.followers import NO_LAG, events_behind, lag_of
from ...core.limits import show
from ...core.readers import Reader, Readers
from ...management.notifications.catalog import is_own
from ...management.ports import Attributes, ReadOnly, number_of
from ...management.statuses import OperationRefused, Status
from ..users.refusals import Refusals


class ReaderEntities(ReadOnly):
    """Readers; see `management.entities`. A user may see its own readers, as with links."""

    def __init__(self, guard: Guard, readers: Readers) -> None:
        self._guard, self._readers = guard, readers

    async def names(self, user: User) -> Sequence[str]:
        sees_all = user.may(Right.MANAGE, "*")
        found = self._readers.by_number.items()
        return [str(number) for number, each in found if sees_all or is_own(user, each.user)]

    async def read(self, user: User, name: str) -> Attributes:
        reader = self._reader(name)
        if reader is None or not is_own(user, reader.user):
            self._guard.authorize(user, Right.MANAGE, "*")
        if reader is None:
            raise _unknown(name)
        log, position, lag = reader.log, reader.position, NO_LAG
        if position is not None and events_behind(log, position):
            now_ms = time.time_ns() // 1_000_000
            lag = await asyncio.to_thread(lag_of, log, position, now_ms, partition=reader.partition)
        peer, port = reader.peer
        return {
            "protocol": reader.protocol,
            "log": log.name,
            "user": reader.user,
            "peer": peer,
            "port": port,
            "wants": reader.wants,
            "component": reader.component,
            "partition": reader.partition,
            "startedAt": reader.started_at,
            "events": reader.events,
            "position": position,
            "lag": None if position is None else lag.events,
            "lagMs": None if position is None else lag.age_ms,
            "sentAt": reader.sent_at,
            "waitsFor": reader.waits_for.value,
            "waitsSince": reader.waits_since,
        }

    async def delete(self, user: User, name: str) -> None:
        """See Entities. Ends the reader, and tells its peer who ended it."""
        self._guard.authorize(user, Right.MANAGE, "*")
        reader = self._reader(name)
        if reader is None:
            raise _unknown(name)
        reader.end(f"closed by {user.name}" if user.name else "closed by an administrator")

    def _reader(self, name: str) -> Reader | None:
        return self._readers.by_number.get(number_of(name))


class RefusalEntities(ReadOnly):
    """Refusals; see `management.entities`."""

    def __init__(self, guard: Guard, refusals: Refusals) -> None:
        self._guard, self._refusals = guard, refusals

    async def names(self, user: User) -> Sequence[str]:
        return list(map(str, self._refusals.numbers())) if user.may(Right.MANAGE, "*") else []

    async def read(self, user: User, name: str) -> Attributes:
        self._guard.authorize(user, Right.MANAGE, "*")
        row = self._refusals.row(number_of(name))
        if row is None:
            raise OperationRefused(Status.NOT_FOUND, f"there is no refusal {show(name)}")
        kind, reason, protocol, named, peer = row.about
        return {
            "kind": kind,
            "reason": reason,
            "protocol": protocol,
            "user": named,
            "peer": peer,
            "right": row.right,
            "log": row.log,
            "count": row.count,
            "firstAt": row.first_at,
            "lastAt": row.last_at,
        }


def _unknown(name: str) -> OperationRefused:
    return OperationRefused(Status.NOT_FOUND, f"there is no reader {show(name)}")
