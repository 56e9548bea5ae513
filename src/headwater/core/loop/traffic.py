"""How many events came in and went out: what a room counts of itself, once for each batch that it handles anyway."""

from __future__ import annotations

from collections.abc import Iterable

from ..log import AppendRequest


class Traffic:
    """Events since the server started: those that were appended, and those that were given to readers.

    One thread counts; any may read. What was recognised as appended before is not counted again; what is sent again is.
    """

    __slots__ = ("events_in", "events_out")

    def __init__(self) -> None:
        self.events_in = self.events_out = 0

    def came_in(self, requests: Iterable[AppendRequest]) -> None:
        """What became of some appends."""
        count = 0
        for request in requests:
            if (result := request.result) is not None and not result.was_stored:
                count += result.last - result.first + 1
        self.events_in += count
