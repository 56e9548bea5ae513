"""Batch reads through Spark from a bulk server in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from headwater.core import Event, Query, User
from headwater.core.local import LocalLog
from headwater.flight.server.backend import Sending
from headwater.flight.wire import Ticket
from headwater.spark.columns.schema import EVENT_SCHEMA
from headwater.storage.memory import MemoryStore
from tests.flight.memory_backend import serving

from ..conftest import T0, Backend, fill, numbers

Load = Callable[..., DataFrame]


def test_format_is_found_without_a_register_call_and_has_the_one_schema(load: Load, orders: LocalLog) -> None:
    frame = load(log="orders")

    assert frame.schema == EVENT_SCHEMA
    assert frame.count() == 100


def test_every_column_comes_through_as_it_was_appended(load: Load, orders: LocalLog) -> None:
    stored = {event.sequence_number: event for event in orders.read()}

    for row in load(log="orders").collect():
        event = stored[row.sequence_number]
        assert row.log == "orders"
        assert int(row.recorded_at.timestamp() * 1000) == event.recorded_at
        assert (row.partition, row.type, bytes(row.data)) == (event.partition, event.type, event.data)
        assert tuple(row.tags) == event.tags
        assert (row.id, row.source, row.attributes) == (event.id, event.source, event.attributes)
        assert (row.group_key, bytes(row.envelope), row.encoding) == (event.group_key, event.envelope, 0)


def test_only_the_columns_option_spares_the_server_columns(load: Load, orders: LocalLog, backend: Backend) -> None:
    assert len(load(log="orders").select("sequence_number").collect()) == 100
    assert len(backend.scans.pop().columns) == 12, "Spark prunes now: say so in the documents"

    frame = load(log="orders", columns="type,sequence_number")

    assert frame.columns == ["type", "sequence_number"]
    assert {(row.sequence_number, row.type) for row in frame.collect()} >= {(1, "Placed"), (3, "Paid")}
    assert backend.scans.pop().columns == ["type", "sequence_number"]


def test_the_name_of_the_log_alone_can_be_read(load: Load, orders: LocalLog) -> None:
    assert [row.log for row in load(log="orders", columns="log").collect()] == ["orders"] * 100


def test_metadata_can_be_left_out(load: Load, orders: LocalLog, backend: Backend) -> None:
    frame = load(log="orders", includeMetadata="false")

    assert frame.columns == ["log", "sequence_number", "recorded_at", "partition", "type", "data", "tags"]
    assert frame.count() == 100
    assert "attributes" not in backend.scans.pop().columns


def test_a_declared_schema_chooses_columns(spark: SparkSession, url: str, orders: LocalLog) -> None:
    reader = spark.read.format("headwater").options(url=url, log="orders")

    assert reader.schema("type string, id string").load().first() == ("Placed", "1")
    with pytest.raises(PySparkException, match="type: the schema declares int, but the column is string"):
        reader.schema("type int").load().collect()


def test_payloads_are_columns_and_none_is_lost(load: Load, spark: SparkSession, url: str, orders: LocalLog) -> None:
    orders.append([Event("Placed", b'{"n": "many"}'), Event("Placed", b"\x00")])

    frame = load(log="orders", payloadSchema="n bigint, note string", query="type=Placed", splitBytes="300b")

    assert frame.columns[4:8] == ["type", "payload", "_malformed", "tags"]
    assert frame.rdd.getNumPartitions() > 1
    rows = frame.orderBy("sequence_number").collect()
    assert [row.payload.n for row in rows[:-2]] == [row.sequence_number for row in rows[:-2]]
    assert [(row.payload, bytes(row._malformed)) for row in rows[-2:]] == [(None, b'{"n": "many"}'), (None, b"\x00")]
    declared = (
        spark.read.format("headwater").options(url=url, log="orders").schema("payload struct<n: int>, log string")
    )
    assert declared.load().agg({"payload.n": "sum"}).first()[0] == 5050
    with pytest.raises(PySparkException, match=r"payload.n: expected .*, got map<string,string>"):
        load(log="orders", payloadSchema="n map<string, string>").collect()
    with pytest.raises(PySparkException, match="PARSE_SYNTAX_ERROR"):
        load(log="orders", payloadSchema="n n n")


def test_several_logs_and_a_pattern_are_one_table(load: Load, orders: LocalLog, store: MemoryStore) -> None:
    for name in ("shop-1", "shop-2", "other"):
        fill(store.create(name), 10)

    for names in ("orders,shop-*", "orders,shop-1,shop-2", "orders,shop-?,shop-[12]"):
        counts = {row.log: row["count"] for row in load(log=names).groupBy("log").count().collect()}
        assert counts == {"orders": 100, "shop-1": 10, "shop-2": 10}


def test_the_argument_of_load_names_logs(spark: SparkSession, url: str, orders: LocalLog, store: MemoryStore) -> None:
    fill(store.create("shop"), 10)
    reader = spark.read.format("headwater").option("url", url)

    assert reader.load("orders").count() == 100
    assert reader.load(["orders", "shop"]).count() == 110


def test_partitions_are_read_exactly(load: Load, orders: LocalLog) -> None:
    by_partition = {
        partition: [event.sequence_number for event in orders.read(partition=partition)] for partition in (0, 1)
    }

    assert numbers(load(log="orders", partitions="1")) == by_partition[1]
    assert numbers(load(log="orders", partitions="0,1")) == list(range(1, 101))
    with pytest.raises(PySparkException, match="expected 0 to 1, got 2"):
        load(log="orders", partitions="2").collect()


@pytest.mark.parametrize(
    "query",
    ["type=Paid tag=order:3 or tag=order:5", '{"items":[{"types":["Paid"],"tags":["order:3"]},{"tags":["order:5"]}]}'],
)
def test_a_query_is_answered_by_the_log(load: Load, orders: LocalLog, backend: Backend, query: str) -> None:
    expected = [n for n in range(1, 101) if (n % 3 == 0 and n % 7 == 3) or n % 7 == 5]

    assert numbers(load(log="orders", query=query)) == expected
    assert len(backend.scans[-1].query.items or ()) == 2


def test_positions_are_included_at_both_ends(load: Load, orders: LocalLog, store: MemoryStore) -> None:
    fill(store.create("shop"), 20)

    assert numbers(load(log="orders", startingPosition=17, endingPosition=20)) == [17, 18, 19, 20]
    assert numbers(load(log="orders", startingPosition=101)) == []
    frame = load(log="orders,shop", startingPosition='{"orders": 99}', endingPosition='{"shop": 2}')
    assert {(row.log, row.sequence_number) for row in frame.collect()} == {
        ("orders", 99), ("orders", 100), ("shop", 1), ("shop", 2)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingPosition": 102}, "got 102, but the head of log 'orders' is 100"),
        ({"endingPosition": 101}, "got 101, but the head of log 'orders' is 100"),
        ({"startingPosition": 90, "endingTimestamp": "2000-01-01"}, "for log 'orders' it is 90, but the end is 0"),
        (
            {"startingPosition": '{"shop": 1}'},
            "a position is set for 'shop', which is not read; the logs that are read: orders",
        ),
    ],
)
def test_positions_that_are_not_there_are_errors(
    load: Load, orders: LocalLog, options: dict[str, object], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        load(log="orders", **options).collect()


def test_times_are_included_at_the_start_and_not_at_the_end(load: Load, orders: LocalLog) -> None:
    """Events 11 to 20 are recorded one second after T0."""
    assert numbers(load(log="orders", startingTimestamp=T0 + 1000, endingTimestamp=T0 + 2000)) == list(range(11, 21))
    assert numbers(load(log="orders", startingTimestamp=T0 + 8001)) == list(range(91, 101))
    assert numbers(load(log="orders", endingTimestamp="2023-11-14T22:13:20.001Z")) == list(range(1, 11))
    assert numbers(load(log="orders", endingTimestamp=T0)) == []


def test_a_time_that_has_not_come_is_an_error_or_the_end(load: Load, orders: LocalLog) -> None:
    with pytest.raises(PySparkException, match="no event was recorded in log 'orders' since then"):
        load(log="orders", startingTimestamp=T0 + 60_000).collect()
    frame = load(log="orders", startingTimestamp=T0 + 60_000, startingTimestampStrategy="latest")
    assert frame.collect() == []


def test_a_read_is_split_by_count_by_bytes_and_by_events(load: Load, orders: LocalLog) -> None:
    for options, least in (({"minPartitions": 4}, 4), ({"splitBytes": "200b"}, 4), ({"maxEventsPerPartition": 30}, 4)):
        frame = load(log="orders", **options)
        sizes = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
        assert len(sizes) >= least, options
        assert sum(sizes) == 100
        assert max(sizes) <= 30


def test_what_comes_over_flight_is_compressed_if_that_is_asked_for(
    load: Load, orders: LocalLog, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, begin = set(), backend.sending

    def told(user: User, peer: str, ticket: Ticket) -> Sending:
        asked.add(ticket.compression)
        return begin(user, peer, ticket)

    monkeypatch.setattr(backend, "sending", told)
    whole = load(log="orders").collect()
    assert load(log="orders", compression="zstd").collect() == whole and len(whole) == 100
    assert asked == {None, "zstd"}


def test_an_empty_log_is_an_empty_table(load: Load, store: MemoryStore) -> None:
    store.create("empty")

    assert load(log="empty").collect() == []


def test_logs_that_are_not_there_are_errors(load: Load, orders: LocalLog) -> None:
    with pytest.raises(PySparkException, match="there is no log 'order'"):
        load(log="order").collect()
    with pytest.raises(PySparkException, match=r"there is no log 'shop-\*'"):
        load(log="shop-*").collect()


def test_a_wrong_option_is_refused_when_it_is_loaded(load: Load, orders: LocalLog) -> None:
    with pytest.raises(PySparkException, match=r"option minpartition: .* did you mean minPartitions\?"):
        load(log="orders", minPartition=5)


def test_what_was_trimmed_is_an_error_unless_it_may_be_lost(load: Load, orders: LocalLog) -> None:
    orders.trim(31)

    assert numbers(load(log="orders")) == list(range(31, 101)), "earliest is the first that is there"
    with pytest.raises(PySparkException, match="log 'orders': events from 5 to 30 are no more in the log"):
        load(log="orders", startingPosition=5).collect()
    assert numbers(load(log="orders", startingPosition=5, failOnDataLoss="false")) == list(range(31, 101))
    assert numbers(load(log="orders", startingPosition=5, endingPosition=9, failOnDataLoss="false")) == []


def test_a_trim_between_planning_and_reading_is_an_error_unless_it_may_be_lost(
    load: Load, orders: LocalLog, backend: Backend
) -> None:
    frame = load(log="orders", startingPosition=5, columns="type")
    backend.before_scan.extend([lambda: None, lambda: orders.trim(31)])
    with pytest.raises(PySparkException, match="trimmed"):
        frame.collect()

    lossy = load(log="orders", startingPosition=35, columns="type", failOnDataLoss="false")
    assert lossy.rdd.getNumPartitions() == 1
    orders.trim(51)
    assert len(lossy.collect()) == 50
    assert lossy.columns == ["type"]


def test_workers_run_this_interpreter_and_keep_their_connection(
    spark: SparkSession, load: Load, orders: LocalLog
) -> None:
    """PYSPARK_PYTHON would otherwise be the first python3 on the path, which may lack all that is needed."""
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()

    assert found == [sys.executable]


FILTERS = [
    ("type = 'Paid'", lambda n: n % 3 == 0),
    ("type IN ('Paid', 'Nothing')", lambda n: n % 3 == 0),
    ("type IN ('Paid', 'Placed')", lambda n: True),
    ("type = 'Nothing'", lambda n: False),
    ("type LIKE 'Pa%'", lambda n: n % 3 == 0),
    ("type <> 'Paid'", lambda n: n % 3 != 0),
    ("type IS NULL", lambda n: False),
    ("sequence_number >= 10 AND sequence_number < 15", lambda n: 10 <= n < 15),
    ("sequence_number > 90 AND sequence_number <= 1000", lambda n: n > 90),
    ("sequence_number IN (3, 50, 1000)", lambda n: n in (3, 50)),
    ("sequence_number = 7", lambda n: n == 7),
    ("sequence_number < 5 AND sequence_number > 8", lambda n: False),
    ("partition = 5", lambda n: False),
    ("log = 'orders' AND partition IN (0, 1)", lambda n: True),
    ("log = 'shop'", lambda n: False),
    (
        "recorded_at >= TIMESTAMP_MILLIS(1700000001000) AND recorded_at < TIMESTAMP_MILLIS(1700000002000)",
        lambda n: 11 <= n <= 20,
    ),
    ("recorded_at > TIMESTAMP_MILLIS(1700000001000)", lambda n: n > 20),
    ("recorded_at <= TIMESTAMP_MICROS(1700000001000999)", lambda n: n <= 20),
    ("recorded_at > TIMESTAMP_MICROS(1700000000999999)", lambda n: n > 10),
    ("recorded_at = TIMESTAMP_MILLIS(1700000001000)", lambda n: 11 <= n <= 20),
    ("recorded_at = TIMESTAMP_MICROS(1700000001000001)", lambda n: False),
    ("id = '17'", lambda n: n == 17),
    ("type = 'Paid' OR sequence_number = 1", lambda n: n % 3 == 0 or n == 1),
    ("array_contains(tags, 'order:3') AND type = 'Paid'", lambda n: n % 7 == 3 and n % 3 == 0),
]


def test_pushed_filters_say_what_spark_means_by_them(load: Load, orders: LocalLog) -> None:
    def fresh() -> DataFrame:
        """Not one for all: see test_spark_keeps_pushed_filters_for_all_uses_of_a_frame."""
        return load(log="orders", filterPushdown="true", includeMetadata="true")

    filtered = [
        fresh().where(condition).select(lit(index).alias("filter"), "sequence_number")
        for index, (condition, _) in enumerate(FILTERS)
    ]

    rows = reduce(DataFrame.unionAll, filtered).collect()  # one job is much faster than many

    for index, (condition, expected) in enumerate(FILTERS):
        found = sorted(row.sequence_number for row in rows if row["filter"] == index)
        assert found == [n for n in range(1, 101) if expected(n)], condition


def test_spark_keeps_pushed_filters_for_all_uses_of_a_frame(load: Load, orders: LocalLog) -> None:
    """A fault of Spark's (4.3): what the documents warn of. Once this fails, the warning can go."""
    frame = load(log="orders", filterPushdown="true")
    assert frame.where("type = 'Paid'").count() == 33
    assert frame.count() == 33

    anew = [load(log="orders", filterPushdown="true").where(f"type = '{type}'") for type in ("Paid", "Placed")]
    assert anew[0].union(anew[1]).count() == 100


