"""The schema of events in Spark: for reads and streams, and for the archive, whose files have these columns.

Spark cannot prune columns of a Python source; use the option `columns` to leave some out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...core.errors import InvalidInput
from ..options import InvalidOption, nearest
from .payload_schema import MALFORMED, PAYLOAD, check_payload

_TYPES: dict[str, DataType] = {
    "log": StringType(),
    "sequence_number": LongType(),
    "recorded_at": TimestampType(),
    "partition": IntegerType(),
    "type": StringType(),
    "data": BinaryType(),
    "tags": ArrayType(StringType()),
    "id": StringType(),
    "source": StringType(),
    "attributes": MapType(StringType(), StringType()),
    "group_key": StringType(),
    "envelope": BinaryType(),
    "encoding": ByteType(),
}

COLUMNS = tuple(_TYPES)
"""All columns, in order."""
TYPED = (PAYLOAD, MALFORMED)
"""The columns that replace `data` if payloads are read as columns."""
METADATA = ("id", "source", "attributes", "group_key", "envelope", "encoding")
"""The columns that `includeMetadata=false` leaves out."""
EVENT_SCHEMA = StructType([StructField(name, kind) for name, kind in _TYPES.items()])
"""The columns as Spark types. No column is ever null, but Spark would not use that fact."""


def select(columns: Sequence[str]) -> StructType:
    """The schema of these columns, in this order. They are already validated (`check_columns`)."""
    return StructType([EVENT_SCHEMA[name] for name in columns])


def with_payload(columns: Sequence[str], payload: StructType | str) -> StructType | str:
    """The schema of columns including some of TYPED; as DDL, for Spark to parse, if the payload's type is DDL."""
    if isinstance(payload, str):
        known = {name: kind.simpleString() for name, kind in _TYPES.items()}
        types = {**known, PAYLOAD: payload, MALFORMED: "binary"}
        return ", ".join([f"`{name}` {types[name]}" for name in columns])
    kinds = {**_TYPES, PAYLOAD: payload, MALFORMED: BinaryType()}
    return StructType([StructField(name, kinds[name]) for name in columns])


def sources_of(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns of a log that these are derived from."""
    return tuple(dict.fromkeys(["data" if name in TYPED else name for name in columns]))


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The exact Arrow schema that Spark expects of batches of these columns."""
    return to_arrow_schema(select(columns), timezone="UTC")


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns themselves. Raises InvalidOption if there are none, or one is unknown or repeated."""
    if not columns:
        raise InvalidOption(f"expected one or more of {', '.join(COLUMNS)}, got none", "columns")
    for number, name in enumerate(columns):
        if name not in _TYPES and name not in TYPED:
            raise InvalidOption(f"there is no column {name!r}{nearest(name, COLUMNS)}", "columns")
        if name in columns[:number]:
            raise InvalidOption(f"column {name!r} occurs twice", "columns")
    return tuple(columns)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema declares. The schema may come from `select` or from a user.

    Raises InvalidInput: an unknown column, or a column of another type; an unsupported payload type.
    """
    columns = check_columns(schema.fieldNames())
    if MALFORMED in columns and PAYLOAD not in columns:
        raise InvalidInput(f"it requires the column {PAYLOAD}, which is not declared", MALFORMED)
    types = {**_TYPES, MALFORMED: BinaryType()}
    for field in schema.fields:
        if field.name == PAYLOAD:
            check_payload(field.dataType)
        elif field.dataType.simpleString() != types[field.name].simpleString():
            given, ours = field.dataType.simpleString(), types[field.name].simpleString()
            raise InvalidInput(f"the schema declares {given}, but the column is {ours}; omit the schema", field.name)
    return columns
