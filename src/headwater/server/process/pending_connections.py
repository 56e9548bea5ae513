"""Pending connections by place of origin: places take turns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

MANY = 64
"""If this many connections of one place wait, the newest is taken first."""

T = TypeVar("T", bound=Hashable)


def _everywhere(place: str) -> bool:
    return True


class PendingConnections(Generic[T]):
    """Pending connections (as sockets, say), by place of origin."""

    def __init__(self) -> None:
        self._places: dict[str, dict[T, float]] = {}
        """Places in turn order. Each contains its connections in order of arrival, with the time of arrival."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter([each for waiting in self._places.values() for each in waiting])

    def of(self, place: str) -> int:
        """The number of connections of a place."""
        return len(self._places.get(place, ()))

    def add(self, place: str, one: T, now: float = 0.0) -> None:
        """Add a connection."""
        self._count += 1
        self._places.setdefault(place, {})[one] = now

    def take(self, may: Callable[[str], bool] = _everywhere) -> tuple[str, T] | None:
        """The next permitted place in turn, and its next connection; None if no place is permitted."""
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
        """The place with most connections."""
        return max(self._places, key=lambda each: len(self._places[each]))

    def oldest(self, place: str) -> tuple[T, float]:
        """The oldest connection of a place with connections, and when it arrived."""
        return next(iter(self._places[place].items()))

    def take_surplus(self) -> tuple[str, T]:
        """The place with most connections, and its oldest."""
        place = self.most()
        one, _ = self.oldest(place)
        self.discard(place, one)
        return place, one

    def discard(self, place: str, one: T) -> None:
        """Remove it; does nothing if it was taken."""
        waiting = self._places.get(place, {})
        if one in waiting:
            del waiting[one]
            self._count -= 1
            if not waiting:
                del self._places[place]
