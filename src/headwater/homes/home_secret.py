"""The secret by which the servers of a home know each other. It lives in the home, so no one else has it."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

import msgspec

from ..core.clocks import wall_clock_ms
from ..core.errors import EventLogError
from ..core.state import StateStore

SECRET_HEADER = b"headwater-home-secret"
"""The header field in which one server shows it to another."""
SECRET_KIND, SECRET_KEY, BEFORE_KEY = "home", "secret", "secret-before"
SECRET_RECORD = msgspec.msgpack.encode(SECRET_KIND) + msgspec.msgpack.encode(SECRET_KEY)
"""The bytes that mark a journal frame with the secret: listeners with the old secret do not get the new one."""
RENEWAL_MS = 30_000
"""How long after a renewal the previous secret is still believed of requests and connections that were forwarded: a
replica learns the new one only when it follows the home.
"""


def ensure_secret(state: StateStore) -> None:
    """Store a secret in the home, if it has none. Raises what `StateStore.put` does."""
    if state.get(SECRET_KIND, SECRET_KEY) is None:
        renew_secret(state)


def renew_secret(state: StateStore, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
    """Replace the secret in the home: listeners with the old one get nothing more. Raises as `ensure_secret`."""
    old = state.get(SECRET_KIND, SECRET_KEY)
    state.put(SECRET_KIND, SECRET_KEY, secrets.token_hex(32).encode())
    if old is not None:  # only now, because listeners with the old secret get no frame after the new one
        state.put(SECRET_KIND, BEFORE_KEY, b"%d %b" % (clock_ms(), old.value))


class HomeSecret:
    """The secret, as the state of one server has it. Safe to use from any thread."""

    def __init__(self, state: StateStore, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._state, self._clock_ms = state, clock_ms

    @property
    def value(self) -> bytes | None:
        """What this server shows to another one; None if it does not know the secret."""
        return self._get(SECRET_KEY)

    def is_current(self, given: bytes) -> bool:
        """Whether that is the secret. Takes as long for any other of the same length."""
        current = self._get(SECRET_KEY)
        return current is not None and hmac.compare_digest(given, current)

    def is_known(self, given: bytes) -> bool:
        """Whether that is one of `known`."""
        return any([hmac.compare_digest(given, each) for each in self.known])

    @property
    def known(self) -> tuple[bytes, ...]:
        """The secret, and the one that was it until `RENEWAL_MS` ago, if there is one."""
        current, before = self._get(SECRET_KEY), self._get(BEFORE_KEY)
        if current is None or before is None:
            return () if current is None else (current,)
        renewed_at, _, old = before.partition(b" ")
        return (current, old) if self._clock_ms() - int(renewed_at) < RENEWAL_MS else (current,)

    def _get(self, key: str) -> bytes | None:
        try:
            entry = self._state.get(SECRET_KIND, key)
        except EventLogError:  # the state is closed, or cannot be read
            return None
        return None if entry is None else entry.value
