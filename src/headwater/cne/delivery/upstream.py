"""The interface between endpoint and feed: where an endpoint reads its events from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..notifications.addresses import Pattern
from ..notifications.stored import Stored


class FeedPiece(NamedTuple):
    """A piece of the log, read for a replay."""

    notifications: list[Stored]
    cursor: int
    gap: tuple[int, int] | None
    """Numbers that have been trimmed."""


class Upstream(Protocol):
    """The source of an endpoint's events."""

    position: int
    """Every event up to this number has been offered."""

    def read(self, after: int) -> FeedPiece:
        """A bounded piece of the log above `after`, up to the position. Does not block."""

    async def newest_between(self, first: int, last: int, pattern: Pattern) -> list[Stored]:
        """The current states matching the pattern, of events with numbers in that range, both inclusive.

        Other tasks get turns in between.
        """

    def is_state(self, stored: Stored) -> bool:
        """Whether a notification is still the current state of a resource: its source has offered no newer one."""

    def wake(self, wake: Callable[[], object]) -> None:
        """Wake a task: at once, unless many are woken in this turn of the loop."""

    def changed(self, uri: str) -> None:
        """Called when the endpoint's stored record has changed."""
