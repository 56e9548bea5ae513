"""The archived part of a log: the Parquet files of one version of a Delta table, pruned and filtered.

The archive of a log holds its events up to, and without, the next number that the archiver expects; the table says
that number in the transaction `archiver:LOG`, which is committed with the files. Files have the columns of `schema`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow.fs import FileSystem
from pyspark.sql.datasource import InputPartition

from ..core.errors import EventLogError
from ..core.limits import SEQUENCE_NUMBER_MAX
from ..core.query import Query
from ..formats.arrow_query import matching_rows, query_columns
from .options import InvalidOption, ceil_ms
from .schema import arrow_schema

BATCH_EVENTS = 65_536
BATCH_BYTES = 4 * 1024 * 1024
"""How large a batch may get; an event may have up to 64 MiB."""
UNREADABLE_FEATURES = frozenset({"deletionVectors", "columnMapping"})
"""What a table may have so that its files alone do not say what is in it."""


def archiver_app(log: str) -> str:
    """The transaction by which the table says how far that log is archived."""
    return f"archiver:{log}"


class ArchiveUnreadable(EventLogError):
    """The table, or a file that it names, cannot be read."""


@dataclass(frozen=True)
class ArchivedFile:
    """A data file, and what the table knows of it; without statistics it may hold anything."""

    uri: str
    bytes: int
    events: int
    first: int = 1
    last: int = SEQUENCE_NUMBER_MAX
    log_min: str = ""
    log_max: str | None = None
    recorded_ms_max: int | None = None

    def may_have(self, log: str) -> bool:
        """Whether events of that log may be in it. Statistics of long texts may be cut: then they are prefixes."""
        return self.log_min <= log and (self.log_max is None or log <= self.log_max or log.startswith(self.log_max))


class Piece(NamedTuple):
    """A file or some row groups of it."""

    uri: str
    row_groups: tuple[int, ...] | None = None


@dataclass
class ArchivedSlice(InputPartition):
    """What one task reads of the archive: the events of a log in (after, upto] that are in these pieces."""

    log: str
    after: int
    upto: int
    pieces: tuple[Piece, ...]


class Archive:
    """One version of a table, pinned: what is read of it is the same however often it is read."""

    def __init__(self, path: str) -> None:
        """The newest version. Raises InvalidOption where there is no table, ArchiveUnreadable."""
        try:
            self._table = DeltaTable(path)
        except TableNotFoundError:
            raise InvalidOption(f"there is no Delta table at {path!r}", "archive") from None
        protocol = self._table.protocol()
        unreadable = UNREADABLE_FEATURES & set(protocol.reader_features or ())
        if unreadable or protocol.min_reader_version == 2:
            raise ArchiveUnreadable(f"{path}: the table uses {', '.join(sorted(unreadable)) or 'columnMapping'}")
        self.version = self._table.version()
        self._root = _root(self._table.table_uri)
        self._files: list[ArchivedFile] | None = None

    def next_number(self, log: str) -> int:
        """The number from which on nothing of the log is archived; 0 if nothing ever was."""
        return self._table.transaction_version(archiver_app(log)) or 0

    def first_number(self, log: str) -> int | None:
        """The first archived number, as far as statistics tell; None if there is no event."""
        return min((file.first for file in self._files_of(log)), default=None)

    def files(self, log: str, after: int, upto: int) -> list[ArchivedFile]:
        """The files that may have events of the log in (after, upto], by their first numbers."""
        return [file for file in self._files_of(log) if file.last > after and file.first <= upto]

    def sequence_number_at(self, log: str, recorded_ms: int) -> int | None:
        """The first archived number recorded then or later; None if there is none."""
        found = None
        for file in self.files(log, 0, self.next_number(log) - 1):
            if found is not None and file.first > found:
                break
            if file.recorded_ms_max is None or file.recorded_ms_max >= recorded_ms:
                found = min(filter(None, (found, _number_in(file.uri, log, recorded_ms))), default=None)
        return found

    def _files_of(self, log: str) -> list[ArchivedFile]:
        if self._files is None:
            actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
            found = [_file(self._root, action) for action in actions]
            self._files = sorted([file for file in found if file.events], key=lambda file: (file.first, file.uri))
        return [file for file in self._files if file.may_have(log)]


def archive_slices(
    archive: Archive, log: str, after: int, upto: int, *, split_bytes: int, split_events: int | None, splits_min: int
) -> list[ArchivedSlice]:
    """What tasks are to read, in order, each about that large: small files go together, large ones are cut."""
    files = archive.files(log, after, upto)
    size = min(split_bytes, max(1, sum(file.bytes for file in files) // splits_min))
    slices: list[ArchivedSlice] = []
    room, places = 0, 0
    for file in files:
        for piece, events, bytes in _pieces(file, size, split_events):
            if not slices or bytes > room or (split_events is not None and events > places):
                slices.append(ArchivedSlice(log, after, upto, ()))
                room, places = size, split_events or 0
            slices[-1].pieces += (piece,)
            room, places = room - bytes, places - events
    return slices


def read_archived(
    slice: ArchivedSlice, columns: Sequence[str], query: Query, partitions: Sequence[int] | None
) -> Iterator[pa.RecordBatch]:
    """The events of a slice, in the order of each file, as batches of these columns. Raises ArchiveUnreadable."""
    needed = {*columns, "log", "sequence_number", *query_columns(query), *(["partition"] if partitions else [])}
    schema = arrow_schema(tuple(columns))
    for piece in slice.pieces:
        for batch in _batches(piece, slice, sorted(needed)):
            rows = _kept(batch, slice, query, partitions)
            if rows.any():
                chosen = batch if rows.all() else batch.filter(pa.array(rows))
                yield pa.record_batch([chosen.column(field.name).cast(field.type) for field in schema], schema=schema)


def _kept(
    batch: pa.RecordBatch, slice: ArchivedSlice, query: Query, partitions: Sequence[int] | None
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    numbers = batch.column("sequence_number").to_numpy()
    rows: np.ndarray[Any, np.dtype[np.bool_]] = (numbers > slice.after) & (numbers <= slice.upto)
    logs = batch.column("log").dictionary_encode()
    if logs.dictionary.to_pylist() != [slice.log]:
        rows &= np.array([log == slice.log for log in logs.dictionary.to_pylist()], np.bool_)[logs.indices.to_numpy()]
    if partitions is not None:
        rows &= np.isin(batch.column("partition").to_numpy(), partitions)
    if rows.any():
        rows &= matching_rows(query, batch)
    return rows


def _batches(piece: Piece, slice: ArchivedSlice, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        with _open(piece.uri) as file:
            if missing := set(columns) - set(file.schema_arrow.names):
                raise ArchiveUnreadable(f"{piece.uri}: there is no column {', '.join(sorted(missing))}")
            wanted = piece.row_groups if piece.row_groups is not None else range(file.num_row_groups)
            groups = [group for group in wanted if _may_have(file.metadata.row_group(group), slice)]
            if groups:
                yield from file.iter_batches(_batch_events(file, groups), row_groups=groups, columns=columns)
    except FileNotFoundError:
        problem = (
            "the file is gone, though this version of the table has it; keep vacuum's retention above the longest read"
        )
        raise ArchiveUnreadable(f"{piece.uri}: {problem}") from None
    except pa.ArrowInvalid as error:
        raise ArchiveUnreadable(f"{piece.uri}: {error}") from error


def _batch_events(file: pq.ParquetFile, groups: Sequence[int]) -> int:
    found = [file.metadata.row_group(group) for group in groups]
    bytes_each: int = max(1, max(group.total_byte_size // max(1, group.num_rows) for group in found))
    return max(1, min(BATCH_EVENTS, BATCH_BYTES // bytes_each))


def _may_have(group: pq.RowGroupMetaData, slice: ArchivedSlice) -> bool:
    leaves = [group.column(leaf) for leaf in range(group.num_columns)]
    statistics = next((leaf.statistics for leaf in leaves if leaf.path_in_schema == "sequence_number"), None)
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.max > slice.after and statistics.min <= slice.upto)


def _pieces(file: ArchivedFile, size: int, split_events: int | None) -> Iterator[tuple[Piece, int, int]]:
    """A file, or the row groups of one that is larger than a split may be, each with its events and bytes."""
    if file.bytes <= size and file.events <= (split_events or file.events):
        yield Piece(file.uri), file.events, file.bytes
        return
    with _open(file.uri) as opened:
        groups = [opened.metadata.row_group(number) for number in range(opened.num_row_groups)]
    for number, group in enumerate(groups):
        yield Piece(file.uri, (number,)), group.num_rows, max(1, file.bytes * group.num_rows // max(1, file.events))


def _number_in(uri: str, log: str, recorded_ms: int) -> int | None:
    moment = pa.scalar(recorded_ms, pa.timestamp("ms", tz="UTC"))
    with _open(uri) as file:
        table = file.read(columns=["log", "sequence_number", "recorded_at"])
    later = pc.greater_equal(table["recorded_at"], moment)
    chosen = table.filter(pc.and_(later, pc.equal(table["log"], log)))
    number: int | None = pc.min(chosen["sequence_number"]).as_py()
    return number


def _open(uri: str) -> pq.ParquetFile:
    if "://" not in uri:
        return pq.ParquetFile(uri)
    filesystem, path = FileSystem.from_uri(uri)
    return pq.ParquetFile(path, filesystem=filesystem)


def _root(table_uri: str) -> str:
    """Where the table's files are: a path where they are local, else the URI."""
    found = urlsplit(table_uri)
    root = unquote(found.path) if found.scheme in ("", "file") else table_uri
    return root if root.endswith("/") else f"{root}/"


def _file(root: str, action: dict[str, Any]) -> ArchivedFile:
    events, recorded = action.get("num_records"), action.get("max.recorded_at")
    return ArchivedFile(
        root + action["path"],
        action["size_bytes"],
        1 if events is None else events,
        action.get("min.sequence_number") or 1,
        action.get("max.sequence_number") or SEQUENCE_NUMBER_MAX,
        action.get("min.log") or "",
        action.get("max.log"),
        None if recorded is None else ceil_ms(recorded),
    )
