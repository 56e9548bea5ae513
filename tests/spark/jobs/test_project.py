"""The pipeline `project`: the same table in batches of any size, killed or not; and decisions that start there."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.core import AppendCondition, Event, LogSettings, Query
from headwater.core.errors import AppendConditionFailed, InvalidInput, PositionOfOtherIncarnation
from headwater.core.local import LocalLog
from headwater.spark.pipeline.failures import PipelineFailed
from headwater.spark.pipeline.run import Ending, Run, Server, Summary
from headwater.spark.pipelines import load
from headwater.spark.projection import NotAProjection, ProjectionOvertaken, dump, snapshot
from headwater.spark.projection.__main__ import main as print_table
from headwater.spark.projection.buckets import bucket_of
from headwater.spark.projection.table import BucketFile, StateTable
from headwater.storage.memory import MemoryStore
from tests.night import IS_NIGHT

from ..conftest import SOURCES, fill
from ..folds import totals
from ..long_project import project_twice

JOB = load("project")
Project = Callable[..., Summary]


@pytest.fixture
def log(store: MemoryStore) -> LocalLog:
    return store.create("orders", LogSettings(partitions=2))


@pytest.fixture
def project(spark: SparkSession, url: str, tmp_path: Path) -> Project:
    """`project("table", fold="order", events_per_batch=7)`: fold what is there."""

    def once(table: str = "table", fold: str = "totals", **options: object) -> Summary:
        with Run("project", server=Server(url)) as this_run:
            return JOB.run(spark, options_of(tmp_path / table, fold, **options), this_run)

    return once


def options_of(table: Path, fold: str = "totals", **options: object) -> Any:
    given = {"log": "orders", "tag": "order", "buckets": 4, **options}
    return JOB.options(table=str(table), fold=f"tests.spark.folds:{fold}", **given)


def dumped(path: Path) -> bytes:
    target = io.BytesIO()
    dump(path, target)
    return target.getvalue()


def test_a_dump_replaces_a_file_only_if_asked(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    with pytest.raises(InvalidInput, match="the file already exists; give another name, or use --overwrite to replace"):
        options_of(tmp_path / "table", dump=str(mine))
    assert options_of(tmp_path / "table", dump=str(mine), overwrite=True).dump == str(mine)


def test_every_entity_has_its_latest_state(project: Project, log: LocalLog, tmp_path: Path) -> None:
    fill(log, 100)
    done = project(events_per_batch=30, dump=str(tmp_path / "dump"))
    assert (done.ending, done.events, done.batches, done.behind) == (Ending.DONE, 100, 4, 0)
    assert done.details == {
        "table": str(tmp_path / "table"), "position": 100, "dump": str(tmp_path / "dump"), "entities": 7,
    }  # fmt: skip
    expected: dict[str, Any] = {}
    for event in log.read():
        entity = event.tags[0].removeprefix("order:")
        expected[entity] = totals(expected.get(entity), event)
    assert snapshot(tmp_path / "table") == (100, expected)
    assert snapshot(tmp_path / "table", ["3", "nobody"]) == (100, {"3": expected["3"]})
    lines = [json.loads(line) for line in (tmp_path / "dump").read_bytes().splitlines()]
    assert [line["entity"] for line in lines] == sorted(expected)
    assert lines[3] == {"entity": "3", "state": expected["3"], "sequence_number": 94, "events": 14}


def test_batches_of_any_size_give_the_same_bytes(project: Project, log: LocalLog, tmp_path: Path) -> None:
    """Also for a function that sees the order, and returns what JSON writes in another way; some entities end."""
    fill(log, 40)
    log.append([Event("Closed", tags=("order:3", "order:4", "order"))])
    fill(log, 20)
    log.append([Event("Closed", tags=("order:5",)), Event("T", b'{"n": 1}', tags=("order:3", "order:ä b"))])
    for fold in ("order", "totals"):
        project(f"{fold}-at-once", fold, buckets=3)
        project(f"{fold}-in-steps", fold, events_per_batch=13)
        assert dumped(tmp_path / f"{fold}-at-once") == dumped(tmp_path / f"{fold}-in-steps")
    position, states = snapshot(tmp_path / "totals-in-steps")
    assert position == log.head()
    assert "5" not in states and states["ä b"] == {"count": 1, "amount": 1, "types": ["T"]}
    assert states["3"]["count"] == sum("order:3" in event.tags for event in log.read(after=41))
    for numbers in (state["seen"] for state in snapshot(tmp_path / "order-at-once").states.values()):
        assert numbers == sorted(set(numbers))


def test_a_batch_rewrites_only_the_buckets_that_it_touches(project: Project, log: LocalLog, tmp_path: Path) -> None:
    fill(log, 50)
    project()
    before = StateTable(tmp_path / "table").files()
    log.append([Event("T", b'{"n": 1}', tags=("order:3",)), Event("T", b'{"n": 1}', tags=("other:4",))])
    assert project().events == 1
    after = StateTable(tmp_path / "table").files()
    assert {bucket for bucket in before if before[bucket] != after[bucket]} == {bucket_of("3", 4)}
    assert snapshot(tmp_path / "table").position == 52
    assert snapshot(tmp_path / "table", version=1).position == 50
    StateTable(tmp_path / "table").vacuum(0)
    files = {path.relative_to(tmp_path / "table").as_posix() for path in tmp_path.glob("table/states/*.parquet")}
    assert files == set(after.values())


def test_a_bucket_whose_last_entity_ends_has_no_file(project: Project, log: LocalLog, tmp_path: Path) -> None:
    log.append([Event("T", b'{"n": 1}', tags=("order:1",))])
    project(buckets=1)
    assert list(StateTable(tmp_path / "table").files()) == [0]
    log.append([Event("Closed", tags=("order:1",))])
    project(buckets=1)
    assert StateTable(tmp_path / "table").files() == {}
    assert snapshot(tmp_path / "table") == (2, {})


def test_the_function_gets_the_event_as_a_reader_of_the_log_does(project: Project, log: LocalLog, tmp_path: Path):
    log.append([Event("T", b"{}", ("order:1",), "i", "s", {"subject": "x"}, "k")])
    (event,) = log.read()
    everything = {**event._asdict(), "data": "{}", "tags": ["order:1"], "attributes": {"subject": "x"}}
    project("whole", "every_field")
    assert snapshot(tmp_path / "whole").states == {"1": {**everything, "envelope": "", "encoding": 0}}
    project("part", "every_field", columns="type, recorded_at")
    assert snapshot(tmp_path / "part").states["1"]["recorded_at"] == event.recorded_at
    assert snapshot(tmp_path / "part").states["1"]["id"] == ""


def test_only_what_matches_is_folded_and_only_from_the_start(project: Project, log: LocalLog, tmp_path: Path) -> None:
    fill(log, 30)
    project(query="type=Paid", start=11)
    states = snapshot(tmp_path / "table").states
    assert sum(state["count"] for state in states.values()) == sum(not number % 3 for number in range(11, 31))
    with pytest.raises(NotAProjection, match="it was created with query 'type=Paid', not ''; use a new table"):
        project(start=11)


def test_what_fails_is_told_with_event_and_entity_and_changes_nothing(
    project: Project, log: LocalLog, tmp_path: Path
) -> None:
    fill(log, 20)
    for fold, problem in (
        ("broken", r"tests.spark.folds:broken failed at event 7 of entity '0': KeyError: 'amount'"),
        ("a_list", r"it returned list; expected a dict or None"),
        ("a_number_as_a_name", r"not JSON: Only dicts with str keys"),
        ("an_object", r"the returned state is not JSON: Encoding objects of type object"),
    ):
        with pytest.raises(PipelineFailed, match=problem):
            project(fold, fold)
        assert snapshot(tmp_path / fold) == (0, {})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fold": "nothing"}, r"^fold: module 'tests.spark.folds' has no such function: 'nothing'"),
        ({"fold": "NOT_A_FUNCTION"}, r"^fold: module 'tests.spark.folds' has a int of that name"),
        ({"tag": "a:b"}, r"^tag: expected a tag key, got 'a:b'"),
        ({"log": "a/b"}, r"a/b"),
        ({"columns": "type,tpye"}, r"^columns: expected some of sequence_number, .*, got 'tpye'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    project: Project, log: LocalLog, tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        project(**options)
    assert not (tmp_path / "table").exists()


def test_a_module_that_is_not_there_and_a_name_without_one(url: str, log: LocalLog, tmp_path: Path) -> None:
    for fold, problem in (("nowhere:fold", "module 'nowhere' cannot be imported"), ("fold", "MODULE:FUNCTION")):
        options = JOB.options(log="orders", tag="order", fold=fold, table=str(tmp_path / "table"))
        with pytest.raises(InvalidInput, match=problem):
            JOB.plan(options, Run("project", server=Server(url)))


def test_a_table_of_something_else_and_a_log_that_was_made_again_are_refused(
    project: Project, log: LocalLog, store: MemoryStore, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(NotAProjection, match="needs an empty directory"):
        project("full")
    with pytest.raises(NotAProjection, match="no Delta table"):
        snapshot(tmp_path / "nowhere")
    fill(log, 10)
    project()
    store.delete("orders")
    fill(store.create("orders"), 10)
    with pytest.raises(NotAProjection, match="it was created with incarnation"):
        project()


def test_events_that_the_log_has_no_more_are_not_passed_over(project: Project, log: LocalLog) -> None:
    fill(log, 40)
    log.trim(21)
    with pytest.raises(InvalidInput, match=r"events 1 to 20 are no longer in log 'orders'; .* with --start 21"):
        project()
    assert project("new", start=21).events == 20


def test_events_that_the_log_has_no_more_come_from_its_archive(
    spark: SparkSession, url: str, project: Project, log: LocalLog, tmp_path: Path
) -> None:
    fill(log, 40)
    project("before")
    archive = load("archive")
    with Run("archive", server=Server(url)) as run:
        archive.run(spark, archive.options(log="orders", table=str(tmp_path / "archive")), run)
    log.trim(21)
    assert project("after", archive=str(tmp_path / "archive")).events == 40
    assert dumped(tmp_path / "after") == dumped(tmp_path / "before")


def test_of_two_runs_on_one_table_one_commits(project: Project, log: LocalLog, tmp_path: Path) -> None:
    fill(log, 10)
    project()
    first, second = StateTable(tmp_path / "table"), StateTable(tmp_path / "table")
    first.commit([], 10, 20)
    with pytest.raises(ProjectionOvertaken, match="its position is 20, but this run expected 10"):
        second.commit([BucketFile(1, "", 0, 0)], 10, 30)
    assert StateTable(tmp_path / "table").position == 20


def test_the_plan_says_what_is_folded_and_makes_nothing(url: str, log: LocalLog, tmp_path: Path) -> None:
    fill(log, 30)
    log.trim(11)
    lines = JOB.plan(options_of(tmp_path / "table", columns="data"), Run("project", server=Server(url)))
    assert lines[0].endswith(": 20 events, 11 to 30")
    assert lines[1] == f"table {tmp_path / 'table'}: will be created, with 4 files, starting at 1"
    assert "fold the events after 0 with tests.spark.folds:totals, by the values of tag 'order'" in lines[2]
    assert lines[3:5] == [
        "the function gets sequence_number, data, tags",
        "events before 11 are read from a missing archive: set --archive",
    ]
    assert not (tmp_path / "table").exists()


def test_it_follows_the_log_until_it_is_asked_to_stop(
    spark: SparkSession, url: str, log: LocalLog, tmp_path: Path
) -> None:
    class Growing:
        """A display under which the log grows, twice."""

        def show(self, done: Any) -> None:
            if log.head() < 30:
                fill(log, 10)
            else:
                run.stop.ask()

        def say(self, text: str) -> None:
            pass

        def close(self) -> None:
            pass

    fill(log, 10)
    with Run("project", server=Server(url), is_once=False, every_s=0.1, progress=Growing()) as run:
        summary = JOB.run(spark, options_of(tmp_path / "table"), run)
    assert (summary.ending, summary.events, summary.batches) == (Ending.STOPPED, 30, 3)
    with pytest.raises(InvalidInput, match="checkpoint"):
        JOB.run(spark, options_of(tmp_path / "table"), Run("project", server=Server(url), checkpoint="here"))


def test_a_second_request_to_stop_ends_it_in_the_middle_of_a_batch(
    spark: SparkSession, url: str, log: LocalLog, tmp_path: Path
) -> None:
    fill(log, 1000)
    with Run("project", server=Server(url)) as run:
        timer = threading.Timer(3, lambda: (run.stop.ask(), run.stop.ask()))
        timer.start()
        summary = JOB.run(spark, options_of(tmp_path / "table", "slow"), run)
        timer.join()
    assert (summary.ending, summary.events) == (Ending.INTERRUPTED, 0)
    assert snapshot(tmp_path / "table") == (0, {})


def test_a_log_that_is_made_again_under_a_run_ends_it(
    spark: SparkSession, url: str, log: LocalLog, store: MemoryStore, tmp_path: Path
) -> None:
    class Replacing:
        """A display under which the log becomes another one."""

        def show(self, done: Any) -> None:
            store.delete("orders")
            fill(store.create("orders"), 20)

        def say(self, text: str) -> None:
            pass

        def close(self) -> None:
            pass

    fill(log, 10)
    run = Run("project", server=Server(url), is_once=False, every_s=0.1, progress=Replacing())
    with run, pytest.raises(PositionOfOtherIncarnation):
        JOB.run(spark, options_of(tmp_path / "table"), run)


def test_a_decision_starts_from_a_snapshot_and_sees_what_came_since(
    project: Project, log: LocalLog, tmp_path: Path
) -> None:
    fill(log, 50)
    project()
    fill(log, 10)
    boundary = Query.where(tags=["order:3"])

    position, states = snapshot(tmp_path / "table", ["3"])
    reading = log.read(boundary, after=position)
    state = states.get("3")
    for event in reading:
        state = totals(state, event)
    expected = None
    for event in log.read(boundary):
        expected = totals(expected, event)
    assert state == expected
    log.append([Event("Closed", tags=("order:3",))], AppendCondition(boundary, after=reading.head))
    with pytest.raises(AppendConditionFailed):
        log.append([Event("Closed", tags=("order:3",))], AppendCondition(boundary, after=reading.head))


def test_a_table_is_read_and_printed_without_spark(
    project: Project, log: LocalLog, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    fill(log, 20)
    project()
    code = (
        "import sys; sys.modules['pyspark'] = None; from headwater.spark.projection import snapshot;"
        "print(*[snapshot(sys.argv[1]).position])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "table")]
    done = subprocess.run(command, env={"PYTHONPATH": str(SOURCES)}, capture_output=True, text=True, check=True)
    assert done.stdout == "20\n"
    assert print_table([str(tmp_path / "table")]) == 0
    assert capsysbinary.readouterr().out == dumped(tmp_path / "table")
    assert print_table([str(tmp_path / "nowhere")]) == 1
    assert print_table([]) == 2


@pytest.mark.timeout(1500)
def test_killed_at_any_instant_it_gives_the_same_bytes_as_made_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """By night more often; by day this process's session does what is left, and makes the other table."""

    def finish(url: str, table: Path, batch: int) -> float:
        options = options_of(table, columns="type,data", buckets=8, events_per_batch=batch)
        with Run("project", server=Server(url)) as run:
            return JOB.run(spark, options, run).seconds

    if IS_NIGHT:
        outcome = project_twice(tmp_path, events=60_000, kills=2, entities=500, batch=10_000, buckets=8)
        assert outcome["kills"] == 2
    else:
        outcome = project_twice(tmp_path, events=20_000, kills=1, entities=500, batch=5_000, buckets=8, finish=finish)
        assert outcome["kills"] == 1
