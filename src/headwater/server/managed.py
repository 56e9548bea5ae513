"""What management clients see of the server's own rooms: users, and subscriptions of cloud native events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ..amqp.management.node import ManagementNode
from ..cne import server as cne
from ..core.access import Right, User
from ..core.acting import acting
from ..core.limits import show
from ..core.state import StateStore
from ..management.entities import CLIENT, SUBSCRIPTION, USER
from ..management.ports import Attributes, ReadOnly
from ..management.statuses import Refusal, Status
from .accounts import (
    KIND,
    Account,
    check_user_name,
    decode_entry,
    encode_account,
    hash_password,
    read_grant,
    show_grant,
)
from .bulk.serving import BulkPlane
from .clients import Clients
from .http_server import HttpServer
from .security import AccountGuard


def serve_management(
    node: ManagementNode,
    guard: AccountGuard,
    state: StateStore,
    clouds: cne.Application,
    http: HttpServer,
    bulk: BulkPlane | None,
) -> None:
    """Let management clients see users, subscriptions and the clients of other protocols than AMQP too."""
    node.management.serve(CLIENT, Clients(guard, http, bulk))
    node.management.serve(USER, Users(guard, state))
    node.management.serve(SUBSCRIPTION, Subscriptions(guard, clouds))


class Users(ReadOnly):
    """Users as entities. Those of the configuration can only be read."""

    def __init__(self, guard: AccountGuard, state: StateStore) -> None:
        self._guard, self._directory, self._state = guard, guard.directory, state
        self._changing = asyncio.Lock()
        """A change looks at all users before it is made."""

    async def names(self, user: User) -> Sequence[str]:
        """See Entities."""
        return sorted(self._directory.current().by_name) if user.may(Right.MANAGE, "*") else []

    async def read(self, user: User, name: str) -> Attributes:
        """See Entities."""
        self._guard.authorize(user, Right.MANAGE, "*")
        return self._shown(self._found(name))

    async def create(self, user: User, name: str, given: Attributes) -> Attributes:
        """See Entities."""
        self._guard.authorize(user, Right.MANAGE, "*")
        check_user_name(name)
        async with self._changing:
            if name in self._directory.current().by_name:
                raise Refusal(Status.CONFLICT, f"there is a user {name!r} already")
            account = await asyncio.to_thread(_changed, Account(name, ()), given)
            self._check_manageable(account)
            await asyncio.to_thread(self._put, account, 0)
            return self._shown(self._found(name))

    async def update(self, user: User, name: str, changes: Attributes) -> Attributes:
        """See Entities."""
        self._guard.authorize(user, Right.MANAGE, "*")
        async with self._changing:
            self._check_stored(name)
            stored = await asyncio.to_thread(self._state.get, KIND, name)
            if stored is None:
                raise _unknown(name)
            account = await asyncio.to_thread(_changed, decode_entry((name, stored)), changes)
            self._check_manageable(account)
            await asyncio.to_thread(self._put, account, stored.version)
            return self._shown(self._found(name))

    async def delete(self, user: User, name: str) -> None:
        """See Entities."""
        self._guard.authorize(user, Right.MANAGE, "*")
        async with self._changing:
            self._check_stored(name)
            if len(self._directory.current().by_name) == 1:
                raise Refusal(Status.CONFLICT, "it is the last user; without users every request would be refused")
            self._check_manageable(None, without=name)
            await asyncio.to_thread(self._remove, name)
            self._directory.current()

    def _found(self, name: str) -> Account:
        account = self._directory.current().by_name.get(name)
        if account is None:
            raise _unknown(name)
        return account

    def _check_stored(self, name: str) -> None:
        self._found(name)
        if name in self._directory.configured:
            raise Refusal(Status.CONFLICT, f"user {name!r} is of the configuration, and is changed there")

    def _check_manageable(self, changed: Account | None, *, without: str = "") -> None:
        """Nobody may lock everybody out. Raises Refusal."""
        by_name = {**self._directory.current().by_name, **({changed.name: changed} if changed else {})}
        if not any(account.user.may(Right.MANAGE, "*") for name, account in by_name.items() if name != without):
            problem = "nobody could manage the server any more; first give somebody else `manage:*`"
            raise Refusal(Status.CONFLICT, problem)

    def _put(self, account: Account, version: int) -> None:
        with self._directory.changing(account.name, acting()):
            self._state.put(KIND, account.name, encode_account(account), version)
            self._state.flush()

    def _remove(self, name: str) -> None:
        with self._directory.changing(name, acting()):
            if not self._state.delete(KIND, name):
                raise _unknown(name)
            self._state.flush()

    def _shown(self, account: Account) -> Attributes:
        is_configured = account.name in self._directory.configured
        return {
            "grants": [show_grant(grant) for grant in account.grants],
            "hasPassword": account.password is not None,
            "tokens": len(account.tokens),
            "hasKey": account.key is not None,
            "origin": "configuration" if is_configured else "data directory",
        }


class Subscriptions(ReadOnly):
    """Subscriptions of cloud native events as entities."""

    def __init__(self, guard: AccountGuard, clouds: cne.Application) -> None:
        self._guard, self._service = guard, clouds.service

    async def names(self, user: User) -> Sequence[str]:
        """See Entities."""
        return list(self._service.subscriptions.by_id) if user.may(Right.READ, self._log) else []

    async def read(self, user: User, name: str) -> Attributes:
        """See Entities."""
        self._guard.authorize(user, Right.READ, self._log)
        found = self._service.subscriptions.by_id.get(name)
        if found is None:
            raise Refusal(Status.NOT_FOUND, f"there is no subscription {show(name)}")
        endpoint = self._service.endpoint(found)
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
            "standing": "none" if endpoint is None else endpoint.standing.value,
            "delivered": 0 if endpoint is None else endpoint.delivered,
            "failures": 0 if endpoint is None else endpoint.failures,
            "deadLetters": 0 if endpoint is None else len(endpoint.kept.dead_letters),
        }

    async def delete(self, user: User, name: str) -> None:
        """See Entities."""
        found = self._service.subscriptions.by_id.get(name)
        if found is None or found.owner != f"user:{user.name}":
            self._guard.authorize(user, Right.MANAGE, self._log)
        if found is None:
            raise Refusal(Status.NOT_FOUND, f"there is no subscription {show(name)}")
        await self._service.unsubscribe(found)

    @property
    def _log(self) -> str:
        return self._service.settings.log


def _changed(account: Account, given: Attributes) -> Account:
    """The account with what is given; hashes a password, which takes a while. Raises InvalidInput."""
    if "grants" in given:
        account = replace(account, grants=tuple(read_grant(text) for text in given["grants"]))
    if "password" in given:
        password = given["password"]
        account = replace(account, password=None if password is None else hash_password(password))
    return account


def _unknown(name: str) -> Refusal:
    return Refusal(Status.NOT_FOUND, f"there is no user {show(name)}")
