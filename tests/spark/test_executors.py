"""Executors that die while they read and while they write: every event is in the target once, in order."""

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
from headwater.storage.memory import MemoryStore
from tests.flight.memory_backend import MemoryStage
from tests.night import night

from .conftest import Backend, session_on
from .processes import descendants

RUNS_LAST = True
"""Its sessions have settings of their own: the ordinary one stops for them."""


def executors() -> list[int]:
    """The processes of this session's executors, which Java starts."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


class Deadly(Backend):
    """Kills the executors, and what they have started, when one of them reads a batch, and when one sends the next."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.killed: dict[str, list[int]] = {}

    def scan(
        self, log: str, span: Span, query: Query, columns: Sequence[str], batch_bytes: Callable[[], int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        if "type" in columns:  # not to plan
            self.kill("reading")
        return super().scan(log, span, query, columns, batch_bytes)

    def stage(self, user: User, command: StageCommand, schema: pa.Schema) -> MemoryStage:
        if command.batch == 1:
            self.kill("writing")
        return super().stage(user, command, schema)

    def kill(self, when: str) -> None:
        """Kill once, when there is one: a worker may outlive its executor, and ask before the next has started."""
        if when not in self.killed and (found := executors()):
            self.killed[when] = found
            for pid in found:
                for each in (pid, *descendants(pid)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)


@pytest.fixture
def backend(store: MemoryStore) -> Deadly:
    return Deadly(store)


@pytest.fixture
def cluster() -> Iterator[SparkSession]:
    """A session with one executor, which is a process of its own, and is started again when it dies."""
    with session_on("local-cluster[1,2,512]", executor__memory="512m", driver__host="127.0.0.1") as session:
        yield session


@night
@pytest.mark.timeout(600)
def test_executors_that_are_killed_lose_nothing_and_append_nothing_twice(
    cluster: SparkSession, orders: LocalLog, store: MemoryStore, backend: Deadly, url: str, tmp_path: Path
) -> None:
    target = store.create("target")
    columns = "type,data"  # without ids, by which the log would know an event
    options = {"url": url, "log": "orders", "maxEventsPerTrigger": "50", "minPartitions": "2", "columns": columns}
    source = cluster.readStream.format("headwater").options(**options).load()
    sink = source.writeStream.format("headwater").options(url=url, log="target", checkpointLocation=str(tmp_path))
    sink.trigger(availableNow=True).start().awaitTermination(250)

    assert {when: len(pids) for when, pids in backend.killed.items()} == {"reading": 1, "writing": 1}
    assert backend.killed["reading"] != backend.killed["writing"]
    assert [event.data for event in target.read()] == [event.data for event in orders.read()]
