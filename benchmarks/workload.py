"""What is stored: one record for every contender, made from its number, so that every answer can be checked.

Record `i` (from 0) of a log of `total` events has a 36-character id, one of 20 types, two tags and 256 bytes that do
not compress. `account:` has 10 matches each, spread over the whole log; `course:` has 1000 distinct values; the type
`AccountClosed` has at most 100 matches in the whole log, the other 19 share the rest.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence

from headwater.core import Event

DATA_BYTES = 256
MATCHES_PER_ACCOUNT = 10
COURSES = 1000
RARE_TYPE = "AccountClosed"
RARE_EVENTS = 100
COMMON_TYPES = tuple(f"AccountEvent{number:02d}" for number in range(19))

_pool = random.Random(17).randbytes(1 << 22)


class Workload:
    """The records of a log that is filled with `total` events, and fresh ones that go on top of it."""

    def __init__(self, total: int, *, has_ordered_ids: bool = False, fresh_from: int = 0) -> None:
        assert total >= 1000 and total % 1000 == 0, "whole batches of 1000 are loaded"
        self.total = total
        self.accounts = total // MATCHES_PER_ACCOUNT
        self._has_ordered_ids = has_ordered_ids
        self._fresh = fresh_from

    def stored(self, first: int, count: int) -> list[Event]:
        """The records `first` to `first + count - 1` of the filled log."""
        return [
            self._event(i, self.type_of(i), (f"account:{i % self.accounts}", f"course:{_scatter(i) % COURSES}"))
            for i in range(first, first + count)
        ]

    def batches(self, first: int, count: int, size: int) -> list[list[Event]]:
        """The records from `first` on in lists of `size`."""
        return [self.stored(start, size) for start in range(first, first + count, size)]

    def fresh(self, count: int, tags: Sequence[str] | None = None) -> list[Event]:
        """Records that no log has yet: of the same form, with accounts of their own (or with the given tags)."""
        start = self.total + self.reserve(count)
        return [
            self._event(i, COMMON_TYPES[i % 19], tuple(tags or (f"account:{i}", f"course:{_scatter(i) % COURSES}")))
            for i in range(start, start + count)
        ]

    def reserve(self, count: int) -> int:
        """Set so many fresh records aside for somebody else; where they start (`fresh_from`)."""
        start, self._fresh = self._fresh, self._fresh + count
        return start

    def type_of(self, i: int) -> str:
        """The type of stored record `i`."""
        return RARE_TYPE if self._is_rare(i) else COMMON_TYPES[_scatter(i + 1) % 19]

    def account_numbers(self, count: int, seed: int = 0) -> list[int]:
        """Accounts drawn at random; each has 10 stored records."""
        return random.Random(seed).choices(range(self.accounts), k=count)

    def rare_count(self) -> int:
        """How many stored records have the rare type."""
        return sum(map(self._is_rare, range(0, self.total, self._rare_every)))

    @property
    def _rare_every(self) -> int:
        return max(self.total // RARE_EVENTS, 10)

    def _is_rare(self, i: int) -> bool:
        return i % self._rare_every == 0

    def _event(self, i: int, type: str, tags: tuple[str, ...]) -> Event:
        bits = _scatter(i) << 64 | i
        id = uuid.UUID(int=i << 64 | _scatter(i)) if self._has_ordered_ids else uuid.UUID(int=bits, version=4)
        at = i * 241 % (len(_pool) - DATA_BYTES)
        return Event(type, _pool[at : at + DATA_BYTES], tags, str(id))


def data_bytes(events: Sequence[Event]) -> int:
    """The payload bytes of some events."""
    return sum(len(event.data) for event in events)


def chunks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """(first, length) of the pieces of `count` that are at most `size` long."""
    for first in range(0, count, size):
        yield first, min(size, count - first)


def _scatter(i: int) -> int:
    """A fixed bijection of 64-bit numbers (the finaliser of splitmix64): looks random, needs no memory."""
    z = (i + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return z ^ z >> 31
