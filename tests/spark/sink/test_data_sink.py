"""Batch writes into a log: order, columns, options, and a write that is repeated."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.core import LogSettings
from headwater.core.access import User
from headwater.core.errors import InvalidInput
from headwater.core.limits import APPEND_EVENTS_MAX
from headwater.core.local import LocalLog
from headwater.core.mark import BATCH_MAX
from headwater.flight.wire import StageCommand, WriterBody
from headwater.spark.pipeline.failures import cause_of
from headwater.spark.sink.data_sink import JOINED_BYTES, PIECE_BYTES, joined, pieces
from headwater.storage.memory import MemoryStore
from tests.flight.memory_backend import MemoryBackend, MemoryStage, serving

from ..conftest import event

Save = Callable[..., None]


@pytest.fixture
def target(store: MemoryStore) -> LocalLog:
    return store.create("target", LogSettings(partitions=3))


@pytest.fixture
def save(target: LocalLog, url: str) -> Save:
    """`save(frame, onDuplicate="skip")`: append the frame to the log `target`."""

    def write(frame: DataFrame, mode: str = "append", **options: object) -> None:
        given = {"url": url, "log": "target"} | {name: str(value) for name, value in options.items()}
        frame.write.format("headwater").mode(mode).options(**given).save()

    return write


def test_a_log_is_copied_with_all_that_its_events_have(
    orders: LocalLog, target: LocalLog, load: Callable[..., DataFrame], save: Save
) -> None:
    save(load(log="orders").orderBy("sequence_number"))
    assert [event.event for event in target.read()] == [event.event for event in orders.read()]


def test_rows_keep_the_order_of_the_frame_over_all_its_partitions(
    spark: SparkSession, target: LocalLog, save: Save
) -> None:
    frame = spark.range(0, 1000, numPartitions=7).selectExpr("'Counted' as type", "cast(id as string) as data")
    save(frame)
    assert [int(event.data) for event in target.read()] == list(range(1000))


def test_type_and_data_are_enough_and_nulls_are_defaults(spark: SparkSession, target: LocalLog, save: Save) -> None:
    schema = "data string, TYPE string, tags array<string>, id string, attributes map<string,string>, encoding int"
    save(spark.createDataFrame([("a", "T", None, None, None, None), ("b", "T", ["k:1"], "7", {"x": "y"}, 0)], schema))
    first, second = target.read()
    assert (first.type, first.data, first.tags, first.source) == ("T", b"a", (), "")
    assert len(first.id) == 36
    assert (second.tags, second.id, second.attributes) == (("k:1",), "7", {"x": "y"})


def test_events_go_to_the_partition_that_is_given(spark: SparkSession, target: LocalLog, save: Save) -> None:
    save(two_events(spark), partition=2)
    assert [event.partition for event in target.read()] == [2, 2]


def test_a_frame_without_rows_appends_nothing(spark: SparkSession, target: LocalLog, save: Save) -> None:
    save(two_events(spark).limit(0))
    save(two_events(spark).repartition(4), writerId="load", batchId=1)
    assert target.head() == 2


def test_a_write_with_a_writer_is_done_once_however_often_it_runs(
    spark: SparkSession, target: LocalLog, save: Save
) -> None:
    for batch in (0, 0, 1, 1, 0):
        save(two_events(spark), writerId="nightly", batchId=batch)
    assert target.head() == 4
    save(two_events(spark), writerId="another")
    assert target.head() == 6


def test_a_write_without_a_writer_is_another_each_time(
    spark: SparkSession, backend: MemoryBackend, target: LocalLog, save: Save
) -> None:
    save(two_events(spark))
    save(two_events(spark))
    assert target.head() == 4
    assert backend.writers("target") == [], "each can come once only, and the log need not remember it"


def test_a_write_without_a_writer_succeeds_where_its_writer_cannot_be_forgotten(
    spark: SparkSession, backend: MemoryBackend, target: LocalLog, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at an older server, which has no such action."""

    def refuse(body: WriterBody) -> None:
        raise InvalidInput("got 'forget_writer'", "action")

    monkeypatch.setattr(backend, "forget_writer", refuse)
    save(two_events(spark))
    assert target.head() == 2
    assert [state.batch for state in backend.writers("target")] == [BATCH_MAX], "the log need not remember it for long"


def test_a_write_with_a_writer_is_remembered(
    spark: SparkSession, backend: MemoryBackend, target: LocalLog, save: Save
) -> None:
    save(two_events(spark), writerId="nightly", batchId=1)
    assert [state.writer for state in backend.writers("target")] == ["nightly"]


def test_ids_that_are_stored_are_refused_or_skipped(
    spark: SparkSession, orders: LocalLog, target: LocalLog, load: Callable[..., DataFrame], save: Save
) -> None:
    target.append([event(5)])
    with pytest.raises(Exception, match="id '5'"):
        save(load(log="orders"))
    assert target.head() == 1
    save(load(log="orders"), onDuplicate="skip")
    assert len(list(target.read())) == 100


