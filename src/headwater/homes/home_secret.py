"""The secret by which the servers of a home authenticate each other. It is stored in the home."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ..core.clocks import boot_time_s, wall_clock_ms
from ..core.errors import EventLogError
from ..core.state import StateStore
from ..storage.home.replicated_log import CopyOutlived

SECRET_HEADER = b"headwater-home-secret"
"""The header field in which a server sends it."""
SECRET_KIND, SECRET_KEY, BEFORE_KEY = "home", "secret", "secret-before"
SECRET_RECORD = msgspec.msgpack.encode(SECRET_KIND) + msgspec.msgpack.encode(SECRET_KEY)
"""Bytes that occur in a journal frame with the secret. Listeners with the old secret do not get the new one."""
RENEWAL_MS = 30_000
"""How long the previous secret stays valid for forwarded requests and connections after a renewal. A replica learns the
new secret only when it reads the home.
"""
NO_SECRET = "this replica has not received the secret of its home yet"
"""Why it cannot forward."""
FETCH_S = 1.0
"""A replica without the secret asks the home for it at most so often."""


def ensure_secret(state: StateStore) -> None:
    """Store a secret in the home, if it has none. Raises as `StateStore.put` does."""
    if state.get(SECRET_KIND, SECRET_KEY) is None:
        renew_secret(state)


def renew_secret(state: StateStore, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
    """Replace the secret in the home. Listeners with the old one are dropped. Raises as `ensure_secret`."""
    old = state.get(SECRET_KIND, SECRET_KEY)
    state.put(SECRET_KIND, SECRET_KEY, secrets.token_hex(32).encode())
    if old is not None:  # only now, because listeners with the old secret get no frame after the new one
        state.put(SECRET_KIND, BEFORE_KEY, b"%d %b" % (clock_ms(), old.value))


class HomeSecret:
    """The secret as known to one server. Thread-safe."""

    def __init__(
        self,
        state: StateStore,
        clock_ms: Callable[[], int] = wall_clock_ms,
        *,
        fetch: Callable[[], None] | None = None,
    ) -> None:
        """`fetch` brings the state up with the home, as `Follower.follow`; None: it is up with it."""
        self._state, self._clock_ms, self._fetch = state, clock_ms, fetch
        self._fetching = asyncio.Lock()
        self._fetched_at = float("-inf")

    @property
    def value(self) -> bytes | None:
        """The secret to send to other servers; None if this server does not know it."""
        return self._get(SECRET_KEY)

    async def fetched(self) -> bytes | None:
        """The same, fetched from the home if the copy lacks it, as just after the home was made. For one event loop."""
        if self.value is None and self._fetch is not None:
            async with self._fetching:
                if self.value is None and boot_time_s() - self._fetched_at >= FETCH_S:
                    with suppress(EventLogError, OSError, CopyOutlived):  # who follows the home reports it
                        await asyncio.to_thread(self._fetch)
                    self._fetched_at = boot_time_s()
        return self.value

    def is_current(self, given: bytes) -> bool:
        """Whether that is the secret. Compares in constant time."""
        current = self._get(SECRET_KEY)
        return current is not None and hmac.compare_digest(given, current)

    def is_known(self, given: bytes) -> bool:
        """Whether that is one of `known`."""
        return any([hmac.compare_digest(given, each) for each in self.known])

    @property
    def known(self) -> tuple[bytes, ...]:
        """The secret, and the previous one if it was replaced within the last `RENEWAL_MS`."""
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
