"""Adds closed windows to a Delta table. Every batch of a query is added once, regardless of how often Spark repeats
it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema
from deltalake.transaction import AddAction

from ....formats.files.parquet import NewParquet
from ...delta.digest import Description
from ...delta.log import entry
from ...delta.table import Table, create_table, is_table
from ...durable import sync
from .errors import NotAMetricsTable

_PREFIX = "headwater."
_TRANSACTION = "metrics"


def check(path: Path, definition: Mapping[str, str]) -> None:
    """Raises NotAMetricsTable if there is a table of something else, or any other file."""
    if not is_table(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise NotAMetricsTable(str(path), "a new table needs an empty directory, but there are other files")
        return
    _check_definition(path, Table(path, NotAMetricsTable), definition)


def append(path: Path, rows: pa.Table, definition: Mapping[str, str], query: str, batch: int) -> bool:
    """Add the rows of a query's batch durably. Returns False if they were already added. The first one creates the
    table.

    Raises NotAMetricsTable: also if another query, with another checkpoint, fills it.
    """
    definition = {**definition, "query": query}
    is_there = is_table(path) and _has(path, definition, batch)
    if not is_there:
        _write(path, rows, definition, batch)
    # Also for an existing batch: its writer may have been killed before this.
    newest = entry(path, Table(path, NotAMetricsTable).version)
    actions = map(json.loads, newest.read_text(encoding="utf-8").splitlines())
    sync([*(path / action["add"]["path"] for action in actions if "add" in action), newest], path)
    return not is_there


def _has(path: Path, definition: Mapping[str, str], batch: int) -> bool:
    table = Table(path, NotAMetricsTable)
    _check_definition(path, table, definition)
    newest = table.transaction(_TRANSACTION)
    return newest is not None and newest >= batch


def _write(path: Path, rows: pa.Table, definition: Mapping[str, str], batch: int) -> None:
    if not is_table(path):
        properties: dict[str, str | None] = {_PREFIX + name: value for name, value in definition.items()}
        create_table(path, Description(Schema.from_arrow(rows.schema), [], None, None, properties))
    table = Table(path, NotAMetricsTable)
    _check_definition(path, table, definition)
    table.cover(_TRANSACTION)
    files = [_new_file(path, rows.cast(pa.schema(table.schema.to_arrow())))] if rows.num_rows else []
    sync([path / file.path for file in files], path)
    if not table.commit(files, {_TRANSACTION: batch}):
        raise NotAMetricsTable(str(path), "another run also writes to it")


def _new_file(path: Path, rows: pa.Table) -> AddAction:
    """A file of these rows. Delta's own writer has no checksums of pages."""
    new = NewParquet(path / f"{uuid.uuid4()}.parquet", rows.schema)
    with new as writer:
        writer.write_table(rows)
    begin, end = (_timestamp(found) for found in pc.min_max(rows["window_start"]).values())
    stats = {"numRecords": rows.num_rows, "minValues": {"window_start": begin}, "maxValues": {"window_start": end}}
    return AddAction(new.path.name, new.path.stat().st_size, {}, time.time_ns() // 1_000_000, True, json.dumps(stats))


def _timestamp(found: pa.Scalar) -> str:
    """In the form of Delta's statistics."""
    return str(found.cast(pa.timestamp("us")).as_py().isoformat(timespec="microseconds")) + "Z"


def _check_definition(path: Path, table: Table, asked: Mapping[str, str]) -> None:
    table.warn_if_unproved("start a new table with a new checkpoint to get a verified one")
    there = table.configuration
    for name, value in asked.items():
        found = there.get(_PREFIX + name)
        if found is None:
            raise NotAMetricsTable(str(path), "the Delta table there is not a metrics table")
        if found != value:
            hint = "; continue with its checkpoint, or use another table" if name == "query" else ""
            raise NotAMetricsTable(str(path), f"it was created with {name} {found!r}, not {value!r}{hint}")
