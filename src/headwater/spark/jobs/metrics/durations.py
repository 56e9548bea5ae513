"""How long a resource was in which state, window by window.

No Spark here. A state lasts until the next one is told; nothing needs to come while it lasts. Windows are closed in
their order, when the watermark has passed their ends: then what comes for them is too late to change them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

WINDOWS_MAX = 100_000
"""A state that lasts longer is told for the last so many windows only: its resource may have been silent for years."""


class Change(NamedTuple):
    """A resource was told to be in a state."""

    at: int
    """ms since 1970 UTC."""
    sequence_number: int
    state: str
    """Empty: in none any more."""


class Stay(NamedTuple):
    """How long a resource was in a state during one window, and how often that began in it."""

    start: int
    """Of the window, ms since 1970 UTC."""
    state: str
    milliseconds: int
    entered: int


class Timeline(msgspec.Struct):
    """What is known of one resource: its state at `upto`, and the changes since. It travels as JSON."""

    upto: int = 0
    """Everything before is told. It is the end of a window, but for the first window."""
    state: str = ""
    told_at: int = -1
    """When the state was told last."""
    pending: list[Change] = []
    timer: int = 0
    """The end of a window at which somebody should look again; 0: at none."""

    def begin(self, watermark: int, window: int) -> None:
        """Windows that are closed before anything is known of the resource are not told any more."""
        if self.told_at < 0 and not self.pending:
            self.upto = max(self.upto, watermark // window * window)

    def add(self, change: Change) -> None:
        """Take a change. One that is late, but newer than all that is told, counts from the first open window on."""
        if change.at >= self.upto:
            self.pending.append(change)
        elif change.at > self.told_at:
            self.pending.append(change._replace(at=self.upto))

    def close(self, watermark: int, window: int) -> Iterator[Stay]:
        """The stays in all windows of that length (ms) which end at or before the watermark and are not told yet."""
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
        """The end of the first window that is open and will have a stay; 0 if there is none."""
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
