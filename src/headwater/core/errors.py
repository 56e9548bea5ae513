"""The errors of an event log. Each front end maps this tree on its wire, in one table.

EventLogError
├── InvalidInput                     the caller's input is invalid for any log
│   ├── InvalidEvent
│   ├── InvalidQuery
│   ├── InvalidPosition              `from` and `after` together, below their minimum, above what exists
│   ├── InvalidSettings
│   ├── InvalidLogName
│   └── TooLarge                     an event, or an append, over its limit
├── AppendConditionFailed
├── DuplicateEventId
├── ConditionNeedsTrimmedEvents      the log was set to drop its history, and the condition asks about it
├── PositionTrimmed                  the position lies below the first retained event
├── PositionOfOtherIncarnation       the position was issued by a log that had this name before
├── LogNotFound
├── LogExists
├── ConsumerNotFound
├── ConsumerFenced                   another holder registered the consumer with a newer epoch
├── StateConflict                    a versioned compare-and-set lost
├── WouldDrop                        the change would drop more events than the caller allows
├── Overloaded                       too much is waiting; try again after `retry_after_s`
├── DiskFull
├── SequenceExhausted                10**18 - 1 numbers were issued
├── StorageCorrupted
├── StorageUnavailable               locked by another process, not writable, foreign or newer format; a failing disk
├── OutcomeUnknown                   the storage that the log commits to does not answer
└── Closed

Exceptions carry data; the message is built from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from .quoting import show


class EventLogError(Exception):
    """Any error that an event log can return instead of a result."""


class InvalidInput(EventLogError):
    """The caller's input breaks a rule. `where` is the path of the invalid part (`events[3].tags[0]`), or empty."""

    def __init__(self, problem: str, where: str = "") -> None:
        self.problem = problem
        self.where = where
        super().__init__(f"{where}: {problem}" if where else problem)

    def move(self, where: str) -> None:
        """Prefix the path, because the checked part belongs to something larger."""
        self.where = where
        self.args = (f"{where}: {self.problem}" if where else self.problem,)


class InvalidEvent(InvalidInput):
    """An event breaks a limit of `core.limits`."""


class InvalidQuery(InvalidInput):
    """A query, or the query of a condition, is malformed."""


class InvalidPosition(InvalidInput):
    """A position, limit or partition is out of its range."""


class InvalidSettings(InvalidInput):
    """A log's settings are malformed, or change a setting that is fixed at creation."""


class InvalidLogName(InvalidInput):
    """A log's name does not match `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`."""


class TooLarge(InvalidInput):
    """An event or an append is over its limit; `given` and `allowed` are in `unit`."""

    def __init__(self, given: int, allowed: int, unit: str, where: str) -> None:
        self.given, self.allowed, self.unit = given, allowed, unit
        super().__init__(f"{given} {unit} given, at most {allowed} are allowed", where)


class ConditionFailure(StrEnum):
    """Why a condition failed."""

    NO_MATCH_EXPECTED = "no_match_expected"
    """`after` is 0 and an event matches."""
    NEWER_MATCH = "newer_match"
    """An event above `after` matches."""
    NO_MATCH_FOUND = "no_match_found"
    """`requires_match` is set and nothing up to `after` matches."""


class AppendConditionFailed(EventLogError):
    """The append condition did not hold; nothing was appended.

    `conflict` is the number of the first conflicting event, or None if the reason is that nothing matched.
    """

    def __init__(self, reason: ConditionFailure, conflict: int | None, after: int) -> None:
        self.reason, self.conflict, self.after = reason, conflict, after
        if conflict is None:
            problem = f"no event up to {after} matches the query"
        else:
            problem = f"event {conflict} matches the query and comes after {after}"
        super().__init__(f"append condition failed: {problem}")


class DuplicateEventId(EventLogError):
    """An event with that id and source is already in the log (or twice in one append); nothing was appended.

    `sequence_number` is the stored event's, or None if the append itself repeats the id.
    """

    def __init__(self, id: str, source: str, sequence_number: int | None, index: int) -> None:
        self.id, self.source, self.sequence_number, self.index = id, source, sequence_number, index
        stored = (
            "given twice in this append" if sequence_number is None else f"already stored as event {sequence_number}"
        )
        of_source = f" of source {source!r}" if source else ""
        super().__init__(f"events[{index}]: id {id!r}{of_source} is {stored}")


class ConditionNeedsTrimmedEvents(EventLogError):
    """The condition asks about events above `after`, but those up to `known_from` - 1 are no longer known."""

    def __init__(self, after: int, known_from: int) -> None:
        self.after, self.known_from = after, known_from
        super().__init__(
            f"the condition covers events after {after}, but this log drops its history and only knows events "
            f"from {known_from} onward"
        )


class PositionTrimmed(EventLogError):
    """The read starts at `position`, but the first retained event is `first_retained`."""

    def __init__(self, position: int, first_retained: int) -> None:
        self.position, self.first_retained = position, first_retained
        super().__init__(f"position {position} was trimmed; the first retained event is {first_retained}")


class PositionOfOtherIncarnation(EventLogError):
    """The position belongs to an earlier incarnation of the log (it was deleted and recreated, or restored)."""

    def __init__(self, position: int, incarnation: str, first: int) -> None:
        self.position, self.incarnation, self.first = position, incarnation, first
        super().__init__(
            f"position {position} was issued by another incarnation of this log; "
            f"the current one is {incarnation} and continues at {first}"
        )


class LogNotFound(EventLogError):
    """There is no log of that name or incarnation."""

    def __init__(self, name: str, incarnation: str | None = None) -> None:
        self.name = name
        super().__init__(
            f"there is no log {show(name)}" + (f" of incarnation {show(incarnation)}" if incarnation else "")
        )


