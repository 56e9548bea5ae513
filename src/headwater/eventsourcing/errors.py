"""Maps errors of a log to those of `eventsourcing`, in one table."""

from __future__ import annotations

from eventsourcing import persistence

from ..client import UnexpectedAnswer
from ..core.errors import AppendConditionFailed, EventLogError, InvalidEvent, InvalidInput, TooLarge

_TABLE: tuple[tuple[type[EventLogError], type[persistence.PersistenceError]], ...] = (
    (AppendConditionFailed, persistence.IntegrityError),
    (InvalidEvent, persistence.DataError),
    (TooLarge, persistence.DataError),
    (InvalidInput, persistence.ProgrammingError),
    (UnexpectedAnswer, persistence.InterfaceError),
    (EventLogError, persistence.OperationalError),
)
"""The first match applies."""


class _AsTheirs:
    """Turns a log's errors into the ones `eventsourcing` expects, with the same text; the cause is the log's own."""

    def __enter__(self) -> None:
        """It has no state: one instance serves all."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, EventLogError):
            theirs = next(theirs for ours, theirs in _TABLE if isinstance(error, ours))
            raise theirs(str(error)) from error


as_theirs = _AsTheirs()
"""Wraps every call to a log."""
