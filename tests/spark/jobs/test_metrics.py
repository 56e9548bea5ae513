"""The pipeline `metrics`: windows of numbers and durations of states, each told once, whatever comes late or dies."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headwater.cne.notifications import reader, stored
from headwater.cne.notifications.addresses import Place
from headwater.core import Event, SequencedEvent
from headwater.core.errors import InvalidInput
from headwater.core.local import LocalLog
from headwater.spark.jobs.metrics import NotAMetricsTable
from headwater.spark.jobs.metrics.durations import WINDOWS_MAX, Change, Stay, Timeline
from headwater.spark.jobs.metrics.samples import Sample, samples_of
from headwater.spark.jobs.metrics.table import append
from headwater.spark.pipeline.failures import PipelineFailed
from headwater.spark.pipeline.run import Ending, Run, Server, Summary
from headwater.spark.pipelines import load
from headwater.storage.memory import MemoryStore

from ...cne.builders import bare, redfish, text, v1_value, v2_value, wrapped
from ..conftest import Clock

JOB = load("metrics")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
STATE = "event.sync.ptp-status.ptp-state-change"
CLASS = "event.sync.ptp-status.ptp-clock-class-change"
NODE1, NODE2 = "/cluster/node/node1", "/cluster/node/node2"
LOCK_STATE = "/sync/ptp-status/lock-state"
CLOCK_CLASS = "/sync/ptp-status/clock-class"
Measuring = Callable[..., Summary]


def kept(document: dict[str, Any], address: str = "") -> Event:
    """The event that the notification API appends for a document."""
    original = text(document)
    notification, is_stamped = stored.prepared(reader.read(reader.members_of(original)), publisher="p", address=address)
    return stored.event_of(notification, original, own=Place(), publisher="p", address=address, is_stamped=is_stamped)


def at(seconds: float) -> str:
    """A time, as seconds after noon."""
    return (NOON + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def state(seconds: float, value: str, node: str = NODE1) -> Event:
    return kept(
        bare(v2_value(ResourceAddress=LOCK_STATE, value=value), type=STATE, time=at(seconds)), node + LOCK_STATE
    )


def clock_class(seconds: float, value: str, node: str = NODE1) -> Event:
    metric = v2_value(ResourceAddress=CLOCK_CLASS, data_type="metric", value_type="decimal64.3", value=value)
    return kept(bare(metric, type=CLASS, time=at(seconds)), node + CLOCK_CLASS)


# Samples


def sampled(event: Event) -> list[Sample]:
    return samples_of(SequencedEvent(7, int(NOON.timestamp() + 3600) * 1000, 0, *event))


def test_a_value_is_a_sample_of_its_resource_wherever_the_event_says_where_that_is() -> None:
    time = int((NOON + timedelta(seconds=1.5)).timestamp()) * 1_000_000 + 500_000
    address = NODE1 + LOCK_STATE
    expected = Sample(time, 7, address, STATE, None, "LOCKED")
    assert sampled(state(1.5, "LOCKED")) == [expected]
    value = v2_value(ResourceAddress=address)
    for document in (bare(value), wrapped(value), bare(v1_value(resource=address))):
        assert sampled(kept({**document, "type": STATE, "time": at(1.5)})) == [expected]
    assert sampled(clock_class(1.5, "6.125")) == [Sample(time, 7, NODE1 + CLOCK_CLASS, CLASS, 6.125, None)]


def test_several_values_are_several_samples_and_what_measures_nothing_is_none() -> None:
    values = [v2_value(ResourceAddress=f"/cluster/node/n/sync/ptp{index}", value="LOCKED") for index in (1, 2)]
    more = [redfish_value(), v2_value(value="event-not-found"), v2_value(value_type="odd", value="7")]
    found = sampled(kept(bare(*values, *more)))
    assert [(sample.resource, sample.state) for sample in found] == [
        ("/cluster/node/n/sync/ptp1", "LOCKED"),
        ("/cluster/node/n/sync/ptp2", "LOCKED"),
        ("/cluster/node/n/sync/sync-status/sync-state", ""),
    ]


def test_values_without_data_end_the_state_and_are_no_number() -> None:
    """As cloud-event-proxy sends them: the address says that there is none, beside values that mean nothing."""
    address = f"{NODE1}/ptp-not-set"
    metric = v2_value(ResourceAddress=address, data_type="metric", value_type="decimal64.3", value="0")
    values = v2_value(ResourceAddress=address, value="FREERUN"), metric
    for event in (kept(bare(*values), NODE1 + LOCK_STATE), kept(wrapped(*values, source=LOCK_STATE))):
        assert [(each.resource, each.number, each.state) for each in sampled(event)] == [(NODE1 + LOCK_STATE, None, "")]


def redfish_value() -> dict[str, Any]:
    return v2_value(value_type="redfish-event", value=redfish())


def test_a_time_that_cannot_be_is_when_the_event_was_recorded() -> None:
    """A node that boots without a clock, and one whose clock runs ahead, neither hold windows up nor close them."""
    for wrong in ("1970-01-01T00:00:10Z", "9999-12-31T23:59:59Z", at(3601)):
        (sample,) = sampled(kept(bare(type=STATE, time=wrong)))
        assert sample.time == int(NOON.timestamp() + 3600) * 1_000_000


@pytest.mark.parametrize("data", [b"", b"\xff", b"7", b'{"n": 1}', b'{"data": {"values": 3}}'])
def test_an_event_that_is_no_notification_has_no_sample(data: bytes) -> None:
    assert sampled(Event("T", data)) == []


# Durations


def stays(timeline: Timeline, changes: Iterable[tuple[int, str]], watermark: int, window: int = 10) -> list[Stay]:
    for number, (when, name) in enumerate(changes):
        timeline.add(Change(when, number, name))
    return list(timeline.close(watermark, window))


def test_a_state_lasts_until_the_next_one_over_all_windows_between() -> None:
    timeline = Timeline()
    assert stays(timeline, [(3, "LOCKED"), (26, "HOLDOVER"), (28, "LOCKED"), (29, "LOCKED")], 29) == [
        Stay(0, "LOCKED", 7, 1), Stay(10, "LOCKED", 10, 0),
    ]  # fmt: skip
    assert stays(timeline, [], 40) == [
        Stay(20, "HOLDOVER", 2, 1), Stay(20, "LOCKED", 8, 1), Stay(30, "LOCKED", 10, 0),
    ]  # fmt: skip
    assert stays(timeline, [], 49) == []
    assert timeline.next_end(10) == 50


def test_changes_count_in_the_order_of_their_times_and_of_their_numbers_within_one() -> None:
    timeline = Timeline()
    assert stays(timeline, [(8, "FREERUN"), (2, "LOCKED"), (5, "HOLDOVER"), (5, "LOCKED")], 10) == [
        Stay(0, "FREERUN", 2, 1), Stay(0, "HOLDOVER", 0, 1), Stay(0, "LOCKED", 6, 2),
    ]  # fmt: skip


def test_a_late_change_counts_from_the_first_open_window_if_it_is_the_newest() -> None:
    timeline = Timeline()
    stays(timeline, [(3, "LOCKED")], 20)
    assert stays(timeline, [(12, "FREERUN"), (2, "HOLDOVER")], 30) == [Stay(20, "FREERUN", 10, 1)]


def test_a_resource_without_a_state_has_no_stay_and_no_next_window() -> None:
    timeline = Timeline()
    assert timeline.next_end(10) == 0
    timeline.add(Change(33, 1, "LOCKED"))
    assert timeline.next_end(10) == 40
    assert stays(timeline, [(36, "")], 60) == [Stay(30, "LOCKED", 3, 1)]
    assert timeline.next_end(10) == 0


def test_a_resource_that_is_new_begins_in_the_first_open_window() -> None:
    timeline = Timeline()
    timeline.begin(25, 10)
    assert stays(timeline, [(3, "LOCKED")], 30) == [Stay(20, "LOCKED", 10, 1)]


def test_a_state_that_lasts_for_ages_is_told_for_the_last_windows() -> None:
    found = stays(Timeline(), [(5, "LOCKED")], 10**12)
    assert len(found) == WINDOWS_MAX + 1
    assert found[-1] == Stay(10**12 - 10, "LOCKED", 10, 0)


def test_in_whatever_steps_windows_are_closed_they_say_the_same() -> None:
    chance = random.Random(7)
    changes = [(chance.randrange(500), chance.choice(["LOCKED", "HOLDOVER", "FREERUN", ""])) for _ in range(60)]
    at_once = stays(Timeline(), changes, 600)
    timeline, found = Timeline(), []
    for number, (when, name) in enumerate(changes):
        timeline.add(Change(when, number, name))
    for watermark in [*sorted(chance.randrange(600) for _ in range(20)), 600]:
        found += timeline.close(watermark, 10)
    assert found == at_once
    assert all(sum(each.milliseconds for each in at_once if each.start == start) <= 10 for start in range(0, 600, 10))


# In Spark


@pytest.fixture
def log(store: MemoryStore, clock: Clock) -> LocalLog:
    clock.ms = int(NOON.timestamp() + 3600) * 1000
    return store.create("cne")


@pytest.fixture
def measure(spark: SparkSession, url: str, log: LocalLog, tmp_path: Path) -> Measuring:
    """`measure("states", table="states", window="10s")`: all that is there."""

    def once(what: str, **options: Any) -> Summary:
        if options.get("table"):
            options["table"] = str(tmp_path / options["table"])
        given = {"log": "cne", "window": "10s", "late": "5s", **options}
        with Run("metrics", server=Server(url), checkpoint=str(tmp_path / f"checkpoint-{what}")) as run:
            return JOB.run(spark, JOB.options(measure=what, **given), run)

    return once


def rows(path: Path) -> list[tuple[Any, ...]]:
    """Seconds after noon at which the window begins, then the columns after its end; sorted."""
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert all(row["window_end"] - row["window_start"] == timedelta(seconds=10) for row in found)
    starts = [(row.pop("window_start") - NOON).total_seconds() for row in found]
    return sorted((start, *list(row.values())[1:]) for start, row in zip(starts, found, strict=True))


def test_numbers_are_summed_up_in_windows_which_are_told_once(
    measure: Measuring, log: LocalLog, tmp_path: Path
) -> None:
    log.append([clock_class(1, "6"), clock_class(2, "7.5"), clock_class(3, "248", NODE2), Event("odd", b"\xff")])
    log.append([clock_class(12, "6"), clock_class(11, "52"), state(12, "LOCKED")])
    log.append([clock_class(25, "7")])
    done = measure("values", table="values")
    assert (done.ending, done.events) == (Ending.DONE, 8)
    first = [
        (0.0, NODE1 + CLOCK_CLASS, CLASS, 6.75, 6.0, 7.5, 2),
        (0.0, NODE2 + CLOCK_CLASS, CLASS, 248.0, 248.0, 248.0, 1),
        (10.0, NODE1 + CLOCK_CLASS, CLASS, 29.0, 6.0, 52.0, 2),
    ]
    assert rows(tmp_path / "values") == first
    log.append([clock_class(3, "9"), clock_class(40, "7")])  # one is too late
    measure("values", table="values")
    assert rows(tmp_path / "values") == [*first, (20.0, NODE1 + CLOCK_CLASS, CLASS, 7.0, 7.0, 7.0, 1)]


def test_states_are_measured_across_windows_batches_and_runs(measure: Measuring, log: LocalLog, tmp_path: Path) -> None:
    resource = NODE1 + LOCK_STATE
    log.append([state(2, "LOCKED"), state(1, "FREERUN"), state(4, "LOCKED", NODE2)])
    log.append([state(14, "HOLDOVER"), state(15.5, "LOCKED")])
    log.append([state(26, "LOCKED", NODE2)])
    measure("states", table="states", events_per_batch=3)
    first = [
        (0.0, resource, STATE, "FREERUN", 1.0, 1),
        (0.0, resource, STATE, "LOCKED", 8.0, 1),
        (0.0, NODE2 + LOCK_STATE, STATE, "LOCKED", 6.0, 1),
        (10.0, resource, STATE, "HOLDOVER", 1.5, 1),
        (10.0, resource, STATE, "LOCKED", 8.5, 1),
        (10.0, NODE2 + LOCK_STATE, STATE, "LOCKED", 10.0, 0),
    ]
    assert rows(tmp_path / "states") == first
    log.append([state(13, "HOLDOVER"), state(37, "FREERUN", NODE2)])  # the first one is late, and not the newest
    measure("states", table="states", events_per_batch=3)
    assert rows(tmp_path / "states") == [
        *first,
        (20.0, resource, STATE, "LOCKED", 10.0, 0),
        (20.0, NODE2 + LOCK_STATE, STATE, "LOCKED", 10.0, 0),
    ]


def test_without_a_table_windows_are_lines_on_stdout(
    measure: Measuring, log: LocalLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log.append([clock_class(1, "6"), clock_class(60, "6")])
    measure("values", query="type=" + CLASS)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "window_start": "2026-11-21T12:00:00Z", "window_end": "2026-11-21T12:00:10Z", "resource": NODE1 + CLOCK_CLASS,
        "type": CLASS, "average": 6.0, "minimum": 6.0, "maximum": 6.0, "count": 1,
    }  # fmt: skip


def test_a_batch_that_spark_repeats_is_in_the_table_once(measure: Measuring, log: LocalLog, tmp_path: Path) -> None:
    log.append([clock_class(1, "6"), clock_class(60, "6")])
    measure("values", table="values")
    before = rows(tmp_path / "values")
    newest = max(int(file.name) for file in (tmp_path / "checkpoint-values" / "commits").glob("[0-9]*"))
    for file in (tmp_path / "checkpoint-values" / "commits").glob(f"*{newest}*"):
        file.unlink()  # as if Spark had died before it wrote down that the batch is done
    measure("values", table="values")
    assert rows(tmp_path / "values") == before


def test_another_checkpoint_other_options_and_other_files_are_refused(
    measure: Measuring, log: LocalLog, tmp_path: Path
) -> None:
    log.append([clock_class(1, "6"), clock_class(60, "6")])
    measure("values", table="values")
    with pytest.raises(NotAMetricsTable, match="it was created with window '10000', not '60000'"):
        measure("values", table="values", window="1m")
    (tmp_path / "checkpoint-values").rename(tmp_path / "lost")
    with pytest.raises(
        PipelineFailed, match=r"it was created with query .*; continue with its checkpoint, or use another"
    ):
        measure("values", table="values")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(NotAMetricsTable, match="needs an empty directory"):
        measure("values", table="full")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"window": "0s"}, "^window: expected a duration above 0, got '0s'"),
        ({"window": "5"}, "^window: expected a duration such as 30s, 5m or 1h, got '5'"),
        ({"late": "soon"}, "^late: expected a duration such as"),
        ({"table": "s3://bucket"}, "^table: expected a directory on this machine"),
        ({"log": "a/b"}, "a/b"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        JOB.options(**{"log": "cne", **options})


def test_the_plan_says_what_is_measured(url: str, log: LocalLog, tmp_path: Path) -> None:
    log.append([clock_class(1, "6")])
    options = JOB.options(log="cne", measure="states", window="1h", table=str(tmp_path / "states"))
    lines = JOB.plan(options, Run("metrics", server=Server(url), checkpoint="here"))
    assert lines[0].endswith("1 events, 1 to 1")
    assert lines[2:4] == [
        "time that each resource spent in each state, in windows of 1h",
        f"write each window to table {tmp_path / 'states'}, 1m after its end",
    ]
    assert not (tmp_path / "states").exists()


def test_a_table_takes_every_batch_of_its_query_once(tmp_path: Path) -> None:
    path, definition = tmp_path / "table", {"log": "cne", "window": "1"}
    starts = pa.array([datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (0, 1)])
    table = pa.table({"window_start": starts, "n": [1, 2]})
    assert append(path, table, definition, "q", 3)
    assert not append(path, table, definition, "q", 3)
    assert not append(path, table, definition, "q", 2)
    assert append(path, table, definition, "q", 4)
    assert append(path, table.slice(2), definition, "q", 5)  # a batch without windows
    assert DeltaTable(path).to_pyarrow_table().num_rows == 4
    with pytest.raises(NotAMetricsTable, match="query 'q', not 'other'"):
        append(path, table, definition, "other", 6)
