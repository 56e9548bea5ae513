"""Computes windows of numbers and of states from samples, in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from .durations import Change, Timeline
from .samples import SPARK_SCHEMA, samples_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STAYS = (
    "resource string, type string, window_start_ms long, window_end_ms long, state string, milliseconds long, "
    "entered long"
)
_decode = msgspec.json.Decoder(Timeline).decode


def samples(events: DataFrame, late_ms: int) -> DataFrame:
    """The samples of events that have `samples.COLUMNS`, with the watermark."""
    found = events.mapInArrow(samples_in, SPARK_SCHEMA)
    return found.withWatermark("time", f"{late_ms} milliseconds")


def values(samples: DataFrame, window_ms: int) -> DataFrame:
    """Windows of numbers, reported when they are closed."""
    window = f.window("time", f"{window_ms} milliseconds")
    grouped = samples.where("number IS NOT NULL").groupBy(window, "resource", "type")
    found = grouped.agg(
        f.avg("number").alias("average"),
        f.min("number").alias("minimum"),
        f.max("number").alias("maximum"),
        f.count("number").alias("count"),
    )
    bounds = [f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end")]
    return found.select(*bounds, "resource", "type", "average", "minimum", "maximum", "count")


def stays(samples: DataFrame, window_ms: int) -> DataFrame:
    """How long each resource was in each state. This is reported when windows are closed."""
    changes = samples.where("state IS NOT NULL").select(
        "resource", "type", f.unix_millis("time").alias("at"), "sequence_number", "state"
    )  # without the time itself, so that Spark leaves late data to the timeline
    found = changes.groupBy("resource", "type").transformWithState(
        statefulProcessor=Staying(window_ms), outputStructType=_STAYS, outputMode="append", timeMode="eventTime"
    )
    return found.select(
        f.timestamp_millis("window_start_ms").alias("window_start"),
        f.timestamp_millis("window_end_ms").alias("window_end"),
        "resource",
        "type",
        "state",
        (f.col("milliseconds") / 1000).alias("seconds"),
        "entered",
    )


class Staying(StatefulProcessor):
    """Stores the timelines. Each is one value, because reading from Spark is the slow part."""

    def __init__(self, window_ms: int) -> None:
        self._window = window_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._timeline = handle.getValueState("timeline", "json string")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Changes of one resource, unordered."""
        timeline = self._load()
        timeline.begin(max(0, timerValues.getCurrentWatermarkInMs()), self._window)
        for row in rows:
            timeline.add(Change(row.at, row.sequence_number, row.state))
        yield from self._close(key, timeline, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """The watermark has passed the end of a window, so the window is closed."""
        timeline = self._load()
        if timeline.timer == expiredTimerInfo.getExpiryTimeInMs():
            timeline.timer = 0
        yield from self._close(key, timeline, timerValues)

    def _load(self) -> Timeline:
        found = self._timeline.get()
        return Timeline() if found is None else _decode(found[0])

    def _close(self, key: Any, timeline: Timeline, timer: Any) -> Iterator[Row]:
        for stay in timeline.close(max(0, timer.getCurrentWatermarkInMs()), self._window):
            yield Row(
                resource=key[0],
                type=key[1],
                window_start_ms=stay.start,
                window_end_ms=stay.start + self._window,
                state=stay.state,
                milliseconds=stay.milliseconds,
                entered=stay.entered,
            )
        due = timeline.next_end(self._window)
        if due and not 0 < timeline.timer <= due:
            self._handle.registerTimer(due)
            timeline.timer = due
        self._timeline.update((msgspec.json.encode(timeline).decode(),))
