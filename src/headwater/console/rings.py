"""One series of numbers in memory: the newest value of each five seconds for an hour, and of each minute for a day."""

from __future__ import annotations

import math
from array import array

FINE_S, COARSE_S = 5, 60
FINE, COARSE = 720, 1440
"""The steps of each ring: an hour, and a day."""


class Ring:
    """The newest values of one series, by step, up to a fixed number; missing values are NaN."""

    __slots__ = ("_newest", "_values")

    def __init__(self, steps: int) -> None:
        self._values = array("f", [math.nan]) * steps
        self._newest = 0

    def put(self, step: int, value: float) -> None:
        """Set the value of a step. A step that is too old for the ring clears it, because the clock was set back."""
        size = len(self._values)
        if step <= self._newest - size:
            self._values, self._newest = array("f", [math.nan]) * size, 0
        for missed in range(max(self._newest + 1, step - size + 1), step):
            self._values[missed % size] = math.nan
        self._values[step % size] = value
        self._newest = max(self._newest, step)

    def values(self, newest: int) -> list[float | None]:
        """The values of all steps in the ring up to that one, oldest first."""
        size = len(self._values)
        found: list[float | None] = []
        for step in range(newest - size + 1, newest + 1):
            value = self._values[step % size] if self._newest - size < step <= self._newest else math.nan
            found.append(None if math.isnan(value) else value)
        return found


class Rings:
    """One series in both rings. A minute is the mean, or the maximum, of its measurements."""

    __slots__ = ("_coarse", "_count", "_fine", "_is_peak", "_largest", "_minute", "_sum")

    def __init__(self, *, is_peak: bool = False) -> None:
        self._is_peak, self._largest = is_peak, 0.0
        self._fine, self._coarse = Ring(FINE), Ring(COARSE)
        self._minute = self._count = 0
        self._sum = 0.0

    def put(self, at: float, value: float) -> None:
        """Add a measurement at a moment, in s since 1970."""
        self._fine.put(int(at) // FINE_S, value)
        minute = int(at) // COARSE_S
        if minute != self._minute:
            self._minute, self._count, self._sum, self._largest = minute, 0, 0.0, value
        self._count += 1
        self._sum += value
        self._largest = max(self._largest, value)
        self._coarse.put(minute, self._largest if self._is_peak else self._sum / self._count)

    def values(self, step_s: int, now: float) -> list[float | None]:
        """The values of all steps of that length up to now, in s since 1970, oldest first."""
        return (self._fine if step_s == FINE_S else self._coarse).values(int(now) // step_s)
