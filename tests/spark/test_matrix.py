"""Spark beside all others: its source reads what each of them wrote, its sink writes what each of them reads.

By night; by day `tests/spark/test_cases.py` writes and reads every case on a log in memory.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.core import Event
from headwater.formats.arrow.tables import SCHEMA
from tests.matrix.cases import AMQP_CASES, CASES
from tests.matrix.comparing import differences, without_made_up
from tests.matrix.conftest import world as world
from tests.matrix.conftest import written as written
from tests.matrix.mapping import Told, shown, stored
from tests.matrix.readers import READERS, of_batches
from tests.matrix.seen import Seen
from tests.matrix.tagged import TAGS, write
from tests.matrix.world import LOG, World
from tests.matrix.writers import COLUMNS, row
from tests.night import night
from tests.odd_tags import matching

pytestmark = [pytest.mark.timeout(300), night]

CASE = {case.name: case for case in (*CASES, *AMQP_CASES)}
ROW = (
    "type string, data binary, tags array<string>, id string, source string, attributes map<string, string>, "
    "group_key string"
)


@pytest.fixture(scope="module")
def both(written: World, spark: SparkSession) -> World:
    """What all have written, and then Spark's sink: all cases in one write, which are numbered in their order."""
    rows = [tuple(row(case, "spark")[name] for name in COLUMNS.names) for case in CASES]
    frame = spark.createDataFrame(rows, ROW).coalesce(1)
    before = written.log.head()
    options = {"url": written.flight_url, "log": LOG, "writerId": "matrix", "batchId": "1"}
    for _ in range(2):  # done once, however often it runs
        frame.write.format("headwater").mode("append").options(**options).save()
    written.look()
    assert written.log.head() == before + len(CASES)
    for number, case in enumerate(CASES, before + 1):
        written.written["spark", case.name] = number
    return written


@pytest.fixture(scope="module")
def read(both: World, spark: SparkSession) -> Mapping[str, list[Seen]]:
    """What each reader saw, Spark's source among them."""
    found = {reader.name: list(reader.read(both)) for reader in READERS}
    frame = spark.read.format("headwater").options(url=both.flight_url, log=LOG).load()
    table = frame.orderBy("sequence_number").toArrow().select(SCHEMA.names).cast(SCHEMA)
    return found | {"spark": of_batches(table.to_batches())}


def test_sink_writes_what_was_said(both: World) -> None:
    wrong = []
    for case in CASES:
        expected = stored(case, "spark")
        assert expected is not None
        event = both.events[both.written["spark", case.name]].event
        wrong += differences(case.name, without_made_up(event, expected), expected)
    assert not wrong, "\n".join(wrong)


def test_readers_see_what_the_sink_wrote(both: World, read: Mapping[str, list[Seen]]) -> None:
    wrong = []
    for reader in READERS:
        found = {seen.number: seen for seen in read[reader.name]}
        for case in CASES:
            number = both.written["spark", case.name]
            expected = shown(reader.name, Told(both.events[number], case, "spark"))
            wrong += differences(f"{case.name} to {reader.name}", found.get(number), expected)
    assert not wrong, "\n".join(wrong)


def test_source_reads_what_all_have_written(both: World, read: Mapping[str, list[Seen]]) -> None:
    """Whoever wrote it: same number, id, type, tags, bytes and times."""
    by_number = {number: pair for pair, number in both.written.items()}
    assert [seen.number for seen in read["spark"]] == sorted(by_number) == sorted(both.events)
    wrong = []
    for seen in read["spark"]:
        writer, case = by_number[seen.number]
        expected = shown("spark", Told(both.events[seen.number], CASE[case], writer))
        wrong += differences(f"{case} of {writer}", seen, expected)
    assert not wrong, "\n".join(wrong)


def test_condition_sees_what_the_sink_wrote(both: World) -> None:
    number = both.written["spark", "plain"]
    condition = {"failIfEventsMatch": {"items": [{"tags": ["order:4711"]}]}, "after": number - 1}
    answer = both.post(f"/logs/{LOG}/append", {"events": [{"type": "Decided"}], "condition": condition})
    assert (answer.status, answer.json["sequence_number"]) == (409, number)


def test_rows_that_are_there_are_left_out_where_that_is_asked_for(both: World, spark: SparkSession) -> None:
    """Ids are the same to all: Spark repeats, unknowingly, what came over AMQP."""
    head = both.log.head()
    rows = [tuple(row(CASE["plain"], "amqp")[name] for name in COLUMNS.names)]
    writer = spark.createDataFrame(rows, ROW).write.format("headwater").mode("append")
    writer.options(url=both.flight_url, log=LOG, onDuplicate="skip").save()
    assert both.log.head() == head


def test_read_below_the_trim_point_is_an_error_unless_loss_is_taken(both: World, spark: SparkSession) -> None:
    orders = both.client.create("orders")
    orders.append([Event("T", b"{}") for _ in range(12)])
    assert orders.trim(9) == 9
    options = {"url": both.flight_url, "log": "orders", "startingPosition": "3"}
    with pytest.raises(PySparkException, match="9"):
        spark.read.format("headwater").options(**options).load().collect()
    found = spark.read.format("headwater").options(**options, failOnDataLoss="false").load().collect()
    assert sorted(each.sequence_number for each in found) == [9, 10, 11, 12]


def test_source_finds_odd_tags_by_its_query(tagged: Mapping[str, int], world: World, spark: SparkSession) -> None:
    def found(query: str) -> list[int]:
        frame = spark.read.format("headwater").options(url=world.flight_url, log=LOG, query=query).load()
        return sorted(each.sequence_number for each in frame.collect())

    wrong = []
    for tag in ("order/17", "\u00dcn\u00efcode:1", "a, b", "it's", "\\", "\U0001f680" * 275):
        exactly, by_key = numbers_of(tagged, {tag}), numbers_of(tagged, matching(tag, TAGS))
        expected = {
            f"type=Tagged {shlex.quote(f'exact_tag={tag}')}": exactly,
            f"type=Tagged {shlex.quote(f'tag={tag}')}": by_key,
            json.dumps({"items": [{"types": ["Tagged"], "exact_tags": [tag]}]}): exactly,
        }
        wrong += [f"{query}: {found(query)}, not {numbers}" for query, numbers in expected.items()
                  if found(query) != numbers]  # fmt: skip
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def tagged(world: World) -> Mapping[str, int]:
    """Events that have one odd tag each; after all other tests, which know what there is."""
    return write(world)


def numbers_of(tagged: Mapping[str, int], tags: set[str]) -> list[int]:
    """Their numbers, ascending."""
    return sorted(tagged[tag] for tag in tags)
