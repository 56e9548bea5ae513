"""The AMQP condition of each error, in one table.

MessageFault      a received message is invalid: its delivery is rejected, and nothing more
InvalidFilter     a source filter is invalid: its link is refused
AmqpError         an error with its own condition
EventLogError     an error of the core: see the table; for a rejected delivery, or a link that is refused or closed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core import access
from ..core import errors as core
from .filters import InvalidFilter
from .protocol import conditions
from .protocol.conditions import AmqpError, LinkFault
from .protocol.types import Symbol


class MessageFault(Exception):
    """A received message is invalid. Its delivery is rejected with this condition and description."""

    def __init__(self, condition: Symbol, description: str) -> None:
        self.condition, self.description = condition, description
        super().__init__(f"{condition}: {description}")


class Refusal(NamedTuple):
    """An AMQP error: condition, description, and the map `info`."""

    condition: Symbol
    description: str
    info: dict[Symbol, object]


def refusal_of(error: core.EventLogError | MessageFault | InvalidFilter | AmqpError) -> Refusal:
    """The AMQP error for an error."""
    if isinstance(error, MessageFault):
        return Refusal(error.condition, error.description, {})
    if isinstance(error, AmqpError):
        return Refusal(error.condition, error.description, dict(error.info or {}))
    if isinstance(error, InvalidFilter):
        return Refusal(conditions.INVALID_FIELD, str(error), {})
    for kind in type(error).__mro__:
        if kind in _TABLE:
            row = _TABLE[kind]
            info = {Symbol(name.replace("_", "-")): getattr(error, name) for name in row.info}
            return Refusal(
                row.condition, row.detail(error), {key: value for key, value in info.items() if value is not None}
            )
    raise AssertionError(f"{type(error).__name__} is not in the table")


def link_fault(error: core.EventLogError) -> LinkFault:
    """The fault for an error of the log, which refuses a link or rejects a delivery."""
    refusal = refusal_of(error)
    return LinkFault(refusal.condition, refusal.description, refusal.info or None)


class _Row(NamedTuple):
    condition: Symbol
    info: tuple[str, ...] = ()
    """Attributes of the error that programs can use."""
    detail: Callable[[Any], str] = str


_TABLE: dict[type, _Row] = {
    core.InvalidInput: _Row(conditions.INVALID_FIELD),
    core.TooLarge: _Row(conditions.LINK_MESSAGE_SIZE_EXCEEDED, ("given", "allowed", "unit")),
    access.Unauthenticated: _Row(conditions.UNAUTHORIZED_ACCESS),
    access.TooManyLogins: _Row(conditions.RESOURCE_LIMIT_EXCEEDED, ("retry_after_s",)),
    access.IssuerUnavailable: _Row(conditions.RESOURCE_LIMIT_EXCEEDED, ("retry_after_s",)),
    access.Forbidden: _Row(conditions.UNAUTHORIZED_ACCESS),
    core.LogNotFound: _Row(conditions.NOT_FOUND),
    core.ConsumerNotFound: _Row(conditions.NOT_FOUND),
    core.LogExists: _Row(conditions.NOT_ALLOWED),
    core.AppendConditionFailed: _Row(conditions.PRECONDITION_FAILED, ("conflict", "after")),
    core.ConditionNeedsTrimmedEvents: _Row(conditions.PRECONDITION_FAILED, ("after", "known_from")),
    core.DuplicateEventId: _Row(conditions.PRECONDITION_FAILED, ("id", "source", "sequence_number")),
    core.ConsumerFenced: _Row(conditions.LINK_STOLEN, ("given", "current")),
    core.WouldDrop: _Row(conditions.PRECONDITION_FAILED, core.WouldDrop.MEMBERS),
    core.StateConflict: _Row(conditions.RESOURCE_LOCKED),
    core.PositionTrimmed: _Row(conditions.RESOURCE_DELETED, ("position", "first_retained")),
    core.PositionOfOtherIncarnation: _Row(conditions.RESOURCE_DELETED, ("position", "incarnation", "first")),
    core.Overloaded: _Row(conditions.RESOURCE_LIMIT_EXCEEDED, ("waiting_bytes", "allowed_bytes")),
    core.DiskFull: _Row(
        conditions.RESOURCE_LIMIT_EXCEEDED,
        ("free_bytes", "needed_bytes"),
        lambda e: f"{e.shortage}; reads still work",
    ),
    core.SequenceExhausted: _Row(conditions.RESOURCE_LIMIT_EXCEEDED, ("last",)),
    core.Closed: _Row(conditions.LINK_DETACH_FORCED),
    core.StorageUnavailable: _Row(conditions.INTERNAL_ERROR, (), lambda e: e.reason),
    core.NotPrimary: _Row(conditions.INTERNAL_ERROR, (), lambda e: e.reason),
    core.OutcomeUnknown: _Row(conditions.INTERNAL_ERROR),
    core.StorageCorrupted: _Row(
        conditions.INTERNAL_ERROR, (), lambda e: "the stored log is damaged; stop the server, then run headwater check"
    ),
    core.EventLogError: _Row(conditions.INTERNAL_ERROR, (), lambda e: "internal error; see the server's log"),
}
