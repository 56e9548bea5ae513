"""The main program of the bulk process: serves Arrow Flight until the server stops it or ends."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ...core.shared_bytes import SharedBytes
from ...flight.server.limits import StreamLimits
from ...flight.server.server import BulkServer
from ..process.log_lines import configure_logging
from . import memory_guard
from .backend import BulkBackend
from .connections import Connections
from .early_connections import EarlyConnections
from .link import Link
from .supervisor import BulkSettings

OOM_SCORE = 500
"""If memory runs out, the kernel should kill this process rather than the server, because gRPC accepts everything that
clients send.
"""
LET_GO_S = 10.0
"""How often mapped files are checked for deletion."""


def main() -> None:
    """Arguments: the descriptor of the link, the settings as JSON, and the descriptors of the socket that holds the
    port and of connections accepted on it.
    """
    settings = msgspec.json.decode(sys.argv[2], type=BulkSettings)
    configure_logging(settings.log_level)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends together with its server
    _be_ended_first()
    stop = threading.Event()
    backend: BulkBackend
    connections: Connections

    def asked(what: str, arguments: Sequence[Any]) -> None:
        if what == "stop":
            stop.set()
        elif what == "share_port":
            connections.share()
            link.tell("port_shared")
        else:
            backend.sendings.end(*arguments)

    link = Link(socket.socket(fileno=int(sys.argv[1])), ended=_leave, asked=asked)
    memory = SharedBytes(settings.memory_bytes_max)
    backend = BulkBackend(
        link,
        lends=settings.lends,
        staged_bytes_max=settings.staged_bytes_max,
        disk_reserve_bytes=settings.disk_reserve_bytes,
        memory=memory,
    )
    held = EarlyConnections(*(socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[3:]))
    held.take()
    connections = Connections(
        settings.memory_bytes_max, lambda count: link.tell("connections_ended", count), held.address_of
    )
    server = BulkServer(
        backend,
        f"{'grpc+tls' if settings.certificate else 'grpc'}://{settings.host}:{settings.port}",
        certificate=Path(settings.certificate).read_bytes() if settings.certificate else None,
        key=Path(settings.key).read_bytes() if settings.certificate else None,
        limits=StreamLimits(settings.streams_max, settings.streams_max),
        address_of=held.address_of,
        memory=memory,
        took=connections.took,
    )
    connections.watch(settings.port)
    held.relay_to(settings.host.strip("[]"), settings.port)
    link.call("ready", type=type(None))
    memory_guard.watch(settings.memory_bytes_max, _leave, connections.end_largest)
    while not stop.wait(LET_GO_S):
        backend.let_go()
        backend.sendings.look()
    server.stop(settings.stop_ms / 1000)
    _leave()


def _be_ended_first() -> None:
    score = Path("/proc/self/oom_score_adj")
    with suppress(OSError):  # not on Linux
        if int(score.read_text()) < OOM_SCORE:
            score.write_text(str(OOM_SCORE))


def _leave() -> None:
    """Exits at once: there is no reason to wait for threads that stream to slow readers."""
    logging.shutdown()
    os._exit(0)
