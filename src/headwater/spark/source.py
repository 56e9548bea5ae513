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
from .workers import settle


def read_schema(options: Mapping[str, str]) -> StructType | str:
    """The columns that the options ask for; as DDL where they say it so. Whether it is for a batch or a stream is not
    known here.

    Raises InvalidOption, for any option that is wrong: so that `load` tells, and not the first action.
    """
    settle()
    values = read_options(options, READING, "a read of format headwater")
    columns = columns_asked(values)
    return with_payload(columns, values["payloadSchema"]) if "payloadSchema" in values else select(columns)


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """A batch read of the columns that the schema declares. Raises InvalidOption, InvalidInput (other columns)."""
    settle()
    return reader_of(with_schema(batch_options(options), schema))


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """A streaming read of the columns that the schema declares. Raises nothing: the reader does, when it is asked."""
    return StreamReader(dict(options), schema)
