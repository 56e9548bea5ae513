"""What options say, and what is said of wrong ones. No Spark session is needed."""

from __future__ import annotations

import os
import pickle
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headwater.core.errors import InvalidInput
from headwater.core.query import Query
from headwater.spark.columns.schema import COLUMNS, columns_of, select
from headwater.spark.options import DEFAULT_URL, InvalidOption, Moment, ceil_ms, floor_ms
from headwater.spark.pipeline.run import Server, Target
from headwater.spark.sink.options import columns_of as columns_to_write
from headwater.spark.source.data_source import read_schema
from headwater.spark.source.options import READING, Bound, ReadOptions, batch_options, stream_options


def batch(**given: str) -> ReadOptions:
    return batch_options(CaseInsensitiveDict({"log": "orders", **given}))


def stream(**given: str) -> ReadOptions:
    return stream_options(CaseInsensitiveDict({"log": "orders", **given}))


def test_only_the_log_has_to_be_given() -> None:
    options = batch()

    assert options.address.url == DEFAULT_URL == "grpc://127.0.0.1:8815"
    assert options.logs == ("orders",)
    assert options.columns == COLUMNS
    assert options.query == Query.all()
    assert (options.start, options.end) == (Bound("earliest"), Bound("latest"))


def test_options_are_read_in_any_case() -> None:
    assert batch_options({"LOG": "a", "MINPARTITIONS": "3"}).splits_min == 3


def test_several_logs_and_patterns_are_named_with_commas() -> None:
    options = batch(log="orders, shop-*")

    assert options.has_pattern
    assert [log for log in ("orders", "orders2", "shop-1", "Shop-1") if options.wants(log)] == ["orders", "shop-1"]


def test_the_servers_own_logs_are_read_only_if_they_are_meant() -> None:
    assert batch(log="$system").logs == ("$system",)
    assert not batch(log="*").wants("$system")
    assert batch(log="$*").wants("$system") and not batch(log="$*").wants("orders")


def test_the_path_of_an_archive_is_one_that_workers_can_use() -> None:
    assert batch(archive="tables/orders").archive == os.path.abspath("tables/orders")
    assert batch(archive="s3://bucket/orders").archive == "s3://bucket/orders"


def test_the_argument_of_load_names_the_logs_too() -> None:
    assert batch_options({"path": "orders"}).logs == ("orders",)
    assert batch_options({"paths": '["orders", "shop-*"]'}).logs == ("orders", "shop-*")
    with pytest.raises(InvalidOption, match="option log: the argument of load already names the logs"):
        batch(path="orders")


def test_a_query_is_given_as_text_or_as_json() -> None:
    expected = Query.where(types=["Paid"], tags=["order:1"])

    assert batch(query="type=Paid tag=order:1").query == expected
    assert batch(query='{"items": [{"types": ["Paid"], "tags": ["order:1"]}]}').query == expected


def test_positions_are_given_for_all_logs_or_by_name() -> None:
    assert batch(startingPosition="17").start == Bound(17)
    assert stream(startingPosition="Latest").start == Bound("latest")
    start = batch(startingPosition='{"orders": 17, "shop": "earliest"}').start
    assert [start.of(log) for log in ("orders", "shop", "other")] == [17, "earliest", "earliest"]
    assert stream(log="$system", startingPosition='{"$system": 3}').start.of("$system") == 3
    end = batch(endingPosition='{"orders": 20}').end
    assert [end.of(log) for log in ("orders", "other")] == [20, "latest"]


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("1700000000123", 1700000000123),
        ("2023-11-14T22:13:20Z", 1700000000000),
        ("2023-11-14T22:13:20", 1700000000000),
        ("2023-11-14T23:13:20+01:00", 1700000000000),
        ("2023-11-14T22:13:20.000001Z", 1700000000001),
    ],
)
def test_timestamps_are_iso_8601_or_ms(given: str, ms: int) -> None:
    assert batch(startingTimestamp=given).start.place == Moment(ms)


@pytest.mark.parametrize("given", ["20240310023000", '{"orders": 20240310023000}'])
def test_14_digits_are_no_time(given: str) -> None:
    for option in ("startingTimestamp", "endingTimestamp"):
        with pytest.raises(InvalidOption, match=f"option {option}: '20240310023000' is ambiguous: YYYYMMDDhhmmss"):
            batch(**{option: given})


def test_moments_are_rounded_to_ms_in_the_direction_that_is_asked_for() -> None:
    moment = datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)

    assert (floor_ms(moment), ceil_ms(moment)) == (1000, 1001)
    assert (floor_ms(moment.replace(microsecond=0)), ceil_ms(moment.replace(microsecond=0))) == (1000, 1000)


