"""Clients that use protocols other than AMQP, as entities: HTTP connections, WebSockets, and Flight readers and
writers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...core.access import Guard, Right, User
from ...core.limits import show
from ...core.loop.slices import Slices
from ...http.host import USER_KEY
from ...management.notifications.catalog import is_own
from ...management.ports import Attributes, ReadOnly
from ...management.statuses import OperationRefused, Status
from ..bulk.callers import BulkCaller
from ..httpd.server import HttpServer, OpenConnection
from ..httpd.websocket import WebSocketProtocol

FLIGHT = "flight"


class Bulk(Protocol):
    """The parts of the bulk plane that are needed here."""

    @property
    def callers(self) -> Mapping[str, BulkCaller]:
        """Recent callers, by entity name."""


class Clients(ReadOnly):
    """Clients; see `management.entities`. A user may see its own clients, as with links."""

    def __init__(self, guard: Guard, http: HttpServer, bulk: Bulk | None) -> None:
        self._guard, self._http, self._bulk = guard, http, bulk
        self._by_name: dict[str, OpenConnection] = {}
        """HTTP connections, as last listed."""

    async def names(self, user: User) -> Sequence[str]:
        """See Entities. HTTP connections in the order in which they opened, followed by callers of Flight."""
        sees_all, slices = user.may(Right.MANAGE, "*"), Slices()
        self._by_name = by_name = {}
        found = []
        for connection in sorted(self._http.open_connections, key=lambda each: each.opened_at):
            name = _name_of(connection)
            by_name[name] = connection
            if sees_all or is_own(user, _user_of(connection)):
                found.append(name)
            await slices.pause()
        return [*found, *(name for name, each in self._callers.items() if sees_all or is_own(user, each.user))]

    async def read(self, user: User, name: str) -> Attributes:
        if (caller := self._callers.get(name)) is not None:
            self._check(user, caller.user)
            return {
                "protocol": FLIGHT,
                "peer": caller.peer,
                "user": caller.user,
                "openedAt": caller.first_at,
                "seenAt": caller.last_at,
            }
        connection = self._connection(name)
        self._check(user, "" if connection is None else _user_of(connection))
        if connection is None:
            raise _unknown(name)
        scope = _scope_of(connection)
        peer, port = connection.client or ("", None)
        return {
            "protocol": connection.protocol_name,
            "peer": peer,
            "port": port,
            "user": _user_of(connection),
            "openedAt": connection.opened_at,
            "tls": connection.tls,
            "request": _request(scope),
            "isAnswering": connection.is_answering,
        }

    async def delete(self, user: User, name: str) -> None:
        """See Entities. Closes the connection, and tells a WebSocket who closed it. Flight connections are unknown to
        the server.
        """
        self._guard.authorize(user, Right.MANAGE, "*")
        if name in self._callers:
            problem = "Flight connections cannot be closed individually; revoke the user's rights or tokens"
            raise OperationRefused(Status.CONFLICT, problem)
        connection = self._connection(name)
        if connection is None:
            raise _unknown(name)
        if isinstance(connection, WebSocketProtocol):
            connection.expel(f"closed by {user.name}" if user.name else "closed by an administrator")
        else:
            connection.transport.abort()

    @property
    def _callers(self) -> Mapping[str, BulkCaller]:
        return {} if self._bulk is None else self._bulk.callers

    def _check(self, user: User, owner: str) -> None:
        if not is_own(user, owner):
            self._guard.authorize(user, Right.MANAGE, "*")

    def _connection(self, name: str) -> OpenConnection | None:
        present = self._http.open_connections
        if (known := self._by_name.get(name)) is not None and known in present:
            return known
        return next((each for each in present if _name_of(each) == name), None)


def _name_of(connection: OpenConnection) -> str:
    if connection.client is None:  # on a Unix socket, peers have no address
        return f"{connection.protocol_name}/local:{id(connection):x}"
    peer, port = connection.client
    place = f"[{peer}]" if ":" in peer else peer
    return f"{connection.protocol_name}/{place}:{port}"


def _user_of(connection: OpenConnection) -> str:
    return str(_scope_of(connection).get(USER_KEY, ""))


def _scope_of(connection: OpenConnection) -> Mapping[str, Any]:
    """The scope of the last request; empty before the first one."""
    return getattr(connection, "scope", None) or {}


def _request(scope: Mapping[str, Any]) -> str | None:
    """The method and path of the last request, which readers of the log may see. Never its query."""
    if "path" not in scope:
        return None
    return f"{scope.get('method', 'WEBSOCKET')} {scope['path'][:256]}"


def _unknown(name: str) -> OperationRefused:
    return OperationRefused(Status.NOT_FOUND, f"there is no client {show(name)}")