def test_a_condition_that_does_not_hold_stops_the_whole_write(
    spark: SparkSession, target: LocalLog, save: Save
) -> None:
    condition = '{"fail_if_events_match": "type=T"}'
    save(two_events(spark), condition=condition)
    with pytest.raises(Exception) as caught:
        save(two_events(spark).repartition(2), condition=condition)
    assert cause_of(caught.value) == "append condition failed: event 1 matches the query and comes after 0"
    save(two_events(spark), condition='{"fail_if_events_match": {"items": [{"types": ["T"]}]}, "after": 2}')
    assert target.head() == 4


class RefusesTheThird(MemoryBackend):
    """Takes two stages."""

    def stage(self, user: User, command: StageCommand, schema: pa.Schema) -> MemoryStage:
        if self.stages == 2:
            raise InvalidInput("no more", "events")
        return super().stage(user, command, schema)


def test_what_a_failed_write_has_staged_is_discarded(spark: SparkSession, store: MemoryStore, target: LocalLog) -> None:
    backend = RefusesTheThird(store)
    with serving(backend) as server:
        # One task: others may still stage when Spark gives up, and that is forgotten only when it is old.
        rows = spark.range(0, 4 * PIECE_BYTES // 1000, numPartitions=1)
        written = rows.selectExpr("'T' as type", "repeat('x', 1000) as data").write.format("headwater").mode("append")
        with pytest.raises(Exception, match="no more"):
            written.options(url=f"grpc://127.0.0.1:{server.port}", log="target", writerId="w").save()
        assert backend.stages == 2
        assert backend.staged("target", "w") == []
        assert backend.open_stages == 0
    assert target.head() == 0


def test_overwriting_a_log_is_refused(spark: SparkSession, save: Save) -> None:
    assert refusal(lambda: save(two_events(spark), "overwrite")) == "mode: a log only supports append, not overwrite"


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["'T' as type", "'x' as data", "array('a') as tag"],
         "column tag: a log has no such column; did you mean tags?"),
        (["'T' as type"], "columns: column data is missing; the columns are type"),
        (["'T' as type", "struct(1 as a) as data"], "column data: expected binary or string, got struct<a:int>; "
         "convert it with to_json"),
        (["'T' as type", "'x' as data", "'a,b' as tags"], "column tags: expected array<string>, got string"),
        (["1 as type", "'x' as data"], "column type: expected string, got int"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_named(spark: SparkSession, save: Save, columns: list[str], problem: str) -> None:
    assert refusal(lambda: save(spark.range(1).selectExpr(*columns))) == problem


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"onDuplicates": "skip"}, "option onduplicates: a write has no such option; did you mean onDuplicate?"),
        ({"onDuplicate": "ignore"}, "option onDuplicate: expected fail or skip, got 'ignore'"),
        ({"condition": "type=T"}, "option condition: JSON is malformed: invalid character (byte 4), in 'type=T'"),
        ({"condition": '{"fail_if_events_match": "colour=red"}'}, "option condition: expected type=TYPE, tag=TAG, "
         "exact_tag=TAG, or, all, got 'colour=red'"),
        ({"batchId": 3}, "option batchId: it numbers the batches of a writer; also set writerId"),
        ({"writerId": ""}, "option writerId: expected 1 to 200 printable characters, got ''"),
        ({"path": "another"}, "option log: one log is required: .option('log', NAME), or its name as the path"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_named(
    spark: SparkSession, save: Save, options: dict[str, object], problem: str
) -> None:
    assert refusal(lambda: save(two_events(spark), **options)) == problem


def test_small_batches_are_put_together_and_none_grows_too_large() -> None:
    def batch(rows: int, size: int = 1) -> pa.RecordBatch:
        return pa.record_batch([pa.array([b"x" * size] * rows)], names=["data"])

    assert [piece.num_rows for piece in joined([batch(10_000)] * 14)] == [60_000, 60_000, 20_000]
    assert [piece.num_rows for piece in joined([batch(APPEND_EVENTS_MAX + 5), batch(1)])] == [APPEND_EVENTS_MAX + 5, 1]
    assert [piece.num_rows for piece in joined([batch(1, JOINED_BYTES // 3)] * 5)] == [2, 2, 1]
    assert list(joined([])) == []


def test_what_a_task_stages_at_a_time_is_bounded() -> None:
    def batch(size: int) -> pa.RecordBatch:
        return pa.record_batch([pa.array([b"x" * size])], names=["data"])

    half = batch(PIECE_BYTES // 2 - 100)
    assert [len(piece) for piece in pieces([half] * 5)] == [2, 2, 1]
    assert [len(piece) for piece in pieces([batch(1), batch(PIECE_BYTES), batch(1)])] == [1, 1, 1]
    assert list(pieces([])) == []


def two_events(spark: SparkSession) -> DataFrame:
    return spark.range(0, 2, numPartitions=1).selectExpr("'T' as type", "cast(id as string) as data")


def refusal(act: Callable[[], object]) -> str:
    """What a person is told of an error of Spark."""
    with pytest.raises(Exception) as caught:
        act()
    return cause_of(caught.value)
