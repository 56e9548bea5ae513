"""The pipeline `aggregate`: several logs in one, each event once, in order, with where it came from."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.client import connect
from headwater.core import Event, LogSettings, SequencedEvent
from headwater.core.errors import InvalidInput, LogNotFound
from headwater.core.local import LocalLog
from headwater.spark.pipeline.failures import PipelineFailed
from headwater.spark.pipeline.run import Ending, Run, Server, Summary
from headwater.spark.pipelines import load
from headwater.storage.memory import MemoryStore
from tests.night import night
from tests.server.running import RunningServer

from ...flight.memory_backend import bulk_server
from ..conftest import event as numbered
from ..conftest import fill
from ..processes import kill, start, wait_for

JOB = load("aggregate")
Aggregating = Callable[..., Summary]


@pytest.fixture
def target(store: MemoryStore) -> LocalLog:
    return store.create("all")


@pytest.fixture
def north(store: MemoryStore) -> LocalLog:
    log = store.create("orders-north", LogSettings(partitions=2))
    fill(log, 100)
    return log


@pytest.fixture
def south(store: MemoryStore) -> LocalLog:
    """The same ids and sources as in the north, for other events."""
    log = store.create("orders-south")
    fill(log, 50)
    return log


@pytest.fixture
def aggregate(spark: SparkSession, url: str, tmp_path: Path) -> Aggregating:
    """`aggregate("orders-*", ids="keep")`: into the log `all`, all that is there."""

    def once(*sources: str, to: str = "all", **options: object) -> Summary:
        with Run("aggregate", server=Server(url), checkpoint=str(tmp_path / "checkpoint")) as this_run:
            return JOB.run(spark, JOB.options(sources=sources, target=to, **options), this_run)

    return once


def origins(events: Iterable[SequencedEvent]) -> dict[str, list[int]]:
    """The origins' numbers by origins' logs, in the order of the new log."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        found[event.attributes["originlog"]].append(int(event.attributes["originsequence"]))
    return dict(found)


@pytest.mark.usefixtures("south")
def test_logs_are_one_in_which_each_has_its_order_and_every_event_its_origin(
    aggregate: Aggregating, north: LocalLog, target: LocalLog
) -> None:
    done = aggregate("orders-north", "orders-south", events_per_batch=40)
    events = list(target.read())
    assert (done.ending, done.events) == (Ending.DONE, 150)
    assert [event.sequence_number for event in events] == list(range(1, 151))
    assert origins(events) == {"orders-north": list(range(1, 101)), "orders-south": list(range(1, 51))}
    given = {f"orders-north/{each.sequence_number}": each for each in north.read()}
    for event in events:
        if event.attributes["originlog"] == "orders-north":
            original = given.pop(event.id)
            assert event.attributes == {
                **original.attributes, "originlog": "orders-north", "originpartition": str(original.partition),
                "originsequence": str(original.sequence_number), "originid": original.id,
            }  # fmt: skip
            assert event.event._replace(id="", attributes={}) == original.event._replace(id="", attributes={})
    assert not given


def test_the_next_run_goes_on_and_finds_logs_that_are_new(
    aggregate: Aggregating, north: LocalLog, store: MemoryStore, target: LocalLog
) -> None:
    aggregate("orders-*")
    fill(north, 20)
    fill(store.create("orders-east"), 10)
    assert aggregate("orders-*").events == 30
    assert origins(target.read()) == {"orders-north": list(range(1, 121)), "orders-east": list(range(1, 11))}


def test_a_batch_that_spark_repeats_is_in_the_new_log_once(
    aggregate: Aggregating, north: LocalLog, target: LocalLog, tmp_path: Path
) -> None:
    """As after a kill between the commit of the batch and Spark's note of it; the logs have grown since."""
    aggregate("orders-north", events_per_batch=60)
    for file in (tmp_path / "checkpoint" / "commits").glob("*1*"):  # the newest, and its checksum
        file.unlink()
    fill(north, 20)
    aggregate("orders-north", events_per_batch=60)
    assert origins(target.read()) == {"orders-north": list(range(1, 121))}


@pytest.mark.usefixtures("north", "south")
def test_with_their_own_ids_events_that_are_in_two_logs_are_there_once_or_refused(
    aggregate: Aggregating, target: LocalLog
) -> None:
    aggregate("orders-north", "orders-south", ids="keep")
    assert sorted(int(each.id) for each in target.read()) == list(range(1, 101))
    assert {each.attributes["originlog"] for each in target.read()} == {"orders-north"}
    assert "originid" not in next(iter(target.read())).attributes


@pytest.mark.usefixtures("north")
def test_with_their_own_ids_the_pipeline_may_end_at_one_that_is_there(
    aggregate: Aggregating, store: MemoryStore, target: LocalLog
) -> None:
    store.create("orders-west").append([numbered(number) for number in range(95, 105)])
    with pytest.raises(PipelineFailed, match=r"id '95' of source 'shop' is (twice|already stored)"):
        aggregate("orders-north", "orders-west", ids="keep", on_duplicate="fail")


