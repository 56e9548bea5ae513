"""A cache of decoded frames near the heads of logs, because all live readers of a log want the same frames.

One cache serves all logs of an engine. It is bounded in bytes, so many logs use no more memory than one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from ...core.event import SequencedEvent

DECODED_BYTES_MAX = 16 * 1024 * 1024
"""The limit in bytes of encoded frames; decoded frames take two or three times as much."""
DECODED_FRAME_BYTES_MAX = 512 * 1024
"""Larger frames are not cached."""


class DecodedFrames:
    """The last decoded frames. Safe to call from any thread. Each reader chooses a key object for its log."""

    def __init__(self) -> None:
        self._frames: OrderedDict[tuple[object, int], tuple[int, list[SequencedEvent]]] = OrderedDict()
        self.bytes = 0
        """The bytes of the cached frames."""
        self._lock = threading.Lock()

    def get(self, log: object, first: int) -> list[SequencedEvent] | None:
        """The events of the frame that begins with that number, if cached."""
        found = self._frames.get((log, first))
        return None if found is None else found[1]

    def keep(self, log: object, first: int, length: int, events: list[SequencedEvent]) -> None:
        """Cache the events of a frame of `length` bytes; the oldest entries are dropped."""
        with self._lock:
            if (log, first) not in self._frames:
                self._frames[log, first] = (length, events)
                self.bytes += length
            while self.bytes > DECODED_BYTES_MAX:
                self.bytes -= self._frames.popitem(last=False)[1][0]

    def forget(self, log: object) -> None:
        """Drop the frames of a closed log."""
        with self._lock:
            for key in [key for key in self._frames if key[0] is log]:
                self.bytes -= self._frames.pop(key)[0]
