"""Console sessions, stored by the hash of two secrets that only the browser has. A restart ends them all.

A session begins with a successful login. It expires, and ends when its credentials change: another password, a removed
token or user. The guard checks its user's rights at every request.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ..core.access import Guard, User
from ..http.sessions import both_secrets

IDLE_S, SESSION_S = 1800.0, 12 * 3600.0
"""How long a session lasts after its last use, and in total."""
OF_USER_MAX, SESSIONS_MAX = 20, 1000
"""The maximum number of sessions of one user, and of all users. Above this, the least recently used one ends."""
SECRET_BYTES = 32
"""The size of each of a session's two secrets."""


@dataclass(slots=True)
class Session:
    """One login. Times are of the sessions' clock."""

    user: str
    seal: str
    """The guard's seal from before the login: see Guard."""
    ends: float
    used: float
    login_ends: float | None
    """When the login itself expires, in s since 1970, if it is by a token that expires."""


class Sessions:
    """All sessions of one server. For one event loop."""

    def __init__(
        self,
        guard: Guard,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` is in s; `wall_clock` in s since 1970."""
        self._guard, self._clock, self._wall_clock = guard, clock, wall_clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        """By the hash of its secrets; the most recently used is last."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, user: User, seal: str) -> tuple[str, str]:
        """Open a session for an authenticated user; returns its secrets, which are not stored here.

        The first is for the cookie, the second for the page, which sends it in a header field. All other methods take
        them as `both_secrets` joins them.
        """
        own = [key for key, session in self._sessions.items() if session.user == user.name]
        if len(own) >= OF_USER_MAX:
            del self._sessions[own[0]]
        if len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)
        made, now = (secrets.token_urlsafe(SECRET_BYTES), secrets.token_urlsafe(SECRET_BYTES)), self._clock()
        self._sessions[_hash(both_secrets(*made))] = Session(user.name, seal, now + SESSION_S, now, user.expires_at)
        return made

    def find(self, secret: str) -> Session | None:
        """The session with these secrets, if it is valid; this counts as a use."""
        key = _hash(secret)
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._clock()
        if not self._goes_on(session, now):
            del self._sessions[key]
            return None
        session.used = now
        self._sessions.move_to_end(key)
        return session

    def user(self, secret: str, peer: str) -> User | None:
        """Its user according to the current accounts. None if there is no such session, or it has ended."""
        session = self.find(secret)
        return None if session is None else self._guard.trusted(session.user, peer)

    def left_ms(self, session: Session) -> int:
        """The maximum time that it can last, in ms."""
        left = session.ends - self._clock()
        if session.login_ends is not None:
            left = min(left, session.login_ends - self._wall_clock())
        return max(0, round(left * 1000))

    def close(self, secret: str) -> None:
        """End the session, if it exists."""
        self._sessions.pop(_hash(secret), None)

    def _goes_on(self, session: Session, now: float) -> bool:
        if now >= session.ends or now - session.used >= IDLE_S:
            return False
        if session.login_ends is not None and self._wall_clock() >= session.login_ends:
            return False
        seal = self._guard.seal(session.user)
        return seal != "" and seal == session.seal


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
