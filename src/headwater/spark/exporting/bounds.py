"""Which numbers of a log are meant by the bounds that a person gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...core.errors import InvalidInput
from ...core.limits import show
from ..options import timestamp_ms

if TYPE_CHECKING:  # the help of the pipelines imports no Spark
    from ...core.extent import Extent
    from ...flight.client import BulkClient
    from ..archive_reading import Archive

EARLIEST, LATEST = "earliest", "latest"


class Bounds(NamedTuple):
    """The numbers in (after, upto] of one incarnation of a log."""

    after: int
    upto: int
    incarnation: str

    @property
    def numbers(self) -> int:
        """How many numbers these are."""
        return max(0, self.upto - self.after)


def check_bound(given: str, flag: str) -> str:
    """The bound itself. Raises InvalidInput unless it is a number, a time, `earliest` or `latest`."""
    if given not in (EARLIEST, LATEST) and not _is_number(given):
        try:
            timestamp_ms(given)
        except (ValueError, InvalidInput):
            allowed = "earliest, latest, a number, or a time such as 2026-11-21T12:00:00Z"
            raise InvalidInput(f"{allowed} is expected, {show(given)} given", flag) from None
    return given


def bounds_of(client: BulkClient, log: str, start: str, end: str, archive: str | None) -> Bounds:
    """The numbers from `start` to `end`, both included; of times, what was recorded at `start` or later, before `end`.

    Raises InvalidInput for a number that the log has not; LogNotFound.
    """
    from ..archive_reading import Archive
    from ..positions import first_retained

    extent = client.head(log)
    table = Archive(archive) if archive is not None else None
    after = _number(client, log, extent, table, start, "--start") - 1
    if end == LATEST or _is_number(end):
        upto = _number(client, log, extent, table, end, "--end")
    else:
        upto = _number(client, log, extent, table, end, "--end") - 1
    first = first_retained(log, extent, table)
    if _is_number(start) and after + 1 < first:
        raise InvalidInput(f"{start} given, the first event that is there is {first}", "--start")
    return Bounds(after, max(upto, after), extent.incarnation)


def _number(client: BulkClient, log: str, extent: Extent, archive: Archive | None, given: str, flag: str) -> int:
    from ..positions import first_retained, sequence_number_at

    if given == EARLIEST:
        return first_retained(log, extent, archive)
    if given == LATEST:
        return extent.head
    if not _is_number(given):
        return sequence_number_at(client, log, extent, archive, timestamp_ms(given))
    if not 1 <= (number := int(given)) <= extent.head:
        raise InvalidInput(f"{number} given, the head of log {log!r} is {extent.head}", flag)
    return number


def _is_number(given: str) -> bool:
    return given.isascii() and given.isdigit() and len(given) < 12
