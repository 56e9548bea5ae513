"""How long a resource was in each state, window by window.

No Spark here. A state lasts until the next one is reported; no event is needed in the meantime. Windows are closed in
order, when the watermark has passed their ends: later data does not change them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

WINDOWS_MAX = 100_000
"""A longer state is reported only for its last windows, up to this many, because its resource may be silent for
years.
"""


class Change(NamedTuple):
    """A reported change of a resource's state."""

    at: int
    """ms since 1970 UTC."""
    sequence_number: int
    state: str
    """Empty: the resource is no longer in any state."""


class Stay(NamedTuple):
    """How long a resource was in a state during one window, and how often it entered it."""

    start: int
    """The start of the window, ms since 1970 UTC."""
    state: str
    milliseconds: int
    entered: int


class Timeline(msgspec.Struct):
    """The state of one resource at `upto`, and the changes since then. It is serialized as JSON."""

    upto: int = 0
    """Everything before this time has been reported. It is the end of a window, except in the first window."""
    state: str = ""
    told_at: int = -1
    """When the state was most recently reported."""
    pending: list[Change] = []
    timer: int = 0
    """The end of a window at which to check again; 0: none."""

    def begin(self, watermark: int, window: int) -> None:
        """Windows closed before the first data of the resource are not reported."""
        if self.told_at < 0 and not self.pending:
            self.upto = max(self.upto, watermark // window * window)

    def add(self, change: Change) -> None:
        """Add a change. A late change that is newer than everything reported counts from the first open window on."""
        if change.at >= self.upto:
            self.pending.append(change)
        elif change.at > self.told_at:
            self.pending.append(change._replace(at=self.upto))

    def close(self, watermark: int, window: int) -> Iterator[Stay]:
        """The stays in all unreported windows of that length (ms) that end at or before the watermark."""
        limit = watermark // window * window
        if limit <= self.upto:
            return
        self.pending.sort()
        due = [change for change in self.pending if change.at < limit]
        self.pending = self.pending[len(due) :]
        stays: dict[tuple[int, str], list[int]] = {}
        for change in due:
            if self.state:
                _spend(stays, self.state, self.upto, change.at, window)
            if change.state and change.state != self.state:
                stays.setdefault((change.at // window * window, change.state), [0, 0])[1] += 1
            self.upto, self.state, self.told_at = change.at, change.state, change.at
        if self.state:
            _spend(stays, self.state, self.upto, limit, window)
        self.upto = limit
        for (start, state), (milliseconds, entered) in sorted(stays.items()):
            yield Stay(start, state, milliseconds, entered)

    def next_end(self, window: int) -> int:
        """The end of the first open window that will have a stay; 0 if there is none."""
        if self.state:
            return (self.upto // window + 1) * window
        if self.pending:
            return (min(self.pending).at // window + 1) * window
        return 0


def _spend(stays: dict[tuple[int, str], list[int]], state: str, from_: int, to: int, window: int) -> None:
    from_ = max(from_, to - WINDOWS_MAX * window)
    while from_ < to:
        start = from_ // window * window
        until = min(to, start + window)
        stays.setdefault((start, state), [0, 0])[0] += until - from_
        from_ = until
