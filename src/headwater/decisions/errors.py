"""What goes wrong with decisions, besides the errors of the log (`headwater.core.errors`) and the domain's own."""

from __future__ import annotations

from ..core.errors import AppendConditionFailed
from ..core.quoting import show


class DecisionsError(Exception):
    """Anything that this toolkit raises; what the log and the domain raise passes through unchanged."""


class InvalidDefinition(DecisionsError):
    """An event class, a projection, a decision or a read model is defined so that it cannot work."""


class UnknownEvent(DecisionsError):
    """No class is known for the type of a stored event."""

    def __init__(self, type: str, sequence_number: int) -> None:
        self.type, self.sequence_number = type, sequence_number
        super().__init__(f"event {sequence_number} is of the type {show(type)}, for which no class is known")


class UnreadableEvent(DecisionsError):
    """The data of a stored event does not make an event of its class."""

    def __init__(self, type: str, sequence_number: int, problem: str) -> None:
        self.type, self.sequence_number, self.problem = type, sequence_number, problem
        super().__init__(f"event {sequence_number} of the type {show(type)} cannot be read: {problem}")


class UnwritableEvent(DecisionsError):
    """An event was decided whose data could not be read back: nothing was appended."""

    def __init__(self, type: str, problem: str) -> None:
        self.type, self.problem = type, problem
        super().__init__(f"an event of the type {show(type)} cannot be stored: {problem}")


class Contended(DecisionsError):
    """Others were faster, each time; nothing was appended. It may be tried again."""

    def __init__(self, attempts: int, failed: AppendConditionFailed) -> None:
        self.attempts, self.failed = attempts, failed
        super().__init__(f"others were faster, {attempts} times; the last time, {failed}")
