"""Gathers the facts of a report in Spark.

The log is read once (twice if resources have states); everything else is aggregated from the cached part.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ....core.consumer import Consumer
from ....core.log import LogInfo
from . import words
from .buckets import Axis, axis
from .facts import ConsumerFacts, Facts, Sizes, TagFacts, TypeFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SERIES, TYPES, TAG_KEYS, TAG_VALUES, SOURCES, GAPS = 7, 24, 9, 6, 8, 12
COLUMNS = "sequence_number,recorded_at,partition,type,data,tags,source,attributes"
OWN_TIME_SHARE = 0.9
"""The events' own time is used if this share of them has one."""
ALIKE = 8
"""Sizes that differ by more than this are counted by powers of two."""
_SIZE_STEPS = [nice * 10**power for power in range(12) for nice in (1, 2, 5)]
_WHEN = {
    "time": "unix_millis(try_cast(attributes['time'] AS timestamp))",
    "recorded_at": "unix_millis(recorded_at)",
}


def kept(events: DataFrame) -> DataFrame:
    """The columns that all aggregations need of the events."""
    return events.selectExpr(
        "sequence_number", "partition", "type", "length(data) AS size", "tags", "source",
        f"{_WHEN['recorded_at']} AS recorded_at", f"{_WHEN['time']} AS time",
    )  # fmt: skip


def gather(
    slim: DataFrame, info: LogInfo, consumers: Sequence[Consumer], *, query: str | None, axis_of: str | None
) -> Facts:
    """The facts of the events in the result of `kept`, without states. Best with a cached frame.

    `axis_of` is `time`, `recorded_at` or None: the one that most events have.
    """
    totals = _totals(slim)
    which = axis_of or ("time" if totals["timed"] >= OWN_TIME_SHARE * max(totals["events"], 1) else "recorded_at")
    first, low, high, last = (int(totals[f"{which}_{edge}"] or 0) for edge in ("first", "low", "high", "last"))
    span = axis(first, low, high, last)
    dated = slim.withColumnRenamed(which, "at")
    shown = dated.where(f"at BETWEEN {span.first_ms} AND {span.last_ms}")
    types = _types(dated)
    missing = totals["high"] - totals["low"] + 1 - totals["events"] if totals["events"] else 0
    week, in_week = _week(shown)
    return Facts(
        log=info.name,
        query=query,
        made_ms=round(time.time() * 1000),
        head=info.head,
        first_retained=info.first_retained,
        stored_bytes=info.bytes,
        created_ms=info.created_at,
        settings=settings_of(info),
        axis=which,
        events=totals["events"],
        first_ms=span.first_ms,
        last_ms=span.last_ms,
        outside=totals["events"] - in_week,
        bucket_ms=span.bucket_ms,
        series=_series(shown, span, [each.type for each in types[:SERIES]]),
        types=types,
        types_total=totals["types"],
        tags=_tags(slim),
        sizes=_sizes(slim, totals),
        week=week,
        partitions=_partitions(slim, info.settings.partitions),
        sources=[(row.source, row["count"]) for row in _counted(slim, "source").take(SOURCES)],
        sources_total=totals["sources"],
        consumers=consumers_of(consumers, info.head),
        missing=-1 if query else missing,
        gaps=_gaps(slim) if missing and not query else (),
    )


def settings_of(info: LogInfo) -> list[tuple[str, str]]:
    """The settings in words."""
    settings, horizon = info.settings, info.settings.id_horizon
    kept = []
    if settings.retention_ms is not None:
        kept.append(f"for {words.duration(settings.retention_ms)}")
    if settings.retention_bytes is not None:
        kept.append(f"up to {words.size(settings.retention_bytes)}")
    if settings.retention_until_acknowledged:
        kept.append("until every consumer has acknowledged them")
    by = f", by {settings.partition_by}" if settings.partition_by else ""
    return [
        ("events are kept", " or ".join(kept) or "for ever"),
        ("partitions", f"{settings.partitions}{by}"),
        ("ids are unique", f"over the newest {horizon:,}" if horizon else "over all retained events"),
        ("largest event", words.size(settings.event_bytes_max)),
    ]


def consumers_of(consumers: Sequence[Consumer], head: int) -> list[ConsumerFacts]:
    """The consumers, the furthest behind first."""
    found = [
        ConsumerFacts(
            f"{consumer.owner} / {consumer.component}",
            consumer.acknowledged,
            max(0, head - consumer.acknowledged),
            consumer.seen_at,
        )
        for consumer in consumers
    ]
    return sorted(found, key=lambda facts: (-facts.behind, facts.name))


def _totals(slim: DataFrame) -> dict[str, Any]:
    edges = [
        f"{function} AS {column}_{edge}"
        for column in _WHEN
        for edge, function in (
            ("first", f"min({column})"),
            ("low", f"percentile_approx({column}, 0.005)"),
            ("high", f"percentile_approx({column}, 0.995)"),
            ("last", f"max({column})"),
        )
    ]
    row = slim.selectExpr(
        "count(*) AS events", "count(time) AS timed", "min(sequence_number) AS low", "max(sequence_number) AS high",
        "sum(size) AS bytes", "min(size) AS least", "max(size) AS largest",
        "percentile_approx(size, array(0.5, 0.99)) AS sizes",
        "approx_count_distinct(type) AS types_about", "approx_count_distinct(source) AS sources_about", *edges,
    ).first()  # fmt: skip
    assert row is not None
    totals = row.asDict()
    totals["types"] = _distinct(slim, "type", totals.pop("types_about"))
    totals["sources"] = _distinct(slim, "source", totals.pop("sources_about"))
    return totals


