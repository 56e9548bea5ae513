"""Reads one version of a projection, without Spark and without the server."""

from __future__ import annotations

import heapq
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from .buckets import bucket_of, rows_of
from .fold import Row, State, state_of
from .table import StateTable


class Snapshot(NamedTuple):
    """States, and where to resume: they are the result of the log's events up to that number."""

    position: int
    """Continue reading the log with `after=position`."""
    states: dict[str, State]
    """By entity. A missing entity has no state."""


def snapshot(
    path: str | os.PathLike[str], entities: Collection[str] | None = None, version: int | None = None
) -> Snapshot:
    """The states of these entities (None for all) at one instant; only their files are read.

    `version` is that of the Delta table, by default the newest. Raises NotAProjection.
    """
    table = StateTable(Path(path).absolute(), version)
    states = {entity: state_of(row) for entity, row in _rows(table, entities)}
    return Snapshot(table.position, states)


def dump(path: str | os.PathLike[str], target: BinaryIO, version: int | None = None) -> int:
    """Write the table as lines of JSON, sorted by entity. Returns how many entities there are.

    Tables with equal contents give the same bytes, whatever files and batches they were built from. Raises
    NotAProjection.
    """
    table = StateTable(Path(path).absolute(), version)
    count = 0
    for entity, row in heapq.merge(*(rows_of(table.path / file) for file in table.files().values())):
        line = {
            "entity": entity,
            "state": msgspec.Raw(row.state),
            "sequence_number": row.sequence_number,
            "events": row.events,
        }
        target.write(msgspec.json.encode(line) + b"\n")
        count += 1
    return count


def _rows(table: StateTable, entities: Collection[str] | None) -> Iterator[tuple[str, Row]]:
    files = table.files()
    if entities is None:
        for file in files.values():
            yield from rows_of(table.path / file)
        return
    for bucket in sorted(_buckets(entities, table.definition.buckets) & files.keys()):
        for entity, row in rows_of(table.path / files[bucket]):
            if entity in entities:
                yield entity, row


def _buckets(entities: Iterable[str], buckets: int) -> set[int]:
    return {bucket_of(entity, buckets) for entity in entities}
