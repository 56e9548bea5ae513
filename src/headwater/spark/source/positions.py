"""Resolves positions in options to sequence numbers, and converts these to offsets of a stream and back.

An offset is `{"v": 1, "logs": {"orders": {"incarnation": "..", "position": 123}}}`: the number up to which each log was
consumed, and the log's incarnation. Spark compares offsets as text, so keys are ordered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...core.errors import EventLogError, LogNotFound
from ...core.extent import Extent
from ...core.limits import show
from ...flight.client import BulkClient
from ..archive.snapshot import Archive
from ..options import InvalidOption, Moment, is_pattern
from .options import ReadOptions

OFFSET_VERSION = 1


class Consumed(NamedTuple):
    """The progress of a stream in one log: up to `position`, a number of that incarnation."""

    incarnation: str
    position: int


Offset = dict[str, Consumed]
"""By log name."""


class DataLoss(EventLogError):
    """Requested events are gone: the log was trimmed, and no archive has them.

    These are `first` to `last`; reading can resume at `first_retained`, which may be above the end of a batch.
    """

    def __init__(self, log: str, first: int, last: int, first_retained: int, archive: str | None) -> None:
        self.log, self.first, self.last, self.first_retained, self.archive = log, first, last, first_retained, archive
        where = f"neither in the log nor in the archive {archive!r}" if archive else "no more in the log"
        remedy = "set the option archive to the table that has them" if not archive else "start at a later position"
        super().__init__(
            f"log {log!r}: events from {first} to {last} are {where}; {remedy}, or set "
            f"failOnDataLoss=false to continue at {first_retained} without them"
        )


class LogRecreated(EventLogError):
    """The offset is from another incarnation of the log."""

    def __init__(self, log: str, found: str, expected: str) -> None:
        self.log, self.found, self.expected = log, found, expected
        super().__init__(
            f"log {log!r} is not the log that this query has read: it was deleted and recreated, or restored from a "
            f"backup (incarnation {found}, the checkpoint has {expected}); start a new query with a new checkpoint and "
            "startingPosition, or set failOnDataLoss=false to continue in the new one after the reached number"
        )


class OffsetUnreadable(EventLogError):
    """A checkpoint holds an offset not made by this version of the data source."""


def encode_offset(offset: Mapping[str, Consumed]) -> dict[str, Any]:
    """The offset in the form Spark stores."""
    logs = {log: {"incarnation": at.incarnation, "position": at.position} for log, at in sorted(offset.items())}
    return {"v": OFFSET_VERSION, "logs": logs}


def decode_offset(given: Any) -> Offset:
    """The offset that Spark stored. Raises OffsetUnreadable."""
    version = given.get("v") if isinstance(given, dict) else None
    if version != OFFSET_VERSION:
        raise OffsetUnreadable(f"expected version {OFFSET_VERSION} of an offset, got {show(given)}")
    try:
        return {log: Consumed(str(at["incarnation"]), int(at["position"])) for log, at in given["logs"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise OffsetUnreadable(
            f'expected {{"v", "logs": {{log: {{"incarnation", "position"}}}}}}, got {show(given)}'
        ) from None


def extents(client: BulkClient, options: ReadOptions, known: Offset | None = None) -> dict[str, Extent]:
    """The logs to read, by name, and their current extents. Raises LogNotFound for one that is named in full.

    `known` is their previous progress: a lagging server is skipped for another one.
    """
    known = known or {}
    for log, at in known.items():
        client.expect(log, at.incarnation, at.position)
    found = {log for log in [*client.logs(), *known] if options.wants(log)} if options.has_pattern else set()
    named = {name for name in options.logs if not is_pattern(name)}
    heads = client.heads(sorted({*found, *named}))
    for log in sorted(named - set(heads)):
        if log not in found:  # one of a pattern was deleted since the listing
            raise LogNotFound(log)
    return dict(sorted(heads.items()))


def check_named(options: ReadOptions, logs: Mapping[str, object]) -> None:
    """Raises InvalidOption if a position or a time is given for a log that is not read."""
    for bound, edge in ((options.start, "starting"), (options.end, "ending")):
        if strangers := sorted(set(bound.by_log) - set(logs)):
            log, read = strangers[0], ", ".join(logs) or "none"
            is_time = isinstance(bound.by_log[log], Moment)
            what, name = ("time", f"{edge}Timestamp") if is_time else ("position", f"{edge}Position")
            raise InvalidOption(f"a {what} is set for {log!r}, which is not read; the logs that are read: {read}", name)


def start_after(client: BulkClient, options: ReadOptions, log: str, extent: Extent, archive: Archive | None) -> int:
    """The number after which reading starts. Raises InvalidOption: above the head, or at a time in the future."""
    place = options.start.of(log)
    if isinstance(place, Moment):
        first = sequence_number_at(client, log, extent, archive, place.ms)
        if first > extent.head and options.start_if_none == "error":
            raise InvalidOption(
                f"no event was recorded in log {log!r} since then; set startingTimestampStrategy=latest to start "
                "with the next event",
                "startingTimestamp",
            )
        return first - 1
    if place == "latest":
        return extent.head
    if place == "earliest":
        return first_retained(log, extent, archive) - 1
    if place > extent.head + 1:
        raise _beyond(place, log, extent, "starting")
    return place - 1


def _beyond(place: int, log: str, extent: Extent, edge: str) -> InvalidOption:
    problem = f"got {place}, but the head of log {log!r} is {extent.head}; specify a time as {edge}Timestamp"
    return InvalidOption(problem, f"{edge}Position")


def first_retained(log: str, extent: Extent, archive: Archive | None) -> int:
    """The first number that can be read, from the archive or from the log."""
    archived = archive.first_retained(log) if archive is not None and archive.next_number(log) else None
    return extent.first_retained if archived is None else min(extent.first_retained, archived)


def end_upto(client: BulkClient, options: ReadOptions, log: str, extent: Extent, archive: Archive | None) -> int:
    """The last number to read. Raises InvalidOption: above the head."""
    place = options.end.of(log)
    if isinstance(place, int) and place > extent.head:
        raise _beyond(place, log, extent, "ending")
    return end_so_far(client, options, log, extent, archive)


def end_so_far(client: BulkClient, options: ReadOptions, log: str, extent: Extent, archive: Archive | None) -> int:
    """The last number that exists and may be read: the head, if the end is in the future, or if there is none."""
    place = options.end.of(log)
    if isinstance(place, Moment):
        return sequence_number_at(client, log, extent, archive, place.ms) - 1
    return min(place, extent.head) if isinstance(place, int) else extent.head


def check_order(options: ReadOptions, log: str, after: int, upto: int) -> None:
    """Raises InvalidOption if the start is above the end, and one of the two was given as a time."""
    first, last = options.start.of(log), options.end.of(log)
    if after <= upto or isinstance(first, Moment) == isinstance(last, Moment):
        return  # two numbers, or two times, were compared before
    if isinstance(first, str) or isinstance(last, str):
        return
    where = "startingTimestamp" if isinstance(first, Moment) else "startingPosition"
    raise InvalidOption(f"for log {log!r} it is {after + 1}, but the end is {upto}", where)


def sequence_number_at(client: BulkClient, log: str, extent: Extent, archive: Archive | None, recorded_ms: int) -> int:
    """The number of the first event recorded then or later; above the head if there is none.

    Numbers and times of a log only rise, so the archive, which has the lower numbers, is searched first.
    """
    if archive is not None and archive.next_number(log) > 1:
        archived = archive.sequence_number_at(log, recorded_ms)
        if archived is not None:
            return archived
        return max(archive.next_number(log), min(client.sequence_number_at(log, recorded_ms), extent.head + 1))
    return min(client.sequence_number_at(log, recorded_ms), extent.head + 1)
