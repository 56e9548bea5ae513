"""Finds the states of resources over time: from Cloud Native Events, or from the tags of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.limits import TAG_BYTES_MAX
from .facts import Resource, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESOURCES, SPANS = 16, 400
CNE_TYPES = "type LIKE 'event.%state-change' OR type LIKE 'event.sync.%'"
_MEMBERS = ("ResourceAddress", "resource", "data_type", "dataType", "value_type", "valueType", "value")
_VALUES = f"array<struct<{','.join(f'{name}:string' for name in _MEMBERS)}>>"
_TIME = "coalesce(unix_millis(try_cast(attributes['time'] AS timestamp)), unix_millis(recorded_at))"


def notifications(events: DataFrame) -> DataFrame:
    """Columns resource, at, number and state of Cloud Native Events; other events are ignored."""
    schema = f"data struct<values:{_VALUES}>, values {_VALUES}"
    values = events.where(CNE_TYPES).selectExpr(
        "sequence_number AS number", f"{_TIME} AS at", "source", f"from_json(cast(data AS string), '{schema}') AS said"
    )
    each = values.selectExpr("number", "at", "source", "explode(coalesce(said.data.values, said.values)) AS its")
    return each.where(
        "coalesce(its.data_type, its.dataType) = 'notification' "
        "AND coalesce(its.value_type, its.valueType) = 'enumeration' AND its.value IS NOT NULL"
    ).selectExpr(
        "coalesce(its.ResourceAddress, if(startswith(its.resource, '/cluster'), its.resource, "
        "concat(source, ' ', its.resource))) AS resource",
        "at", "number", "its.value AS state",
    )  # fmt: skip


def tagged(events: DataFrame, key: str) -> DataFrame:
    """The same for any log: resources are the values of the tag `key`, their states are types of events."""
    from pyspark.sql import functions as F

    each = events.selectExpr("sequence_number AS number", f"{_TIME} AS at", "type AS state", "explode(tags) AS tag")
    chosen = each.where(F.startswith("tag", F.lit(f"{key}:")))
    return chosen.select(F.substring("tag", len(key) + 2, TAG_BYTES_MAX).alias("resource"), "at", "number", "state")


def resources_of(changes: DataFrame, last_ms: int) -> tuple[list[Resource], int]:
    """The resources that changed most, and how many there are; the last state of each lasts until `last_ms`.

    For a resource that changed very often, only the newest spans.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("resource").orderBy("at", "number")
    changed = (
        changes.withColumn("before", F.lag("state").over(order)).where("before IS NULL OR before <> state").cache()
    )
    try:
        counts = changed.groupBy("resource").count()
        total = counts.count()
        top = [row.resource for row in counts.orderBy(F.desc("count"), "resource").take(RESOURCES)]
        newest = Window.partitionBy("resource").orderBy(F.desc("at"), F.desc("number"))
        rows = changed.where(F.col("resource").isin(top)).withColumn("place", F.row_number().over(newest))
        found: dict[str, list[tuple[int, str]]] = {resource: [] for resource in top}
        for row in rows.where(f"place <= {SPANS}").orderBy("at", "number").collect():
            found[row.resource].append((row.at, row.state))
    finally:
        changed.unpersist()
    return [Resource(name, _spans(stays, last_ms)) for name, stays in sorted(found.items())], total


def _spans(changes: list[tuple[int, str]], last_ms: int) -> list[Span]:
    ends = [*[at for at, _ in changes[1:]], max(last_ms, changes[-1][0])]
    return [Span(at, end, state) for (at, state), end in zip(changes, ends, strict=True)]
