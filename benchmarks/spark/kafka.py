"""Apache Kafka, one node without ZooKeeper, and Spark's Kafka connector: all of it jars of Maven Central.

The broker has its defaults, but for what a single node needs and the number of partitions. So it answers a producer
when the events are in the page cache, and the disk gets them later; Headwater answers after the disk has.

Not every version of the connector is there: this one was made for Spark 4.2.0, and its half for Kerberos and tokens,
which is loaded and not used here, for 4.0.0. Both sides of a pair run in the one session, of the Spark installed here.
"""

from __future__ import annotations

import base64
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from ..amqp.brokers.broker import START_S_MAX, Broker, free_port
from ..amqp.cache import installed, maven_copy, maven_copy_all, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION = "4.1.0"
PARTITIONS = 4
HEAP = "1g"
"""What Kafka's own start script gives it."""
_BROKER = (f"org.apache.kafka:kafka_2.13:{VERSION}",)
CONNECTOR = "4.2.0"
_CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
TRIES = 4
"""Of a download: the registry fails now and then."""
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
num.partitions={partitions}
auto.create.topics.enable=true
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Kafka(Broker):
    """A topic per measurement, made by its first event."""

    label = "kafka"
    version = f"{VERSION}, Spark's connector {CONNECTOR}"
    is_warm_at_once = False

    def _start(self) -> str:
        jars = installed("kafka", " ".join(_BROKER), _install_broker, ["java", "mvn"])
        port, controller = free_port(), free_port()
        properties = self.directory / "server.properties"
        logs = self.directory / "logs"
        properties.write_text(_PROPERTIES.format(port=port, controller=controller, logs=logs, partitions=PARTITIONS))
        java = ("java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-cp", f"{jars}/*")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A")
        run(*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties)
        self._spawn(*java, "kafka.Kafka", properties)
        self._wait_until_it_listens(port)
        return f"127.0.0.1:{port}"

    def _wait_until_it_listens(self, port: int) -> None:
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self.processes[-1].poll() is not None or time.monotonic() > deadline:
                    written = Path(self._log.name).read_text(errors="replace")
                    raise RuntimeError(f"kafka did not start: {written[-1500:]}") from None
            time.sleep(0.2)

    def read(self, spark: SparkSession, topic: str, *, has_headers: bool = True) -> DataFrame:
        """All of a topic."""
        options = {"kafka.bootstrap.servers": self.host, "subscribe": topic, "startingOffsets": "earliest"}
        options |= {"endingOffsets": "latest", "includeHeaders": str(has_headers).lower()}
        return spark.read.format("kafka").options(**options).load()

    def write(self, events: DataFrame, topic: str) -> None:
        """Append events with columns type, data, tags and id: the type and the tags as headers, the id as the key."""
        header = "named_struct('key', '{}', 'value', cast({} as binary))"
        types = f"array({header.format('type', 'type')})"
        tags = f"transform(tags, tag -> {header.format('tag', 'tag')})"
        records = events.selectExpr("id as key", "data as value", f"concat({types}, {tags}) as headers")
        options = {"kafka.bootstrap.servers": self.host, "topic": topic, "includeHeaders": "true"}
        records.write.format("kafka").options(**options).save()


def connector_jars() -> list[Path]:
    """What a session has to load. Raises Unavailable."""
    directory = installed("spark-kafka", " ".join(_CONNECTOR), _install_connector, ["mvn"])
    return sorted(directory.glob("*.jar"))


def _install_broker(directory: Path) -> None:
    for last in range(TRIES):
        try:
            return maven_copy_all(_BROKER, directory)
        except subprocess.CalledProcessError:
            if last == TRIES - 1:
                raise
    return None


def _install_connector(directory: Path) -> None:
    """Jar by jar: what they depend on otherwise, Spark has."""
    for artifact in _CONNECTOR:
        for last in range(TRIES):
            try:
                maven_copy(artifact, directory)
                break
            except subprocess.CalledProcessError:
                if last == TRIES - 1:
                    raise
