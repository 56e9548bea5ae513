"""Connections that are under way, by the place that it comes from: places take turns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

MANY = 64
"""From how many that wait of one place on the newest of them is first."""

T = TypeVar("T", bound=Hashable)


def _everywhere(place: str) -> bool:
    return True


class PendingConnections(Generic[T]):
    """Something under way to a connection (a socket, say), by the place that it comes from."""

    def __init__(self) -> None:
        self._places: dict[str, dict[T, float]] = {}
        """In the order in which it is their turn; of each, in the order in which they came, and when that was."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter([each for waiting in self._places.values() for each in waiting])

    def of(self, place: str) -> int:
        """How many there are of a place."""
        return len(self._places.get(place, ()))

    def add(self, place: str, one: T, now: float = 0.0) -> None:
        """One more."""
        self._count += 1
        self._places.setdefault(place, {})[one] = now

    def take(self, may: Callable[[str], bool] = _everywhere) -> tuple[str, T] | None:
        """The place whose turn it is, of the permitted ones, and its next one; None if no place may."""
        for place in self._places:
            if may(place):
                break
        else:
            return None
        waiting = self._places.pop(place)
        one = next(reversed(waiting)) if len(waiting) >= MANY else next(iter(waiting))
        self._places[place] = waiting
        self.discard(place, one)
        return place, one

    def most(self) -> str:
        """The place that has most."""
        return max(self._places, key=lambda each: len(self._places[each]))

    def oldest(self, place: str) -> tuple[T, float]:
        """The oldest of a place that has some, and when it came."""
        return next(iter(self._places[place].items()))

    def take_surplus(self) -> tuple[str, T]:
        """The place that has most, and its oldest."""
        place = self.most()
        one, _ = self.oldest(place)
        self.discard(place, one)
        return place, one

    def discard(self, place: str, one: T) -> None:
        """It is over; does nothing if it was taken."""
        waiting = self._places.get(place, {})
        if one in waiting:
            del waiting[one]
            self._count -= 1
            if not waiting:
                del self._places[place]
