"""Plain events of one log that come in one turn of the loop, from all links: one append, and one answer for each link.

A request costs the log as much as several events, so that many links with a few messages each are as cheap as one with
many.
"""

from __future__ import annotations

import logging
from typing import Protocol

from ...core.errors import EventLogError
from ...core.log import AppendRequest
from .plain import PlainEvents

_logger = logging.getLogger("headwater.amqp")


class Claimant(Protocol):
    """Who wants to know what became of its events."""

    def on_ended(self, error: EventLogError | None) -> None:
        """They are stored, or were refused."""


class Gathered:
    """Events for one partition, and whose they are: the context of their request."""

    __slots__ = ("_claimants", "events", "partition")

    def __init__(self, partition: int | None) -> None:
        self.partition = partition
        self.events = PlainEvents()
        self._claimants: list[Claimant] = []

    def claim(self, claimant: Claimant) -> None:
        """The events that were added last are that one's."""
        self._claimants.append(claimant)

    def on_appended(self, request: AppendRequest) -> None:
        """What became of all of them."""
        self.end(request.error)

    def end(self, error: EventLogError | None) -> None:
        """Tell everybody what became of their events."""
        for claimant in self._claimants:
            try:
                claimant.on_ended(error)
            except Exception:  # the others are to be answered, too
                _logger.exception("a producer failed")
