"""What OpenTelemetry logs: each message once a minute at most, since it repeats them while a collector is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LIBRARY = "opentelemetry"
AGAIN_S = 60.0
MESSAGES_MAX = 100
"""How many are remembered; there are a few, each with its own words."""


class Seldom(logging.Handler):
    """Hands a message on to the root's handlers, unless the same was handed on less than a minute ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}
        """When each was handed on: by logger, and message without what is filled in."""

    def emit(self, record: logging.LogRecord) -> None:
        """See Seldom."""
        now, key = self._clock(), (record.name, str(record.msg))
        if now - self._told.get(key, float("-inf")) < AGAIN_S:
            return
        if len(self._told) >= MESSAGES_MAX:
            self._told.clear()
        self._told[key] = now
        logging.getLogger().handle(record)


def tell_seldom() -> None:
    """From now on the library's messages go this way, and no other."""
    library = logging.getLogger(LIBRARY)
    library.handlers[:] = [Seldom()]
    library.propagate = False
