"""Who may do what: the one check that every front end calls. The server implements `Guard` (server.security)."""

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
    """A right on a log, or on the server (`*`). They do not include each other."""

    READ = "read"
    APPEND = "append"
    MANAGE = "manage"
    """Create, change, trim and delete logs; register and move consumers; see the server's own state."""
    METRICS = "metrics"
    """See the metrics, which name all logs and consumers: a right on the server alone, for what watches it."""


class Unauthenticated(EventLogError):
    """Credentials are missing, or wrong (which of the two, or what was wrong, is not said)."""


class LoginNotChecked(Exception):
    """The login was not looked at: it may be right, and is to come again, in so many seconds."""

    retry_after_s: float


class TooManyLogins(LoginNotChecked, EventLogError):
    """The login was not looked at, because too many wait or have failed; it may be right, and is to come again."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(
            "too many logins from your address wait or have failed, so that this one was not looked at; "
            f"try again in {math.ceil(retry_after_s)} s"
        )


class IssuerUnavailable(LoginNotChecked, EventLogError):
    """Whether the token is right cannot be known now: its key is not known, and its issuer does not answer."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(
            "the issuer of tokens does not answer, so that a key that is not known yet could not be fetched; "
            f"try again in {math.ceil(retry_after_s)} s"
        )


class Forbidden(EventLogError):
    """The user lacks the right on that log; `*` is the server itself."""

    def __init__(self, user: str, right: Right, log: str, why: str = "") -> None:
        """`why`: what it takes the right for, where that does not go without saying."""
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
    """An authenticated user. With no user configured, everybody is `ANYBODY`, who may do everything."""

    name: str
    grants: tuple[Grant, ...]
    expires_at: float | None = None
    """When the login ends (seconds since 1970), as a token says; None = with the user."""

    def may(self, right: Right, log: str) -> bool:
        """Whether the user has the right on that log; `*` is the server itself, which no pattern but `*` matches.

        A log of the server's own is about the whole server: who may manage that may read and manage it. Nobody may
        append to it.
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
    """What a peer showed: a name and a password, or a bearer token (then `name` is empty)."""

    name: str
    secret: str

    def __repr__(self) -> str:
        return f"Credentials({self.name!r}, ...)"


class Guard(Protocol):
    """Checks credentials and rights; counts and logs every refusal; slows failed logins."""

    @property
    def is_open(self) -> bool:
        """Whether no user is configured, so that everything is allowed."""

    @property
    def takes_tokens(self) -> bool:
        """Whether tokens of an issuer log in."""

    async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
        """The user behind the credentials; ANYBODY where the guard is open. `peer` is the address, for the log.

        Raises Unauthenticated, and LoginNotChecked, which says nothing of the credentials. Constant time in what it
        compares; never blocks the event loop. Where no peer is known (empty), nothing waits for failures of others.
        """

    def trusted(self, name: str, peer: str) -> User:
        """The user of that name, whom something else has authenticated: the TLS layer, by a client certificate.

        ANYBODY where the guard is open. Raises Unauthenticated: there is no such user.
        """

    def seal(self, name: str, *, is_login: bool = False) -> str:
        """Something that is another when a user of that name has another password, or other tokens, or is no more.

        Whoever remembers a login keeps it from before the login (`is_login`: by users that were read a moment ago), and
        compares. It says nothing of the password.
        """

    def refused(self, name: str, peer: str) -> Unauthenticated:
        """Count and report a login in which there is nothing to be checked: it was not even well-formed, say.

        Answers the error to be raised. `name` is who it was to be, empty if that is not known.
        """

    def recall(self, credentials: Credentials) -> User | None:
        """The user behind credentials that can be known for right without a wait; None says nothing."""

    def session_user(self, secret: str, peer: str) -> User | None:
        """The user of the console's session with that secret, as the accounts are now; None if there is none."""

    def authorize(self, user: User, right: Right, log: str) -> None:
        """Raises Forbidden if the user lacks the right on that log (`*` = the server itself)."""

    async def authenticate_signature(self, name: str, is_right: Callable[[bytes], bool], peer: str) -> User:
        """The user of that name whose secret key, as `is_right` says, signed a message.

        `is_right` is called once, in constant time, also where there is no such user or key. Raises Unauthenticated.
        """

    def key(self, name: str) -> bytes | None:
        """The user's secret key for protocols that sign messages (FutoIn HMAC), or None."""


class OpenGuard(Guard):
    """Everything is allowed to everybody: no user is configured."""

    is_open = True
    takes_tokens = False

    async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
        return ANYBODY

    def trusted(self, name: str, peer: str) -> User:
        return ANYBODY

    def seal(self, name: str, *, is_login: bool = False) -> str:
        """See Guard. Nothing ever changes."""
        return ""

    def refused(self, name: str, peer: str) -> Unauthenticated:
        """See Guard. Nothing is reported."""
        return Unauthenticated("the login is not well-formed")

    def recall(self, credentials: Credentials) -> User | None:
        return ANYBODY

    def session_user(self, secret: str, peer: str) -> User | None:
        return ANYBODY

    def authorize(self, user: User, right: Right, log: str) -> None:
        """See Guard. Only what nobody may is refused."""
        if not ANYBODY.may(right, log):
            raise Forbidden(user.name, right, log)

    async def authenticate_signature(self, name: str, is_right: Callable[[bytes], bool], peer: str) -> User:
        """See Guard. Nobody has a key here."""
        raise Unauthenticated("the message is signed, but no user is configured whose key could verify it")

    def key(self, name: str) -> bytes | None:
        return None
