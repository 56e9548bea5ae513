"""Counts events appended and sent. A front end updates it once per batch."""

from __future__ import annotations

from collections.abc import Iterable

from ..log import AppendRequest


class Traffic:
    """Events since the server started: appended, and sent to readers.

    One thread counts; any may read. Recognised repeats of appends are not counted; repeated deliveries are.
    """

    __slots__ = ("events_in", "events_out")

    def __init__(self) -> None:
        self.events_in = self.events_out = 0

    def came_in(self, requests: Iterable[AppendRequest]) -> None:
        """Count the outcomes of some appends."""
        count = 0
        for request in requests:
            if (result := request.result) is not None and not result.was_stored:
                count += result.last - result.first + 1
        self.events_in += count
