"""Pushes the primary's commits to the replicas that listen, so that these need not read them from the home.

All listeners share one window of the newest commits, each with its own position. The window's bytes count towards the
memory budget of threads. If a commit does not fit, the slowest listeners are dropped and read from the home.

Wire format, for each frame: the lengths of the log's key and of the frame (32 bits each, little-endian), the key, the
frame. A message with an empty key and an empty frame is a heartbeat.
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
"""The most bytes of the window, which also takes at most one part in `WINDOW_PART` of the memory budget of threads."""
WINDOW_PART = 8
TAKEN_BYTES_MAX = 256 * 1024
"""The most bytes that `take` returns, unless a single message is larger."""
LISTENERS_MAX = 16
ALIVE = LENGTHS.pack(0, 0)


class CommitListener:
    """A listening replica."""

    def __init__(self, feed: Committed, wake: Callable[[], None], place: int) -> None:
        self._feed, self.wake = feed, wake
        self.place = place
        """The number of the first message that it has not finished."""
        self.taken = 0
        """The number of messages taken and not yet finished. They stay in the window until it takes more."""
        self.is_overrun = False
        """Whether it was dropped: it was too slow, or may not get the next message. It gets no more messages."""

    def take(self) -> list[bytes]:
        """The next messages in order; empty if there are none. Messages taken before count as finished."""
        return self._feed.take(self)


class Committed:
    """All listeners of one server. Thread-safe."""

    def __init__(self, ends_with: bytes | None = None, waiting: SharedBytes | None = None) -> None:
        """`ends_with`: a journal frame with these bytes is not pushed and drops all present listeners, since it changes
        which servers may listen. `waiting`: the memory budget of threads; None for a separate budget.
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
        """Push committed frames of a log. At most one thread at a time may call this for the same log."""
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
        """A new listener; None if there are `LISTENERS_MAX` already. `wake` is called from other threads."""
        with self._changing:
            if len(self._listeners) >= LISTENERS_MAX:
                return None
            listener = CommitListener(self, wake, self._first + len(self._window))
            self._listeners = (*self._listeners, listener)
            return listener

    @property
    def has_listeners(self) -> bool:
        """Whether any replica listens at present."""
        return bool(self._listeners)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the window."""
        return self._held.bytes

    def leave(self, listener: CommitListener) -> None:
        """Remove a listener."""
        with self._changing:
            self._listeners = tuple(each for each in self._listeners if each is not listener)
            self._trim()

    def take(self, listener: CommitListener) -> list[bytes]:
        """See `CommitListener.take`."""
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
        """Make room for a message, dropping slow listeners if needed. False if the window is too small for it."""
        while self._held.bytes + size > self._bytes_max or not self._held.take(size):
            if not self._window:
                return False
            for each in self._listeners:
                each.is_overrun |= each.place == self._first
            self._trim()
        return True

    def _trim(self) -> None:
        """Drop the messages that no listener still needs."""
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
