"""Every ratio in the README is one that the benchmark pages have, measured against the one it names."""

from __future__ import annotations

import re

from .documents import ROOT, check_none, table_after, text_of

PAGES = [text_of(path) for path in sorted((ROOT / "docs").glob("benchmarks*.md"))]
CONTENDERS = {
    "SQLite": "sqlite",
    "UmaDB": "umadb over gRPC",
    "Spark's own Parquet reader": "parquet",
    "Spark, Parquet to Parquet": "parquet",
    "Kafka": "kafka",
    "Artemis": "artemis",
    "Broker-J": "broker-j",
    "FutoIn's own server on SQLite": "futoin-eventstream on SQLite",
    "eventsourcing": "eventsourcing",
}


def is_measured(against: str, ratio: str) -> bool:
    """Whether a page has that ratio in a row of that contender."""
    contender = CONTENDERS.get(against) or CONTENDERS[against.partition(",")[0]]
    measured = re.compile(rf"^\|[^|]*\| {re.escape(contender)} \|.*\| {re.escape(ratio)} \(", re.MULTILINE)
    return any(measured.search(page) for page in PAGES)


def test_ratios_are_measured() -> None:
    rows = table_after(ROOT / "README.md", "ratios")
    assert rows
    check_none(
        f"README.md: {what}: no benchmark page has {ratio} against {against}"
        for what, against, ratio in rows
        if not is_measured(against, ratio)
    )


def test_a_ratio_that_is_not_measured_is_found() -> None:
    _, against, ratio = table_after(ROOT / "README.md", "ratios")[0]
    assert is_measured(against, ratio)
    assert not is_measured(against, f"{ratio}9")
