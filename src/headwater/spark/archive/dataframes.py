"""Reads archives in Spark, as DataFrames and as SQL views; Delta's own package for Spark is not needed.

    from headwater.spark import archive, session
    spark = session()
    archive.views(spark, "/data/archive/orders")
    spark.sql("SELECT json:total::decimal(10,2) FROM orders WHERE type = 'OrderPlaced'")

Each call pins the newest version of the table: its result does not change while archivers add events.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from ...core.errors import InvalidInput
from ...formats.files.parquet import SPARK_READS
from .snapshot import snapshot
from .writer import UTC_DATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


def read(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    after: int = 0,
    upto: int | None = None,
    since: date | None = None,
    before: date | None = None,
    version: int | None = None,
) -> DataFrame:
    """Events of an archive: numbers in (after, upto], recorded on UTC dates from `since` until before `before`.

    Its columns are those of the data source, and `date`. Files that cannot contain such events are not opened. Raises
    NotAnArchive.
    """
    from pyspark.sql import functions as F

    from ..columns.schema import EVENT_SCHEMA

    taken = snapshot(path, version)
    files = taken.select(after, upto, recorded_from=_midnight(since), recorded_before=_midnight(before))
    paths = [file.path for file in files]
    reader = spark.read.schema(EVENT_SCHEMA).options(**SPARK_READS)
    events = reader.parquet(*paths) if paths else spark.createDataFrame([], EVENT_SCHEMA)
    events = events.withColumn("date", F.expr(UTC_DATE))
    if after:
        events = events.where(F.col("sequence_number") > after)
    if upto is not None:
        events = events.where(F.col("sequence_number") <= upto)
    if since is not None:
        events = events.where(F.col("recorded_at") >= F.lit(_midnight(since)))
    if before is not None:
        events = events.where(F.col("recorded_at") < F.lit(_midnight(before)))
    return events


def views(
    spark: SparkSession, path: str | os.PathLike[str], name: str | None = None, *, version: int | None = None
) -> list[str]:
    """Create temporary views of an archive, named by its log (or `name`). Returns their names.

    - `NAME`: the events, and `json`: the data as VARIANT, NULL if it is not JSON
    - `NAME_tags`: a row for each tag of each event: `key`, `value` (NULL if the tag is a bare key)
    - `NAME_types`: for each type, how many events, from when to when, how many bytes
    - `NAME_days`: for each date and type, how many events, and how many bytes

    Call it again to see later events. Raises NotAnArchive, InvalidInput (no name for a view).
    """
    taken = snapshot(path, version)
    name = re.sub(r"[^A-Za-z0-9_]", "_", taken.log) if name is None else name
    if not VIEW_NAME.fullmatch(name):
        raise InvalidInput(f"expected letters, digits and _, and no digit first, got {name!r}", "name")
    events = read(spark, path, version=taken.version)
    made = {
        name: events.selectExpr("*", f"{_JSON} AS json"),
        f"{name}_tags": events.selectExpr(
            "sequence_number", "recorded_at", "date", "type", "explode(tags) AS tag"
        ).selectExpr("*", "substring_index(tag, ':', 1) AS key", f"{_TAG_VALUE} AS value"),
        f"{name}_types": events.groupBy("type").agg(*_columns(_COUNTS, _RANGE)).orderBy("type"),
        f"{name}_days": events.groupBy("date", "type").agg(*_columns(_COUNTS)).orderBy("date", "type"),
    }
    for view, frame in made.items():
        frame.createOrReplaceTempView(view)
    return list(made)


_JSON = "CASE WHEN encoding = 0 THEN try_parse_json(CAST(data AS STRING)) END"
_TAG_VALUE = "CASE WHEN contains(tag, ':') THEN substring(tag, locate(':', tag) + 1) END"
_COUNTS = {"events": "count(1)", "bytes": "sum(octet_length(data))"}
_RANGE = {
    "first_number": "min(sequence_number)",
    "last_number": "max(sequence_number)",
    "first_recorded_at": "min(recorded_at)",
    "last_recorded_at": "max(recorded_at)",
}


def _columns(*groups: dict[str, str]) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.expr(expression).alias(alias) for group in groups for alias, expression in group.items()]


def _midnight(day: date | None) -> datetime | None:
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
