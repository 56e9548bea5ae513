"""Plans the slices that tasks read: from the log or from its archive, and how many tasks share them."""

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
"""How often a read or a batch is planned, where a log is trimmed, deleted or recreated between looking at it and
planning."""

SPARSE = 2
"""A range that has so many numbers for each event, or more, is not cut evenly."""

T = TypeVar("T")


@dataclass
class LogSlice(InputPartition):
    """What one task reads of a log."""

    ticket: Ticket


class Range(NamedTuple):
    """Events of a log in (after, upto], all of them in the one place."""

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
    """Where the events in (after, upto] are: first in the archive, if it is preferred or the log has them no more.

    `extent` was asked for before the archive was opened: so nothing that is trimmed in it can be missing from the
    archive. Raises DataLoss where events are in neither, unless the options say to go on without them.
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
    """What `plan` answers; repeated if a log changed between looking at it and planning: then `plan` looks again, and
    says what that means. `may_repeat`: whether events that are lost may be found then.
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
    """The last number in (after, upto] that is lost. Raises DataLoss, unless the options say to go on."""
    last = min(upto, first_retained - 1)
    loss = DataLoss(log, after + 1, last, first_retained, options.archive)
    if options.fails_on_loss:
        raise loss
    logger.warning("%s", loss)
    return last


class Plan(NamedTuple):
    """What the slices of a log have in common."""

    options: ReadOptions
    log: str
    incarnation: str
    query: Query
    partitions: tuple[int, ...] | None
    splits_min: int


def slices(client: BulkClient, plan: Plan, range: Range, archive: Archive | None) -> Sequence[InputPartition]:
    """The range, cut as the options say. Raises PositionTrimmed where the log was trimmed meanwhile."""
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
    """The columns to ask a log for: also the numbers, where a task may have to go on elsewhere after the last."""
    may_go_on = options.archive is not None or not options.fails_on_loss
    if may_go_on and "sequence_number" not in options.columns:
        return (*options.columns, "sequence_number")
    return options.columns


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """The total in parts by weight: at least 1 for every weight above 0, even where that makes more than the total."""
    parts = [max(1, total * weight // sum(weights)) if weight else 0 for weight in weights]
    by_weight = sorted(range(len(parts)), key=lambda index: weights[index])
    while sum(parts) > total and max(parts) > 1:
        largest = parts.index(max(parts))
        parts[largest] -= min(sum(parts) - total, parts[largest] - 1)
    while 0 < sum(parts) < total:  # what rounding down has left, fewer than there are parts
        parts[by_weight.pop()] += 1
    return parts


def _cut(client: BulkClient, split: Split, options: ReadOptions) -> Iterator[Ticket]:
    """The split's ticket, or several where it has more events than a task may read.

    The cuts are even, but where most numbers have no event, as after a restore: there the server says where they are.
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
