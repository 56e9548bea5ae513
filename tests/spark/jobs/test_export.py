"""A log as a directory of files: whole or not there at all, and the same events when it is imported."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headwater.core import Event, LogSettings
from headwater.core.errors import InvalidInput, LogNotFound
from headwater.core.local import LocalLog
from headwater.formats.envelope import decode_event
from headwater.formats.files.csv_rows import COLUMNS
from headwater.spark.jobs.export.directory import NewDirectory
from headwater.spark.pipeline.run import Ending, Run, Server, Summary
from headwater.spark.pipelines import load
from headwater.storage.memory import MemoryStore

from ...parquet_damage import flip_in
from ..conftest import Clock

EXPORT, IMPORT = load("export"), load("import")
Start = Callable[..., Summary]
DAY_MS = 24 * 3_600_000
T0 = "2023-11-14T22:13:20Z"


@pytest.fixture
def shop(store: MemoryStore, clock: Clock) -> LocalLog:
    """A log of 60 events, 20 a day, with all that an event can have."""
    log = store.create("shop", LogSettings(partitions=2))
    for day in range(3):
        log.append([an_event(day * 20 + n) for n in range(20)])
        clock.ms += DAY_MS
    return log


def an_event(n: int) -> Event:
    data = (
        b"\xff\xfe"
        if n == 7
        else json.dumps({"n": n, "lines": [f'a "{n}",\n'], **({"x": 1.5} if n % 2 else {})}).encode()
    )
    data = b" spaces around " if n == 9 else data
    tags = (f"order:{n % 5}", "deal:100%,ok") if n % 2 else ()
    tags = (" a space first", *tags) if n == 11 else tags
    attributes = {"time": f"2024-01-01T00:00:{n:02}Z", "subject": "s"} if n % 3 else {}
    return Event("Paid" if n % 4 else "Müll/ab", data, tags, str(n), "web", attributes, f"k{n % 3}")


@pytest.fixture
def export(spark: SparkSession, shop: LocalLog, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """`export(to="x", format="csv")`: export the log `shop`."""
    monkeypatch.chdir(tmp_path)
    return lambda **options: EXPORT.start(EXPORT.options(**{"log": "shop", **options}), spark, server=Server(url))


@pytest.mark.parametrize("format", ["parquet", "ndjson", "csv"])
@pytest.mark.parametrize("partition_by", ["none", "type"])
def test_what_is_exported_and_imported_again_is_the_same(
    export: Start, spark: SparkSession, shop: LocalLog, store: MemoryStore, url: str, format: str, partition_by: str
) -> None:
    done = export(to="x", format=format, partition_by=partition_by, events_per_step=25)
    assert (done.ending, done.events, done.batches) == (Ending.DONE, 60, 3)
    options = IMPORT.options(file=("x",), log="again", create=True)
    assert IMPORT.start(options, spark, server=Server(url)).details["appended"] == 60
    events = [stored.event for stored in store.open("again").read()]
    expected = [stored.event for stored in shop.read()]
    if partition_by == "none":
        assert events == expected
    else:
        assert sorted(events, key=lambda stored: int(stored.id)) == expected
        assert {path.parent.name for path in Path("x").rglob("events-*")} == {
            "event_type=Paid", "event_type=Müll%2Fab"
        }  # fmt: skip


def test_a_directory_is_complete_with_a_manifest_or_not_there(export: Start, shop: LocalLog) -> None:
    Path(".x.part").mkdir()
    Path(".x.part/left").touch()
    export(to="x", partition_by="date", query="type=Paid", start="11", end="50")
    assert [path.name for path in Path(".").iterdir()] == ["x"]
    assert Path("x/_SUCCESS").exists()
    said = json.loads(Path("x/_manifest.json").read_text())
    assert {name: said[name] for name in ("log", "first", "last", "query", "events", "partitioned_by")} == {
        "log": "shop", "first": 11, "last": 50, "query": "type=Paid", "events": 30, "partitioned_by": "date",
    }  # fmt: skip
    assert sum(file["events"] for file in said["files"]) == 30
    assert {Path(file["name"]).parent.name for file in said["files"]} == {
        "date=2023-11-14", "date=2023-11-15", "date=2023-11-16"
    }  # fmt: skip
    with pytest.raises(InvalidInput, match="already exists"):
        export(to="x")
    with pytest.raises(Exception, match="payload"):
        export(to="y", flatten=True, payload_schema="n array<")
    assert not Path("y").exists() and not Path(".y.part").exists()


def test_a_directory_that_another_export_makes_is_refused_and_stays(export: Start) -> None:
    with NewDirectory(Path("x").absolute(), "parquet") as other:
        Path(".x.part/written").touch()
        with pytest.raises(InvalidInput, match=r"another export is writing .*/x"):
            export(to="x")
        assert Path(".x.part/written").exists()
        other.finish({})
    assert Path("x/written").exists()
    assert export(to="y").events == 60


def test_a_stop_leaves_nothing(spark: SparkSession, shop: LocalLog, url: str, tmp_path: Path) -> None:
    options = EXPORT.options(log="shop", to=str(tmp_path / "x"), events_per_step=10)
    with Run("export", server=Server(url)) as run:
        run.stop.ask()
        assert EXPORT.run(spark, options, run).ending is Ending.STOPPED
    assert list(tmp_path.iterdir()) == []


def test_bounds_are_numbers_or_times_of_recording(export: Start) -> None:
    assert export(to="a", start="2023-11-15T00:00:00Z").events == 40
    assert export(to="b", end="2023-11-15T00:00:00Z").details["last"] == 20
    assert export(to="c", start=T0, end=T0).events == 0
    assert json.loads(Path("c/_manifest.json").read_text())["files"] == []


def test_parquet_has_checksums(export: Start) -> None:
    export(to="x", format="parquet")
    (path,) = Path("x").glob("*.parquet")
    flip_in(path, "data")
    with pytest.raises(OSError, match="checksum"):
        pq.read_table(path, page_checksum_verification=True)


def test_payloads_become_columns(export: Start) -> None:
    export(to="x", flatten=True)
    table = pq.read_table(next(Path("x").glob("*.parquet"))).to_pylist()
    row = next(row for row in table if row["id"] == "1")
    assert (row["payload_n"], row["payload_x"], row["payload_lines"]) == (1, 1.5, ['a "1",\n'])
    assert json.loads(row["data"])["n"] == 1
    assert next(row for row in table if row["id"] == "7")["payload_n"] is None
    export(to="y", flatten=True, payload_schema="n string")
    row = pq.read_table(next(Path("y").glob("*.parquet"))).to_pylist()[0]
    assert [name for name in row if name.startswith("payload_")] == ["payload_n"]


def test_lines_are_those_of_read_json_and_tables_are_those_of_export(export: Start, shop: LocalLog) -> None:
    export(to="x", format="ndjson", compression="gzip")
    packed = [path.read_bytes() for path in sorted(Path("x").glob("*.ndjson.gz"))]
    lines = gzip.decompress(b"".join(packed)).splitlines()
    assert list(map(decode_event, lines)) == list(shop.read())
    export(to="y", format="csv", flatten=True)
    rows = []
    for path in sorted(Path("y").glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            rows += list(csv.DictReader(file))
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS
    assert [row["id"] for row in rows] == [str(n) for n in range(60)]
    assert rows[11]["tags"].split(",")[0] == "%20a space first"
    assert (rows[1]["data"], rows[1]["tags"]) == (an_event(1).data.decode(), "deal:100%25%2Cok,order:1")
    assert (rows[7]["data"], rows[7]["data_base64"]) == ("", "//4=")
    assert (rows[1]["payload_lines"], rows[1]["recorded_at"]) == ('["a \\"1\\",\\n"]', "2023-11-14T22:13:20.000Z")


def test_a_dry_run_says_what_would_be_written(shop: LocalLog, url: str, tmp_path: Path) -> None:
    options = EXPORT.options(log="shop", to=str(tmp_path / "x"), query="type=Paid", partition_by="date", flatten=True)
    with Run("export", server=Server(url)) as run:
        lines = EXPORT.plan(options, run)
        with pytest.raises(LogNotFound):
            EXPORT.plan(EXPORT.options(log="shops", to="x"), run)
    assert lines[0] == f"read the events 1 to 60 of log 'shop' on {url} that match type=Paid"
    assert lines[1].startswith("write them as parquet (zstd) into ")
    assert lines[1].endswith("/x, a directory for each date, payloads as columns")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"start": "yesterday"},
            "expected earliest, latest, a number, or a time such as 2026-11-21T12:00:00Z or ms:1700000000000",
        ),
        ({"format": "ndjson", "flatten": True}, "use flatten with parquet or csv"),
        ({"payload_schema": "n int"}, "requires --flatten"),
        ({"format": "csv", "compression": "zstd"}, "csv supports gzip or none, got 'zstd'"),
        ({"query": "colour=red"}, "type=TYPE"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        EXPORT.options(**{"log": "shop", "to": "x", **options})
