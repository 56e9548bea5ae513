"""The port between an endpoint and the feed: where an endpoint's events come from when it reads them itself."""

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
    """Numbers that are not there any more."""


class Upstream(Protocol):
    """Where an endpoint's events come from."""

    position: int
    """Every event up to this number has been offered."""

    def read(self, after: int) -> FeedPiece:
        """A bounded piece of the log above `after`, up to the position. Does not block."""

    async def newest_between(self, first: int, last: int, pattern: Pattern) -> list[Stored]:
        """The current states that the pattern asks for, of events with numbers in that range, both inclusive.

        Others have their turns in between.
        """

    def is_state(self, stored: Stored) -> bool:
        """Whether a notification is still the current state of a resource: none newer of its source was offered."""

    def wake(self, wake: Callable[[], object]) -> None:
        """Have a task woken: at once, unless many are in this turn of the loop."""

    def changed(self, uri: str) -> None:
        """Called when what is kept of the endpoint has changed."""
