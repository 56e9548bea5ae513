"""The errors of projections.

ProjectionError (an EventLogError)
├── NotAProjection      there is something else at the path, or a projection of other events or by another function
├── ProjectionOvertaken another run has folded events into the table in the meantime
└── FoldFailed          the user's function failed, or did not return a state
"""

from __future__ import annotations

from ...core.errors import EventLogError


class ProjectionError(EventLogError):
    """A projection cannot be written or read."""


class NotAProjection(ProjectionError):
    """The path does not contain the requested projection; nothing was changed there."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")


class ProjectionOvertaken(ProjectionError):
    """Another run has advanced the table; nothing of this batch is in it."""

    def __init__(self, path: str, after: int, position: int) -> None:
        self.path, self.after, self.position = path, after, position
        super().__init__(
            f"{path}: another run also writes to it: its position is {position}, but this run expected {after}"
        )


class FoldFailed(ProjectionError):
    """The function could not fold an event."""

    def __init__(self, name: str, entity: str, sequence_number: int, problem: str) -> None:
        self.name, self.entity, self.sequence_number, self.problem = name, entity, sequence_number, problem
        super().__init__(f"{name} failed at event {sequence_number} of entity {entity!r}: {problem}")
