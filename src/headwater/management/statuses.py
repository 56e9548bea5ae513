"""Statuses of management operations, as in HTTP (AMQP Management 3.2), and the status of each error."""

from __future__ import annotations

from enum import IntEnum

from ..core import access
from ..core import errors as core


class Status(IntEnum):
    """The statusCode of an answer."""

    OK = 200
    CREATED = 201
    NO_CONTENT = 204
    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    CONFLICT = 409
    INTERNAL_ERROR = 500
    NOT_IMPLEMENTED = 501
    UNAVAILABLE = 503
    """Temporary: the server is overloaded or stopping, or the storage cannot be opened."""
    OUTCOME_UNKNOWN = 504
    """It is unknown whether the operation was or will be performed: check, or repeat it."""
    OUT_OF_STORAGE = 507

    @property
    def phrase(self) -> str:
        """The default description of an answer."""
        return self.name.replace("_", " ").capitalize() if self is not Status.OK else "OK"


class OperationRefused(Exception):
    """An operation that was not performed. `status` shows the kind of error; the message contains the remedy."""

    def __init__(self, status: Status, description: str) -> None:
        self.status, self.description = status, description
        super().__init__(f"{status:d}: {description}")


def refusal_of(error: core.EventLogError) -> OperationRefused:
    """The refusal for an error of the core."""
    for kind in type(error).__mro__:
        if kind in _TABLE:
            return OperationRefused(_TABLE[kind], _HIDDEN.get(kind, str(error)))
    raise AssertionError(f"{type(error).__name__} is not in the table")


_TABLE: dict[type, Status] = {
    core.InvalidInput: Status.BAD_REQUEST,
    access.Unauthenticated: Status.UNAUTHORIZED,
    access.TooManyLogins: Status.UNAVAILABLE,
    access.IssuerUnavailable: Status.UNAVAILABLE,
    access.Forbidden: Status.FORBIDDEN,
    core.LogNotFound: Status.NOT_FOUND,
    core.ConsumerNotFound: Status.NOT_FOUND,
    core.LogExists: Status.CONFLICT,
    core.AppendConditionFailed: Status.CONFLICT,
    core.DuplicateEventId: Status.CONFLICT,
    core.ConditionNeedsTrimmedEvents: Status.CONFLICT,
    core.ConsumerFenced: Status.CONFLICT,
    core.StateConflict: Status.CONFLICT,
    core.WouldDrop: Status.CONFLICT,
    core.PositionTrimmed: Status.CONFLICT,
    core.PositionOfOtherIncarnation: Status.CONFLICT,
    core.Overloaded: Status.UNAVAILABLE,
    core.Closed: Status.UNAVAILABLE,
    core.StorageUnavailable: Status.UNAVAILABLE,
    core.OutcomeUnknown: Status.OUTCOME_UNKNOWN,
    core.DiskFull: Status.OUT_OF_STORAGE,
    core.SequenceExhausted: Status.OUT_OF_STORAGE,
    core.StorageCorrupted: Status.INTERNAL_ERROR,
    core.EventLogError: Status.INTERNAL_ERROR,
}
_HIDDEN: dict[type, str] = {
    core.StorageUnavailable: "the log cannot be opened; see the server's log",
    core.StorageCorrupted: "the stored log is damaged; stop the server, then run headwater check",
    core.EventLogError: "internal error; see the server's log",
    core.DiskFull: "the disk is full; reads still work",
}
"""Replacements for texts that not every user may see: they contain paths on the server's machine."""
