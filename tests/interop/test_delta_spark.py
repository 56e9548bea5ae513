"""Archives read by Delta's own package for Spark: the same rows, at each version, also after a compaction.

By night; by day `tests/spark/archive/test_table.py` checks the protocol of a table, and two other packages read it.
"""

from __future__ import annotations

import json
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from headwater.spark.archive.compaction import compact
from tests.night import night
from tests.spark.archive_tables import add, archive

from .install import bring
from .runtimes import DeltaSpark

pytestmark = [pytest.mark.timeout(600), night]
EVENTS = 200
RUN_S_MAX = 500


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of two dates, whose first was compacted and which then got more events."""
    root = tmp_path_factory.mktemp("archive") / "orders"
    table = archive(root, EVENTS, batches=2, each_ms=6 * 60_000)
    compact(root, before=date(2026, 11, 21))
    add(table, 50, each_ms=6 * 60_000)
    return root


@pytest.fixture(scope="module")
def found(path: Path) -> dict[str, Any]:
    """What Delta's package says of it."""
    runtime = DeltaSpark()
    bring(runtime)
    command = [*runtime.command(), str(path), *[str(version) for version in range(DeltaTable(path).version() + 1)]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_rows_are_those_that_were_archived(path: Path, found: dict[str, Any]) -> None:
    table = DeltaTable(path).to_pyarrow_table().sort_by("sequence_number")
    rows = [json.loads(row) for row in found["batch"]]
    assert [row["sequence_number"] for row in rows] == list(range(1, EVENTS + 51))
    for name in ("type", "tags", "id", "source", "group_key", "partition", "log"):
        assert [row[name] for row in rows] == table[name].to_pylist(), name
    assert [row["attributes"] for row in rows] == [dict(each) for each in table["attributes"].to_pylist()]
    assert [name for name, _ in found["schema"]] == table.column_names


def test_partitions_are_pruned_by_date(path: Path, found: dict[str, Any]) -> None:
    table = DeltaTable(path).to_pyarrow_table()
    first = table.filter(pc.equal(table["date"], pc.min(table["date"])))
    assert 0 < len(found["day"]) == first.num_rows < EVENTS


def test_each_version_has_what_it_had(path: Path, found: dict[str, Any]) -> None:
    counts = {
        version: DeltaTable(path, version=int(version)).to_pyarrow_table().num_rows for version in found["versions"]
    }
    assert found["versions"] == counts
    assert counts["0"] == 0 and max(counts.values()) == EVENTS + 50


def test_stream_gives_each_event_once(found: dict[str, Any]) -> None:
    assert found["stream"] == list(range(1, EVENTS + 51))
