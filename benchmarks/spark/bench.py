"""What the questions share in one run: the server with a filled log, the session, and the same events elsewhere."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.client import connect
from headwater.core import LogSettings
from headwater.flight.client import BulkClient
from headwater.spark import session

from ..amqp.cache import Unavailable
from ..measure import Stopwatch, expect, stopwatch
from .events import batches
from .kafka import Kafka, connector_jars
from .serving import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
SPLITS = 4
"""In which everything is read: a log's splits, Parquet's files, Kafka's partitions."""
LOG = "events"
ROOT = Path(__file__).parents[2]


class SparkBench:
    """One run over a log of so many events. `live_s` is how long a stream is looked at."""

    def __init__(
        self,
        directory: Path,
        events: int,
        *,
        live_s: float = 40.0,
        has_peers: bool = True,
        note: Callable[[str], None] = lambda text: None,
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.directory, self.events, self.live_s = directory, events, live_s
        self.note, self.complain = note, complain
        self._numbers = itertools.count(1)
        self._jars: list[Path] = []
        self.kafka: Kafka | None = None
        """None: without it."""
        directory.mkdir(parents=True)
        self.server = Server(self.scratch("server"), directory / "data")
        try:
            if has_peers:
                self._open_kafka()
            note(f"filling a log with {events:,} events")
            self.fill(LOG)
        except BaseException:
            self.close()
            raise

    @property
    def versions(self) -> dict[str, str]:
        """Of the contenders, and of Spark."""
        peers = {self.kafka.label: self.kafka.version} if self.kafka else {}
        java = self.spark.sparkContext._jvm.System.getProperty("java.version")  # type: ignore[union-attr]
        spark = f"{self.spark.version}, local[{CORES}], Java {java}"
        return {"headwater": self.server.version, "Spark": spark, **peers}

    @cached_property
    def spark(self) -> SparkSession:
        """One session for all contenders."""
        self.note("starting Spark")
        paths = [str(ROOT / "src"), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        options = {
            "spark.driver.memory": "2g",
            "spark.ui.showConsoleProgress": "false",
            "spark.python.unix.domain.socket.enabled": "true",  # else each task of a source in Python waits 40 ms
            "spark.sql.streaming.numRecentProgressUpdates": "100000",
            "spark.local.dir": str(self.scratch("spark")),
            "spark.sql.warehouse.dir": str(self.scratch("warehouse")),
        }
        if self._jars:
            options["spark.jars"] = ",".join(map(str, self._jars))
        made = session("benchmarks", f"local[{CORES}]", options)
        made.sparkContext.setLogLevel("OFF")  # a stopped stream is told as an error
        return made

    @property
    def url(self) -> str:
        """Of the bulk plane."""
        return self.server.host

    def bulk(self) -> BulkClient:
        """A new client; to be closed."""
        return BulkClient(self.url)

    def scratch(self, name: str) -> Path:
        """A path that nothing uses yet."""
        return self.directory / f"{name}-{next(self._numbers)}"

    def fresh_log(self, settings: LogSettings | None = None) -> str:
        """An empty log."""
        name = f"fresh-{next(self._numbers)}"
        with self.bulk() as bulk:
            bulk.create_log(name, settings)
        return name

    def discard(self, log: str) -> None:
        """A log that is not used any more."""
        with connect(self.server.http) as server:
            server.delete(log)

    def fill(self, log: str, settings: LogSettings | None = None) -> None:
        """Make a log and append the events to it."""
        with self.bulk() as bulk:
            bulk.create_log(log, settings)
            bulk.append(log, batches(self.events))
        self.check(log)

    def check(self, log: str) -> None:
        """Raises WrongAnswer unless the log has as many events as it was to get."""
        with self.bulk() as bulk:
            expect(f"events in {log}", self.events, bulk.count(log))

    def restart(self) -> Server:
        """A server that has done nothing yet, with the same logs."""
        self.server.close()
        self.server = Server(self.scratch("server"), self.directory / "data")
        return self.server

    def frame(self, log: str = LOG, **options: object) -> DataFrame:
        """A read of a log, in as many splits as the others unless `options` say otherwise."""
        given = {"url": self.url, "log": log, "minPartitions": SPLITS, **options}
        return self.spark.read.format("headwater").options(**{name: str(value) for name, value in given.items()}).load()

    def stopwatch(self) -> Stopwatch:
        """For work in Spark. Its Python workers, which end after a minute without work, are there when it starts."""
        self.frame(columns="type", endingPosition=1).count()
        return stopwatch()

    @cached_property
    def parquet(self) -> str:
        """A directory of Parquet files that Spark has written, as it does by default: the columns of a read."""
        self.note("writing the Parquet files")
        path = str(self.directory / "parquet")
        self.frame().write.parquet(path)
        return path

    @cached_property
    def plain_parquet(self) -> str:
        """The same with the columns that a producer of events has: type, data, tags and id."""
        self.note("writing the Parquet files of events to be written")
        path = str(self.directory / "plain-parquet")
        self.frame(columns="type,data,tags,id").write.parquet(path)
        return path

    @cached_property
    def topic(self) -> str:
        """The topic that Spark has filled with the same events."""
        assert self.kafka is not None
        self.note("filling the topic")
        self.kafka.write(self.spark.read.parquet(self.plain_parquet), LOG)
        expect("events in the topic", self.events, self.kafka.read(self.spark, LOG).count())
        return LOG

    def _open_kafka(self) -> None:
        self.note("starting kafka")
        try:
            self._jars = connector_jars()
            self.kafka = Kafka(self.scratch("kafka"))
        except Unavailable as error:
            self._jars = []
            self.complain(f"without {error}")

    def close(self) -> None:
        """Stop everything and remove every file."""
        if "spark" in self.__dict__:
            self.spark.stop()
        if self.kafka is not None:
            self.kafka.close()
        self.server.close()
        shutil.rmtree(self.directory, ignore_errors=True)
