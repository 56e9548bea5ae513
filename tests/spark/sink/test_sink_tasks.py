"""What a task of a write does: stages its rows in pieces, each while the next is made. Without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from headwater.core.errors import InvalidInput
from headwater.core.mark import Staged
from headwater.spark.sink import data_sink
from headwater.spark.sink.data_sink import PIECES_MAX, BatchSink, Part
from headwater.spark.sink.options import sink_options
from tests.waiting import eventually

OPTIONS = sink_options(
    {"url": "grpc://127.0.0.1:1", "log": "target"},
    StructType([StructField("type", StringType()), StructField("data", BinaryType())]),
    is_stream=False,
)


class Stages:
    """A client that takes stages, and remembers them: part and attempt, and the rows."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int, list[bytes]]] = []
        self.refuses_from = 1 << 30
        self.is_free = threading.Event()
        self.is_free.set()

    def stage(self, log: str, writer: str, batch: int, part: int, attempt: int, piece: list[pa.RecordBatch]) -> Staged:
        assert self.is_free.wait(30)
        if len(self.taken) >= self.refuses_from:
            raise InvalidInput("no more", "events")
        rows = [row for each in piece for row in each.column("data").to_pylist()]
        self.taken.append((part, attempt, rows))
        return Staged(f"stage {len(self.taken)}", len(rows), sum(map(len, rows)))


class Task:
    """What Spark tells a task of itself."""

    def partitionId(self) -> int:
        return 3

    def taskAttemptId(self) -> int:
        return 77


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    """Pieces of two rows."""
    made = Stages()
    monkeypatch.setattr(data_sink.TaskContext, "get", lambda: Task())
    monkeypatch.setattr(data_sink, "client_of", lambda address: made)
    monkeypatch.setattr(data_sink, "JOINED_BYTES", 1)
    monkeypatch.setattr(data_sink, "PIECE_BYTES", 2 * row(0).nbytes)
    return made


def row(number: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(["T"]), pa.array([b"%05d" % number])], names=["type", "data"])


def test_the_pieces_of_a_task_are_staged_in_order_and_each_row_once(stages: Stages) -> None:
    part = BatchSink(OPTIONS, "w", 1).write(map(row, range(7)))
    first = 3 * PIECES_MAX
    assert [piece[:2] for piece in stages.taken] == [(first + number, 77) for number in range(4)]
    assert [data for *_, rows in stages.taken for data in rows] == [b"%05d" % number for number in range(7)]
    assert part == Part("w", 1, 3, ("stage 1", "stage 2", "stage 3", "stage 4"))


def test_a_piece_that_is_refused_ends_the_task_before_all_rows_are_made(stages: Stages) -> None:
    stages.refuses_from = 1
    made: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(10_000):
            made.append(number)
            yield row(number)

    with pytest.raises(InvalidInput, match="no more"):
        BatchSink(OPTIONS, "w", 1).write(rows())
    assert len(stages.taken) == 1 and len(made) < 20


def test_no_more_than_one_piece_is_sent_while_the_next_is_made(stages: Stages) -> None:
    made: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(12):
            made.append(number)
            if number == 6:
                raise RuntimeError("the rows broke off")
            yield row(number)

    stages.is_free.clear()
    with ThreadPoolExecutor(1) as task:
        running = task.submit(BatchSink(OPTIONS, "w", 1).write, rows())
        eventually(lambda: len(made) == 6)  # a second piece is whole by then
        time.sleep(0.2)
        assert len(made) == 6 and not running.done()
        stages.is_free.set()
        with pytest.raises(RuntimeError, match="broke off"):
            running.result(30)


def test_rows_that_end_with_an_error_end_the_task_with_it(stages: Stages) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from map(row, range(5))
        raise RuntimeError("the rows broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        BatchSink(OPTIONS, "w", 1).write(rows())
    assert [data for *_, rows in stages.taken for data in rows] == [b"00000", b"00001"]
