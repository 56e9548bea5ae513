"""Writes the events of a frame as Parquet files into the archiver's directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...formats.files.parquet import SPARK_WRITES
from .columns import DATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UTC_DATE = "date_from_unix_date(cast(unix_millis(recorded_at) div 86400000 as int))"
"""The date of an event. It does not depend on the session's time zone, which to_date would use."""
ZSTD_LEVEL = "1"
"""This is the level of Arrow's own writers, and therefore of a compaction. Spark's default is 3, which takes a fifth
more time for files of the same size; only very repetitive events become smaller. """


def stage(events: DataFrame, after: int, directory: Path) -> None:
    """Write the events after that number as Parquet, one file for each task and date, in order of their numbers.

    First removes files of earlier attempts from the directory.
    """
    from pyspark.sql import functions as F

    # INT96 is Spark's default; neither Delta nor DuckDB supports it well.
    events.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    (
        events.where(F.col("sequence_number") > after)
        .withColumn(DATE, F.expr(UTC_DATE))
        .sortWithinPartitions(DATE, "sequence_number")
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "static")
        .options(**SPARK_WRITES)
        .option("compression", "zstd")
        .option("parquet.compression.codec.zstd.level", ZSTD_LEVEL)
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .partitionBy(DATE)
        .parquet(directory.absolute().as_uri())
    )
