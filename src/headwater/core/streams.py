"""Streams that report their position in a log, so that their lag is visible; kept in memory only.

Their position is in their own checkpoint; this class keeps the last report of each, for operators. Unlike a registered
consumer, a stream does not hold back trimming.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from .errors import InvalidInput, InvalidPosition
from .limits import has_controls, show

STREAM_CHARS_MAX = 256
STREAMS_MAX, STREAMS_OF_OWNER_MAX = 1000, 100
"""Limits per log. Above them, the stream that has been silent for longest is forgotten: first among its owner's, then
among all."""
SILENT_MS_MAX = 7 * 24 * 3_600_000
"""How long a silent stream is remembered: a stream that failed on a Friday is still listed on Monday."""
NOBODY = "spark"
"""The owner of streams if there are no users."""


class StreamPosition(NamedTuple):
    """A stream's position, as last reported."""

    owner: str
    """The user who runs it, or NOBODY: streams of different owners may have the same name."""
    name: str
    position: int
    """Every event up to this number is processed."""
    told_at: int
    """When it reported that, in ms since 1970 UTC."""


def check_stream_name(name: object, where: str = "stream") -> str:
    """The name. Raises InvalidInput unless it is a text of 1 to 256 characters without control characters."""
    if not isinstance(name, str) or not 1 <= len(name) <= STREAM_CHARS_MAX or has_controls(name):
        raise InvalidInput(f"expected 1 to {STREAM_CHARS_MAX} characters, got {show(name)}", where)
    return name


class StreamPositions:
    """The reported positions of the streams of one log. Safe to call from any thread; nothing blocks."""

    def __init__(self, head: Callable[[], int], clock: Callable[[], int]) -> None:
        self._head, self._clock = head, clock
        self._known: OrderedDict[tuple[str, str], StreamPosition] = OrderedDict()
        """The most recent report is last."""
        self._lock = threading.Lock()

    def tell(self, owner: str, name: str, position: int) -> None:
        """Store a stream's position, which may also go back. Raises InvalidInput, InvalidPosition."""
        check_stream_name(name)
        head = self._head()
        if not 0 <= position <= head:
            raise InvalidPosition(f"expected 0 to the head {head}, got {position!r}", "position")
        key, now = (owner, name), self._clock()
        with self._lock:
            self._forget_silent(now)
            if key not in self._known:
                self._make_room(owner)
            self._known[key] = StreamPosition(owner, name, position, now)
            self._known.move_to_end(key)

    def get(self, owner: str, name: str) -> StreamPosition | None:
        """The last report of that stream; None if there is none, or it was forgotten."""
        with self._lock:
            self._forget_silent(self._clock())
            return self._known.get((owner, name))

    def all(self) -> list[StreamPosition]:
        """All positions, by owner and name."""
        with self._lock:
            self._forget_silent(self._clock())
            return [self._known[key] for key in sorted(self._known)]

    def forget(self, owner: str, name: str) -> bool:
        """Forget a stream until it reports again; returns whether it was known."""
        with self._lock:
            return self._known.pop((owner, name), None) is not None

    def _forget_silent(self, now: int) -> None:
        while self._known:
            key, oldest = next(iter(self._known.items()))
            if now - oldest.told_at < SILENT_MS_MAX:
                return
            del self._known[key]

    def _make_room(self, owner: str) -> None:
        of_owner = [key for key in self._known if key[0] == owner]
        if len(of_owner) >= STREAMS_OF_OWNER_MAX:
            del self._known[of_owner[0]]
        elif len(self._known) >= STREAMS_MAX:
            self._known.popitem(last=False)