def test_an_end_makes_a_frame_a_fixed_set_of_events(load: Load, orders: LocalLog) -> None:
    frame = load(log="orders", endingPosition=100)
    assert frame.count() == 100
    fill(orders, 10)

    assert frame.count() == 100
    assert frame.where("sequence_number > 95").count() == 5
    assert load(log="orders").count() == 110


def test_pushed_filters_spare_the_server_events(load: Load, orders: LocalLog, backend: Backend) -> None:
    frame = load(log="orders", filterPushdown="true", query="tag=order")

    frame.where("type = 'Paid' AND partition = 1 AND sequence_number > 60").collect()

    scan = backend.scans[-1]
    assert scan.query == Query.where(types=["Paid"], tags=["order"])
    assert (scan.span.after, scan.span.partition) == (60, 1)


def test_filters_are_not_pushed_where_the_session_does_not_allow_it(
    spark: SparkSession, load: Load, orders: LocalLog
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert load(log="orders").where("type = 'Paid'").count() == 33
        with pytest.raises(PySparkException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
            load(log="orders", filterPushdown="true").where("type = 'Paid'").count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_sql_reads_a_log_through_a_view(spark: SparkSession, url: str, orders: LocalLog) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW ev USING headwater OPTIONS (url '{url}', log 'orders', startingPosition 51)")
    try:
        rows = spark.sql("SELECT type, count(*) AS n FROM ev GROUP BY type ORDER BY type").collect()
        assert [(row.type, row.n) for row in rows] == [("Paid", 17), ("Placed", 33)]
    finally:
        spark.catalog.dropTempView("ev")


def test_secrets_are_in_no_plan_and_in_no_error(
    spark: SparkSession, store: MemoryStore, orders: LocalLog, capfd: pytest.CaptureFixture[str]
) -> None:
    reader = spark.read.format("headwater").options(log="orders", user="ann", password="hunter2", retries="0")
    with serving(Backend(store)) as server:
        frame = reader.option("url", f"grpc://127.0.0.1:{server.port}").load()
        frame.explain(True)
        frame.collect()
    with pytest.raises(PySparkException) as raised:
        reader.option("url", f"grpc://127.0.0.1:{server.port}").load().collect()

    printed = capfd.readouterr().out
    assert "headwater" in printed
    assert "hunter2" not in printed + str(raised.value)
