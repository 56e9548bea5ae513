"""What the reader of a stream answers to Spark, asked directly: no session is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from headwater.core import LogSettings
from headwater.core.errors import LogNotFound
from headwater.core.local import LocalLog
from headwater.flight.server import actions, reads
from headwater.formats.clients.retry import ServerUnreachable
from headwater.spark import clients
from headwater.spark.columns.schema import EVENT_SCHEMA
from headwater.spark.options import InvalidOption
from headwater.spark.pipeline.progress import behind
from headwater.spark.source import stream as stream_module
from headwater.spark.source.plan import shares
from headwater.spark.source.position_reports import AGAIN_S, PositionReports
from headwater.spark.source.positions import DataLoss, LogRecreated, OffsetUnreadable, decode_offset
from headwater.spark.source.stream import StreamReader
from headwater.storage import Engine
from headwater.storage.backup import backup, restore
from headwater.storage.memory import MemoryStore

from ...flight.members import Member, refusing, url_of
from ...flight.memory_backend import MemoryBackend, serving
from ..archives import archive
from ..conftest import T0, Backend, Clock, fill

Make = Callable[..., StreamReader]
ALL = ReadAllAvailable()


@pytest.fixture
def reader(url: str) -> Make:
    """`reader(log="orders")`: a new reader, as after every start of a query."""

    def make(**options: object) -> StreamReader:
        given = {name: str(value) for name, value in options.items()}
        return StreamReader({"url": url, "retries": "0", **given}, EVENT_SCHEMA)

    return make


def positions(offset: dict[str, Any]) -> dict[str, int]:
    return {log: at["position"] for log, at in offset["logs"].items()}


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    """The log and number of each event of a batch, as tasks read them, each with its own copy of the reader."""
    found = []
    for slice in reader.partitions(start, end):
        copy = cloudpickle.loads(cloudpickle.dumps(reader))
        for batch in copy.read(cloudpickle.loads(cloudpickle.dumps(slice))):
            found += list(zip(batch["log"].to_pylist(), batch["sequence_number"].to_pylist(), strict=True))
    return sorted(found)


def orders_from(first: int, last: int) -> list[tuple[str, int]]:
    return [("orders", number) for number in range(first, last + 1)]


def test_an_offset_says_its_version_and_of_which_log_it_is(reader: Make, orders: LocalLog) -> None:
    offset = reader(log="orders").initialOffset()

    assert offset == {"v": 1, "logs": {"orders": {"incarnation": orders.info().incarnation, "position": 0}}}
    assert json.dumps(offset) == json.dumps(reader(log="orders").initialOffset())


def test_offsets_have_one_order_of_keys(reader: Make, store: MemoryStore) -> None:
    """Spark compares them as texts: another order would be another offset."""
    for name in ("b", "a", "c"):
        fill(store.create(name), 10)

    for offset in (stream := reader(log="c,a,b")).initialOffset(), stream.reportLatestOffset():
        assert list(offset) == ["v", "logs"]
        assert list(offset["logs"]) == ["a", "b", "c"]
        assert all(list(at) == ["incarnation", "position"] for at in offset["logs"].values())
    start = json.loads(json.dumps(stream.reportLatestOffset()))
    assert json.dumps(stream.latestOffset(start, ALL)) == json.dumps(start)


@pytest.mark.parametrize(
    ("options", "position"),
    [
        ({}, 0),
        ({"startingPosition": "earliest"}, 0),
        ({"startingPosition": "latest"}, 100),
        ({"startingPosition": 17}, 16),
        ({"startingPosition": '{"orders": 17}'}, 16),
        ({"startingTimestamp": T0 + 1000}, 10),
        ({"startingTimestamp": f'{{"orders": {T0 + 2000}}}'}, 20),
        ({"startingTimestamp": T0 + 99_000, "startingTimestampStrategy": "latest"}, 100),
    ],
)
def test_a_new_query_starts_where_it_is_told(
    reader: Make, orders: LocalLog, options: dict[str, object], position: int
) -> None:
    assert positions(reader(log="orders", **options).initialOffset()) == {"orders": position}


def test_what_is_wrong_with_a_start_is_said(reader: Make, orders: LocalLog) -> None:
    for options, message in (
        ({"startingPosition": 102}, "got 102, but the head of log 'orders' is 100"),
        ({"startingPosition": '{"shop": 1}'}, "a position is set for 'shop'"),
        ({"startingTimestamp": T0 + 99_000}, "no event was recorded in log 'orders' since then"),
        ({"startingTimestamp": '{"shop": 1}'}, "option startingTimestamp: a time is set for 'shop'"),
        ({"endingPosition": '{"shop": 1}'}, "option endingPosition: a position is set for 'shop'"),
        ({"endingPosition": "earliest"}, "option endingPosition: got earliest: a read that ends there reads nothing"),
    ):
        with pytest.raises(InvalidOption, match=message):
            reader(log="orders", **options).initialOffset()
    with pytest.raises(LogNotFound):
        reader(log="shop").initialOffset()


@pytest.mark.parametrize(
    ("options", "at_first", "then"),
    [
        ({}, (100, 10), (110, 30)),
        ({"endingPosition": 105}, (100, 10), (105, 30)),
        ({"endingPosition": '{"orders": 55}'}, (55, 10), (55, 30)),
        ({"endingTimestamp": T0 + 5000}, (50, 0), (50, 0)),
        ({"endingTimestamp": f'{{"shop": {T0 + 13_000}}}'}, (100, 10), (110, 20)),
    ],
)
def test_a_stream_ends_where_it_is_told_and_reads_what_comes_before(
    reader: Make,
    orders: LocalLog,
    store: MemoryStore,
    clock: Clock,
    options: dict[str, object],
    at_first: tuple[int, int],
    then: tuple[int, int],
) -> None:
    """Events of `orders` are a second apart in tens, from T0 on; those of `shop` come after them."""
    fill(shop := store.create("shop"), 10, clock)
    stream = reader(log="orders,shop", **options)
    first = stream.latestOffset(stream.initialOffset(), ALL)
    assert positions(first) == {"orders": at_first[0], "shop": at_first[1]}

    fill(orders, 10, clock)
    fill(shop, 20, clock)
    end = stream.latestOffset(first, ALL)
    assert positions(end) == {"orders": then[0], "shop": then[1]}
    assert json.dumps(stream.latestOffset(end, ALL)) == json.dumps(end)
    assert read(stream, stream.initialOffset(), end)[-1][1] == then[1] or not then[1]


def test_a_batch_has_just_the_events_between_its_offsets_however_often_it_is_read(
    reader: Make, orders: LocalLog
) -> None:
    stream = reader(log="orders", minPartitions=3)
    start = stream.initialOffset()
    middle = stream.latestOffset(start, ReadMaxRows(40))
    end = stream.latestOffset(middle, ALL)

    assert read(stream, start, middle) == orders_from(1, 40)
    assert read(stream, middle, end) == orders_from(41, 100)
    assert read(reader(log="orders"), start, middle) == orders_from(1, 40)
    assert stream.partitions(end, end) == []


def test_options_limit_a_batch_together_with_the_engine(reader: Make, orders: LocalLog) -> None:
    stream = reader(log="orders", maxEventsPerTrigger=30, maxBytesPerTrigger="100b")
    start = stream.initialOffset()

    assert stream.getDefaultReadLimit() == ReadMaxRows(30)
    assert 0 < positions(stream.latestOffset(start, ReadMaxRows(30)))["orders"] < 30
    assert positions(stream.latestOffset(start, ReadMaxRows(5))) == {"orders": 5}
    assert positions(stream.latestOffset(start, ALL)) == {"orders": 100}, "all is all"
    assert reader(log="orders", maxBytesPerTrigger="1k").getDefaultReadLimit() == ReadMaxBytes(1024)
    assert reader(log="orders", minEventsPerTrigger=5).getDefaultReadLimit() == ReadMinRows(5)
    assert reader(log="orders").getDefaultReadLimit() == ALL


def test_progress_says_how_many_events_and_seconds_a_stream_is_behind(
    reader: Make, orders: LocalLog, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store.create("shop"), 10)
    monkeypatch.setattr(stream_module.time, "time", lambda: T0 / 1000 + 60)
    stream = reader(log="orders,shop")
    assert "behind" not in (stream.reportLatestOffset() or {}), "no batch was planned"

    start = stream.initialOffset()
    middle = stream.latestOffset(start, ReadMaxRows(44))
    report = stream.reportLatestOffset()
    assert positions(middle) == {"orders": 40, "shop": 4}
    assert report is not None
    assert report["behind"] == {"events": 66, "seconds": 56.0}, "event 41 is of the 5th second"
    assert behind([{"endOffset": json.dumps(middle), "latestOffset": json.dumps(report)}]) == 66

    orders.trim(51)
    assert (stream.reportLatestOffset() or {})["behind"]["events"] == 56, "ten of them were trimmed"
    there = stream._there()
    store.delete("shop")
    for make in (lambda: None, lambda: store.create("shop")):
        make()
        assert stream_module.lag(stream._client, decode_offset(middle), there)["events"] == 56, (
            "the next batch says what that is"
        )
    fill(store.open("shop"), 10)
    stream = reader(log="orders,shop")
    stream.latestOffset(stream.initialOffset(), ALL)
    assert (stream.reportLatestOffset() or {})["behind"] == {"events": 0, "seconds": 0.0}


@pytest.mark.parametrize(
    ("options", "upto", "behind_it"),
    [
        ({"endingPosition": 60}, 60, {"events": 20, "seconds": 56.0}),
        ({"endingTimestamp": T0 + 5000}, 50, {"events": 10, "seconds": 56.0}),
        ({"endingPosition": 30}, 30, {"events": 0, "seconds": 0.0}),
        ({"endingPosition": 200}, 100, {"events": 60, "seconds": 56.0}),
    ],
)
def test_a_stream_that_has_an_end_is_behind_that_and_not_behind_the_head(
    reader: Make,
    orders: LocalLog,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, object],
    upto: int,
    behind_it: dict[str, float],
) -> None:
    monkeypatch.setattr(stream_module.time, "time", lambda: T0 / 1000 + 60)
    stream = reader(log="orders", **options)
    start = stream.latestOffset(stream.initialOffset(), ReadMaxRows(40))
    report = stream.reportLatestOffset() or {}
    assert (positions(report), report["behind"]) == ({"orders": upto}, behind_it)

    beyond = reader(log="orders").latestOffset(start, ALL)  # of a run before, with another end
    for reached in (start, beyond):
        end = stream.latestOffset(reached, ALL)
        report = stream.reportLatestOffset() or {}
        assert report["behind"] == {"events": 0, "seconds": 0.0}
        assert behind([{"endOffset": json.dumps(end), "latestOffset": json.dumps(report)}]) == 0


def test_even_the_smallest_limit_lets_one_event_through(reader: Make, orders: LocalLog) -> None:
    stream = reader(log="orders", maxBytesPerTrigger="1b")
    start = stream.initialOffset()

    assert positions(stream.latestOffset(start, stream.getDefaultReadLimit()))["orders"] >= 1


def test_numbers_that_a_restore_left_out_are_stepped_over(reader: Make, tmp_path: Path) -> None:
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0) as engine:
        fill(engine.create("orders"), 10)
    backup(tmp_path / "data", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with Engine(tmp_path / "restored", maintains=False, reserve_bytes=0) as engine:
        fill(engine.open("orders"), 10)
        with serving(MemoryBackend(engine)) as server:
            stream = reader(url=f"grpc://127.0.0.1:{server.port}", log="orders", maxEventsPerTrigger=8)
            found, left, at = [], [], stream.initialOffset()
            for _ in range(4):
                end = stream.latestOffset(at, stream.getDefaultReadLimit())
                found.append([number for _, number in read(stream, at, end)])
                left.append((stream.reportLatestOffset() or {})["behind"]["events"])
                at = end
            whole = reader(url=stream.options.address.url, log="orders", maxEventsPerPartition=5)
            tasks = [
                sum(each.num_rows for each in whole.read(slice))
                for slice in whole.partitions(whole.initialOffset(), stream.latestOffset(at, ALL))
            ]
    far = 10**12
    assert tasks == [5] * 4
    assert [number for batch in found for number in batch] == [*range(1, 11), *range(far + 1, far + 11)]
    assert all(0 < len(batch) <= 8 for batch in found[:-1])
    assert left == [12, 10, 2, 0]


def test_a_limit_in_bytes_that_is_small_beside_the_backlog_is_kept(
    reader: Make, orders: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "SPLITS_MAX", 10)
    stream = reader(log="orders", maxBytesPerTrigger=1)
    assert positions(stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())) == {"orders": 1}


def test_a_limit_is_split_in_proportion_to_what_is_behind(reader: Make, store: MemoryStore) -> None:
    for name, count in (("large", 90), ("small", 30), ("tiny", 1), ("empty", 0)):
        fill(store.create(name), count)
    stream = reader(log="large,small,tiny,empty")
    start = stream.initialOffset()

    found = positions(stream.latestOffset(start, ReadMaxRows(40)))

    assert found == {"large": 30, "small": 9, "tiny": 1, "empty": 0}


@pytest.mark.parametrize("total", [1, 2, 3, 7, 40, 1000])
def test_shares_add_up_and_leave_nobody_out(total: int) -> None:
    for weights in ([1], [5, 5], [90, 30, 1, 0], [1, 1, 1], [10**9, 1], [0, 0], []):
        parts = shares(total, weights)
        takers = sum(1 for weight in weights if weight)
        assert all((part > 0) == (weight > 0) for part, weight in zip(parts, weights, strict=True))
        assert sum(parts) == (max(total, takers) if takers else 0)


def test_a_batch_waits_for_enough_events_or_long_enough(
    reader: Make, orders: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(stream_module.time, "monotonic", lambda: now[0])
    stream = reader(log="orders", minEventsPerTrigger=20, maxTriggerDelay="5m", startingPosition=95)
    limit = stream.getDefaultReadLimit()
    start = stream.initialOffset()
    first = stream.latestOffset(start, limit)
    assert positions(first) == {"orders": 100}, "what is there when a query starts does not wait"

    fill(orders, 10)
    assert stream.latestOffset(first, limit) == first
    now[0] += 299
    assert stream.latestOffset(first, limit) == first
    fill(orders, 10)
    second = stream.latestOffset(first, limit)
    assert positions(second) == {"orders": 120}, "enough"
    fill(orders, 1)
    assert stream.latestOffset(second, limit) == second
    now[0] += 301
    assert positions(stream.latestOffset(second, limit)) == {"orders": 121}, "long enough"


def test_available_now_ends_with_what_is_there_when_it_begins(
    reader: Make, store: MemoryStore, orders: LocalLog
) -> None:
    stream = reader(log="orders,shop*", minEventsPerTrigger=1000)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    fill(orders, 10)
    fill(store.create("shop"), 10)

    end = stream.latestOffset(start, stream.getDefaultReadLimit())

    assert positions(end) == {"orders": 100}
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    assert positions(stream.reportLatestOffset() or {}) == {"orders": 110, "shop": 10}, "the lag shows all the same"


def test_available_now_outlives_a_trim_of_what_it_has_yet_to_read(
    reader: Make, orders: LocalLog, tmp_path: Path
) -> None:
    archive(orders, tmp_path, 1, 10)
    stream = reader(log="orders", archive=tmp_path, maxBytesPerTrigger="1k")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    archive(orders, tmp_path, 11, 90)
    orders.trim(91)

    found, at = [], start
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        found += read(stream, at, end)
        at = end
    assert found == orders_from(1, 100)


def test_a_log_that_appears_later_is_read_from_its_start(reader: Make, store: MemoryStore, orders: LocalLog) -> None:
    stream = reader(log="orders,shop-*", startingPosition="latest")
    start = stream.initialOffset()
    assert positions(start) == {"orders": 100}

    fill(store.create("shop-1"), 10)
    end = stream.latestOffset(start, ALL)

    assert positions(end) == {"orders": 100, "shop-1": 10}
    assert read(stream, start, end) == [("shop-1", number) for number in range(1, 11)]


def test_a_pattern_may_match_nothing_yet(reader: Make, store: MemoryStore) -> None:
    stream = reader(log="shop-*")
    start = stream.initialOffset()

    assert start == {"v": 1, "logs": {}} == stream.latestOffset(start, ALL)
    fill(store.create("shop-1"), 10)
    assert len(read(stream, start, stream.latestOffset(start, ALL))) == 10


def test_a_recreated_log_is_an_error_that_says_what_to_do(reader: Make, store: MemoryStore, orders: LocalLog) -> None:
    stream = reader(log="orders")
    start = stream.latestOffset(stream.initialOffset(), ALL)
    store.delete("orders")
    fill(store.create("orders", LogSettings()), 10)

    for ask in (lambda: stream.latestOffset(start, ALL), lambda: reader(log="orders").latestOffset(start, ALL)):
        with pytest.raises(LogRecreated, match=r"deleted and recreated.*new checkpoint.*failOnDataLoss=false"):
            ask()
    tolerant = reader(log="orders", failOnDataLoss="false")
    end = tolerant.latestOffset(start, ALL)
    assert end["logs"]["orders"]["incarnation"] == store.open("orders").info().incarnation
    assert read(tolerant, start, end) == orders_from(101, 110), "numbers go on above those of the log before"


def test_a_deleted_log_is_an_error_and_keeps_its_place_if_it_may_be_lost(
    reader: Make, store: MemoryStore, orders: LocalLog
) -> None:
    fill(store.create("shop"), 10)
    stream = reader(log="*")
    start = stream.latestOffset(stream.initialOffset(), ALL)
    store.delete("orders")

    with pytest.raises(LogNotFound, match="orders"):
        stream.latestOffset(start, ALL)
    assert reader(log="*", failOnDataLoss="false").latestOffset(start, ALL) == start


def test_a_log_of_a_pattern_that_is_deleted_before_its_batch_is_read_ends_no_stream_that_may_lose_it(
    reader: Make, store: MemoryStore, orders: LocalLog, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store.create("shop"), 10)
    stream = reader(log="*")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    tolerant = reader(log="*", failOnDataLoss="false")
    planned = tolerant.partitions(start, end)
    store.delete("orders")

    assert sum(batch.num_rows for slice in planned for batch in tolerant.read(slice)) == 10
    with pytest.raises(LogNotFound, match="orders"):
        [list(stream.read(slice)) for slice in planned]
    assert read(tolerant, start, end) == [("shop", number) for number in range(1, 11)]
    assert tolerant.latestOffset(end, ALL) == end
    assert [each for each in caplog.messages if "was deleted" in each] == [
        "log 'orders' was deleted with its unread events; the stream continues"
    ]
    for strict in (stream, reader(log="orders,shop", failOnDataLoss="false")):
        with pytest.raises(LogNotFound, match="orders"):
            strict.partitions(start, end)


@pytest.mark.parametrize("is_recreated", [False, True])
@pytest.mark.parametrize("when", ["offset", "planning", "reading"])
def test_a_log_that_goes_or_is_recreated_in_the_middle_is_what_it_would_be_before(
    reader: Make, store: MemoryStore, orders: LocalLog, backend: Backend, when: str, is_recreated: bool
) -> None:
    """Its head was asked for already; `orders`, which is planned before it, stays."""
    fill(store.create("shop"), 10)

    def go() -> None:
        store.delete("shop")
        if is_recreated:
            fill(store.create("shop"), 20)

    def batch(stream: StreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, int]]]:
        backend.before_splits[:] = [go] if when == "offset" else []
        end = stream.latestOffset(start, ReadMaxBytes(1 << 20))
        backend.before_splits[:] = [go] if when == "planning" else []
        slices = stream.partitions(start, end)
        if when == "reading":
            go()
        found = []
        for each in [batch for slice in slices for batch in stream.read(slice)]:
            found += zip(each["log"].to_pylist(), each["sequence_number"].to_pylist(), strict=True)
        return end, sorted(found)

    tolerant = reader(log="*", failOnDataLoss="false")
    end, found = batch(tolerant, tolerant.initialOffset())
    found += read(tolerant, end, tolerant.latestOffset(end, ALL))
    assert found == orders_from(1, 100) + ([("shop", number) for number in range(11, 31)] if is_recreated else [])

    strict = reader(log="*")
    if not is_recreated:
        fill(store.create("shop"), 10)
    with pytest.raises(LogRecreated if is_recreated else LogNotFound, match="'shop'"):
        batch(strict, strict.initialOffset())


@pytest.mark.parametrize("log", ["*", "orders,shop"])
def test_a_log_that_goes_while_a_new_stream_looks_for_its_start_was_not_there(
    reader: Make, store: MemoryStore, orders: LocalLog, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store.create("shop"), 10)
    looked = stream_module.start_after

    def start_after(client: Any, options: Any, log: str, *rest: Any) -> int:
        if log == "shop" and store.names() != ["orders"]:
            store.delete("shop")
        return looked(client, options, log, *rest)

    monkeypatch.setattr(stream_module, "start_after", start_after)
    stream = reader(log=log, startingTimestamp=T0)
    if log == "*":
        assert positions(stream.initialOffset()) == {"orders": 0}
    else:
        with pytest.raises(LogNotFound, match="'shop'"):
            stream.initialOffset()


def test_a_loss_names_the_events_of_the_batch_and_where_the_log_begins(reader: Make, orders: LocalLog) -> None:
    stream = reader(log="orders")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(20))
    orders.trim(51)
    with pytest.raises(
        DataLoss, match=r"events from 1 to 20 are no more in the log; .* to continue at 51 without them"
    ):
        stream.partitions(start, end)


def test_a_batch_of_many_logs_asks_for_their_heads_in_one_request(
    reader: Make, store: MemoryStore, orders: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        fill(store.create(f"shop-{number}"), 10)
    stream = reader(log="*")
    start = stream.initialOffset()
    asked: list[str] = []
    act = actions.act
    monkeypatch.setattr(actions, "act", lambda *given: asked.append(given[2]) or act(*given))

    end = stream.latestOffset(start, ALL)

    assert asked == ["logs", "heads"]
    assert len(stream.partitions(start, end)) == 41 and asked == ["logs", "heads", "heads"]


def test_an_offset_of_another_kind_or_beyond_the_head_is_refused(reader: Make, orders: LocalLog) -> None:
    stream = reader(log="orders")
    beyond = stream.latestOffset(stream.initialOffset(), ALL)
    beyond["logs"]["orders"]["position"] = 500

    for offset in ({"v": 2, "logs": {}}, {"index": 5}, {"v": 1, "logs": {"orders": 5}}, {"v": 1}, beyond):
        with pytest.raises(OffsetUnreadable):
            stream.latestOffset(offset, ALL)


def test_what_was_trimmed_is_an_error_unless_it_may_be_lost(reader: Make, orders: LocalLog) -> None:
    stream = reader(log="orders", startingPosition=11)
    start = stream.initialOffset()
    orders.trim(31)

    with pytest.raises(DataLoss, match="log 'orders': events from 11 to 30 are no more in the log"):
        stream.partitions(start, stream.latestOffset(start, ALL))
    tolerant = reader(log="orders", failOnDataLoss="false")
    end = tolerant.latestOffset(start, ReadMaxRows(5))
    assert positions(end) == {"orders": 35}, "what is lost counts for no limit"
    assert read(tolerant, start, end) == orders_from(31, 35)


def test_a_stream_starts_in_the_archive_and_goes_on_in_the_log(
    reader: Make, orders: LocalLog, backend: Backend, tmp_path: Path
) -> None:
    archive(orders, tmp_path, 1, 60)
    orders.trim(51)
    stream = reader(log="orders", archive=tmp_path)
    start = stream.initialOffset()
    assert positions(start) == {"orders": 0}

    middle = stream.latestOffset(start, ReadMaxRows(40))
    assert read(stream, start, middle) == orders_from(1, 40)
    assert backend.scans == []
    end = stream.latestOffset(middle, ALL)
    assert read(stream, middle, end) == orders_from(41, 100)
    assert {scan.span.after for scan in backend.scans} == {60}


def test_a_stream_reads_the_log_as_long_as_the_log_has_it(
    reader: Make, orders: LocalLog, backend: Backend, tmp_path: Path
) -> None:
    archive(orders, tmp_path, 1, 60)
    stream = reader(log="orders", archive=tmp_path)
    start = stream.initialOffset()

    assert read(stream, start, stream.latestOffset(start, ALL)) == orders_from(1, 100)
    assert {scan.span.after for scan in backend.scans} == {0}


def test_a_limit_in_bytes_holds_in_the_archive_too(reader: Make, orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 60)
    orders.trim(51)
    stream = reader(log="orders", archive=tmp_path, maxBytesPerTrigger="2k")
    start = stream.initialOffset()

    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert 1 <= positions(end)["orders"] < 60


def test_a_time_in_the_archive_is_a_start(reader: Make, orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 60)
    orders.trim(51)

    for ms, position in ((2000, 20), (5000, 50), (8000, 80)):
        stream = reader(log="orders", archive=tmp_path, startingTimestamp=T0 + ms)
        assert positions(stream.initialOffset()) == {"orders": position}


def test_a_trim_while_a_batch_is_planned_or_read_sends_it_to_the_archive(
    reader: Make, orders: LocalLog, backend: Backend, tmp_path: Path
) -> None:
    archive(orders, tmp_path, 1, 10)
    stream = reader(log="orders", archive=tmp_path)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)

    def go_on(first: int, last: int) -> Callable[[], None]:
        def archive_and_trim() -> None:
            archive(orders, tmp_path, first, last)
            orders.trim(last + 1)

        return archive_and_trim

    backend.before_splits.append(go_on(11, 30))
    slices = stream.partitions(start, end)
    go_on(31, 70)()
    rows = [
        number for slice in slices for batch in stream.read(slice) for number in batch["sequence_number"].to_pylist()
    ]

    assert sorted(rows) == list(range(1, 101))


def test_commit_moves_nothing(reader: Make, orders: LocalLog) -> None:
    """Spark never calls it for the last batch, so nothing may hang on it."""
    stream = reader(log="orders")
    stream.commit(stream.latestOffset(stream.initialOffset(), ALL))
    stream.stop()

    assert orders.consumers() == []


def told(log: LocalLog) -> list[tuple[str, int]]:
    """The streams that the server knows of a log, and how far they have told that they are."""
    return [(each.name, each.position) for each in log.streams.all()]


def test_a_stream_with_a_name_tells_what_is_committed_when_the_next_batch_is_planned(
    reader: Make, orders: LocalLog, store: MemoryStore
) -> None:
    shop = store.create("shop")
    fill(shop, 10)
    stream = reader(log="orders,shop", streamName="copy")
    start = stream.initialOffset()
    middle = stream.latestOffset(start, ReadMaxRows(40))
    assert (told(orders), told(shop)) == ([("copy", 0)], [("copy", 0)]), "the first batch is not done yet"
    end = stream.latestOffset(middle, ALL)
    reached = positions(middle)
    assert (told(orders), told(shop)) == ([("copy", reached["orders"])], [("copy", reached["shop"])])
    cloudpickle.loads(cloudpickle.dumps(stream))
    assert stream.latestOffset(end, ALL) == end
    assert (told(orders), told(shop)) == ([("copy", 100)], [("copy", 10)])
    assert orders.consumers() == []


def test_a_stream_without_a_name_tells_nothing(reader: Make, orders: LocalLog) -> None:
    stream = reader(log="orders")
    stream.latestOffset(stream.initialOffset(), ALL)
    assert told(orders) == []


def test_a_stream_goes_on_where_the_server_is_too_old_to_be_told(
    reader: Make, orders: LocalLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = {name: shape for name, shape in actions.ACTIONS.items() if name != "report_position"}
    monkeypatch.setattr(actions, "ACTIONS", known)
    stream = reader(log="orders", streamName="copy")
    start = stream.initialOffset()
    for _ in range(3):
        end = stream.latestOffset(start, ALL)
        assert read(stream, start, end) == orders_from(1, 100)
    [line] = [record.getMessage() for record in caplog.records if record.name == "headwater.spark"]
    assert "stream 'copy': cannot report its position to the server; the stream continues" in line
    assert told(orders) == []


def test_a_name_that_is_none_is_refused_before_the_stream_starts(reader: Make, orders: LocalLog) -> None:
    for name in ("", "a\x00b", "x" * 257):
        with pytest.raises(InvalidOption, match="streamName"):
            reader(log="orders", streamName=name).initialOffset()


class Telling:
    """A client that can be away; it is told in this process."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int]] = []
        self.error: Exception | None = None
        self.calls = 0

    def report_position(self, log: str, stream: str, position: int) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        self.told.append((log, stream, position))


