"""Users as entities. Users in the data directory can be created, changed and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...core.access import Right, User
from ...core.actor import acting
from ...core.limits import show
from ...core.state import StateStore
from ...management.ports import Attributes, ReadOnly
from ...management.statuses import OperationRefused, Status
from ..users.accounts import (
    KIND,
    Account,
    check_user_name,
    decode_entry,
    encode_account,
    hash_password,
    read_grant,
    show_grant,
)
from ..users.guard import AccountGuard


class Users(ReadOnly):
    """Users as entities. Configured ones are read-only."""

    def __init__(self, guard: AccountGuard, state: StateStore) -> None:
        self._guard, self._directory, self._state = guard, guard.directory, state
        self._changing = asyncio.Lock()
        """A change is checked against all users before it is applied."""

    def accounts(self) -> Mapping[str, Account]:
        """All current accounts, by name."""
        return self._directory.current().by_name

    def check(self, user: User) -> None:
        """Raises Forbidden unless that user may see and change users."""
        self._guard.authorize(user, Right.MANAGE, "*")

    def origin(self, name: str) -> str:
        """Where the user of that name is stored."""
        return "configuration" if name in self._directory.configured else "data directory"

    async def change(self, name: str, change: Callable[[Account], Account]) -> Account:
        """Change a user of the data directory, one change at a time; `change` is called in a thread.

        Returns the changed user. Raises OperationRefused if there is no such user, it is configured, or no user with
        the right to manage the server would be left; and the errors of `change`."""
        async with self._changing:
            self._check_stored(name)
            stored = await asyncio.to_thread(self._state.get, KIND, name)
            if stored is None:
                raise _unknown(name)
            account = await asyncio.to_thread(change, decode_entry((name, stored)))
            self._check_manageable(account)
            await asyncio.to_thread(self._put, account, stored.version)
            return self._found(name)

    async def names(self, user: User) -> Sequence[str]:
        return sorted(self._directory.current().by_name) if user.may(Right.MANAGE, "*") else []

    async def read(self, user: User, name: str) -> Attributes:
        self._guard.authorize(user, Right.MANAGE, "*")
        return self._shown(self._found(name))

    async def create(self, user: User, name: str, given: Attributes) -> Attributes:
        self._guard.authorize(user, Right.MANAGE, "*")
        check_user_name(name)
        async with self._changing:
            if name in self._directory.current().by_name:
                raise OperationRefused(Status.CONFLICT, f"user {name!r} already exists")
            account = await asyncio.to_thread(_changed, Account(name, ()), given)
            self._check_manageable(account)
            await asyncio.to_thread(self._put, account, 0)
            return self._shown(self._found(name))

    async def update(self, user: User, name: str, changes: Attributes) -> Attributes:
        self._guard.authorize(user, Right.MANAGE, "*")
        return self._shown(await self.change(name, lambda account: _changed(account, changes)))

    async def delete(self, user: User, name: str) -> None:
        self._guard.authorize(user, Right.MANAGE, "*")
        async with self._changing:
            self._check_stored(name)
            if len(self._directory.current().by_name) == 1:
                problem = "this is the last user; without users, every request would be refused"
                raise OperationRefused(Status.CONFLICT, problem)
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
            raise OperationRefused(Status.CONFLICT, f"user {name!r} is defined in the configuration; change it there")

    def _check_manageable(self, changed: Account | None, *, without: str = "") -> None:
        """Prevents a change from locking all users out. Raises OperationRefused."""
        by_name = {**self._directory.current().by_name, **({changed.name: changed} if changed else {})}
        if not any(account.user.may(Right.MANAGE, "*") for name, account in by_name.items() if name != without):
            problem = "no other user can manage the server; first grant `manage:*` to another user"
            raise OperationRefused(Status.CONFLICT, problem)

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
        return {
            "grants": [show_grant(grant) for grant in account.grants],
            "hasPassword": account.password is not None,
            "tokens": len(account.tokens) + len(account.access_tokens),
            "hasKey": account.key is not None,
            "origin": self.origin(account.name),
        }


def _changed(account: Account, given: Attributes) -> Account:
    """The account with the given changes. Hashes a password, which takes a while. Raises InvalidInput."""
    if "grants" in given:
        account = replace(account, grants=tuple(read_grant(text) for text in given["grants"]))
    if "password" in given:
        password = given["password"]
        account = replace(account, password=None if password is None else hash_password(password))
    return account


def _unknown(name: str) -> OperationRefused:
    return OperationRefused(Status.NOT_FOUND, f"there is no user {show(name)}")
