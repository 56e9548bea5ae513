"""The main program of the bulk process: it serves Arrow Flight until its server says stop, or is gone."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import msgspec

from ...flight.limits import StreamLimits
from ...flight.server import BulkServer
from ..log_lines import configure_logging
from .backend import BulkBackend
from .link import Link
from .supervisor import BulkSettings

LET_GO_S = 10.0
"""How often it is looked whether mapped files were deleted."""


def main() -> None:
    """Arguments: the descriptor of the link, and the settings as JSON."""
    settings = msgspec.json.decode(sys.argv[2], type=BulkSettings)
    configure_logging(settings.log_level)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with its server
    stop = threading.Event()
    link = Link(socket.socket(fileno=int(sys.argv[1])), ended=_leave, asked=lambda _: stop.set())
    backend = BulkBackend(
        link, staged_bytes_max=settings.staged_bytes_max, disk_reserve_bytes=settings.disk_reserve_bytes
    )
    server = BulkServer(
        backend,
        f"{'grpc+tls' if settings.certificate else 'grpc'}://{settings.host}:{settings.port}",
        certificate=Path(settings.certificate).read_bytes() if settings.certificate else None,
        key=Path(settings.key).read_bytes() if settings.certificate else None,
        limits=StreamLimits(settings.streams_max, settings.streams_max),
    )
    link.call("ready", type=type(None))
    while not stop.wait(LET_GO_S):
        backend.let_go()
    server.stop(settings.stop_ms / 1000)
    _leave()


def _leave() -> None:
    """At once: nothing here is worth the wait for threads that stream to slow readers."""
    logging.shutdown()
    os._exit(0)
