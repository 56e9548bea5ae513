"""The steps of a decision, as the generators yield them and their drivers run them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..core.condition import AppendCondition
from ..core.event import Event, SequencedEvent
from ..core.log import AppendResult
from ..core.query import Query
from .snapshots import SnapshotStore

T = TypeVar("T")

_NOWHERE = AppendResult(0, 0)


@dataclass(slots=True)
class Read:
    """Read these events and pass them to `take`, in pieces of any size; store the head at the start of the read."""

    query: Query
    take: Callable[[Iterable[SequencedEvent]], None]
    after: int | None = None
    backwards: bool = False
    limit: int | None = None
    head: int = 0


@dataclass(slots=True)
class Append:
    """Append these events; store their numbers."""

    events: Sequence[Event]
    condition: AppendCondition | None
    result: AppendResult = _NOWHERE


@dataclass(slots=True)
class Load:
    """Look for a snapshot; store the result."""

    store: SnapshotStore
    key: str
    found: bytes | None = None


@dataclass(slots=True)
class Save:
    """Save a snapshot."""

    store: SnapshotStore
    key: str
    snapshot: bytes


@dataclass(slots=True)
class Pause:
    """Wait for a while."""

    seconds: float


Step = Read | Append | Load | Save | Pause
Steps = Generator[Step, None, T]
