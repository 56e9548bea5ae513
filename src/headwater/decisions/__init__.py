"""Decisions over an event log: event classes, projections, and commands that stay consistent under concurrency.

@event
class StudentSubscribed:
    student: Annotated[str, Tag]
    course: Annotated[str, Tag]

decide(log, Decision(seats_taken("chess"), rule))

A decision is a value. `decide` runs it against a log on a thread, `headwater.decisions.aio.decide` on an event loop,
`headwater.decisions.testing` in tests.
"""

from .blocking import decide, project
from .deciding import RETRIES, Retries
from .decision import Decided, Decision
from .errors import Contended, DecisionsError, InvalidDefinition, UnknownEvent, UnreadableEvent, UnwritableEvent
from .events import JSON, MSGPACK, Codec, EventTypes, Upcaster, event, write
from .projection import Knowledge, Projection, Several
from .read_models import Lag, ReadModel, Runner
from .snapshots import DirectorySnapshots, MemorySnapshots, SnapshotStore
from .sql import Transaction
from .tags import Tag, TagValue

__all__ = [
    "JSON",
    "MSGPACK",
    "RETRIES",
    "Codec",
    "Contended",
    "Decided",
    "Decision",
    "DecisionsError",
    "DirectorySnapshots",
    "EventTypes",
    "InvalidDefinition",
    "Knowledge",
    "Lag",
    "MemorySnapshots",
    "Projection",
    "ReadModel",
    "Retries",
    "Runner",
    "Several",
    "SnapshotStore",
    "Tag",
    "TagValue",
    "Transaction",
    "UnknownEvent",
    "UnreadableEvent",
    "UnwritableEvent",
    "Upcaster",
    "decide",
    "event",
    "project",
    "write",
]
