"""The container's connections, sessions and links as entities, and the server itself. All of this runs on the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

from ... import __version__
from ...core.access import Right, User
from ...core.followers import NO_LAG, Lag, events_behind, lag_of
from ...core.limits import show
from ...management.entities import SELF
from ...management.notifications.catalog import is_own
from ...management.ports import Attributes, ReadOnly, number_of
from ...management.statuses import OperationRefused, Status
from ..connections.addresses import shown_address
from ..connections.link_end import LinkEnd
from ..connections.transport import Transport
from ..container import Container
from ..protocol import conditions
from ..protocol.link import Link, Sender
from ..protocol.performatives import Source, Target
from ..protocol.session import Session
from ..protocol.types import Described, Symbol
from ..streams.consumer import ConsumerLink
from ..streams.group_links import GroupLink

TEXT_CHARS_MAX = 256
"""The length to which attributes with text from a peer are cut."""
PROPERTIES_MAX = 32
CONNECTIONS_AT_ONCE = 100
"""The number of entities that are handled before the loop gets another turn."""
PARTS_AT_ONCE = 256
"""The maximum number of sessions or links, over all connections."""


class _OfServer(ReadOnly):
    """Entities that managers of the server may see and close."""

    def __init__(self, container: Container) -> None:
        self._container, self._guard, self._loop = container, container.shared.guard, container.shared.loop

    def _is_allowed(self, user: User) -> bool:
        return user.may(Right.MANAGE, "*")

    def _check(self, user: User) -> None:
        self._guard.authorize(user, Right.MANAGE, "*")

    async def _connections(self) -> AsyncIterator[Transport]:
        """All of them, in order. Yields to the loop between them."""
        for index, transport in enumerate(list(self._container.numbered.values())):
            if index % CONNECTIONS_AT_ONCE == CONNECTIONS_AT_ONCE - 1:
                await asyncio.sleep(0)
            yield transport

    def _connection(self, number: str) -> Transport:
        found = self._container.numbered.get(number_of(number))
        if found is None:
            raise OperationRefused(Status.NOT_FOUND, f"there is no connection {show(number)}")
        return found


class Servers(_OfServer):
    """The server; see `management.entities`."""

    def __init__(self, container: Container) -> None:
        super().__init__(container)
        self._started_at = time.time_ns() // 1_000_000

    async def names(self, user: User) -> Sequence[str]:
        return [SELF] if self._is_allowed(user) else []

    async def read(self, user: User, name: str) -> Attributes:
        self._check(user)
        if name != SELF:
            raise OperationRefused(Status.NOT_FOUND, f"expected {SELF!r}, the only server, got {show(name)}")
        container, statistics = self._container, self._container.statistics
        return {
            "product": "Headwater",
            "version": __version__,
            "containerId": container.shared.name,
            "startedAt": self._started_at,
            "logs": len(await asyncio.to_thread(container.nodes.store.names)),
            "connections": len(container.connections),
            "connectionsMax": container.shared.settings.connections_max,
            "connectionsTaken": statistics.connections,
            "connectionsRefused": statistics.connections_refused,
            "faults": statistics.faults,
            "linksAttached": statistics.links,
            "linksRefused": statistics.links_refused,
            "messagesReceived": statistics.messages_received,
            "messagesRejected": statistics.messages_rejected,
            "messagesSent": statistics.messages_sent,
            "messagesSentAgain": statistics.messages_sent_again,
        }


class Connections(_OfServer):
    """Connections; see `management.entities`."""

    async def names(self, user: User) -> Sequence[str]:
        return [str(number) for number in self._container.numbered] if self._is_allowed(user) else []

    async def read(self, user: User, name: str) -> Attributes:
        self._check(user)
        transport = self._connection(name)
        engine = transport.engine
        remote = engine.remote
        properties = _simple(remote.properties if remote else None)
        return {
            "containerId": _cut(transport.container_id),
            "peer": transport.peer,
            "port": transport.port,
            "mechanism": transport.mechanism,
            "tls": transport.tls,
            "user": transport.user.name if transport.user else "",
            "openedAt": transport.opened_at,
            "stage": engine.stage.value,
            "sessions": len(transport.sessions),
            "links": transport.links_count,
            "bytesReceived": transport.bytes_received,
            "bytesSent": transport.bytes_sent,
            "bytesHeld": transport.held_bytes,
            "frameBytesMax": engine.frame_bytes_max,
            "idleTimeoutMs": remote.idle_time_out if remote else None,
            "product": properties.get("product"),
            "properties": properties,
        }

    async def delete(self, user: User, name: str) -> None:
        """See Entities. Closes it. The caller's own connection is closed only after the response."""
        self._check(user)
        transport = self._connection(name)
        self._loop.call_soon(transport.close, conditions.CONNECTION_FORCED, _closed_by(user))


