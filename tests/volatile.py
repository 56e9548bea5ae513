"""A store whose state forgets what is not durable, as a loss of power does, and whose commits can be held."""

from __future__ import annotations

import threading

from headwater.core.state import StateEntry
from headwater.storage.memory import MemoryState, MemoryStore


class VolatileState(MemoryState):
    """A state of which only what was flushed, or put durably, is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], StateEntry] = {}
        """What is left of it after a loss of power."""
        self.flushes = 0
        self.failure: Exception | None = None
        """What a flush raises, while there is one."""
        self.is_flushing = threading.Event()
        self._may_flush = threading.Event()
        self._may_flush.set()

    def put(
        self, kind: str, key: str, value: bytes, expected_version: int | None = None, *, is_durable: bool = True
    ) -> int:
        version = super().put(kind, key, value, expected_version)
        if is_durable:
            self._keep()
        return version

    def flush(self) -> None:
        self.is_flushing.set()
        assert self._may_flush.wait(20)
        self.flushes += 1
        if self.failure is not None:
            raise self.failure
        self._keep()

    def hold(self) -> None:
        """No flush ends until `let_go`."""
        self.is_flushing.clear()
        self._may_flush.clear()

    def let_go(self) -> None:
        self._may_flush.set()

    def kept_values(self, of: str) -> list[bytes]:
        """What is kept of the kinds that begin so."""
        return [entry.value for (kind, _), entry in self.kept.items() if kind.startswith(of)]

    def _keep(self) -> None:
        self.kept = dict(self._entries)


class VolatileStore(MemoryStore):
    """Logs in memory over such a state."""

    def __init__(self) -> None:
        super().__init__()
        self.volatile = self._state = VolatileState()