def test_a_position_that_stays_is_told_again_after_a_while_only() -> None:
    now = [0.0]
    client, reports = Telling(), PositionReports("copy", lambda: now[0])
    for _ in range(5):
        reports.tell(client, {"orders": 7})  # type: ignore[arg-type]
    assert client.told == [("orders", "copy", 7)]
    reports.tell(client, {"orders": 8})  # type: ignore[arg-type]
    now[0] += AGAIN_S
    reports.tell(client, {"orders": 8})  # type: ignore[arg-type]
    assert [position for *_, position in client.told] == [7, 8, 8]


def test_a_server_that_cannot_be_told_is_left_alone_for_a_while() -> None:
    now = [0.0]
    client, reports = Telling(), PositionReports("copy", lambda: now[0])
    client.error = ServerUnreachable("grpc://h:1", "away")
    for position in range(5):
        reports.tell(client, {"a": position, "b": position})  # type: ignore[arg-type]
    assert client.calls == 1
    client.error = None
    now[0] += AGAIN_S
    reports.tell(client, {"a": 9, "b": 9})  # type: ignore[arg-type]
    reports.tell(client, {"a": 10, "b": 10})  # type: ignore[arg-type]
    assert client.told == [("a", "copy", 9), ("b", "copy", 9), ("a", "copy", 10), ("b", "copy", 10)]


