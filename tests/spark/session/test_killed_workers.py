"""Workers of Python that are killed in the middle of a batch: the pipeline goes on, and every event is there once."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.core import Query, User
from headwater.core.local import LocalLog
from headwater.flight.server.backend import Span
from headwater.flight.wire import StageCommand
from headwater.spark.jobs import copy
from headwater.spark.pipeline import run as run_module
from headwater.spark.pipeline.failures import DEAD_WORKER
from headwater.spark.pipeline.run import Run, Server
from headwater.storage.memory import MemoryStore
from tests.flight.memory_backend import MemoryStage

from ..conftest import Backend
from ..processes import descendants


def workers() -> list[int]:
    """The processes that run tasks of Python: the daemon that Java started makes each as a child of its own."""
    found = {}
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in found.items() if parent in found]


class Deadly(Backend):
    """Kills the workers when one of them reads a batch, and when one writes the next."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.killed: dict[str, list[int]] = {}

    def scan(
        self, log: str, span: Span, query: Query, columns: Sequence[str], batch_bytes: Callable[[], int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        if "type" in columns and span.after >= 30:  # not to plan; in the second batch
            self.kill("reading")
        return super().scan(log, span, query, columns, batch_bytes)

    def stage(self, user: User, command: StageCommand, schema: pa.Schema) -> MemoryStage:
        if command.batch == 2:
            self.kill("writing")
        return super().stage(user, command, schema)

    def kill(self, when: str) -> None:
        if when not in self.killed:
            self.killed[when] = workers()
            for pid in self.killed[when]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def backend(store: MemoryStore) -> Deadly:
    return Deadly(store)


class Shown:
    """What a run says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def show(self, done: object) -> None:
        pass

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        pass


@pytest.mark.timeout(300)
def test_a_pipeline_goes_on_though_its_workers_are_killed(
    spark: SparkSession,
    orders: LocalLog,
    store: MemoryStore,
    backend: Deadly,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_module, "PAUSES_S", (0.1, 0.2, 0.5))
    target, shown = store.create("target"), Shown()
    options = copy.Copy(source="orders", target="target", events_per_batch=30, on_duplicate="fail")
    with Run("copy", server=Server(url=url), checkpoint=str(tmp_path), progress=shown) as run:
        summary = run.retrying(lambda: copy.run(spark, options, run))  # as every pipeline is run
    assert set(backend.killed) == {"reading", "writing"} and all(backend.killed.values())
    assert [line.partition("; trying")[0] for line in shown.said] == [f"copy: {DEAD_WORKER}"] * 2
    assert summary.events == 100
    assert [event.data for event in target.read()] == [event.data for event in orders.read()]
