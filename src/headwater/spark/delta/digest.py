"""A digest of the whole state of a Delta table: its files with their statistics, and its own description.

A file's digest is a hash of everything that readers use from its entry: path, bytes, time, rows, bounds, partition. A
state's digest is made from the sum of those, in any order, so a writer knows it before it commits: the previous state,
plus added files, minus removed ones. A reader computes it from the table that the Delta library has opened, from any
files of the log: entries or a checkpoint. A different state gives a different sum, except with a probability of 1 in
2^128.

The digest omits what our readers do not use from the log: identifier and time of creation, which the library chooses,
the protocol, which it checks before it opens anything, and files removed earlier.

No Spark here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema
from deltalake.transaction import AddAction

_BYTES = 16
_FILE = ("path", "size_bytes", "modification_time", "num_records")
_STATISTICS = {"null_count": "nullCount", "min": "minValues", "max": "maxValues"}
"""The library's names for them, and Delta's own names."""
_PREFIXES = (*(f"{name}." for name in _STATISTICS), "partition.")


class Description(NamedTuple):
    """A table's own description."""

    schema: Schema
    partition_columns: Sequence[str]
    name: str | None
    description: str | None
    configuration: Mapping[str, str | None]

    @property
    def text(self) -> str:
        """Equal for equal descriptions."""
        parts = self._asdict() | {"schema": json.loads(self.schema.to_json())}
        parts |= {"partition_columns": list(self.partition_columns), "configuration": dict(self.configuration)}
        return json.dumps(parts, sort_keys=True)


def state_digest(files: Iterable[int], description: Description) -> str:
    """The digest of a state whose files have these digests, in hexadecimal."""
    total = sum(files) % (1 << 8 * _BYTES)
    return blake2b(total.to_bytes(_BYTES) + description.text.encode(), digest_size=_BYTES).hexdigest()


def file_digests(actions: pa.Table) -> dict[str, int]:
    """The digest of each file, by path, from the library's own table of them."""
    names = sorted(name for name in actions.schema.names if name in _FILE or name.startswith(_PREFIXES))
    # A missing value adds no text, so it does not matter whether a column exists for it.
    records = pc.binary_join_element_wise(*_texts(actions, names), "", null_handling="replace", null_replacement="")
    hashes = (blake2b(record, digest_size=_BYTES).digest() for record in records.cast(pa.binary()).to_pylist())
    return dict(zip(actions["path"].to_pylist(), map(int.from_bytes, hashes), strict=True))


def added_digests(added: Sequence[AddAction], schema: Schema) -> dict[str, int]:
    """The digest that each of these files will have in a table with this schema."""
    if not added:
        return {}
    types: dict[str, pa.DataType] = {field.name: field.type for field in pa.schema(schema.to_arrow())}
    statistics = [json.loads(action.stats) for action in added]
    columns: dict[str, pa.Array] = {
        "path": pa.array([action.path for action in added], pa.string()),
        "size_bytes": pa.array([action.size for action in added], pa.int64()),
        "modification_time": pa.array([action.modification_time for action in added], pa.int64()),
        "num_records": pa.array([each.get("numRecords") for each in statistics], pa.int64()),
    }
    for name, told_as in _STATISTICS.items():
        for column, values in _columns([each.get(told_as, {}) for each in statistics]).items():
            type = pa.int64() if name == "null_count" else types[column]
            columns[f"{name}.{column}"] = pa.array(values).cast(type)
    for column, values in _columns([action.partition_values for action in added]).items():
        columns[f"partition.{column}"] = pa.array(values, pa.string()).cast(types[column])
    return file_digests(pa.table(columns))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values for each key, with None in rows without the key."""
    return {key: [row.get(key) for row in rows] for key in sorted({key for row in rows for key in row})}


def _texts(actions: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    """For each column, name and value in each row; null for no value.

    All columns are joined with their names at once: most tables have more columns than files.
    """
    columns = {name: _plain(actions[name].combine_chunks()) for name in names}
    numbers = {name: column for name, column in columns.items() if pa.types.is_int64(column.type)}
    others = {name: column.cast(pa.string()) for name, column in columns.items() if name not in numbers}
    values = [pa.concat_arrays(list(numbers.values())).cast(pa.string()), *others.values()]
    order = [*numbers, *others]
    labels = pa.array([f"\x1f{name}=" for name in order]).take(pa.array(np.repeat(np.arange(len(order)), len(actions))))
    texts = pc.binary_join_element_wise(labels, pa.concat_arrays(values), "")
    return [texts.slice(order.index(name) * len(actions), len(actions)) for name in names]


def _plain(column: pa.Array) -> pa.Array:
    """Times as microseconds."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())
    return column
