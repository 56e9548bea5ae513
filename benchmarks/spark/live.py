"""A log that gets so many events a second, a query that follows it, and what the query says of its batches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.flight.client import BulkClient
from headwater.flight.wire import Ticket

from .events import batch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

RATE = 1000
APPENDS_PER_S = 50
PATIENCE_S = 120.0
BATCHES_MIN = 3


class Batch(NamedTuple):
    """A micro-batch that had events."""

    ended_ms: float
    """Since 1970."""
    duration_ms: float
    upto: int
    """The number up to which its events go; 0 where the source is not a log."""


@contextmanager
def appending(url: str, log: str) -> Iterator[threading.Event]:
    """Append RATE events a second while the block runs. The event is set if that fails; then the end of it raises."""
    ended, failed = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def append() -> None:
        try:
            _append(url, log, ended)
        except BaseException as error:
            errors.append(error)
            failed.set()

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield failed
    finally:
        ended.set()
        thread.join()
    if errors:
        raise errors[0]


def _append(url: str, log: str, ended: threading.Event) -> None:
    """In small appends at fixed times: one that is late makes the next ones no later."""
    rows = RATE // APPENDS_PER_S
    began = time.monotonic()
    with BulkClient(url) as bulk:
        for turn in range(2**31):
            if ended.wait(max(0.0, began + turn / APPENDS_PER_S - time.monotonic())):
                return
            bulk.append(log, [batch(turn * rows, rows)])


def watch(query: StreamingQuery, seconds: float, warm_s: float, failed: threading.Event) -> list[Batch]:
    """The batches with events that began in that time, after the query had its first and `warm_s` more went by.

    Where they are few it is looked at for longer. Raises RuntimeError where none come.
    """
    _wait_for_batches(query, 0.0, 1, failed)
    time.sleep(warm_s)
    began_ms = time.time() * 1000
    failed.wait(seconds)
    return _wait_for_batches(query, began_ms, BATCHES_MIN, failed)


def _wait_for_batches(query: StreamingQuery, since_ms: float, count: int, failed: threading.Event) -> list[Batch]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        all_of_them = [_batch(progress) for progress in _progress(query) if progress["numInputRows"]]
        found = [batch for batch in all_of_them if batch.ended_ms - batch.duration_ms >= since_ms]
        if len(found) >= count:
            return found
        if time.monotonic() > deadline or failed.is_set() or not query.isActive:
            raise RuntimeError(f"the query gets no events: {query.exception()}")
        time.sleep(0.1)


def stop(query: StreamingQuery) -> None:
    """Stop it between two batches, if there is such a moment soon."""
    deadline = time.monotonic() + 10
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.005)
    query.stop()


def recorded(bulk: BulkClient, log: str, key: str) -> dict[Any, int]:
    """When each event was recorded, in ms since 1970, by its id or its number."""
    found: dict[Any, int] = {}
    for rows in bulk.read(Ticket(log, columns=(key, "recorded_at"))):
        times = rows.column("recorded_at").cast("int64").to_pylist()
        found.update(zip(rows.column(key).to_pylist(), times, strict=True))
    return found


def _progress(query: StreamingQuery) -> list[Mapping[str, Any]]:
    return [progress if isinstance(progress, dict) else json.loads(progress.json) for progress in query.recentProgress]


def _batch(progress: Mapping[str, Any]) -> Batch:
    began_ms = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000
    duration_ms = progress["durationMs"]["triggerExecution"]
    offset = progress["sources"][0]["endOffset"]
    offset = json.loads(offset) if isinstance(offset, str) else offset
    logs = offset.get("logs", {}) if isinstance(offset, dict) else {}
    return Batch(began_ms + duration_ms, duration_ms, next((place["position"] for place in logs.values()), 0))
