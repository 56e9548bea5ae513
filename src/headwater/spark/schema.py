"""The one schema of events in Spark: for reads and streams, and for the archive, whose files have these columns.

Spark prunes no column of a Python source, so what is not needed is left out by the option `columns`.
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

from ..core.errors import InvalidInput
from .options import InvalidOption, nearest

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
"""All of them, in their order."""
METADATA = ("id", "source", "attributes", "group_key", "envelope", "encoding")
"""What `includeMetadata=false` leaves out."""
EVENT_SCHEMA = StructType([StructField(name, kind) for name, kind in _TYPES.items()])
"""The columns as Spark has them. None of them is ever null; Spark makes no use of knowing so."""


def select(columns: Sequence[str]) -> StructType:
    """The schema of these columns, in this order. They are known to be ours (`check_columns`)."""
    return StructType([EVENT_SCHEMA[name] for name in columns])


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The Arrow schema that Spark expects of batches of these columns, to the letter."""
    return to_arrow_schema(select(columns), timezone="UTC")


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns themselves. Raises InvalidOption: none, one that is not ours, one given twice."""
    if not columns:
        raise InvalidOption(f"no column given; some of {', '.join(COLUMNS)} are expected", "columns")
    for number, name in enumerate(columns):
        if name not in _TYPES:
            raise InvalidOption(f"there is no column {name!r}{nearest(name, COLUMNS)}", "columns")
        if name in columns[:number]:
            raise InvalidOption(f"column {name!r} is given twice", "columns")
    return tuple(columns)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema declares; it may be what `select` made, or what a user wrote.

    Raises InvalidInput: a column that is not ours, or has another type than ours.
    """
    columns = check_columns(schema.fieldNames())
    for field in schema.fields:
        if field.dataType.simpleString() != _TYPES[field.name].simpleString():
            given, ours = field.dataType.simpleString(), _TYPES[field.name].simpleString()
            raise InvalidInput(
                f"{given} is declared, the column is {ours}; leave the schema out, it is known", field.name
            )
    return columns
