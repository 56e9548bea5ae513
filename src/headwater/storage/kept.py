"""Frames that were read lately: so many bytes of them over all logs, those longest unread go first.

Each segment has a shelf, so its frames (and with them its map) go with it. A shelf has two halves: frames are put in
the new one; when all new halves together are full, they become the old ones, and the old ones are forgotten. A frame
that is read in an old half moves to the new. So a log of many small frames never loses all of them at once, and a
look-up takes no lock.
"""

from __future__ import annotations

import threading
from weakref import WeakSet

from .frame import FRAME_BYTES, Frame

KEPT_BYTES_MAX = 16 * 1024 * 1024
"""What all frames that are kept may take in memory (their contents are mapped, and not counted)."""


class Shelf:
    """The kept frames of one segment, by their index in it. Any thread may use it."""

    __slots__ = ("__weakref__", "_room", "new", "old")

    def __init__(self, room: ShelfRoom | None = None) -> None:
        self._room = room or _ROOM
        self.new: dict[int, Frame] = {}
        """Looked at directly where every nanosecond counts, `get` otherwise."""
        self.old: dict[int, Frame] = {}

    def get(self, index: int) -> Frame | None:
        """That frame, if it is kept."""
        if (frame := self.new.get(index)) is None and (frame := self.old.get(index)) is not None:
            self.put(index, frame)
        return frame

    def put(self, index: int, frame: Frame) -> None:
        """Keep that frame for a while."""
        self._room.take(self)
        self.new[index] = frame


class ShelfRoom:
    """What shelves share: so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._lock = threading.Lock()
        self._used: WeakSet[Shelf] = WeakSet()
        """Those that have frames."""
        self._half = max(bytes_max // FRAME_BYTES // 2, 1)
        self._taken = 0
        """How many frames were put since the halves were last turned."""

    def take(self, shelf: Shelf) -> None:
        """Count one frame for that shelf; make room where there is none."""
        with self._lock:
            if self._taken >= self._half:
                self._turn()
            self._taken += 1
            if not shelf.new:
                self._used.add(shelf)

    def _turn(self) -> None:
        for shelf in list(self._used):
            shelf.old, shelf.new = shelf.new, {}
            if not shelf.old:
                self._used.discard(shelf)
        self._taken = 0


_ROOM = ShelfRoom(KEPT_BYTES_MAX)
