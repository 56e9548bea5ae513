"""Sessions: a client that sends a name and a password gets a token to send from then on.

A session belongs to the user who authenticated. It regularly asks the backend whether that user still exists with the
same password, and which grants the user has. Tokens are random and stored as hashes, so that lookup time reveals
nothing."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ...core.access import Credentials, Unauthenticated, User
from .backend import Login

TOKEN_PREFIX = "hws_"
IDLE_S = 3600.0
"""A session ends when unused for this long."""
LIFETIME_S = 12 * 3600.0
"""A session ends after this time even if it is used."""
RECHECK_S = 1.0
"""How long a revoked right or a changed password may still be used. This is the same in the other protocols."""
SHOWN_S = 60.0
"""How long the same credentials lead to their session without another check."""
SESSIONS_MAX = 10_000
"""The maximum number of sessions. Beyond it, the least recently used session is dropped."""
PUT_OFF_MAX, PUT_OFF_S = 1000, 60.0
"""How many logins may wait to be checked on first use, and how long they may wait."""


@dataclass(slots=True)
class Session:
    """One login."""

    user: User
    seal: str
    """The backend uses this to determine whether the login is still valid."""
    started_at: float
    used_at: float
    checked_at: float
    shown: bytes
    """A keyed digest of the credentials, by which the session is found again."""
    token: str
    expires_at: float | None = None
    """When the login ends (seconds since 1970), according to the token it came from."""


class Sessions:
    """The sessions of one server. Thread-safe."""

    def __init__(self, recheck: Callable[[str, str, str], User], clock: Callable[[], float] = time.monotonic) -> None:
        """`recheck` returns the current user for a name, a seal and a peer. It raises Unauthenticated."""
        self._recheck, self._clock = recheck, clock
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._by_token: OrderedDict[bytes, Session] = OrderedDict()
        self._by_shown: dict[bytes, Session] = {}
        self._put_off: OrderedDict[bytes, tuple[Credentials, float]] = OrderedDict()

    def begin(self, token: str, credentials: Credentials, login: Login) -> None:
        """Begin a session: the token now stands for the user of that login, who sent these credentials."""
        now = self._clock()
        shown, expires_at = self._digest(credentials), login.user.expires_at
        session = Session(login.user, login.seal, now, now, now, shown, token, expires_at)
        with self._lock:
            self._put_off.pop(_hash(token), None)
            self._by_token[_hash(token)] = session
            self._by_shown[session.shown] = session
            while len(self._by_token) > SESSIONS_MAX:
                self._forget(next(iter(self._by_token)))

    def put_off(self, token: str, credentials: Credentials) -> None:
        """Begin a session whose credentials are checked when the token is first used, which is soon."""
        now = self._clock()
        with self._lock:
            self._put_off[_hash(token)] = credentials, now
            oldest = next(iter(self._put_off))
            while len(self._put_off) > PUT_OFF_MAX or now - self._put_off[oldest][1] >= PUT_OFF_S:
                del self._put_off[oldest]
                oldest = next(iter(self._put_off))

    def put_off_by(self, token: str) -> Credentials | None:
        """The unchecked credentials of a token, if it has any; `begin` clears them."""
        with self._lock:
            credentials, at = self._put_off.get(_hash(token), (None, 0.0))
            return credentials if self._clock() - at < PUT_OFF_S else None

    def user(self, token: str, peer: str) -> User:
        """The user of a session. Raises Unauthenticated: there is no such session, it has ended, or the user was
        deleted.
        """
        hashed = _hash(token)
        with self._lock:
            session = self._alive(hashed)
        if session is None:
            raise Unauthenticated("the session has expired; send the password or a newer token")
        now = self._clock()
        if now - session.checked_at >= RECHECK_S:
            try:
                session.user = self._recheck(session.user.name, session.seal, peer)
            except Unauthenticated:
                with self._lock:
                    self._forget(hashed)
                raise
            session.checked_at = now
        session.used_at = now
        return session.user

    def end(self, name: str) -> None:
        """End the sessions of a user whom the backend no longer knows, before their next check."""
        with self._lock:
            for hashed in [hashed for hashed, session in self._by_token.items() if session.user.name == name]:
                self._forget(hashed)

    def token_of(self, credentials: Credentials) -> str | None:
        """The token of a session that began recently with these credentials, or None."""
        with self._lock:
            session = self._by_shown.get(self._digest(credentials))
            if session is None or self._clock() - session.started_at >= SHOWN_S:
                return None
            return session.token if self._alive(_hash(session.token)) else None

    def __len__(self) -> int:
        return len(self._by_token)

    def _alive(self, hashed: bytes) -> Session | None:
        session = self._by_token.get(hashed)
        if session is None:
            return None
        now = self._clock()
        has_expired = session.expires_at is not None and time.time() >= session.expires_at
        if has_expired or now - session.used_at >= IDLE_S or now - session.started_at >= LIFETIME_S:
            self._forget(hashed)
            return None
        self._by_token.move_to_end(hashed)
        return session

    def _forget(self, hashed: bytes) -> None:
        session = self._by_token.pop(hashed, None)
        if session is not None and self._by_shown.get(session.shown) is session:
            del self._by_shown[session.shown]

    def _digest(self, credentials: Credentials) -> bytes:
        shown = f"{credentials.name}\0{credentials.secret}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, shown, "sha256")


def new_token() -> str:
    """A new token of 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
