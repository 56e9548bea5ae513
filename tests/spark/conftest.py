"""A small Spark session that the modules of a process share, and bulk servers for it to read from."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.core import Event, LogSettings, Query
from headwater.core.extent import SplitSize
from headwater.core.local import LocalLog
from headwater.flight.server.backend import Span
from headwater.storage.memory import MemoryStore
from tests.flight.memory_backend import MemoryBackend, serving

T0 = 1_700_000_000_000
"""When the first event of a log is recorded."""
SOURCES = Path(__file__).parents[2] / "src"


def spark_environment() -> None:
    """Workers run this interpreter, and find the package that is tested."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(SOURCES) not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCES), *filter(None, known)])


ORDINARY = {"sql__session__timeZone": "UTC", "sql__python__filterPushdown__enabled": "true"}


class Sessions:
    """The classic sessions of this process, of which Java has one at a time.

    Starting one and warming its Python workers takes 10 to 20 s of CPU. So all modules that need no other use the
    ordinary one; a module with other needs stops it, and the next ordinary module starts it again.
    """

    def __init__(self) -> None:
        self._ordinary: SparkSession | None = None

    def ordinary(self) -> SparkSession:
        """The one on two cores, started where it does not run."""
        if self._ordinary is None:
            self._ordinary = started("local[2]", driver__memory="1g", **ORDINARY)
        return self._ordinary

    def stop(self) -> None:
        """Stop the ordinary one where it runs."""
        if self._ordinary is not None:
            ordinary, self._ordinary = self._ordinary, None
            ordinary.stop()


SESSIONS = Sessions()


def started(master: str, **settings: str) -> SparkSession:
    """A new classic session; a dot in the name of a setting, which begins with `spark.`, is two underscores."""
    spark_environment()
    builder = SparkSession.builder.master(master).appName("tests")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    for name, value in settings.items():
        builder = builder.config(f"spark.{name.replace('__', '.')}", value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@contextlib.contextmanager
def session_on(master: str, **settings: str) -> Iterator[SparkSession]:
    """A session with other settings than the ordinary one has, instead of it."""
    SESSIONS.stop()
    session = started(master, **settings)
    try:
        yield session
    finally:
        session.stop()


def stop_queries(session: SparkSession) -> None:
    """Stop the streams that a session still runs."""
    for query in session.streams.active:
        query.stop()


@pytest.fixture(scope="module")
def spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """A session on two cores, whose settings, temporary views and registered sources are this module's alone."""
    pytestconfig.add_cleanup(SESSIONS.stop)
    session = SESSIONS.ordinary().newSession()
    yield session
    stop_queries(session)
    for database in session.catalog.listDatabases():
        if database.name != "default":  # all sessions of one Java share these
            session.sql(f"DROP DATABASE `{database.name}` CASCADE")


@pytest.fixture
def own_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """What `session()` answers to commands and programs that the test runs in this process; they cannot stop it."""
    session = spark.newSession()
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: session))
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    yield session
    stop_queries(session)


class Clock:
    """The time that a store gives its events, in ms."""

    def __init__(self) -> None:
        self.ms = T0

    def __call__(self) -> int:
        return self.ms


class Scan(NamedTuple):
    """What a server was asked to read."""

    log: str
    span: Span
    query: Query
    columns: list[str]


class Backend(MemoryBackend):
    """A backend that remembers what it was asked to read, and can do something else just before."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.scans: list[Scan] = []
        self.before_scan: list[Callable[[], object]] = []
        self.before_splits: list[Callable[[], object]] = []

    def scan(
        self, log: str, span: Span, query: Query, columns: Sequence[str], batch_bytes: Callable[[], int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        while self.before_scan:
            self.before_scan.pop()()
        self.scans.append(Scan(log, span, query, list(columns)))
        return super().scan(log, span, query, columns, batch_bytes)

    def splits(self, log: str, span: Span, query: Query, *, split_bytes: int, splits_min: int) -> list[SplitSize]:
        while self.before_splits:
            self.before_splits.pop()()
        return super().splits(log, span, query, split_bytes=split_bytes, splits_min=splits_min)


@pytest.fixture
def clock() -> Clock:
    """It stands still; `fill` moves it."""
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    """No logs yet."""
    return MemoryStore(clock)


@pytest.fixture
def backend(store: MemoryStore) -> Backend:
    """What the server reads that store with."""
    return Backend(store)


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    """A bulk server for that store."""
    with serving(backend) as server:
        yield f"grpc://127.0.0.1:{server.port}"


@pytest.fixture
def orders(store: MemoryStore, clock: Clock) -> LocalLog:
    """A log of 100 events in two partitions: each third is `Paid`, the others `Placed`."""
    log = store.create("orders", LogSettings(partitions=2))
    fill(log, 100, clock)
    return log


@pytest.fixture
def load(spark: SparkSession, url: str) -> Callable[..., DataFrame]:
    """`load(log="orders", query="...")`: a batch read of that server."""

    def read(**options: object) -> DataFrame:
        given = {name: str(value) for name, value in options.items()}
        return spark.read.format("headwater").options(url=url, **given).load()

    return read


def fill(log: LocalLog, count: int, clock: Clock | None = None) -> None:
    """Append `count` events in appends of 10, a second apart. What event n is like, says `event`."""
    first = log.head() + 1
    numbers = range(first, first + count)
    for at in range(0, count, 10):
        log.append([event(number) for number in numbers[at : at + 10]])
        if clock is not None:
            clock.ms += 1000


def event(number: int) -> Event:
    """The event that `fill` appends under this number."""
    return Event(
        id=str(number),
        type="Placed" if number % 3 else "Paid",
        data=b'{"n": %d}' % number,
        tags=(f"order:{number % 7}",),
        source="shop",
        attributes={"subject": f"s{number}"},
        group_key=f"key{number % 5}",
    )


def numbers(frame: DataFrame) -> list[int]:
    """The sequence numbers, sorted."""
    return sorted(row.sequence_number for row in frame.select("sequence_number").collect())
