"""What a primary commits at its home, handed to the replicas that listen to it: they need not ask the home first.

All listeners share one window of the newest commits, in which each has its place. Its bytes are a part of what threads
may hold. Where a commit does not fit, the slowest listeners lose their place, and ask the home.

The wire: for each frame the lengths of its log's key and of itself, both as 32 bits, little-endian; the key; the frame.
A frame of no log and no bytes is a sign of life.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence

from ..core.shared_bytes import MIB, SharedBytes
from ..storage.frames.encoding import EncodedFrame
from ..storage.home.port import JOURNAL_KEY

LENGTHS = struct.Struct("<II")
WAITING_BYTES_MAX = 32 * MIB
"""So much may wait for the listeners, and at most one part in `WINDOW_PART` of what threads may hold."""
WINDOW_PART = 8
TAKEN_BYTES_MAX = 256 * 1024
"""So much a listener takes at once, or one message."""
LISTENERS_MAX = 16
ALIVE = LENGTHS.pack(0, 0)


class CommitListener:
    """One replica that listens."""

    def __init__(self, feed: Committed, wake: Callable[[], None], place: int) -> None:
        self._feed, self.wake = feed, wake
        self.place = place
        """The number of the first message that it is not done with."""
        self.taken = 0
        """How many messages from there on it has, and is not done with: they count until it takes more."""
        self.is_overrun = False
        """It did not take in time, or may not have what comes next: what it has not taken is lost to it."""

    def take(self) -> list[bytes]:
        """The next messages, in order; none if none wait. The messages that it took before are done with."""
        return self._feed.take(self)


class Committed:
    """All listeners of one server. Safe to call from any thread."""

    def __init__(self, ends_with: bytes | None = None, waiting: SharedBytes | None = None) -> None:
        """`ends_with`: a frame of the journal which has these bytes is told to nobody, and nothing after it to those
        who listen now: it says who may. `waiting`: what threads may hold (None: a budget of its own).
        """
        self._ends_with = ends_with
        waiting = waiting or SharedBytes(WINDOW_PART * WAITING_BYTES_MAX)
        self._held, self._bytes_max = waiting.part(), min(WAITING_BYTES_MAX, waiting.bytes_max // WINDOW_PART)
        self._listeners: tuple[CommitListener, ...] = ()
        self._window: deque[bytes] = deque()
        self._first = 0
        """The number of the first message in the window."""
        self._changing = threading.Lock()

    def tell(self, key: str, frames: Sequence[EncodedFrame]) -> None:
        """These frames of that log are committed. Of one log it is called by one thread at a time."""
        if not self._listeners:
            return
        message = b""
        if key == JOURNAL_KEY and self._ends_with is not None:
            is_end = any(self._ends_with in b"".join(frame.buffers) for frame in frames)
        else:
            is_end = False
        size = sum(len(buffer) for frame in frames for buffer in frame.buffers)
        if not is_end and size <= self._bytes_max:
            message = _message(key.encode(), frames)
        with self._changing:
            listeners = self._listeners
            if not message or not self._make_room(len(message)):
                for each in listeners:
                    each.is_overrun = True
                self._trim()
            else:
                self._window.append(message)
        for each in listeners:
            each.wake()

    def listen(self, wake: Callable[[], None]) -> CommitListener | None:
        """A new listener; None: there are too many. `wake` is called by other threads."""
        with self._changing:
            if len(self._listeners) >= LISTENERS_MAX:
                return None
            listener = CommitListener(self, wake, self._first + len(self._window))
            self._listeners = (*self._listeners, listener)
            return listener

    @property
    def has_listeners(self) -> bool:
        """Whether a replica is told at present."""
        return bool(self._listeners)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the commits that wait for listeners."""
        return self._held.bytes

    def leave(self, listener: CommitListener) -> None:
        """It is told no more."""
        with self._changing:
            self._listeners = tuple(each for each in self._listeners if each is not listener)
            self._trim()

    def take(self, listener: CommitListener) -> list[bytes]:
        """See CommitListener."""
        with self._changing:
            listener.place += listener.taken
            listener.taken = 0
            self._trim()
            if listener.is_overrun:
                return []
            taken: list[bytes] = []
            size, at = 0, listener.place - self._first
            while at < len(self._window) and (not taken or size + len(self._window[at]) <= TAKEN_BYTES_MAX):
                taken.append(self._window[at])
                size += len(self._window[at])
                at += 1
            listener.taken = len(taken)
            return taken

    def _make_room(self, size: int) -> bool:
        """Count a message more; slow listeners lose their place for it. False: there is no room for it alone."""
        while self._held.bytes + size > self._bytes_max or not self._held.take(size):
            if not self._window:
                return False
            for each in self._listeners:
                each.is_overrun |= each.place == self._first
            self._trim()
        return True

    def _trim(self) -> None:
        """Drop the messages for which no listener waits any more."""
        end = self._first + len(self._window)
        needed = min([each.place for each in self._listeners if not each.is_overrun], default=end)
        while self._first < needed:
            self._held.give(len(self._window.popleft()))
            self._first += 1


def _message(name: bytes, frames: Sequence[EncodedFrame]) -> bytes:
    parts: list[bytes] = []
    for frame in frames:
        parts += (LENGTHS.pack(len(name), sum(map(len, frame.buffers))), name, *frame.buffers)
    return b"".join(parts)
