"""What a primary commits at its home, handed to the replicas that listen to it: they need not ask the home first.

A listener that does not take in time loses all, and asks the home. The wire of it: for each frame the lengths of its
log's key and of itself, both as 32 bits, little-endian; the key; the frame. A frame of no log and no bytes is a sign of
life.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence

from ..storage.frames.encoding import EncodedFrame
from ..storage.home.port import JOURNAL_KEY

LENGTHS = struct.Struct("<II")
WAITING_BYTES_MAX = 32 * 1024 * 1024
"""So much may wait for one listener."""
LISTENERS_MAX = 16
ALIVE = LENGTHS.pack(0, 0)


class CommitListener:
    """One replica that is told. `wake` is called by other threads."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._changing = threading.Lock()
        self.is_overrun = False
        """It did not take in time, or may not have what comes next: what it has not taken is lost to it."""

    def put(self, message: bytes) -> None:
        """One more message."""
        with self._changing:
            self._bytes += len(message)
            self.is_overrun = self.is_overrun or self._bytes > WAITING_BYTES_MAX
            if self.is_overrun:
                self._waiting.clear()
            else:
                self._waiting.append(message)
        self._wake()

    def end(self) -> None:
        """It is told nothing more, and is to ask the home."""
        with self._changing:
            self.is_overrun = True
            self._waiting.clear()
        self._wake()

    def take(self) -> list[bytes]:
        """What waits, in order."""
        with self._changing:
            waiting, self._waiting, self._bytes = self._waiting, [], 0
            return waiting


class Committed:
    """All listeners of one server. Safe to call from any thread."""

    def __init__(self, ends_with: bytes | None = None) -> None:
        """`ends_with`: a frame of the journal which has these bytes is told to nobody, and nothing after it to those
        who listen now: it says who may.
        """
        self._ends_with = ends_with
        self._listeners: tuple[CommitListener, ...] = ()
        self._changing = threading.Lock()

    def tell(self, key: str, frames: Sequence[EncodedFrame]) -> None:
        """These frames of that log are committed. Of one log it is called by one thread at a time."""
        if not (listeners := self._listeners):
            return
        name = key.encode()
        parts: list[bytes] = []
        for frame in frames:
            content = b"".join(frame.buffers)
            if key == JOURNAL_KEY and self._ends_with is not None and self._ends_with in content:
                for each in listeners:
                    each.end()
                return
            parts += (LENGTHS.pack(len(name), len(content)), name, content)
        message = b"".join(parts)
        for each in listeners:
            each.put(message)

    def listen(self, wake: Callable[[], None]) -> CommitListener | None:
        """Somebody is told from now on; None: too many are."""
        with self._changing:
            if len(self._listeners) >= LISTENERS_MAX:
                return None
            listener = CommitListener(wake)
            self._listeners = (*self._listeners, listener)
            return listener

    @property
    def has_listeners(self) -> bool:
        """Whether a replica is told at present."""
        return bool(self._listeners)

    def leave(self, listener: CommitListener) -> None:
        """It is told no more."""
        with self._changing:
            self._listeners = tuple(each for each in self._listeners if each is not listener)
