"""Goes through a log in steps with a fixed number of events. Unused numbers, as after a restore, cost nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.errors import InvalidPosition, LogNotFound, PositionOfOtherIncarnation, PositionTrimmed
from ...flight.wire import Ticket

if TYPE_CHECKING:  # a log without an archive does not need deltalake
    from ...core.extent import Extent
    from ...flight.client import BulkClient
    from .snapshot import Archive


def events_left(client: BulkClient, log: str, after: int, extent: Extent) -> int:
    """How many events the log has after that number, up to the head. Unused numbers do not count."""
    after = max(after, extent.first_retained - 1)
    try:
        return client.count(log, after, extent.head) if after < extent.head else 0
    except (PositionTrimmed, PositionOfOtherIncarnation, InvalidPosition, LogNotFound):  # the next batch reports it
        return extent.head - after


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps through one log, and through its archived part."""

    client: BulkClient
    log: str
    incarnation: str
    archive: Archive | None = None

    def end(self, after: int, upto: int, events: int) -> int:
        """The last number of the next step. The step has at most that many events, none of them above `upto`, and at
        least one if there is one up to `upto`. Raises LogNotFound, PositionOfOtherIncarnation."""
        end = min(upto, after + events)
        if end == upto or self._has_any(after, end):
            return end
        first = self._first(after, upto)
        return upto if first is None else min(upto, first - 1 + events)

    def count(self, after: int, upto: int) -> int:
        """How many events are in (after, upto]; archived ones are counted by whole files."""
        extent = self.client.head(self.log)
        archived = 0
        if self.archive is not None and after + 1 < extent.first_retained:
            archived_upto = min(upto, extent.first_retained - 1)
            archived = sum(file.events for file in self.archive.files(self.log, after, archived_upto))
        return archived + events_left(self.client, self.log, after, replace(extent, head=upto))

    def _has_any(self, after: int, upto: int) -> bool:
        if self.archive is not None and self.archive.files(self.log, after, upto):
            return True
        try:
            return self.client.count(self.log, after, upto) > 0
        except PositionTrimmed:  # the reader of the step reports the loss, or skips it
            return True

    def _first(self, after: int, upto: int) -> int | None:
        """The number of the first event in (after, upto]; None if there is none."""
        archived = [] if self.archive is None else self.archive.files(self.log, after, upto)
        found = [max(file.first, after + 1) for file in archived]
        ticket = Ticket(self.log, after, upto, columns=("sequence_number",), incarnation=self.incarnation)
        try:
            batch = next(self.client.read(ticket), None)
        except PositionTrimmed:  # just now; see `_has_any`
            return after + 1
        if batch is not None:
            found.append(batch.column(0)[0].as_py())
        return min(found, default=None)
