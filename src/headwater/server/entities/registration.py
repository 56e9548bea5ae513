"""The entities of the server's own packages: users, and subscriptions of cloud native events."""

from __future__ import annotations

from collections.abc import Sequence

from ...amqp.management.node import ManagementNode
from ...cne import server as cne
from ...cne.delivery.endpoint import Endpoint
from ...cne.notifications.records import Subscription
from ...core.access import Right, User
from ...core.limits import show
from ...core.readers import Readers
from ...core.state import StateStore
from ...management.entities import CLIENT, HOME_SERVER, READER, REFUSAL, SERVER, SUBSCRIPTION, TOKEN, USER
from ...management.ports import Attributes, ReadOnly
from ...management.statuses import OperationRefused, Status
from ..bulk.plane import BulkPlane
from ..httpd.server import HttpServer
from ..users.guard import AccountGuard
from .clients import Clients
from .home_servers import HomeServers
from .readers import ReaderEntities, RefusalEntities
from .server import ServerEntity
from .tokens import Tokens
from .users import Users


def serve_management(
    node: ManagementNode,
    guard: AccountGuard,
    state: StateStore,
    clouds: cne.Application,
    http: HttpServer,
    bulk: BulkPlane | None,
    readers: Readers,
    server_entity: ServerEntity,
    home_servers: HomeServers,
) -> None:
    """Serve the server, users, subscriptions, and clients of protocols other than AMQP, as entities."""
    node.management.serve(SERVER, server_entity)
    node.management.serve(HOME_SERVER, home_servers)
    node.management.serve(CLIENT, Clients(guard, http, bulk))
    node.management.serve(READER, ReaderEntities(guard, readers))
    node.management.serve(REFUSAL, RefusalEntities(guard, guard.refused_lately))
    users = Users(guard, state)
    node.management.serve(USER, users)
    node.management.serve(TOKEN, Tokens(users))
    node.management.serve(SUBSCRIPTION, Subscriptions(guard, clouds))


class Subscriptions(ReadOnly):
    """Subscriptions of cloud native events as entities."""

    def __init__(self, guard: AccountGuard, clouds: cne.Application) -> None:
        self._guard, self._service = guard, clouds.service

    async def names(self, user: User) -> Sequence[str]:
        return list(self._service.subscriptions.by_id) if user.may(Right.READ, self._log) else []

    async def read(self, user: User, name: str) -> Attributes:
        self._guard.authorize(user, Right.READ, self._log)
        found = self._service.subscriptions.by_id.get(name)
        if found is None:
            raise OperationRefused(Status.NOT_FOUND, f"there is no subscription {show(name)}")
        of_endpoint = self._of_endpoint(self._service.endpoint(found))
        position, lag = self._service.position(found), self._service.events_behind(found)
        return {**of_endpoint, "position": position, "lag": lag, **self._of_subscription(found)}

    def _of_subscription(self, found: Subscription) -> Attributes:
        return {
            "log": self._log,
            "resource": found.resource,
            "endpoint": found.endpoint,
            "dialect": str(found.dialect),
            "owner": found.owner,
            "location": found.location,
            "createdAt": found.created_at,
            "mode": found.mode,
            "start": found.start,
        }

    @staticmethod
    def _of_endpoint(endpoint: Endpoint | None) -> Attributes:
        if endpoint is None:
            return {"standing": "none", "delivered": 0, "failures": 0, "waiting": 0, "deadLetters": 0}
        kept, outcome = endpoint.kept, endpoint.outcome
        return {
            "standing": endpoint.standing.value,
            "delivered": endpoint.delivered,
            "failures": endpoint.failures,
            "problem": kept.problem or None,
            "failingSince": kept.since or None,
            "lastAnswer": None if outcome is None else outcome.text,
            "answeredAt": endpoint.outcome_at or None,
            "waiting": endpoint.waiting,
            "deadLetters": len(kept.dead_letters),
        }

    async def delete(self, user: User, name: str) -> None:
        found = self._service.subscriptions.by_id.get(name)
        if found is None or found.owner != f"user:{user.name}":
            self._guard.authorize(user, Right.MANAGE, self._log)
        if found is None:
            raise OperationRefused(Status.NOT_FOUND, f"there is no subscription {show(name)}")
        await self._service.unsubscribe(found)

    @property
    def _log(self) -> str:
        return self._service.settings.log
