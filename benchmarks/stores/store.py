"""What the questions ask of a log in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from headwater.core import AppendCondition, Event, SequencedEvent

AppendAsync = Callable[[Sequence[Event], AppendCondition | None], Awaitable[int]]
"""Append durably from an asyncio client; answers the last number. Raises Conflict."""


class Conflict(Exception):
    """The append condition failed."""


class Extent(NamedTuple):
    """What a scan saw: enough to tell whether it saw everything."""

    events: int
    data_bytes: int
    last: int


class Store(ABC):
    """A log in this process. All appends are on the disk before they are answered."""

    @abstractmethod
    def append(self, events: Sequence[Event], condition: AppendCondition | None = None) -> int:
        """Append and wait; answers the last number. Raises Conflict."""

    @abstractmethod
    def append_all(self, batches: Sequence[Sequence[Event]], in_flight: int) -> int:
        """Append every batch, at most so many unanswered at a time; answers the last number."""

    @abstractmethod
    async def serve(self, clients: Callable[[AppendAsync], Awaitable[None]]) -> None:
        """Run asyncio clients against the store."""

    @abstractmethod
    def read_tag(self, tag: str) -> Sequence[Event | SequencedEvent]:
        """Every event with that tag, whole."""

    @abstractmethod
    def read_type(self, type: str, limit: int) -> Sequence[Event | SequencedEvent]:
        """The newest events of that type, whole, newest first."""

    @abstractmethod
    def scan(self) -> Extent:
        """Read every retained event, whole, in order."""

    @abstractmethod
    def trim(self, below: int) -> int:
        """Drop everything below that number; answers the first that is left."""

    @abstractmethod
    def head(self) -> int:
        """The last number."""

    @abstractmethod
    def close(self) -> None:
        """Close in order."""
