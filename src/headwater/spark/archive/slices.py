"""Plans which files of an archive each task reads, and reads a log's events from them.

The archive of a log contains its events below the next number that the archiver expects. The table stores that number
in the transaction `archiver:LOG`, which is committed with the files. Files have the columns of `schema`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from ...core.query import ALL, Query, QueryItem
from ...formats.arrow.columns import numbers_of
from ...formats.files.parquet import batches_of
from ..columns.schema import arrow_schema
from .errors import ArchiveUnreadable
from .snapshot import Archive, ArchiveFile, opened

Mask = npt.NDArray[np.bool_]


def query_columns(query: Query) -> tuple[str, ...]:
    """The columns that the query needs: `type`, `tags`, both or neither."""
    items = query.items or ()
    columns = {"type": any(item.types for item in items), "tags": any(item.has_tags for item in items)}
    return tuple([name for name, is_needed in columns.items() if is_needed])


def matching_rows(query: Query, batch: pa.RecordBatch) -> Mask:
    """Which rows of a batch match. The batch has the columns of `query_columns`, as strings and lists of strings."""
    if query.items is None:
        return np.ones(batch.num_rows, np.bool_)
    found = np.zeros(batch.num_rows, np.bool_)
    rows_of: dict[tuple[str, bool], Mask] = {}  # items of one query often share tags
    for item in query.items:
        found |= _matching_item(item, batch, rows_of)
    return found


def _matching_item(item: QueryItem, batch: pa.RecordBatch, rows_of: dict[tuple[str, bool], Mask]) -> Mask:
    rows = _is_in(batch.column("type"), item.types) if item.types else np.ones(batch.num_rows, np.bool_)
    wanted = [(tag, ":" not in tag) for tag in item.tags] + [(tag, False) for tag in item.exact_tags]
    for tag, is_key in wanted:
        if not rows.any():
            break
        if (tag, is_key) not in rows_of:
            rows_of[tag, is_key] = _tagged(batch.column("tags"), tag, is_key=is_key)
        rows &= rows_of[tag, is_key]
    return rows


def _is_in(column: pa.Array, values: Sequence[str]) -> Mask:
    return _mask(pc.is_in(column, value_set=pa.array(values, column.type)))


def _tagged(tags: pa.ListArray, wanted: str, *, is_key: bool) -> Mask:
    """The rows with that tag. A bare key also matches all tags with that key."""
    values = tags.flatten()
    hits = pc.equal(values, wanted)
    if is_key:
        hits = pc.or_(hits, pc.starts_with(values, f"{wanted}:"))
    rows = np.zeros(len(tags), np.bool_)
    rows[numbers_of(pc.list_parent_indices(tags).filter(hits))] = True
    return rows


def _mask(array: pa.Array) -> Mask:
    mask: Mask = numbers_of(array.fill_null(False)).astype(np.bool_, copy=False)
    return mask


BATCH_EVENTS = 65_536
BATCH_BYTES = 4 * 1024 * 1024
"""Maximum size of a batch; an event may have up to 64 MiB."""


class Piece(NamedTuple):
    """A file, or some of its row groups."""

    path: str
    row_groups: tuple[int, ...] | None = None


@dataclass
class ArchivedSlice(InputPartition):
    """What one task reads of the archive: the events of a log in (after, upto] in these pieces."""

    log: str
    after: int
    upto: int
    pieces: tuple[Piece, ...]


def archive_slices(
    archive: Archive,
    log: str,
    after: int,
    upto: int,
    query: Query = ALL,
    *,
    split_bytes: int,
    split_events: int | None,
    splits_min: int,
) -> list[ArchivedSlice]:
    """The slices for tasks, in order, of about that size. Small files are grouped, and large ones are split. Files that
    cannot match because of their types are left out."""
    files = archive.files(log, after, upto, query)
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
    with opened(piece.path) as file:
        if missing := set(columns) - set(file.schema_arrow.names):
            raise ArchiveUnreadable(piece.path, f"there is no column {', '.join(sorted(missing))}")
        wanted = piece.row_groups if piece.row_groups is not None else range(file.num_row_groups)
        groups = [group for group in wanted if _may_have(file.metadata.row_group(group), slice)]
        if groups:
            yield from batches_of(file, _batch_events(file, groups), groups, columns)


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


def _pieces(file: ArchiveFile, size: int, split_events: int | None) -> Iterator[tuple[Piece, int, int]]:
    """A file, or the row groups of a file that is larger than a split may be, each with its events and bytes."""
    if file.bytes <= size and file.events <= (split_events or file.events):
        yield Piece(file.path), file.events, file.bytes
        return
    with opened(file.path) as parquet:
        groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
    for number, group in enumerate(groups):
        yield Piece(file.path, (number,)), group.num_rows, max(1, file.bytes * group.num_rows // max(1, file.events))
