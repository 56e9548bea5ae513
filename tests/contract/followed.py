"""A log that is appended to at the primary of a home, and read at a replica, which follows before each call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.core import EventLog
from headwater.homes.postgres.home import PostgresHome
from headwater.storage import Engine

_AT_THE_PRIMARY = frozenset({
    "append", "append_batch", "register_consumer", "acknowledge", "reset_consumer", "unregister_consumer", "trim",
})  # fmt: skip


class ReplicaStore:
    """An engine that follows a home."""

    def __init__(self, url: str, directory: Path, clock: Callable[[], int], flush: Callable[[], None]) -> None:
        """`flush` has the primary commit positions that wait."""
        self._flush = flush
        self._home = PostgresHome(url)
        self.engine = Engine(directory, clock=clock, home=self._home, follows=True, maintains=False)
        self._following = threading.Lock()

    def follow(self) -> None:
        """Take up what the home has."""
        assert self.engine.follower is not None
        with self._following:
            self._flush()
            self.engine.follower.follow()

    def log(self, primary: EventLog) -> EventLog:
        """The log of a primary, as it is read here."""
        return FollowedLog(primary, self)  # type: ignore[return-value]  # what it has not, `__getattr__` has

    def close(self) -> None:
        """Give everything back."""
        self.engine.close()
        self._home.close()


class FollowedLog:
    """What changes goes to the primary, all else to the replica."""

    def __init__(self, primary: EventLog, replica: ReplicaStore) -> None:
        self._primary, self._replica = primary, replica

    def __getattr__(self, name: str) -> Any:
        if name not in _AT_THE_PRIMARY:
            self._replica.follow()
            return getattr(self._replica.engine.open(self._primary.name), name)

        def done_there(*given: Any, **named: Any) -> Any:
            answer = getattr(self._primary, name)(*given, **named)
            self._replica.follow()
            return answer

        return done_there
