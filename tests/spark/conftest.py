"""A Spark session per module, small enough for a laptop, and bulk servers for it to read from."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.core import Event, LogSettings
from headwater.core.local import LocalLog
from headwater.storage.memory import MemoryStore
from tests.flight.memory_backend import bulk_server

SOURCES = Path(__file__).parents[2] / "src"


def spark_environment() -> None:
    """Workers run this interpreter, and find the package that is tested."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(SOURCES) not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCES), *filter(None, known)])


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A classic session on two cores."""
    spark_environment()
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def store() -> MemoryStore:
    """No logs yet."""
    return MemoryStore()


@pytest.fixture
def url(store: MemoryStore) -> Iterator[str]:
    """A bulk server for that store."""
    with bulk_server(store) as url:
        yield url


@pytest.fixture
def orders(store: MemoryStore) -> LocalLog:
    """A log of 100 events in two partitions: each third is `Paid`, the others `Placed`."""
    log = store.create("orders", LogSettings(partitions=2))
    fill(log, 100)
    return log


@pytest.fixture
def load(spark: SparkSession, url: str) -> Callable[..., DataFrame]:
    """`load(log="orders", query="...")`: a batch read of that server."""

    def read(**options: object) -> DataFrame:
        given = {name: str(value) for name, value in options.items()}
        return spark.read.format("headwater").options(url=url, **given).load()

    return read


def fill(log: LocalLog, count: int, *, first: int = 1) -> None:
    """Append `count` events in appends of 10; the event with number n has id `n` and is tagged `order:n % 7`."""
    numbers = range(first, first + count)
    for at in range(0, count, 10):
        log.append([event(number) for number in numbers[at : at + 10]])


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
