"""Spark's Python workers look through everything after each task: what stays anyway is taken out of that."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headwater.core.local import LocalLog
from headwater.spark.columns.schema import EVENT_SCHEMA
from headwater.spark.session import python_workers
from headwater.spark.source.batch import BatchReader
from headwater.spark.source.data_source import batch_reader
from headwater.spark.source.options import ReadOptions
from pyspark_headwater import DefaultSource


class Telling(DefaultSource):
    """The data source, whose tasks write into a directory how many objects the collector passes over."""

    @classmethod
    def name(cls) -> str:
        return "telling"

    def schema(self) -> StructType:
        return EVENT_SCHEMA

    def reader(self, schema: StructType) -> TellingReader:
        told = self.options.pop("told")
        return TellingReader(batch_reader(self.options, schema).options, told)


class TellingReader(BatchReader):
    """See `Telling`."""

    def __init__(self, options: ReadOptions, told: str) -> None:
        super().__init__(options)
        self._told = Path(told)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from super().read(partition)
        (self._told / str(os.getpid())).write_text(str(gc.get_freeze_count()))


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The collector of this process, which has everything back afterwards."""
    gc.unfreeze()
    monkeypatch.setattr(python_workers, "_settled", 0)
    yield
    gc.unfreeze()


def test_a_process_that_is_no_worker_keeps_its_collector(collector: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    python_workers.settle()
    assert gc.get_freeze_count() == 0


def test_a_worker_passes_over_what_was_imported(
    collector: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    python_workers.settle()
    settled = gc.get_freeze_count()
    assert settled > 10_000
    later: list[list[object]] = [[]]
    python_workers.settle()
    assert gc.is_tracked(later) and gc.get_freeze_count() <= settled, "nothing was imported since"

    monkeypatch.delitem(sys.modules, "imported_later", raising=False)
    (tmp_path / "imported_later.py").write_text("many = [[] for _ in range(1000)]")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("imported_later")
    python_workers.settle()
    assert gc.get_freeze_count() > settled


def test_garbage_of_the_tasks_before_is_not_kept(collector: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    gc.disable()  # else it may be gone already
    try:
        Cycle()
        python_workers.settle()
    finally:
        gc.enable()
    gc.unfreeze()
    assert not any(type(each) is Cycle for each in gc.get_objects())


def test_workers_that_read_are_settled(spark: SparkSession, url: str, orders: LocalLog, tmp_path: Path) -> None:
    spark.dataSource.register(Telling)
    frame = spark.read.format("telling").options(url=url, log="orders", told=str(tmp_path)).load()
    assert frame.count() == 100
    told = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert told and min(told) > 10_000


def test_what_reads_and_writes_imports_no_pandas() -> None:
    imports = "import headwater.spark.source.data_source, headwater.spark.sink.data_sink"
    program = f"import sys; {imports}; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
