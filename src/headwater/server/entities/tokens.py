"""User tokens as entities: each has a label, may expire, is shown once, and can be revoked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...core.access import Right, User
from ...core.clocks import wall_clock_ms
from ...core.errors import InvalidInput
from ...core.limits import show
from ...management.ports import Attributes, ReadOnly, joined, parted
from ...management.statuses import OperationRefused, Status
from ..users.accounts import AccessToken, Account, hash_token, new_token
from .users import Users

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
UNNAMED = "unnamed-"
"""The label prefix of a token without a label; the rest is the beginning of its hash."""
TOKENS_MAX = 100
"""The maximum number of tokens of one user. Expired ones do not count."""
LIFETIME_MS_MIN, LIFETIME_MS_MAX = 1000, 10 * 366 * 24 * 3600 * 1000


class Tokens(ReadOnly):
    """Tokens; see `management.entities`. Those of configured users are read-only."""

    def __init__(self, users: Users, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._users, self._clock = users, clock

    async def names(self, user: User) -> Sequence[str]:
        if not user.may(Right.MANAGE, "*"):
            return []
        accounts = self._users.accounts()
        return [joined(name, label) for name in sorted(accounts) for label in sorted(_tokens(accounts[name]))]

    async def read(self, user: User, name: str) -> Attributes:
        self._users.check(user)
        account, label = self._account(name)
        return self._shown(account, label, _found(account, label))

    async def create(self, user: User, name: str, given: Attributes) -> Attributes:
        """See Entities. Returns the token itself; only its hash is stored."""
        self._users.check(user)
        account, label = self._account(name)
        lifetime_ms = _checked(label, given.get("lifetimeMs"))
        secret, now = new_token(), self._clock()
        token = AccessToken(hash_token(secret), label, now, None if lifetime_ms is None else now + lifetime_ms)

        def with_token(account: Account) -> Account:
            if label in _tokens(account):
                problem = f"user {account.name!r} already has a token {label!r}; delete it first"
                raise OperationRefused(Status.CONFLICT, problem)
            kept = tuple(each for each in account.access_tokens if not each.is_over(now))
            if len(kept) + len(account.tokens) >= TOKENS_MAX:
                problem = f"user {account.name!r} has {TOKENS_MAX} tokens, the maximum"
                raise OperationRefused(Status.CONFLICT, problem)
            return replace(account, access_tokens=(*kept, token))

        changed = await self._users.change(account.name, with_token)
        return {**self._shown(changed, label, token), "secret": secret}

    async def delete(self, user: User, name: str) -> None:
        """See Entities. Ends every login of its user, because it is unknown which of them used the token."""
        self._users.check(user)
        account, label = self._account(name)
        _found(account, label)

        def without(account: Account) -> Account:
            hashed = _found(account, label).hashed
            return replace(
                account,
                tokens=tuple(each for each in account.tokens if each != hashed),
                access_tokens=tuple(each for each in account.access_tokens if each.hashed != hashed),
                revision=account.revision + 1,
            )

        await self._users.change(account.name, without)

    def _account(self, name: str) -> tuple[Account, str]:
        parts = parted(name, 2)
        if parts is None:
            raise OperationRefused(Status.NOT_FOUND, f"a token's name is USER/LABEL, got {show(name)}")
        account = self._users.accounts().get(parts[0])
        if account is None:
            raise OperationRefused(Status.NOT_FOUND, f"there is no user {show(parts[0])}")
        return account, parts[1]

    def _shown(self, account: Account, label: str, token: AccessToken) -> Attributes:
        lifetime_ms = None if token.expires_at is None else token.expires_at - token.created_at
        return {
            "user": account.name,
            "label": label,
            "lifetimeMs": lifetime_ms,
            "createdAt": token.created_at or None,
            "expiresAt": token.expires_at,
            "isOver": token.is_over(self._clock()),
            "origin": self._users.origin(account.name),
        }


def _tokens(account: Account) -> dict[str, AccessToken]:
    """By label."""
    unnamed = {
        f"{UNNAMED}{hashed.removeprefix('sha256:')[:12]}": AccessToken(hashed, "", 0) for hashed in account.tokens
    }
    return {**unnamed, **{token.label: token for token in account.access_tokens}}


def _found(account: Account, label: str) -> AccessToken:
    token = _tokens(account).get(label)
    if token is None:
        raise OperationRefused(Status.NOT_FOUND, f"user {account.name!r} has no token {show(label)}")
    return token


def _checked(label: str, lifetime_ms: int | None) -> int | None:
    """Raises InvalidInput."""
    if not LABEL.fullmatch(label) or label.startswith(UNNAMED):
        raise InvalidInput(f"{show(label)} does not match {LABEL.pattern}, or starts with {UNNAMED}", "label")
    if lifetime_ms is not None and not LIFETIME_MS_MIN <= lifetime_ms <= LIFETIME_MS_MAX:
        allowed = f"{LIFETIME_MS_MIN} to {LIFETIME_MS_MAX}, or null (never expires)"
        raise InvalidInput(f"expected {allowed}, got {lifetime_ms}", "lifetimeMs")
    return lifetime_ms
