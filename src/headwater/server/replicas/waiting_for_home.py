"""A server that starts while no host of its home accepts writes: it waits, and reports the reason."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from ...core.shared_bytes import SharedBytes
from ...homes.postgres.hosts import without_writes
from ...homes.postgres.statements import HomeUnavailable
from ..config.settings import Config
from .membership import Membership

logger = logging.getLogger("headwater.server")

LOOK_S = 1.0
"""The interval between checks of the hosts."""
TELL_S = 300.0
"""The interval between log lines about the waiting server."""
_REMEDY = (
    "start the database, promote its standby, or correct the address (--home); the server then starts automatically"
)


class WaitingForHome:
    """Checks the hosts until one accepts writes. For one event loop."""

    def __init__(self, config: Config, waiting: SharedBytes) -> None:
        """See `Membership`."""
        self._config, self._waiting = config, waiting
        self._why = "its hosts are being checked"
        self._told_at = float("-inf")

    def why(self) -> str:
        """Why this server does not serve."""
        return f"no host of the home accepts writes: {self._why}"

    async def join(self, stop: asyncio.Event) -> Membership | None:
        """The place of this server in its home; None if the server must stop. Raises the same errors as
        `Membership`.
        """
        assert self._config.home is not None
        while not stop.is_set():
            states = await asyncio.to_thread(without_writes, self._config.home)
            if states is None:
                try:
                    return await asyncio.to_thread(Membership, self._config, self._waiting)
                except HomeUnavailable as error:
                    if not error.may_pass:
                        raise
                    states = str(error)
            self._tell(states)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()
        return None

    def _tell(self, states: str) -> None:
        self._why = states
        if time.monotonic() > self._told_at + TELL_S:
            self._told_at = time.monotonic()
            logger.warning("no host of the home accepts writes, so this server is waiting: %s; %s", states, _REMEDY)
