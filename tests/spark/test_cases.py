"""The sink and the source of Spark with every case of the matrix; by night `test_matrix.py` runs them beside all."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from headwater.core import Event
from headwater.formats.arrow.tables import SCHEMA
from headwater.storage.memory import MemoryStore
from tests.matrix.cases import AMQP_CASES, CASES, Case
from tests.matrix.comparing import differences, without_made_up
from tests.matrix.mapping import MADE, Told, shown, stored
from tests.matrix.readers import of_batches
from tests.matrix.writers import COLUMNS, WRITERS, row

from .test_matrix import ROW


def written() -> list[tuple[Case, str, Event]]:
    """What logs have of each case from each writer."""
    given = [(case, writer.name) for writer in WRITERS for case in CASES]
    given += [(case, "amqp") for case in AMQP_CASES]
    events = [(case, writer, stored(case, writer)) for case, writer in given]
    return [(case, writer, event) for case, writer, event in events if event is not None]


def test_sink_writes_what_was_said(spark: SparkSession, url: str, store: MemoryStore) -> None:
    log = store.create("cases")
    rows = [tuple(row(case, "spark")[name] for name in COLUMNS.names) for case in CASES]
    writer = spark.createDataFrame(rows, ROW).coalesce(1).write.format("headwater").mode("append")
    writer.options(url=url, log="cases").save()
    found = list(log.read())
    assert len(found) == len(CASES)
    wrong = []
    for case, each in zip(CASES, found, strict=True):
        expected = stored(case, "spark")
        assert expected is not None
        wrong += differences(case.name, without_made_up(each.event, expected), expected)
    assert not wrong, "\n".join(wrong)


def test_source_reads_what_every_writer_leaves_in_a_log(load: Callable[..., DataFrame], store: MemoryStore) -> None:
    log = store.create("cases")
    given = written()
    for _, _, event in given:
        log.append([event._replace(id="") if event.id == MADE else event])
    events = {event.sequence_number: event for event in log.read()}
    table = load(log="cases").orderBy("sequence_number").toArrow().select(SCHEMA.names).cast(SCHEMA)
    found = of_batches(table.to_batches())
    assert [seen.number for seen in found] == sorted(events) == list(range(1, len(given) + 1))
    wrong = []
    for seen, (case, writer, _) in zip(found, given, strict=True):
        wrong += differences(f"{case.name} of {writer}", seen, shown("spark", Told(events[seen.number], case, writer)))
    assert not wrong, "\n".join(wrong)