class Sessions(_OfServer):
    """Sessions; see `management.entities`."""

    async def names(self, user: User) -> Sequence[str]:
        if not self._is_allowed(user):
            return []
        names: list[str] = []
        async for each in self._connections():
            for number, _ in each.sessions:
                names.append(f"{each.number}/{number}")
                await _pause_after(names)
        return names

    async def read(self, user: User, name: str) -> Attributes:
        self._check(user)
        transport, session = self._found(name)
        return {
            "connection": str(transport.number),
            "channel": session.channel,
            "links": sum(1 for _ in session.links),
            "sendable": session.sendable,
        }

    async def delete(self, user: User, name: str) -> None:
        """See Entities: ends it."""
        self._check(user)
        transport, session = self._found(name)
        self._loop.call_soon(transport.end, session, conditions.RESOURCE_DELETED, _closed_by(user))

    def _found(self, name: str) -> tuple[Transport, Session]:
        connection, _, session = name.partition("/")
        transport = self._connection(connection)
        for number, each in transport.sessions:
            if number == number_of(session):
                return transport, each
        raise OperationRefused(Status.NOT_FOUND, f"connection {connection} has no session {show(session)}")


class Links(_OfServer):
    """Links; see `management.entities`. Users may see the links of their own connections, as in events about links."""

    async def names(self, user: User) -> Sequence[str]:
        sees_all, names = self._is_allowed(user), list[str]()
        async for transport in self._connections():
            for number in transport.link_numbers if sees_all or _is_of(transport, user) else ():
                if (found := transport.link(number)) is not None:  # still attached
                    names.append(f"{transport.number}/{transport.session_number(found[0].session)}/{number}")
                    await _pause_after(names)
        return names

    async def read(self, user: User, name: str) -> Attributes:
        connection = self._container.numbered.get(number_of(name.partition("/")[0]))
        if connection is None or not _is_of(connection, user):
            self._check(user)
        transport, link, end = self._found(name)
        session, _, _ = name.rpartition("/")
        return {
            "connection": str(transport.number),
            "session": session,
            "linkName": _cut(link.name),
            "containerId": _cut(transport.container_id),
            "role": "receiver" if link.is_sender else "sender",
            "address": _address(link),
            "log": end.log.name if end.log is not None else None,
            "handle": link.handle,
            "credit": link.credit,  # type: ignore[attr-defined]
            "deliveries": end.deliveries,
            "unsettled": link.unsettled if isinstance(link, Sender) else None,
            "unsettledMax": end.unsettled_max if isinstance(end, ConsumerLink | GroupLink) else None,
            **_times(end),
            "isAttached": link.is_attached,
            **(await _of_receiver(end) if isinstance(end, ConsumerLink) else {}),
            **(await _of_group_link(end) if isinstance(end, GroupLink) else {}),
        }

    async def delete(self, user: User, name: str) -> None:
        """See Entities: detaches it."""
        self._check(user)
        transport, link, _ = self._found(name)
        self._loop.call_soon(transport.expel, link, conditions.LINK_DETACH_FORCED, _closed_by(user))

    def _found(self, name: str) -> tuple[Transport, Link, LinkEnd]:
        connection, _, rest = name.partition("/")
        session, _, number = rest.partition("/")
        transport = self._connection(connection)
        found = transport.link(number_of(number))
        if found is not None and transport.session_number(found[0].session) == number_of(session):
            return transport, *found
        raise OperationRefused(Status.NOT_FOUND, f"connection {connection} has no link {show(rest)}")


