"""Spark looks for data sources in modules named so: `spark.read.format("headwater")` works without a register call.

Spark imports this in short-lived processes, many times, and an error here would break the look-up of every Python
source: so it is light, and what it needs is imported when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The data source `headwater`: event logs read and written, in batches and as streams (docs/reference/spark.md)."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "headwater"

    def schema(self) -> StructType | str:
        """The columns that the options ask for. Raises InvalidOption."""
        from headwater.spark.source.data_source import read_schema

        return read_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises InvalidOption."""
        from headwater.spark.source.data_source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read; what is wrong with its options is raised when it starts."""
        from headwater.spark.source.data_source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from headwater.spark.sink.data_sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write."""
        from headwater.spark.sink.data_sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
