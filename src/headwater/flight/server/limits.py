"""Limits on what the clients of one server hold at the same time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ...core.shared_bytes import BytesPart
from ..errors import Busy
from .memory import PIECE_BYTES_MAX, ReadMemory


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How many streams may be open in total; one user gets at most half of them (at least one)."""

    gets: int = 128
    puts: int = 64


class StreamPlaces:
    """The limited places for one kind of stream. Thread-safe."""

    def __init__(self, kind: str, allowed: int) -> None:
        self._kind, self._allowed = kind, allowed
        self._allowed_each = max(1, allowed // 2)
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """The number of places taken."""
        return self._taken.total()

    def take(self, holder: str) -> StreamPlace:
        """Reserve a place for that holder. Raises Busy."""
        with self._lock:
            if self._taken.total() >= self._allowed:
                raise Busy(self._kind, self._allowed)
            if self._taken[holder] >= self._allowed_each:
                raise Busy(f"{self._kind} of one user", self._allowed_each)
            self._taken[holder] += 1
        return StreamPlace(self, holder)

    def give_back(self, holder: str) -> None:
        """Called by Place."""
        with self._lock:
            self._taken[holder] -= 1
            if not self._taken[holder]:
                del self._taken[holder]


class StreamPlace:
    """A reserved place, held until it is released. Releasing it again does nothing."""

    def __init__(self, places: StreamPlaces, holder: str) -> None:
        self._places: StreamPlaces | None = places
        self._holder = holder
        self._held: tuple[ReadMemory, BytesPart] | None = None
        self.piece_bytes: Callable[[], int] = lambda: PIECE_BYTES_MAX
        """How large the next batch of a read may be."""

    def hold(self, memory: ReadMemory) -> None:
        """Also hold memory, like a read. Raises Overloaded."""
        self._held, self.piece_bytes = (memory, memory.begin()), memory.piece_bytes

    def release(self) -> None:
        """Release the place."""
        held, self._held = self._held, None
        if held is not None:
            held[0].end(held[1])
        places, self._places = self._places, None
        if places is not None:
            places.give_back(self._holder)

    def __enter__(self) -> StreamPlace:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()
