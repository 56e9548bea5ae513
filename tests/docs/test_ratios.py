"""Every ratio in the README is one that the benchmark pages have, measured against the one it names."""

from __future__ import annotations

import re

import pytest

from .documents import ROOT, table_after

PAGES = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("benchmarks*.md"))]
CONTENDERS = {
    "SQLite": "sqlite",
    "UmaDB": "umadb over gRPC",
    "Spark's own Parquet reader": "parquet",
    "Spark, Parquet to Parquet": "parquet",
    "Kafka": "kafka",
    "Artemis": "artemis",
    "Broker-J": "broker-j",
    "FutoIn's own server on SQLite": "futoin-eventstream on SQLite",
}


@pytest.mark.parametrize("row", table_after(ROOT / "README.md", "ratios"), ids=lambda row: f"{row[0]} - {row[1]}")
def test_ratio_is_measured(row):
    _, against, ratio = row
    contender = CONTENDERS.get(against) or CONTENDERS[against.partition(",")[0]]
    measured = re.compile(rf"^\| {re.escape(contender)} \|.*\| {re.escape(ratio)} \(", re.MULTILINE)
    assert any(measured.search(page) for page in PAGES), f"no benchmark page has {ratio} against {contender}"
