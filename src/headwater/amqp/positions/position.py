"""The progress of a receiver: which deliveries await their outcome, and which must be resent.

Deliveries are identified by the sequence number of their event. The position is below the lowest delivery without a
final outcome: `accepted`, `rejected` and `modified` with undeliverable-here are final, and so are presettled
deliveries; `released`, and `modified` without it, send the event again: twice at once, then after a pause that doubles
each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import islice, repeat

OPEN_MAX = 65_536
OPEN_BYTES, RETURNED_BYTES = 96, 288
AT_ONCE = 2
"""How often a returned event is resent without delay."""
PAUSE_S = 0.01
"""The first pause after that. The pause doubles each time, up to `PAUSE_S_MAX`."""
PAUSE_S_MAX = 10.0


class Position:
    """The deliveries of one receiver, or of one partition of a consumer group. Amortized O(1) per delivery, O(log n)
    per redelivery."""

    __slots__ = ("_again", "_again_heap", "_failures", "_order", "_pausing", "_returns", "cursor")

    def __init__(self, after: int) -> None:
        """Everything up to `after` is finished."""
        self.cursor = after
        """Everything up to this number was sent or does not match: new events follow it."""
        self._order: deque[int] = deque()
        """Numbers sent, ascending, from the lowest without a final outcome; later ones may have theirs."""
        self._failures: dict[int, int] = {}
        """By number of each delivery without a final outcome: how often it has failed."""
        self._again: set[int] = set()
        """Numbers to send again; numbers with an outcome by now are skipped."""
        self._again_heap: list[int] = []
        """The numbers that may be sent now."""
        self._pausing: list[tuple[float, int]] = []
        """The numbers that must wait: a heap of the time when each may be sent, and its number."""
        self._returns: dict[int, int] = {}
        """How often each delivery was returned, by number."""

    @property
    def after(self) -> int:
        """The number to store. A receiver that starts after it misses nothing."""
        return self._order[0] - 1 if self._order else self.cursor

    @property
    def open(self) -> int:
        """The number of deliveries without a final outcome, including those to send again."""
        return len(self._failures)

    @property
    def held_bytes(self) -> int:
        """Its memory use, as measured. Returned events use more."""
        return OPEN_BYTES * len(self._order) + RETURNED_BYTES * len(self._returns)

    @property
    def is_full(self) -> bool:
        """Whether an old delivery must get its outcome before new events are sent, because memory is limited."""
        return len(self._order) >= OPEN_MAX

    def is_open(self, number: int) -> bool:
        """Whether that delivery has no final outcome."""
        return number in self._failures

    def unsettled(self, count_max: int) -> list[int]:
        """The lowest deliveries without a final outcome, at most `count_max`."""
        return list(islice(self._failures, count_max))

    def sent(self, numbers: Sequence[int]) -> None:
        """New events, above the cursor, were sent and await their outcomes; the numbers ascend."""
        assert numbers[0] > self.cursor
        self.cursor = numbers[-1]
        self._order.extend(numbers)
        self._failures.update(zip(numbers, repeat(0), strict=False))

    def passed(self, upto: int) -> None:
        """New events up to this number do not match, or were sent settled."""
        if upto > self.cursor:
            self.cursor = upto

    def finish(self, numbers: Sequence[int]) -> None:
        """Set a final outcome; numbers that already have one are ignored."""
        failures, order, returns = self._failures, self._order, self._returns
        for number in numbers:
            failures.pop(number, None)
        if returns:
            for number in numbers:
                returns.pop(number, None)
        while order and order[0] not in failures:
            order.popleft()

    def finish_up_to(self, number: int) -> None:
        """Everything up to that number is finished, regardless of which receiver got it."""
        self.finish([each for each in self._failures if each <= number])
        self.passed(number)

    def give_back(self, numbers: Iterable[int], *, has_failed: bool, now: float) -> None:
        """Send these again; `has_failed` (`modified` with delivery-failed) is counted in their headers.

        `now` is the time of a monotonic clock, in s.
        """
        for number in numbers:
            if number in self._failures and number not in self._again:
                self._failures[number] += has_failed
                self._again.add(number)
                returns = self._returns[number] = self._returns.get(number, 0) + 1
                if returns <= AT_ONCE:
                    heappush(self._again_heap, number)
                else:
                    heappush(self._pausing, (now + _pause_s(returns), number))

    @property
    def has_returned(self) -> bool:
        """Whether there may be numbers to send again, now or later."""
        return bool(self._again)

    @property
    def next_at(self) -> float | None:
        """When the next paused event may be sent, by the clock of `give_back`; None if none is paused."""
        return self._pausing[0][0] if self._pausing else None

    def next_again(self, now: float) -> tuple[int, int] | None:
        """The lowest number that may be sent again now, and how often it has failed; None if there is none.

        It counts as sent. If its event has been trimmed, call `finish`.
        """
        while self._pausing and self._pausing[0][0] <= now:
            heappush(self._again_heap, heappop(self._pausing)[1])
        while self._again_heap:
            number = heappop(self._again_heap)
            self._again.discard(number)
            if number in self._failures:
                return number, self._failures[number]
        return None

    def detached(self) -> None:
        """The receiver has disconnected. Everything without a final outcome is sent again, to the next receiver."""
        self._again_heap = sorted(self._failures)
        self._again = set(self._again_heap)
        self._pausing.clear()


def _pause_s(returns: int) -> float:
    """The pause before an event that was returned `returns` times is resent."""
    return min(PAUSE_S * 2.0 ** min(returns - AT_ONCE - 1, 32), PAUSE_S_MAX)
