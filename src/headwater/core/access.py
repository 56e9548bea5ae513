"""Access control: the one check that every front end calls. The server implements `Guard` (server.security)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Protocol

from .errors import EventLogError
from .settings import is_own


class Right(StrEnum):
    """A right on a log, or on the server (`*`). No right includes another."""

    READ = "read"
    APPEND = "append"
    MANAGE = "manage"
    """Create, change, trim and delete logs; register and move consumers; see the server's own state."""
    METRICS = "metrics"
    """See the metrics, which name all logs and consumers. A right on the server only, for monitoring."""


class Unauthenticated(EventLogError):
    """Credentials are missing or wrong. The error does not say which."""


class LoginNotChecked(Exception):
    """The login was not checked: it may be valid. Retry after that many seconds."""

    retry_after_s: float


class TooManyLogins(LoginNotChecked, EventLogError):
    """The login was not checked because too many are waiting or have failed. It may be valid; retry later."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(
            "too many logins from your address are waiting or have failed, so this one was not checked; "
            f"try again in {math.ceil(retry_after_s)} s"
        )


class IssuerUnavailable(LoginNotChecked, EventLogError):
    """The token cannot be verified now: its key is unknown and its issuer does not answer."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(
            "the token issuer does not answer, so its keys could not be fetched; "
            f"try again in {math.ceil(retry_after_s)} s"
        )


class Forbidden(EventLogError):
    """The user lacks the right on that log; `*` is the server itself."""

    def __init__(self, user: str, right: Right, log: str, why: str = "") -> None:
        """`why`: what the right is needed for, where that is not obvious."""
        self.user, self.right, self.log = user, right, log
        where = "the server" if log == "*" else f"log {log!r}"
        what = "see the metrics of" if right is Right.METRICS else right
        message = f"user {user!r} has no right to {what} {where}"
        super().__init__(f"{message}, {why}" if why else message)


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on the logs whose names match a shell pattern (`*`, `orders-*`)."""

    logs: str
    rights: frozenset[Right]


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user. With no user configured, every caller is `ANYBODY`, who may do everything."""

    name: str
    grants: tuple[Grant, ...]
    expires_at: float | None = None
    """When the login expires (seconds since 1970), according to the token; None = no expiry of its own."""

    def may(self, right: Right, log: str) -> bool:
        """Whether the user has the right on that log. `*` is the server itself; only the pattern `*` matches it.

        The server's own logs concern the whole server: a user who may manage the server may read and manage them. No
        user may append to them.
        """
        if is_own(log):
            return right is not Right.APPEND and self.may(Right.MANAGE, "*")
        return any(
            right in grant.rights and (grant.logs == "*" or (log != "*" and fnmatchcase(log, grant.logs)))
            for grant in self.grants
        )


ANYBODY = User("", (Grant("*", frozenset(Right)),))


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a peer presented: a name and a password, or a bearer token (then `name` is empty)."""

    name: str
    secret: str

    def __repr__(self) -> str:
        return f"Credentials({self.name!r}, ...)"


class Guard(Protocol):
    """Checks credentials and rights; counts and logs every refusal; slows failed logins."""

    @property
    def is_open(self) -> bool:
        """Whether everything is allowed because no user is configured."""

    @property
    def takes_tokens(self) -> bool:
        """Whether an issuer's tokens are accepted for login."""

    async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
        """The user of the credentials; ANYBODY if the guard is open. `peer` is the address, for the log.

        Raises Unauthenticated, and LoginNotChecked, which does not judge the credentials. Compares in constant time;
        never blocks the event loop. An unknown peer (empty) is not delayed by the failures of others.
        """

    def trusted(self, name: str, peer: str) -> User:
        """The user of that name, already authenticated by the TLS layer from a client certificate.

        ANYBODY if the guard is open. Raises Unauthenticated if there is no such user.
        """

    def seal(self, name: str, *, is_login: bool = False) -> str:
        """A value that changes when the user's password or tokens change, or the user is removed.

        To cache a login, take the seal before the login (`is_login`: from users read a moment ago) and compare it
        later. It reveals nothing about the password.
        """

    def refused(self, name: str, peer: str) -> Unauthenticated:
        """Count and report a login that could not be checked at all, such as a malformed one.

        Returns the error to raise. `name` is the user it claimed to be, empty if unknown.
        """

    def recall(self, credentials: Credentials) -> User | None:
        """The user, if the credentials can be verified without waiting. None does not mean that they are wrong."""

    def session_user(self, secret: str, peer: str) -> User | None:
        """The user of the console session with that secret, by the current accounts; None if there is no session."""

    def authorize(self, user: User, right: Right, log: str) -> None:
        """Raises Forbidden if the user lacks the right on that log (`*` = the server itself)."""

    async def authenticate_signature(self, name: str, is_right: Callable[[bytes], bool], peer: str) -> User:
        """The user of that name, if `is_right` confirms that the user's secret key signed a message.

        `is_right` is called once, in constant time, even if there is no such user or key. Raises Unauthenticated.
        """

    def key(self, name: str) -> bytes | None:
        """The user's secret key for protocols that sign messages (FutoIn HMAC), or None."""


class OpenGuard(Guard):
    """Allows everything to every caller: no user is configured."""

    is_open = True
    takes_tokens = False

    async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
        return ANYBODY

    def trusted(self, name: str, peer: str) -> User:
        return ANYBODY

    def seal(self, name: str, *, is_login: bool = False) -> str:
        """See Guard. Never changes."""
        return ""

    def refused(self, name: str, peer: str) -> Unauthenticated:
        """See Guard. Nothing is reported."""
        return Unauthenticated("the login is malformed")

    def recall(self, credentials: Credentials) -> User | None:
        return ANYBODY

    def session_user(self, secret: str, peer: str) -> User | None:
        return ANYBODY

    def authorize(self, user: User, right: Right, log: str) -> None:
        """See Guard. Refuses only what no user may do."""
        if not ANYBODY.may(right, log):
            raise Forbidden(user.name, right, log)

    async def authenticate_signature(self, name: str, is_right: Callable[[bytes], bool], peer: str) -> User:
        """See Guard. No user has a key here."""
        raise Unauthenticated("the message is signed, but no user with a key is configured")

    def key(self, name: str) -> bytes | None:
        return None
