"""The log of a Delta table, damaged: each reader of ours refuses it, or reads what was committed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from headwater.spark.archive.compaction import compact
from headwater.spark.archive.errors import ArchiveUnreadable
from headwater.spark.archive.snapshot import Archive, snapshot
from headwater.spark.archive.table import ArchiveTable
from headwater.spark.delta.table import Table
from headwater.spark.jobs.metrics import table as metrics
from headwater.spark.jobs.metrics.errors import NotAMetricsTable
from headwater.spark.options import InvalidOption
from headwater.spark.projection import NotAProjection
from headwater.spark.projection import snapshot as states_of
from headwater.spark.projection.buckets import write
from headwater.spark.projection.fold import Row
from headwater.spark.projection.table import BucketFile, Definition, StateTable

from ..delta_damage import outcomes
from ..night import IS_NIGHT
from .archive_tables import NOON, add, archive

DAMAGES = 200 if IS_NIGHT else 12
"""Of each kind."""
DAY_AFTER = datetime(2026, 11, 21, tzinfo=UTC).date()


class Kind(NamedTuple):
    """A kind of table."""

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    refused: type[Exception]


def make_archive(root: Path) -> None:
    table = archive(root, 40, batches=4)
    compact(root, before=DAY_AFTER)
    table.refresh()
    for _ in range(3):
        add(table, 5)


def read_archive(root: Path) -> Any:
    """By all that open an archive."""
    try:
        source = Archive(str(root))
        files = source.files("orders", 0, 1000), source.next_number("orders"), source.first_retained("orders")
    except InvalidOption as error:
        raise ArchiveUnreadable(str(root), str(error)) from None
    state = ArchiveTable(root).state
    return snapshot(root), state, files


def make_projection(root: Path) -> None:
    table = StateTable.create(root, Definition("orders", "first-life", "order", "totals", "", 1, 4))
    for round in range(6):
        files = []
        for bucket in range(round % 4 + 1):
            states = {f"order-{number}": Row(b"{}", number + round, 1) for number in range(5)}
            path = write(root / "states" / f"{bucket}-{round}.parquet", states)
            files.append(BucketFile(bucket, f"states/{path.name}", path.stat().st_size, 5))
        table.commit(files, table.position, (round + 1) * 10)
    table.commit([BucketFile(3, "", 0, 0)], table.position, 100)


def read_projection(root: Path) -> Any:
    table = StateTable(root)
    return table.definition, table.position, table.version, table.files(), states_of(root)


def make_metrics(root: Path) -> None:
    for batch in range(5):
        begin = pa.array([NOON * 1000 + batch * 1000 + number for number in range(10)], pa.timestamp("us", tz="UTC"))
        windows = pa.table({"window_start": begin, "average": [number * 1.5 for number in range(10)]})
        metrics.append(root, windows, {"log": "cne"}, "query", batch)
    metrics.append(root, windows.slice(0, 0), {"log": "cne"}, "query", 5)


def read_metrics(root: Path) -> Any:
    metrics.check(root, {"log": "cne", "query": "query"})
    table = Table(root, NotAMetricsTable)
    return table.version, table.actions.sort_by("path"), table.transaction("metrics"), table.unproved_since


KINDS = {
    "archive": Kind(make_archive, read_archive, ArchiveUnreadable),
    "projection": Kind(make_projection, read_projection, NotAProjection),
    "metrics": Kind(make_metrics, read_metrics, NotAMetricsTable),
}


def sum_up(root: Path) -> None:
    """As it is some time later: a checkpoint is all there is of older entries."""
    table = Table(root, NotAMetricsTable)
    table.sum_up()
    for entry in sorted((root / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()


@pytest.mark.parametrize("when", ["entries alone", "after a checkpoint", "entries after a checkpoint"])
@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_log_is_refused_or_read_right(tmp_path: Path, name: str, when: str) -> None:
    kind = KINDS[name]
    kind.make(tmp_path)
    if when != "entries alone":
        sum_up(tmp_path)
    if when == "entries after a checkpoint":
        more(tmp_path, name)
    found = outcomes(tmp_path / "_delta_log", lambda: kind.read(tmp_path), kind.refused, DAMAGES)
    assert {key: times for key, times in found.items() if key[2] == "silent"} == {}
    assert sum(times for (_, _, outcome), times in found.items() if outcome == "refused") > DAMAGES


def more(root: Path, name: str) -> None:
    """A few commits more."""
    if name == "archive":
        for _ in range(3):
            add(ArchiveTable(root), 5)
    elif name == "projection":
        table = StateTable(root)
        table.commit([BucketFile(1, "", 0, 0)], 100, 110)
        table.commit([], 110, 120)
    else:
        empty = pa.table({"window_start": pa.array([], pa.timestamp("us", tz="UTC")), "average": pa.array([], "f8")})
        for batch in range(6, 9):
            metrics.append(root, empty, {"log": "cne"}, "query", batch)