def test_sizes_and_durations_are_given_as_everywhere_in_spark() -> None:
    assert batch().compression is batch(compression="None").compression is None
    assert batch(compression="ZSTD").compression == stream(compression="zstd").compression == "zstd"
    assert batch(splitBytes="1048576").split_bytes == batch(splitBytes="1m").split_bytes == 1 << 20
    assert stream(maxBytesPerTrigger="2GiB").trigger_bytes_max == 2 << 30
    assert stream(maxTriggerDelay="90s").trigger_delay_ms == 90_000
    assert batch(timeout="1500ms").address.timeout_s == 1.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxEventPerTrigger": "5"}, "option maxeventpertrigger: .* did you mean maxEventsPerTrigger?"),
        ({"zzz": "5"}, "option zzz: .* expected one of url, user, password"),
        ({"log": ""}, "option log: expected names or patterns of logs"),
        ({"log": "a,,b"}, "option log: expected names or patterns of logs"),
        ({"log": "a b"}, "option log: 'a b' does not match"),
        ({"log": "a,a"}, "option log: a log occurs twice in 'a,a'"),
        ({"partitions": "1,x"}, "option partitions: expected numbers from 0 to 1023 .* got '1,x'"),
        (
            {"query": "kind=Paid"},
            "option query: expected type=TYPE, tag=TAG, exact_tag=TAG, or, all, got 'kind=Paid'",
        ),
        ({"columns": "sequence"}, "option columns: there is no column 'sequence'; did you mean sequence_number?"),
        ({"columns": "data,data"}, "option columns: column 'data' occurs twice"),
        ({"columns": "data", "includeMetadata": "false"}, "option includeMetadata: columns already selects"),
        ({"includeMetadata": "no"}, "option includeMetadata: expected true or false, got 'no'"),
        ({"startingPosition": "0"}, "option startingPosition: expected earliest, latest, a number from 1"),
        ({"startingPosition": "first"}, "option startingPosition: expected earliest, latest, a number .*got 'first'"),
        ({"startingPosition": '{"orders": 1.5}'}, "option startingPosition: expected earliest, latest"),
        ({"startingTimestamp": '{"orders": "noon"}'}, "option startingTimestamp: expected ISO 8601"),
        ({"startingTimestamp": '{"orders": '}, "option startingTimestamp: expected ISO 8601"),
        ({"startingPosition": '{"orders": '}, "option startingPosition: expected earliest, latest"),
        ({"startingPosition": "latest"}, "option startingPosition: got latest: a batch read .* reads nothing"),
        ({"endingPosition": '{"orders": "earliest"}'}, "option endingPosition: got earliest: a read that ends"),
        ({"startingPosition": "9", "endingPosition": "8"}, "startingPosition: 9 is above endingPosition 8"),
        (
            {"startingPosition": "9", "endingPosition": '{"orders": 8}'},
            "startingPosition: 9 is above endingPosition 8 of log 'orders'",
        ),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "startingTimestamp: it is later than endingTimestamp"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp: expected ISO 8601 .*got 'yesterday'"),
        (
            {"startingTimestamp": "5", "startingPosition": "5"},
            "option startingTimestamp: startingPosition is also set",
        ),
        ({"startingTimestampStrategy": "latest"}, "option startingTimestampStrategy: requires startingTimestamp"),
        ({"compression": "gzip"}, "option compression: expected none, lz4 or zstd, got 'gzip'"),
        ({"splitBytes": "0"}, "option splitBytes: expected a size such as 64m, got '0'"),
        ({"timeout": "30"}, "option timeout: expected a duration such as 500ms, 30s or 5m, got '30'"),
        ({"minPartitions": "-1"}, "option minPartitions: expected a whole number from 1 to 100000, got '-1'"),
        ({"url": "http://localhost"}, "option url: expected grpc://HOST"),
        ({"user": "ann"}, "option user: give both a user and a password"),
        ({"token": "t", "user": "ann", "password": "p"}, "option token: give a token, or a user and a password"),
        ({"maxEventsPerTrigger": "5"}, "option maxEventsPerTrigger: only for streams"),
    ],
)
def test_a_wrong_option_is_named_with_what_was_given_and_what_is_allowed(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        batch(**given)


def test_a_stream_may_have_an_end_and_takes_no_filters() -> None:
    assert stream(endingPosition='{"orders": 5}').end == Bound("latest", {"orders": 5})
    with pytest.raises(InvalidOption, match="option filterPushdown: only for batch reads"):
        stream(filterPushdown="true")
    with pytest.raises(InvalidOption, match="option startingPosition: 6 is above endingPosition 5"):
        stream(startingPosition="6", endingPosition="5")


def test_times_are_given_for_all_logs_or_by_name() -> None:
    start = batch(startingTimestamp='{"orders": "2023-11-14T22:13:20Z", "shop": 1000}').start
    assert [start.of(log) for log in ("orders", "shop", "other")] == [Moment(1700000000000), Moment(1000), "earliest"]
    assert batch(endingTimestamp='{"orders": 1000}').end == Bound("latest", {"orders": Moment(1000)})
    with pytest.raises(InvalidOption, match="startingTimestamp: it is later than endingTimestamp of log 'orders'"):
        batch(startingTimestamp='{"orders": 9}', endingTimestamp="8")


def test_a_stream_cannot_wait_for_more_events_than_it_may_take() -> None:
    with pytest.raises(InvalidOption, match=r"option minEventsPerTrigger: 6 exceeds maxEventsPerTrigger \(5\)"):
        stream(minEventsPerTrigger="6", maxEventsPerTrigger="5")


def test_a_log_must_be_named() -> None:
    with pytest.raises(InvalidOption, match="option log: expected"):
        batch_options({})


def test_secrets_are_shown_nowhere() -> None:
    secret = "hunter2\n"
    options = batch(user="ann", password=secret)
    assert "hunter2" not in repr(options)
    assert pickle.loads(pickle.dumps(options)).address.password == secret

    for given in ({"token": secret}, {"url": "grpc://ann:hunter2@host:1"}, {"password": "hunter2"}):
        with pytest.raises(InvalidOption) as raised:
            batch(**given)
        assert "hunter2" not in str(raised.value)


def test_options_travel_to_workers() -> None:
    options = stream(log="a,b-*", query="type=Paid", partitions="1", startingPosition='{"a": 5}')

    assert pickle.loads(pickle.dumps(options)) == options


def test_columns_are_what_the_options_ask_for() -> None:
    assert read_schema({"log": "a", "columns": "type, data"}) == select(["type", "data"])
    narrow = read_schema({"log": "a", "includeMetadata": "false"}).fieldNames()
    assert narrow == ["log", "sequence_number", "recorded_at", "partition", "type", "data", "tags"]


def test_a_declared_schema_is_a_choice_of_columns_with_their_own_types() -> None:
    assert columns_of(select(["type", "log"])) == ("type", "log")
    with pytest.raises(
        InvalidInput, match="type: the schema declares bigint, but the column is string; omit the schema"
    ):
        columns_of(StructType([StructField("type", LongType())]))
    with pytest.raises(InvalidInput, match=r"there is no column 'typ'; did you mean type\?"):
        columns_of(StructType([StructField("typ", StringType())]))


def test_no_option_is_declared_twice() -> None:
    names = [option.name.lower() for option in READING]
    assert len(set(names)) == len(names)


def test_the_variable_says_where_the_server_is_where_no_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_FLIGHT_URL", "grpc://events:9")
    assert batch().address.url == Server().url == "grpc://events:9"
    assert batch(url="grpc://other:1").address.url == "grpc://other:1"
    monkeypatch.setenv("HEADWATER_FLIGHT_URL", "http://events")
    with pytest.raises(InvalidOption, match="option HEADWATER_FLIGHT_URL: "):
        batch()


def test_several_addresses_of_one_home_have_commas_between_them() -> None:
    assert batch(url="grpc://a:1,grpc+tls://b").address.url == "grpc://a:1,grpc+tls://b"
    for url, problem in (("grpc://a,grpc://a", "is given twice"), ("grpc://a,grpc://ann:b@c", "without a user")):
        with pytest.raises(InvalidOption, match=f"option url: .*{problem}"):
            batch(url=url)
    assert str(Target("grpc://a:1,grpc+tls://b", "orders")) == "orders@a:1,b"


def test_variables_say_who_asks_of_their_server_and_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_FLIGHT_URL", "grpc://events:9")
    monkeypatch.setenv("HEADWATER_USER", "ann")
    monkeypatch.setenv("HEADWATER_PASSWORD", "hunter2")

    assert (batch().address.user, batch().address.password) == ("ann", "hunter2")
    assert batch(url="grpc://events:9").address.user == "ann"
    assert batch(url="grpc://other:9").address.user is None, "who names a server is not given what is meant for another"
    assert batch(token="t").address.user is None, "an option says it"
    monkeypatch.setenv("HEADWATER_FLIGHT_URL", "grpc://events:9,grpc://events:10")
    for url in ("grpc://events:10", "grpc://events:10, grpc://events:9"):
        assert batch(url=url).address.user == "ann", url
    assert batch(url="grpc://events:9,grpc://other:9").address.user is None, "one of them is meant for another"
    monkeypatch.setenv("HEADWATER_TOKEN", "secret")
    assert (batch().address.token, batch().address.user) == ("secret", None)
    monkeypatch.setenv("HEADWATER_FLIGHT_URL", "http://events")
    assert batch(url="grpc://other:9").address.token is None


def test_columns_that_look_as_if_they_routed_rows_are_refused_unless_they_were_read() -> None:
    made = StructType([StructField(name, StringType()) for name in ("type", "data")])
    for name, remedy in (("log", "a write appends to one log, the option log"), ("Partition", "from group_key")):
        with pytest.raises(InvalidInput, match=f"column {name.lower()}: it cannot route rows: .*{remedy}"):
            columns_to_write(StructType([*made.fields, StructField(name, StringType())]))
    assert columns_to_write(select(COLUMNS)) == (None, None, None, None, *COLUMNS[4:])
