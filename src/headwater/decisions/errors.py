"""Errors of decisions, in addition to the errors of the log (`headwater.core.errors`) and of the domain."""

from __future__ import annotations

from ..core.errors import AppendConditionFailed
from ..core.quoting import show


class DecisionsError(Exception):
    """Base class of this toolkit's errors. Errors of the log and the domain propagate unchanged."""


class InvalidDefinition(DecisionsError):
    """An event class, a projection, a decision or a read model has an unusable definition."""


class UnknownEvent(DecisionsError):
    """No class is registered for the type of a stored event."""

    def __init__(self, type: str, sequence_number: int) -> None:
        self.type, self.sequence_number = type, sequence_number
        super().__init__(f"event {sequence_number} has type {show(type)}, for which no class is registered")


class UnreadableEvent(DecisionsError):
    """The data of a stored event does not match its class."""

    def __init__(self, type: str, sequence_number: int, problem: str) -> None:
        self.type, self.sequence_number, self.problem = type, sequence_number, problem
        super().__init__(f"event {sequence_number} of type {show(type)} cannot be read: {problem}")


class UnwritableEvent(DecisionsError):
    """The data of a decided event could not be read back: nothing was appended."""

    def __init__(self, type: str, problem: str) -> None:
        self.type, self.problem = type, problem
        super().__init__(f"an event of type {show(type)} cannot be stored: {problem}")


class Contended(DecisionsError):
    """Every attempt lost the race; nothing was appended. It can be retried."""

    def __init__(self, attempts: int, failed: AppendConditionFailed) -> None:
        self.attempts, self.failed = attempts, failed
        super().__init__(f"{attempts} attempts failed because of conflicting appends; the last error: {failed}")
