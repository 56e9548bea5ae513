"""An endpoint's record across restarts: the start of its failures, its dead letters, and its gaps."""

from __future__ import annotations

import msgspec

from ...core.clocks import wall_clock_ms

DEAD_LETTERS_KEPT = 100
GAPS_KEPT = 20


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that was not delivered, and is sent again only on request."""

    sequence_number: int
    id: str
    reason: str
    at: int
    """ms since 1970 UTC."""


class Gap(msgspec.Struct, frozen=True):
    """Numbers, both inclusive, that were trimmed before they could be delivered."""

    first: int
    last: int
    at: int


class Kept(msgspec.Struct, kw_only=True):
    """An endpoint's record across restarts, in addition to its cursor."""

    uri: str
    is_suspended: bool = False
    problem: str = ""
    since: int = 0
    """When the current failures began, in ms since 1970 UTC; 0 if the last delivery succeeded."""
    suspended_at: int = 0
    """When it was suspended, ms since 1970 UTC; 0 if it is not, or if an earlier version suspended it."""
    cursor: int | None = None
    """Its position when it was suspended; None once it has caught up."""
    dead_letters: list[DeadLetter] = []
    dead_letters_total: int = 0
    gaps: list[Gap] = []

    def suspend(self, cursor: int) -> None:
        """Stop sending. Everything up to that number has been processed."""
        self.is_suspended, self.suspended_at, self.cursor = True, self.suspended_at or wall_clock_ms(), cursor

    def resume(self) -> None:
        """Send again. The cursor is kept until it has caught up, in case the server stops before that."""
        self.is_suspended, self.suspended_at = False, 0

    def bury(self, number: int, id: str, reason: str) -> None:
        """Record an event as a dead letter."""
        was_there = self.unbury(number)
        self.dead_letters = [*self.dead_letters, DeadLetter(number, id, reason, wall_clock_ms())][-DEAD_LETTERS_KEPT:]
        self.dead_letters_total += not was_there

    def unbury(self, number: int) -> bool:
        """Remove a dead letter. Returns whether it existed."""
        if not self.dead_letters:
            return False
        left = [letter for letter in self.dead_letters if letter.sequence_number != number]
        was_there = len(left) < len(self.dead_letters)
        self.dead_letters = left
        return was_there

    def note_gap(self, first: int, last: int) -> None:
        """Record numbers trimmed before delivery, both inclusive."""
        self.gaps = [*self.gaps, Gap(first, last, wall_clock_ms())][-GAPS_KEPT:]
