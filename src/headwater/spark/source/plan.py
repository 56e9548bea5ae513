"""Plans the slices that tasks read, from the log or its archive, and how many tasks share them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from ...core.errors import LogNotFound, PositionOfOtherIncarnation, PositionTrimmed
from ...core.extent import Extent
from ...core.query import Query
from ...flight.client import BulkClient
from ...flight.wire import Split, Ticket, query_json
from ..archive.slices import archive_slices
from ..archive.snapshot import Archive
from .options import ReadOptions
from .positions import DataLoss

logger = logging.getLogger("headwater.spark")
TRIES = 5
"""How often to plan a read or a batch if a log is trimmed, deleted or recreated between reading its extent and
planning.
"""

SPARSE = 2
"""A range with at least this many numbers per event is not cut evenly."""

T = TypeVar("T")


@dataclass
class LogSlice(InputPartition):
    """The part of a log that one task reads."""

    ticket: Ticket


class Range(NamedTuple):
    """Events of a log in (after, upto], all of them in one place."""

    after: int
    upto: int
    is_archived: bool


def route(
    options: ReadOptions,
    log: str,
    after: int,
    upto: int,
    extent: Extent,
    archive: Archive | None,
    *,
    prefers_archive: bool,
) -> Iterator[Range]:
    """Where the events in (after, upto] are: first in the archive, if preferred or if the log no longer has them.

    `extent` was read before the archive was opened, so events trimmed before it cannot be missing from the archive.
    Raises DataLoss if events are in neither, unless the options allow it.
    """
    if archive is not None and after < upto:
        archived_upto = min(upto, archive.next_number(log) - 1)
        first = archive.first_retained(log) or archived_upto + 1
        is_needed = after + 1 < extent.first_retained
        if after < archived_upto and (is_needed or (prefers_archive and first <= after + 1)):
            if first > after + 1:
                after = _lose(options, log, after, upto, min(first, extent.first_retained))
            if after < archived_upto:
                yield Range(after, archived_upto, True)
                after = archived_upto
    if after < upto and after + 1 < extent.first_retained:
        after = _lose(options, log, after, upto, extent.first_retained)
    if after < upto:
        yield Range(after, upto, False)


def planned(plan: Callable[[], T], may_repeat: Callable[[DataLoss], bool] = lambda loss: False) -> T:
    """The result of `plan`, repeated if a log changed between reading its extent and planning: the repeated `plan`
    reports the change. `may_repeat`: whether a repetition may find the lost events.
    """
    for _ in range(TRIES - 1):
        try:
            return plan()
        except (PositionTrimmed, LogNotFound, PositionOfOtherIncarnation):
            continue
        except DataLoss as error:
            if not may_repeat(error):
                raise
    return plan()


def _lose(options: ReadOptions, log: str, after: int, upto: int, first_retained: int) -> int:
    """The last lost number in (after, upto]. Raises DataLoss, unless the options allow it."""
    last = min(upto, first_retained - 1)
    loss = DataLoss(log, after + 1, last, first_retained, options.archive)
    if options.fails_on_loss:
        raise loss
    logger.warning("events are skipped: %s", loss)
    return last


class Plan(NamedTuple):
    """What the slices of a log share."""

    options: ReadOptions
    log: str
    incarnation: str
    query: Query
    partitions: tuple[int, ...] | None
    splits_min: int


def slices(client: BulkClient, plan: Plan, range: Range, archive: Archive | None) -> Sequence[InputPartition]:
    """The range, cut according to the options. Raises PositionTrimmed if the log was trimmed in the meantime."""
    if range.is_archived:
        assert archive is not None
        return archive_slices(
            archive,
            plan.log,
            range.after,
            range.upto,
            plan.query,
            split_bytes=plan.options.split_bytes,
            split_events=plan.options.split_events_max,
            splits_min=plan.splits_min,
        )
    partitions = plan.partitions or (None,)
    splits_min = -(-plan.splits_min // len(partitions))
    found: list[Split] = []
    for partition in partitions:
        ticket = Ticket(
            log=plan.log,
            after=range.after,
            upto=range.upto,
            partition=partition,
            query=query_json(plan.query),
            columns=ticket_columns(plan.options),
            incarnation=plan.incarnation,
            schema="spark",
            compression=plan.options.compression,
        )
        found += client.plan(ticket, split_bytes=plan.options.split_bytes, splits_min=splits_min)
    return [LogSlice(ticket) for split in found for ticket in _cut(client, split, plan.options)]


def ticket_columns(options: ReadOptions) -> tuple[str, ...]:
    """The columns to request from a log: including the numbers, if a task may have to resume elsewhere."""
    may_go_on = options.archive is not None or not options.fails_on_loss
    if may_go_on and "sequence_number" not in options.columns:
        return (*options.columns, "sequence_number")
    return options.columns


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """The total split by weight: at least 1 for every weight above 0, even if the parts then exceed the total."""
    parts = [max(1, total * weight // sum(weights)) if weight else 0 for weight in weights]
    by_weight = sorted(range(len(parts)), key=lambda index: weights[index])
    while sum(parts) > total and max(parts) > 1:
        largest = parts.index(max(parts))
        parts[largest] -= min(sum(parts) - total, parts[largest] - 1)
    while 0 < sum(parts) < total:  # the remainder of rounding down, less than the number of parts
        parts[by_weight.pop()] += 1
    return parts


def _cut(client: BulkClient, split: Split, options: ReadOptions) -> Iterator[Ticket]:
    """The split's ticket, or several if it has more events than a task may read.

    The cuts are even, unless most numbers have no event, as after a restore: then the server provides them.
    """
    ticket, events_max = split.ticket, options.split_events_max
    if events_max is None or split.events <= events_max:
        yield ticket
        return
    assert ticket.after is not None and ticket.upto is not None
    parts = -(-split.events // events_max)
    if ticket.upto - ticket.after > SPARSE * split.events:
        yield from (each.ticket for each in client.plan(ticket, split_bytes=options.split_bytes, splits_min=parts))
        return
    width = -(-(ticket.upto - ticket.after) // parts)
    for after in range(ticket.after, ticket.upto, width):
        yield replace(ticket, after=after, upto=min(after + width, ticket.upto))