def _distinct(slim: DataFrame, column: str, about: int) -> int:
    """The number of distinct values. It is exact if it is small."""
    return slim.select(column).distinct().count() if about < 10_000 else about


def _counted(frame: DataFrame, *columns: str) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.groupBy(*columns).count().orderBy(F.desc("count"), *columns)


def _types(dated: DataFrame) -> list[TypeFacts]:
    found = dated.groupBy("type").agg(
        *_expressions("count(*) AS events", "sum(size) AS bytes", "coalesce(min(at), 0) AS low",
                      "coalesce(max(at), 0) AS high")
    )  # fmt: skip
    return [TypeFacts(*row) for row in found.orderBy("events", "type", ascending=[False, True]).take(TYPES)]


def _expressions(*texts: str) -> list[Any]:
    from pyspark.sql import functions as F

    return [F.expr(text) for text in texts]


def _series(shown: DataFrame, span: Axis, types: Sequence[str]) -> list[tuple[str, list[int]]]:
    from pyspark.sql import functions as F

    name = F.when(F.col("type").isin(list(types)), F.col("type")).otherwise("")
    bucket = F.expr(f"(at - {span.begin_ms}) div {span.bucket_ms}")
    counts = {type: [0] * span.buckets for type in (*types, "")}
    for row in shown.groupBy(name.alias("name"), bucket.alias("bucket")).count().collect():
        counts[row.name if row.name in counts else ""][row.bucket] += row["count"]
    return [(name, buckets) for name, buckets in counts.items() if name or any(buckets)]


def _tags(slim: DataFrame) -> list[TagFacts]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    tags = slim.select(F.explode("tags").alias("tag")).groupBy("tag").count()
    tags = tags.selectExpr(
        "split_part(tag, ':', 1) AS key", "substr(tag, instr(tag, ':') + 1) AS value", "tag", "count"
    )
    tags = tags.selectExpr("key", "if(tag = key, '', value) AS value", "count").cache()
    try:
        keys = tags.groupBy("key").agg(*_expressions("sum(count) AS tags", "count(*) AS `values`"))
        top = keys.orderBy(F.desc("tags"), "key").take(TAG_KEYS)
        place = Window.partitionBy("key").orderBy(F.desc("count"), "value")
        ranked = tags.where(F.col("key").isin([row.key for row in top])).withColumn("place", F.row_number().over(place))
        best = ranked.where(f"place <= {TAG_VALUES}").orderBy("key", "place").collect()
        return [
            TagFacts(
                row.key, row.tags, row["values"], [(tag.value, tag["count"]) for tag in best if tag.key == row.key]
            )
            for row in top
        ]
    finally:
        tags.unpersist()


def _sizes(slim: DataFrame, totals: dict[str, Any]) -> Sizes:
    if not totals["events"]:
        return Sizes(0, 0, 0, 0, ())
    least, largest = totals["least"], totals["largest"]
    if largest > ALIKE * max(least, 16):
        rows = (
            slim.selectExpr("if(size = 0, 0, int(floor(log2(size))) + 1) AS place").groupBy("place").count().collect()
        )
        bound = [1 << place for place in range(64)]
        counts = {row.place: row["count"] for row in rows}
        found = [(bound[place], counts.get(place, 0)) for place in range(min(counts), max(counts) + 1)]
    else:
        step = next(step for step in _SIZE_STEPS if largest - least < step * 12)
        rows = slim.selectExpr(f"size div {step} AS place").groupBy("place").count().collect()
        counts = {row.place: row["count"] for row in rows}
        found = [((place + 1) * step, counts.get(place, 0)) for place in range(min(counts), max(counts) + 1)]
    median, p99 = totals["sizes"]
    return Sizes(totals["bytes"], median, p99, totals["largest"], found)


def _week(shown: DataFrame) -> tuple[list[list[int]], int]:
    """The number of events by weekday and hour, and their total."""
    week = [[0] * 24 for _ in range(7)]
    hours = shown.selectExpr("at div 3600000 AS hour").groupBy("hour").count()
    hours = hours.selectExpr("pmod(hour div 24 + 3, 7) AS day", "pmod(hour, 24) AS hour", "count")  # 1970: a Thursday
    for row in hours.groupBy("day", "hour").agg(*_expressions("sum(count) AS events")).collect():
        week[row.day][row.hour] = row.events
    return week, sum(map(sum, week))


def _partitions(slim: DataFrame, count: int) -> list[int]:
    found = {row.partition: row["count"] for row in slim.groupBy("partition").count().collect()}
    return [found.get(partition, 0) for partition in range(max(count, *found) if found else count)]


def _gaps(slim: DataFrame) -> list[tuple[int, int]]:
    """The first gaps. Numbers are checked in blocks, so that no machine has to sort all of them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    block = F.expr("sequence_number div 1000000")
    before = F.lag("sequence_number").over(Window.partitionBy("block").orderBy("sequence_number"))
    numbers = slim.select("sequence_number", block.alias("block")).withColumn("before", before)
    inside = numbers.where("sequence_number > before + 1").selectExpr(
        "before + 1 AS first", "sequence_number - 1 AS last"
    )
    found = [(row[0], row[1]) for row in inside.orderBy("first").take(GAPS)]
    edges = numbers.groupBy("block").agg(*_expressions("min(sequence_number) AS low", "max(sequence_number) AS high"))
    ends = sorted((row.low, row.high) for row in edges.collect())
    between = [(high + 1, low - 1) for (_, high), (low, _) in pairwise(ends) if low > high + 1]
    return sorted([*found, *between])[:GAPS]