def test_some_partitions_and_types_only(aggregate: Aggregating, north: LocalLog, target: LocalLog) -> None:
    aggregate("orders-north", partitions="1", query="type=Paid", site="berlin")
    expected = [each.sequence_number for each in north.read() if each.partition == 1 and each.type == "Paid"]
    assert origins(target.read()) == {"berlin/orders-north": expected}
    assert {each.attributes["originpartition"] for each in target.read()} == {"1"}


def test_what_was_aggregated_before_gets_its_nearer_origin(
    aggregate: Aggregating, north: LocalLog, target: LocalLog, store: MemoryStore, tmp_path: Path
) -> None:
    above = store.create("above")
    aggregate("orders-north")
    (tmp_path / "checkpoint").rename(tmp_path / "first")
    aggregate("all", to="above")
    assert origins(above.read()) == {"all": list(range(1, 101))}
    assert {event.attributes["originid"] for event in above.read()} == {each.id for each in target.read()}


@pytest.mark.usefixtures("north")
def test_the_target_may_be_on_another_server(aggregate: Aggregating) -> None:
    other = MemoryStore()
    log = other.create("orders-north")
    with bulk_server(other) as elsewhere:
        aggregate("orders-*", to="orders-north", target_url=elsewhere)
    assert log.head() == 100


@pytest.mark.usefixtures("north", "target")
def test_what_cannot_be_is_refused_before_anything_is_read(aggregate: Aggregating) -> None:
    with pytest.raises(InvalidInput, match=r"^to: 'all' is one of the logs that 'a\*' reads"):
        aggregate("orders-north", "a*")
    with pytest.raises(InvalidInput, match=r"^from: expected at least one log"):
        aggregate()
    with pytest.raises(InvalidInput, match=r"^from: expected log names"):
        aggregate("orders-north,orders-south")
    with pytest.raises(InvalidInput, match=r"^site: expected 1 to 100 printable"):
        aggregate("orders-north", site="a\nb")
    with pytest.raises(PipelineFailed, match="there is no log 'nowhere'"):
        aggregate("orders-north", to="nowhere")


@pytest.mark.usefixtures("north", "target")
def test_the_plan_says_what_is_read_and_changes_nothing(url: str, target: LocalLog) -> None:
    run = Run("aggregate", server=Server(url), checkpoint="here")
    lines = JOB.plan(JOB.options(sources=("orders-*", "shop"), target="all", query="type=Paid"), run)
    assert lines[1:5] == [
        "  log 'orders-north': numbers 1 to 100",
        "  no log matches shop",
        "only events that match type=Paid",
        "a log that is new to here starts at earliest",
    ]
    assert "whose newest number is 0" in lines[5]
    assert target.head() == 0
    with pytest.raises(LogNotFound):
        JOB.plan(JOB.options(sources=("orders-north",), target="nowhere"), run)


KILLS = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    logs = [argument for log in ("east", "west", "all") for argument in ("--log", log)]
    flight = ("--flight-enabled", "true", "--flight-port", "0")
    with RunningServer("--data", "data", *logs, *flight, cwd=tmp_path) as running:
        yield running


@night
@pytest.mark.timeout(1500)
def test_killed_at_any_instant_it_has_every_event_once_and_in_order(server: RunningServer, tmp_path: Path) -> None:
    """Both logs use the same ids; they grow while the pipeline is killed."""
    bulk_url, output = server.further_url("grpc"), tmp_path / "output"

    def launch(how: str) -> object:
        return start(
            ["-m", "headwater.spark.jobs", "aggregate", "--from", "east", "--from", "west", "--to", "all",
             "--url", bulk_url, "--checkpoint", str(tmp_path / "checkpoint"), "--events-per-batch", "700",
             "--master", "local[2]", "--conf", "spark.driver.memory=1g", "--every-s", "0", how],
            output,
        )  # fmt: skip

    with connect(server.url) as client:
        logs, target = {name: client.log(name) for name in ("east", "west")}, client.log("all")
        appended = 0

        def append(count: int) -> None:
            nonlocal appended
            for at in range(appended + 1, appended + count + 1, 500):
                for log in logs.values():
                    log.append([Event("T", b"{}", (f"n:{number}",), str(number)) for number in range(at, at + 500)])
            appended += count

        append(3000)
        for _ in range(KILLS):
            before, process = target.head(), launch("--follow")
            try:
                wait_for(lambda before=before: target.head() > before, process, 300)
                append(1000)
                time.sleep(random.uniform(0, 1.5))
            finally:
                kill(process)
        last = launch("--once")
        try:
            assert last.wait(400) == 0, output.read_text()
        finally:
            kill(last)
        events = list(target.read())
    expected = list(range(1, appended + 1))
    assert origins(events) == {"east": expected, "west": expected}
    assert len(events) == len({event.id for event in events}) == 2 * appended
    for log in ("east", "west"):
        own = [int(event.attributes["originid"]) for event in events if event.attributes["originlog"] == log]
        assert own == expected
