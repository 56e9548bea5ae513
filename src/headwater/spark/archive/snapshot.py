"""One version of an archive, as readers see it: its files, with their possible numbers and times.

No Spark here.

`Snapshot` is a whole table made by an archiver. `Archive` serves the data source: any Delta table with the columns of
an archive, of one log or of several, with or without statistics.

A version stays readable while archivers add and compactions rewrite, until a vacuum removes its files, after the
table's retention of 7 days.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from datetime import date as Date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem
from pyarrow.parquet import ParquetFile

from ...core.limits import SEQUENCE_NUMBER_MAX
from ...core.query import ALL, Query
from ...formats.files.parquet import check_pages, open_parquet, refusing_damage, table_of
from ...formats.files.parquet_checksums import check_whole, checksums_in
from ...formats.settings.local_paths import scheme_of
from ..options import InvalidOption, ceil_ms
from .errors import RESTORE_FILE, ArchiveUnreadable, NotAnArchive
from .state import archive_transaction, state_of

if TYPE_CHECKING:  # reading without an archive does not load deltalake, which uses 280 MiB of address space
    from ..delta.table import Table

UNREADABLE_FEATURES = frozenset({"deletionVectors", "columnMapping"})
"""Table features that make the files alone insufficient to define the content."""
SCHEMES = ("file", "s3", "gs", "abfs", "abfss", "hdfs")
"""Where a table and its files can be read."""
_GONE = (
    "the file was removed, although this version of the table contains it; set the "
    "vacuum retention to more than the duration of the longest read"
)
_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class ArchiveFile(NamedTuple):
    """One Parquet file of a table, with its statistics; without them it may contain anything."""

    path: str
    """An absolute path, or a URI if the table is not in a directory of this machine."""
    date: Date
    """The UTC date on which all of its events were recorded."""
    bytes: int
    events: int
    first: int
    """Its lowest number."""
    last: int
    recorded_from: datetime
    recorded_upto: datetime
    log_min: str
    log_max: str | None
    type_min: str = ""
    type_max: str | None = None

    @property
    def has_statistics(self) -> bool:
        """Whether the table has the ranges of its numbers and times."""
        return self.last < SEQUENCE_NUMBER_MAX and self.recorded_upto < _LATEST

    def may_have(self, after: int, upto: int) -> bool:
        """Whether it may contain events in (after, upto]."""
        return self.last > after and self.first <= upto

    def may_be_of(self, log: str) -> bool:
        """Whether it may contain events of that log."""
        return _is_within(log, self.log_min, self.log_max)

    def may_match(self, query: Query) -> bool:
        """Whether it may contain matching events, according to its types only."""
        return query.items is None or any(
            not item.types or any(_is_within(type, self.type_min, self.type_max) for type in item.types)
            for item in query.items
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An archive at one version. It contains every event of the log from `first` to `archived` exactly once."""

    path: str
    log: str
    incarnation: str
    first: int
    archived: int
    version: int
    files: Sequence[ArchiveFile]
    """By first number."""
    unproved_since: int | None = None
    """The version since which no digest proves the state of the table; None if it is proved."""

    @property
    def events(self) -> int:
        """The number of events."""
        return sum(file.events for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(file.bytes for file in self.files)

    def select(
        self,
        after: int = 0,
        upto: int | None = None,
        *,
        recorded_from: datetime | None = None,
        recorded_before: datetime | None = None,
    ) -> list[ArchiveFile]:
        """The files that may contain events after one number, up to another, recorded in that period. There may be
        extra files, but none are missing.
        """
        return [
            file
            for file in self.files
            if file.may_have(after, self.archived if upto is None else upto)
            and (recorded_from is None or file.recorded_upto >= recorded_from)
            and (recorded_before is None or file.recorded_from < recorded_before)
        ]


def snapshot(path: str | os.PathLike[str], version: int | None = None) -> Snapshot:
    """The archive at that path, at its newest version or a given one. Raises NotAnArchive, ArchiveUnreadable."""
    from ..delta.table import Table

    root = Path(path).absolute()
    table = Table(root, NotAnArchive, version)
    _check_features(table, str(root))
    state = state_of(table, root)
    files = _files_of(table, str(root))
    return Snapshot(
        str(root),
        state.log,
        state.incarnation,
        state.first,
        state.archived,
        state.version,
        files,
        table.unproved_since,
    )


class Archive:
    """The newest version of a table, pinned so that repeated reads return the same events."""

    def __init__(self, path: str) -> None:
        """Opens the table; its files are listed on demand.

        Raises InvalidOption if there is no readable table, and ArchiveUnreadable if its files do not define its
        content.
        """
        from ..delta.table import Table

        if (scheme := scheme_of(path)) is not None and scheme not in SCHEMES:
            allowed = ", ".join(f"{each}://" for each in SCHEMES)
            raise InvalidOption(f"expected a path or an address with {allowed}, got {path!r}", "archive")
        try:
            self._table = Table(path, NotAnArchive)
        except NotAnArchive as error:
            raise InvalidOption(f"{error.problem} at {path!r}", "archive") from None
        _check_features(self._table, path)

    def next_number(self, log: str) -> int:
        """The first number of the log that is not archived; 0 if nothing was ever archived."""
        return self._table.transaction(archive_transaction(log)) or 0

    def first_retained(self, log: str) -> int | None:
        """The first archived number of the log, according to statistics; None if there is no event."""
        return min((file.first for file in self._files if file.may_be_of(log)), default=None)

    def files(self, log: str, after: int, upto: int, query: Query = ALL) -> list[ArchiveFile]:
        """The files that may contain matching events of the log in (after, upto], by their first numbers."""
        found = (file for file in self._files if file.may_be_of(log) and file.may_have(after, upto))
        return [file for file in found if file.may_match(query)]

    def sequence_number_at(self, log: str, recorded_ms: int) -> int | None:
        """The first archived number that was recorded at that time or later; None if there is none."""
        found = None
        for file in self.files(log, 0, self.next_number(log) - 1):
            if found is not None and file.first > found:
                break
            if ceil_ms(file.recorded_upto) >= recorded_ms:
                found = min(filter(None, (found, _number_in(file.path, log, recorded_ms))), default=None)
        return found

    @cached_property
    def _files(self) -> list[ArchiveFile]:
        return _files_of(self._table, self._table.root)


@contextmanager
def opened(path: str) -> Iterator[ParquetFile]:
    """The Parquet file at that path, or URI. Raises ArchiveUnreadable if it is missing, or the part that is read is
    damaged.
    """
    filesystem, place = FileSystem.from_uri(path) if "://" in path else (None, path)
    with refusing_damage(path, ArchiveUnreadable, RESTORE_FILE):
        try:
            with open_parquet(place, filesystem) as file:
                yield file
        except FileNotFoundError:
            raise ArchiveUnreadable(path, _GONE) from None


def check_file(path: str) -> None:
    """Read a whole local file. Raises ArchiveUnreadable if it is missing, or does not match its checksums."""
    with opened(path) as file:
        if checksums_in(path) is None:
            check_pages(file)
        else:
            check_whole(Path(path))


def _check_features(table: Table, path: str) -> None:
    """Raises ArchiveUnreadable if the files alone do not define the table's content."""
    if unreadable := UNREADABLE_FEATURES & table.reader_features:
        raise ArchiveUnreadable(path, f"the table uses {', '.join(sorted(unreadable))}")


def _files_of(table: Table, root: str) -> list[ArchiveFile]:
    """The files that contain events, by their first numbers."""
    files = [_file(root, action) for action in table.actions.to_pylist()]
    return sorted([file for file in files if file.events], key=lambda file: (file.first, file.path))


def _file(root: str, action: Mapping[str, Any]) -> ArchiveFile:
    events, recorded_from = action.get("num_records"), action.get("min.recorded_at") or _EARLIEST
    return ArchiveFile(
        path=os.path.join(root, action["path"]),
        date=action.get("partition.date") or recorded_from.date(),
        bytes=action["size_bytes"],
        events=1 if events is None else events,
        first=action.get("min.sequence_number") or 1,
        last=action.get("max.sequence_number") or SEQUENCE_NUMBER_MAX,
        recorded_from=recorded_from,
        recorded_upto=action.get("max.recorded_at") or _LATEST,
        log_min=action.get("min.log") or "",
        log_max=action.get("max.log"),
        type_min=action.get("min.type") or "",
        type_max=action.get("max.type"),
    )


def _is_within(text: str, lowest: str, highest: str | None) -> bool:
    """Whether statistics allow it. Statistics of long texts may be cut, and are then prefixes."""
    return lowest <= text and (highest is None or text <= highest or text.startswith(highest))


def _number_in(path: str, log: str, recorded_ms: int) -> int | None:
    moment = pa.scalar(recorded_ms, pa.timestamp("ms", tz="UTC"))
    with opened(path) as file:
        table = table_of(file, ["log", "sequence_number", "recorded_at"])
    later = pc.greater_equal(table["recorded_at"], moment)
    chosen = table.filter(pc.and_(later, pc.equal(table["log"], log)))
    number: int | None = pc.min(chosen["sequence_number"]).as_py()
    return number
