"""Splits a range of a log into pieces of similar size, along its frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..frames.columns import Ints
from .mapped_segment import Followed

SPLITS_MAX = 100_000
"""The maximum number of pieces per call."""
_COARSE = 4
"""A frame is cut only if a piece has fewer than this many frames of its size."""


class Weights:
    """The bytes of the events in a range of numbers: its frames, with only a share of the outermost ones."""

    def __init__(self, parts: Sequence[Followed], low: int, high: int, shares: Sequence[float] | None = None) -> None:
        """`shares`: the share of each part's bytes that counts. None: all."""
        firsts, lasts, sizes = [], [], []
        for part, share in zip(parts, shares or [1.0] * len(parts), strict=True):
            start, end = part.between(low, high)
            first, count, length = part.firsts[start:end], part.counts[start:end], part.lengths[start:end]
            begin, finish = np.maximum(first, low), np.minimum(first + count - 1, high)
            firsts.append(begin)
            lasts.append(finish)
            sizes.append((length * share * (np.maximum(finish - begin + 1, 0) / count)).astype(np.int64))
        self._firsts, self._lasts = _joined(firsts), _joined(lasts)
        kept = self._firsts <= self._lasts
        self._firsts, self._lasts = self._firsts[kept], self._lasts[kept]
        self._bytes = np.concatenate([[0], np.cumsum(_joined(sizes)[kept])])
        """The total bytes of the frames before each frame, and of all of them."""
        self._events = np.concatenate([[0], np.cumsum(self._lasts - self._firsts + 1)])

    @property
    def bytes(self) -> int:
        """The bytes of the whole range."""
        return int(self._bytes[-1])

    def bytes_upto(self, number: int) -> int:
        """The bytes of the events up to that number."""
        at = int(np.searchsorted(self._firsts, number, "right")) - 1
        if at < 0:
            return 0
        first, last = int(self._firsts[at]), int(self._lasts[at])
        begin, end = int(self._bytes[at]), int(self._bytes[at + 1])
        return begin + (end - begin) * (min(number, last) - first + 1) // (last - first + 1)

    def borders(self, pieces: int) -> list[int]:
        """The last numbers of all pieces except the last.

        Pieces have similar bytes, or similar counts if there are too few bytes.
        """
        found = self._borders(self._bytes, pieces, cut_above=self.bytes // (_COARSE * pieces))
        return found if len(found) == pieces - 1 else self._borders(self._events, pieces)

    def _borders(self, totals: Ints, pieces: int, cut_above: int = 0) -> list[int]:
        """Where each share of the total is reached; only frames with more than `cut_above` of it are cut."""
        total = int(totals[-1])
        wanted = [total * piece // pieces for piece in range(1, pieces)]
        frames = np.searchsorted(totals, np.array(wanted, np.int64), "right") - 1
        found: list[int] = []
        for at, offset in zip(frames.tolist(), wanted, strict=True):
            first, last, begin, end = self._frame(at, totals)
            if end - begin > cut_above:
                border = first - 1 + (last - first + 1) * (offset - begin) // (end - begin)
            else:
                border = first - 1 if 2 * (offset - begin) < end - begin else last
            if (found[-1] if found else int(self._firsts[0]) - 1) < border < int(self._lasts[-1]):
                found.append(border)
        return found

    def _frame(self, at: int, totals: Ints) -> tuple[int, int, int, int]:
        return int(self._firsts[at]), int(self._lasts[at]), int(totals[at]), int(totals[at + 1])


def _joined(arrays: Iterable[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *arrays])
