"""Apache ActiveMQ Artemis, from its distribution in Maven Central.

An instance is made by `artemis create` as a user makes one: journal ASYNCIO (libaio is Debian's; without it NIO), timed
by its own tuning, with datasync on; durable messages in anycast queues that make themselves. Only the acceptors are
changed (AMQP alone, on loopback, with the parameters of the default), the default routing type, and the heap. Every
message is durable; it is accepted after the journal's fdatasync.
"""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path
from typing import Any

from ..cache import Unavailable, debian_unpack, installed, maven_copy, run
from .broker import HEAP, Broker, free_port

VERSION = "2.56.0"
_DISTRIBUTION = f"org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin"
_ACCEPTOR = (
    "tcp://127.0.0.1:{port}?tcpSendBufferSize=1048576;tcpReceiveBufferSize=1048576;protocols=AMQP;useEpoll=true;"
    "amqpCredits=1000;amqpLowCredits=300;amqpMinLargeMessageSize=102400;amqpDuplicateDetection=true"
)
_ROUTING = "<default-address-routing-type>ANYCAST</default-address-routing-type>"
_QUEUE_ROUTING = "<default-queue-routing-type>ANYCAST</default-queue-routing-type>"
_CREATE = (
    "--silent --no-web --user bench --password bench --allow-anonymous --no-hornetq-acceptor --no-mqtt-acceptor "
    "--no-stomp-acceptor"
)


class Artemis(Broker):
    """A queue per measurement; reading takes the messages out of it, durably too."""

    label = "artemis"
    is_warm_at_once = False

    def _start(self) -> str:
        home = installed("artemis", _DISTRIBUTION, _install, ["java", "mvn"]) / f"apache-artemis-{VERSION}"
        environment, journal = self._libaio()
        instance, port = self.directory / "instance", free_port()
        memory = ["--java-memory", HEAP.upper()]
        run(home / "bin" / "artemis", "create", *_CREATE.split(), *memory, journal, instance, environment=environment)
        configuration = instance / "etc" / "broker.xml"
        configuration.write_text(_configured(configuration.read_text(), port))
        self.version = f"{VERSION}, journal {journal.strip('-')}"
        self._spawn(instance / "bin" / "artemis", "run", environment={**os.environ, **environment})
        self._wait_for("Server is now active")
        return f"127.0.0.1:{port}"

    def _libaio(self) -> tuple[dict[str, str], str]:
        """The environment in which libaio is found, and the kind of journal."""
        try:
            root = installed("libaio", "libaio1", lambda directory: debian_unpack(["libaio1"], directory), ["apt-get"])
        except Unavailable:
            return {}, "--nio"
        folders = {str(path.parent) for path in root.rglob("libaio.so.1")}
        return {"LD_LIBRARY_PATH": ":".join(sorted(folders))}, "--aio"

    def request(self, address: str) -> dict[str, Any]:
        """See Broker."""
        return {**super().request(address), "queue": True}


def _install(directory: Path) -> None:
    archive = maven_copy(_DISTRIBUTION, directory)
    with tarfile.open(archive) as files:
        files.extractall(directory, filter="data")
    archive.unlink()


def _configured(text: str, port: int) -> str:
    acceptor = f'<acceptors><acceptor name="amqp">{_ACCEPTOR.format(port=port)}</acceptor></acceptors>'
    text = re.sub(r"<acceptors>.*?</acceptors>", acceptor, text, flags=re.DOTALL)
    return text.replace('<address-setting match="#">', f'<address-setting match="#">{_ROUTING}{_QUEUE_ROUTING}')