def test_a_stream_goes_on_at_another_address_of_its_home_and_none_takes_it_back(
    reader: Make, store: MemoryStore, orders: LocalLog
) -> None:
    """The first address is away, the second a replica that is behind, or does not have the log yet."""
    replica = Member(store)
    with serving(replica) as behind, serving(Member(store)) as whole:
        urls = f"{refusing()},{url_of(behind)},{url_of(whole)}"
        start = reader(url=urls, log="orders").initialOffset()
        end = reader(url=urls, log="orders").latestOffset(start, ALL)
        assert positions(end) == {"orders": 100}
        for head, lacks in ((60, False), (None, True)):
            replica.head, replica.lacks = head, lacks
            assert read(reader(url=urls, log="orders"), start, end) == orders_from(1, 100)
            for pattern in ("orders", "ord*"):
                assert reader(url=urls, log=pattern).latestOffset(end, ALL) == end
                frozen = reader(url=urls, log=pattern)
                frozen.prepareForTriggerAvailableNow()
                assert frozen.latestOffset(end, ALL) == end


def test_tasks_of_one_process_begin_at_one_replica_and_those_of_another_at_another(
    reader: Make, store: MemoryStore, orders: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning asks the first address; the last one, the primary, serves none of them."""
    members = [Member(store) for _ in range(3)]
    with ExitStack() as closing:
        urls = ",".join(url_of(closing.enter_context(serving(each))) for each in members)
        stream = reader(url=urls, log="orders")
        start = stream.initialOffset()
        end = stream.latestOffset(start, ALL)
        for process in (100, 101):
            monkeypatch.setattr(clients.os, "getpid", lambda process=process: process)
            assert read(stream, start, end) == orders_from(1, 100)
    assert ["scan" in member.asked for member in members] == [True, True, False]


def test_a_log_that_was_made_anew_is_seen_at_all_addresses(reader: Make, store: MemoryStore, orders: LocalLog) -> None:
    with serving(Member(store)) as first, serving(Member(store)) as second:
        urls = f"{url_of(first)},{url_of(second)}"
        offset = reader(url=urls, log="orders").latestOffset(reader(url=urls, log="orders").initialOffset(), ALL)
        offset["logs"]["orders"]["incarnation"] = "another"
        with pytest.raises(LogRecreated):
            reader(url=urls, log="orders").latestOffset(offset, ALL)