def _times(end: LinkEnd) -> Attributes:
    """When it was attached and when messages were sent, what it is waiting for, and since when."""
    waits_for = end.waits_for
    since = max(end.attached_at, end.message_at, end.outcome_at if waits_for == "outcomes" else 0)
    return {
        "attachedAt": end.attached_at or None,
        "messageAt": end.message_at or None,
        "waitsFor": waits_for,
        "waitsSince": None if waits_for is None else since,
    }


async def _of_receiver(consumer: ConsumerLink) -> Attributes:
    """Attributes that only receivers of a log have."""
    after = consumer.position.after
    (lag,) = await _lags([consumer]) or (NO_LAG,)
    return {
        "partition": consumer.partition,
        "group": consumer.group,
        "epoch": consumer.epoch,
        "filter": _filters(consumer.filters),
        "position": after,
        "lag": lag.events,
        "lagMs": lag.age_ms,
        "sentAgain": consumer.sent_again,
    }


async def _of_group_link(link: GroupLink) -> Attributes:
    """The same for a receiver whose address names its group. Covers all partitions that it owns."""
    parts = tuple(link.parts)
    lags = await _lags(parts)
    return {
        "partition": None,
        "group": link.group,
        "epoch": None,
        "filter": _filters(link.filters),
        "position": min((part.position.after for part in parts), default=None),
        "lag": sum(lag.events for lag in lags),
        "lagMs": max((lag.age_ms for lag in lags), default=0),
        "sentAgain": link.sent_again,
    }


async def _lags(consumers: Sequence[ConsumerLink]) -> list[Lag]:
    """The lag of each consumer that is behind; computed in a thread, if there are any."""
    now_ms = time.time_ns() // 1_000_000
    behind = [
        partial(lag_of, log, after, now_ms, partition=each.partition, upto=each.upto)
        for each in consumers
        if (log := each.log) is not None and events_behind(log, after := each.position.after, each.upto)
    ]
    return await asyncio.to_thread(lambda: [lag() for lag in behind]) if behind else []


def _filters(given: Mapping[Symbol, object]) -> Attributes:
    """The filters of a receiver, as text."""
    return {_cut(str(name)): _cut(_filter_text(value)) for name, value in list(given.items())[:PROPERTIES_MAX]}


def _filter_text(value: object) -> str:
    """A filter as text: for a described value, the value itself."""
    plain = value.value if isinstance(value, Described) else value
    return plain if isinstance(plain, str) else show(plain, TEXT_CHARS_MAX)


async def _pause_after(names: Sequence[str]) -> None:
    """Yield to others after a number of names."""
    if len(names) % PARTS_AT_ONCE == 0:
        await asyncio.sleep(0)


def _is_of(transport: Transport, user: User) -> bool:
    return transport.user is not None and is_own(user, transport.user.name)


def _address(link: Link) -> str | None:
    """The address that the peer uses. For a dynamic node, this is the address that the server assigned."""
    attach = (link.local or link.remote) if link.is_sender else link.remote
    terminus = attach and (attach.source if link.is_sender else attach.target)
    return _cut(shown_address(terminus.address)) if isinstance(terminus, Source | Target) else None


def _closed_by(user: User) -> str:
    return f"closed by {user.name}" if user.name else "closed by an administrator"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[: TEXT_CHARS_MAX - 1]}…"


def _simple(properties: Any) -> dict[str, object]:
    """The strings and numbers in a peer's properties."""
    found: dict[str, object] = {}
    for key, value in list((properties or {}).items())[:PROPERTIES_MAX]:
        if isinstance(value, str):
            found[_cut(str(key))] = _cut(str(value))
        elif isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
            found[_cut(str(key))] = int(value)
    return found