class LogExists(EventLogError):
    """A log of that name exists, with settings other than the requested ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"log {show(name)} already exists")


class ConsumerNotFound(EventLogError):
    """No consumer is registered under (owner, component)."""

    def __init__(self, owner: str, component: str) -> None:
        self.owner, self.component = owner, component
        super().__init__(f"no consumer is registered for owner {owner!r}, component {component!r}")


class ConsumerFenced(EventLogError):
    """The caller's epoch of the consumer is older than the registered one."""

    def __init__(self, owner: str, component: str, given: int, current: int) -> None:
        self.owner, self.component, self.given, self.current = owner, component, given, current
        super().__init__(f"consumer {owner!r}/{component!r} is at epoch {current}; epoch {given} cannot move it")


class StateConflict(EventLogError):
    """A state entry does not have the version that the caller expected."""

    def __init__(self, kind: str, key: str, expected: int, found: int) -> None:
        self.kind, self.key, self.expected, self.found = kind, key, expected, found
        super().__init__(f"{kind} {key!r} is at version {found}, not {expected}")


class WouldDrop(EventLogError):
    """The change would drop more events than the caller allows with `drops_at_most`; nothing was changed."""

    MEMBERS = ("log", "drops", "first", "last", "first_recorded_at", "last_recorded_at", "history")
    """The fields that front ends return."""
    MINUTES = 5
    """A change is checked against the events' ages now and in this many minutes, because they grow older between the
    request and the next run of retention."""

    def __init__(
        self,
        log: str,
        drops: int,
        first: int,
        last: int,
        first_recorded_at: int | None,
        last_recorded_at: int | None,
        history: int = 0,
    ) -> None:
        """The parameters are the fields of `core.extent.Drop`; `drops` is its field `events`."""
        self.log, self.drops, self.first, self.last, self.history = log, drops, first, last, history
        self.first_recorded_at, self.last_recorded_at = first_recorded_at, last_recorded_at
        super().__init__(
            f"this would drop {self.what} of log {show(log)}, numbered {first} to {last}, "
            f"within {self.MINUTES} minutes; give drops_at_most={drops} to allow it"
        )

    @property
    def what(self) -> str:
        """The events that would be dropped, in words: `1,000 events`."""
        retained = self.drops - self.history
        parts = [f"{retained:,} {'event' if retained == 1 else 'events'}"] if retained else []
        if self.history:
            parts.append(f"the history of {self.history:,} trimmed {'event' if self.history == 1 else 'events'}")
        return " and ".join(parts)


class Overloaded(EventLogError):
    """More bytes wait to be written or indexed than the log admits; nothing of this call was accepted."""

    def __init__(
        self, waiting_bytes: int, allowed_bytes: int, retry_after_s: float = 1.0, *, is_of_index: bool = False
    ) -> None:
        """`is_of_index`: the index is falling behind, which may last longer than a commit."""
        self.waiting_bytes, self.allowed_bytes, self.retry_after_s = (
            waiting_bytes,
            allowed_bytes,
            retry_after_s,
        )
        self.is_of_index = is_of_index
        super().__init__(
            f"{waiting_bytes} bytes are waiting to be written or indexed (maximum {allowed_bytes}); try again later"
        )


class DiskFull(EventLogError):
    """There is too little free space for the append; reads, trims and acknowledgements still work."""

    def __init__(self, path: str, free_bytes: int, needed_bytes: int, has_inodes: bool = True) -> None:
        """`has_inodes`: whether the file system can hold one more file. If not, free bytes do not help."""
        self.path, self.free_bytes, self.needed_bytes, self.has_inodes = path, free_bytes, needed_bytes, has_inodes
        needed = " (the reserve included)" if has_inodes else ""
        remedy = "free some space, or trim the log" if has_inodes else "remove some files"
        super().__init__(f"{path}: {self.shortage}{needed}; {remedy}, and append again")

    @property
    def shortage(self) -> str:
        """What ran out, bytes or inodes, without the path."""
        if self.has_inodes:
            return f"{self.free_bytes} bytes are free and {self.needed_bytes} are needed"
        return f"the file system has no free inodes, although {self.free_bytes} bytes are free"


class SequenceExhausted(EventLogError):
    """The log has issued its last sequence number."""

    def __init__(self, last: int) -> None:
        self.last = last
        super().__init__(f"the log has reached the maximum sequence number {last} and accepts no more events")


class StorageCorrupted(EventLogError):
    """The data on disk differs from the data written. `remedy` says what to do next."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}; {remedy}")


class StorageUnavailable(EventLogError):
    """The storage cannot be opened, or the operating system refuses a resource. The message says why and what to do.

    `reason` is safe to show to any client: it names no path.
    """

    def __init__(self, problem: str = "", *, reason: str = "the log cannot be opened") -> None:
        self.reason = reason
        super().__init__(problem or reason)


class NotPrimary(StorageUnavailable):
    """Another server is now the primary; this one no longer appends. Refused events are not in the log."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(reason=f"this server is no longer the primary of log {show(name)}; append at the primary")


class OutcomeUnknown(EventLogError):
    """It is not known at present whether the events are, or will be, in the log. Retry with the same ids.

    If it names one of the server's own logs, a change to its small state (consumer, user, setting) may have
    happened.
    """

    ids: Sequence[str] = ()
    """The events' ids, in order, if a client appended them: ids given by the caller or assigned by the client."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            "the outcome of the change is unknown: the home does not answer; check, or repeat the request"
            if name.startswith("$")
            else f"it is unknown whether the events are in log {show(name)}: the home does not answer; "
            "append them again with the same ids, and they are stored once"
        )


class Closed(EventLogError):
    """The log is closed or closing."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"log {show(name)} is closed")
