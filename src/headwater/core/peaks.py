"""The largest value of each of the last seconds: so that who looks now and then misses none."""

from __future__ import annotations

from collections import deque

SECONDS_MAX = 16
"""Seconds that had a value and are remembered."""


class Peaks:
    """One thread adds; any may look. It costs a comparison for each value."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, float]] = deque(maxlen=SECONDS_MAX)

    def add(self, second: int, value: float) -> None:
        """A value of that second, which is none before the last one's."""
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, value))
        elif value > self._seconds[-1][1]:
            self._seconds[-1] = second, value

    def since(self, second: int) -> float:
        """The largest value from that second on, as far as it is remembered; 0 if there was none."""
        return max([value for at, value in list(self._seconds) if at >= second], default=0.0)
