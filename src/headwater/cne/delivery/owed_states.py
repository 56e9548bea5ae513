"""Current states still owed to an endpoint: the rest of a greeting, all states after a ping, and states after a gap.

Each subscription has a range of numbers. Its states are read in pieces when there is room, and only while they are
current: a newer event is delivered anyway. A request in between does not restart the range: it continues to its end,
and then the states sent before are sent once more. So repeated requests neither delay the last states nor add up.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ...core.loop.slices import Slices
from ..notifications.addresses import Pattern
from ..notifications.records import Subscription
from ..notifications.stored import Stored
from .upstream import Upstream

PIECE_STATES = 500


class _Range(NamedTuple):
    subscription: Subscription
    pattern: Pattern
    first: int
    last: int
    again_upto: int
    """The states from event 1 up to this number are owed again afterwards; 0: none."""


class Owed:
    """The states owed to one endpoint, in order of number for each subscription."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._ranges: dict[str, _Range] = {}
        self._piece: deque[tuple[Stored, Subscription]] = deque()

    def __len__(self) -> int:
        """The number of states in memory."""
        return len(self._piece)

    def add(self, subscription: Subscription, pattern: Pattern, first: int, last: int) -> None:
        """Send a subscription its states from events with these numbers, both inclusive."""
        again_upto = 0
        if (known := self._ranges.get(subscription.id)) is not None:
            is_before = first < known.first
            again_upto = max(known.again_upto, known.first - 1) if is_before else known.again_upto
            first, last = known.first, max(last, known.last)
        self._ranges[subscription.id] = _Range(subscription, pattern, first, last, again_upto)

    def drop(self, subscription: Subscription) -> None:
        """Do not send anything more to a subscription."""
        self._ranges.pop(subscription.id, None)
        self._piece = deque(pair for pair in self._piece if pair[1].id != subscription.id)

    async def next(self) -> tuple[Stored, Subscription] | None:
        """The next state, and the subscription that it is for; None if no more are owed.

        Other tasks get turns during the search; states that are added in the meantime are owed too.
        """
        slices = Slices()
        while self._piece or self._ranges:
            while self._piece:
                stored, subscription = self._piece.popleft()
                if self._upstream.is_state(stored):
                    return stored, subscription
                await slices.pause()
            if self._ranges:
                await self._read(*next(iter(self._ranges.items())))
        return None

    def put_back(self, stored: Stored, subscription: Subscription) -> None:
        """Put back a state from `next` that was not sent."""
        self._piece.appendleft((stored, subscription))

    async def _read(self, id: str, asked: _Range) -> None:
        """Read the next piece of a range. The range then moves to the end."""
        found = await self._upstream.newest_between(asked.first, asked.last, asked.pattern)
        if (known := self._ranges.pop(id, None)) is None:
            return  # its subscription was deleted in the meantime
        self._piece.extend((stored, asked.subscription) for stored in found[:PIECE_STATES])
        if len(found) > PIECE_STATES:
            self._ranges[id] = known._replace(first=found[PIECE_STATES].sequence_number)
        elif known.last > asked.last:
            self._ranges[id] = known._replace(first=asked.last + 1)
        elif known.again_upto:
            self._ranges[id] = known._replace(first=1, last=known.again_upto, again_upto=0)
