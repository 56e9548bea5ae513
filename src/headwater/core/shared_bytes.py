"""One memory budget for the data that the threads of a process hold: waiting appends, commits for replicas, batches.

A *part* is one holder's share: a log, a feed, a stream. A part may hold half of what the others leave free, so no
holder can take everything. `FREE_BYTES` of each part are not counted. The rest is counted in steps, so a small append
only compares two numbers.

What an event loop holds for its peers is counted in `core.loop.memory` instead, without a lock.
"""

from __future__ import annotations

from threading import Lock

from .errors import EventLogError, Overloaded, TooLarge

KIB = 1024
MIB = 1024 * KIB
FREE_BYTES = 64 * KIB
"""The bytes that a holder (a part here, a connection on an event loop) may have outside the budget."""
STEP_BYTES = 64 * KIB
"""Charges are multiples of this."""
RETRY_AFTER_S = 1.0


class NoMemory(Overloaded):
    """There is no room for this now, and none of it was taken. Retry later."""

    def __init__(self, asked_bytes: int, free_bytes: int, what: str) -> None:
        free_bytes = max(free_bytes, 0)
        super().__init__(asked_bytes, free_bytes, RETRY_AFTER_S)
        self.args = (
            f"{asked_bytes} bytes of memory are needed for {what}, but only {free_bytes} are free; try again later",
        )


def charge_of(size: int) -> int:
    """The charge for a holder of `size` bytes."""
    return 0 if size <= FREE_BYTES else -(-(size - FREE_BYTES) // STEP_BYTES) * STEP_BYTES


def largest_within(room: int) -> int:
    """The maximum number of bytes that a holder charged with `room` bytes may have."""
    return room // STEP_BYTES * STEP_BYTES + FREE_BYTES


def refusal_of(size: int, largest: int, free: int, what: str) -> EventLogError:
    """Why there is no room for `what`: it is larger than can ever fit, or larger than the room now."""
    return TooLarge(size, largest, "bytes of memory", what) if size > largest else NoMemory(size, free, what)


class SharedBytes:
    """A shared budget of bytes. Thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """The budget in bytes."""
        self.bytes = 0
        """Bytes currently charged, of all parts together."""
        self.refused = 0
        """How many times a part has found no room so far."""
        self._changing = Lock()

    @property
    def largest(self) -> int:
        """The maximum number of bytes that one part can ever hold."""
        return largest_within(self.bytes_max // 2)

    def part(self) -> BytesPart:
        """A part for one holder. It ends when it holds nothing."""
        return BytesPart(self)

    def ask(self, own: int, step: int) -> bool:
        """Charge `step` more bytes to a part already charged with `own`, if there is room. Called by `BytesPart`."""
        with self._changing:
            if own + step > (self.bytes_max - (self.bytes - own)) // 2:
                self.refused += 1
                return False
            self.bytes += step
            return True

    def charge(self, step: int) -> None:
        """Charge a part with `step` more bytes, or fewer. Called by `BytesPart`."""
        with self._changing:
            self.bytes += step


class BytesPart:
    """One holder's part of a `SharedBytes`. Its owner must use it from one thread at a time."""

    __slots__ = ("_charged", "_covered", "_shared", "bytes")

    def __init__(self, shared: SharedBytes) -> None:
        self._shared = shared
        self.bytes = 0
        """The bytes that it holds, including uncharged bytes."""
        self._charged, self._covered = 0, FREE_BYTES

    @property
    def largest(self) -> int:
        """The maximum number of bytes that it can ever hold."""
        return self._shared.largest

    @property
    def room(self) -> int:
        """The number of further bytes that it may take now; another part may take them first."""
        shared = self._shared
        return (shared.bytes_max - (shared.bytes - self._charged)) // 2 - self._charged + self._covered - self.bytes

    def take(self, size: int) -> bool:
        """Count `size` bytes more if all of them fit; otherwise change nothing and return False."""
        if self.bytes + size > self._covered:
            step = charge_of(self.bytes + size) - self._charged
            if not self._shared.ask(self._charged, step):
                return False
            self._charged += step
            self._covered += step
        self.bytes += size
        return True

    def hold(self, size: int) -> None:
        """Count `size` bytes more that already exist. May exceed the budget; then others find less room."""
        self.bytes += size
        if self.bytes > self._covered:
            self._charge(charge_of(self.bytes) - self._charged)

    def claim(self, size: int, where: str) -> None:
        """Like `take`. Raises TooLarge if that much can never fit, Overloaded if it does not fit now."""
        if not self.take(size):
            raise self.refusal(size, where)

    def refusal(self, size: int, where: str) -> EventLogError:
        """Why `take` returned False; `where` is named if the size can never fit."""
        return refusal_of(size, self.largest, self.room, where)

    def give(self, size: int) -> None:
        """Count `size` bytes less."""
        self.bytes -= size
        assert self.bytes >= 0, f"{-self.bytes} bytes too many were given back"
        if self._charged and self.bytes <= self._covered - STEP_BYTES:
            self._charge(charge_of(self.bytes) - self._charged)

    def _charge(self, step: int) -> None:
        self._shared.charge(step)
        self._charged += step
        self._covered += step
