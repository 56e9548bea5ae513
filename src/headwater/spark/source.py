"""What Spark asks of the data source `headwater`: from its options to a schema, a batch read, a stream.

`pyspark_headwater` calls this; so importing that stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from .batch_reading import BatchReader, reader_of
from .options import read_options
from .read_options import READING, batch_options, columns_asked, with_schema
from .schema import select, with_payload
from .stream_reading import StreamReader
from .table_options import given_to_table, noted, with_noted
from .workers import settle


def read_schema(options: Mapping[str, str]) -> StructType | str:
    """The columns that the options ask for; as DDL where they say it so. Whether it is for a batch or a stream is not
    known here.

    Raises InvalidOption, for any option that is wrong: so that `load` tells, and not the first action.
    """
    settle()
    of_table = given_to_table(options, READING)
    if of_table is not None:
        batch_options(of_table)
    values = read_options(options if of_table is None else of_table, READING, "a read of format headwater")
    columns = columns_asked(values)
    schema, first = [
        with_payload(some, values["payloadSchema"]) if "payloadSchema" in values else select(some)
        for some in (columns, columns[:1])
    ]
    return schema if of_table is None else noted(schema, first, of_table)


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """A batch read of the columns that the schema declares. Raises InvalidOption, InvalidInput (other columns)."""
    settle()
    return reader_of(with_schema(batch_options(with_noted(options, schema)), schema))


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """A streaming read of the columns that the schema declares. Raises nothing: the reader does, when it is asked."""
    return StreamReader(dict(with_noted(options, schema)), schema)
