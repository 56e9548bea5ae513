"""What a server has not loaded that was asked for nothing which needs it; and that it loads it when it is needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headwater.amqp.client import Client
from headwater.amqp.protocol.performatives import Accepted
from headwater.flight.client import BulkClient
from tests.amqp.asking import message
from tests.waiting import eventually

from . import starting
from .running import RunningServer

LATE = ("pyarrow", "Crypto", "cffi", "opentelemetry", "pyspark")
"""Packages of which each takes tens of milliseconds, or megabytes, and that many servers never need."""
PROGRAM = f"""
import atexit, sys
atexit.register(lambda: print("loaded:", [name for name in {LATE!r} if name in sys.modules], file=sys.stderr))
from headwater.cli.main import main
main()
"""
ALONE = ("--data", "data", "--flight-enabled", "true", "--flight-port", "0")


def append(server: RunningServer, count: int) -> None:
    """Events with a source, which `_pick` leaves to Python."""
    events = [{"type": "Placed", "tags": ["order:1"], "data": "e30=", "source": "shop"} for _ in range(count)]
    status, text = server.ask("/logs/default/append", json.dumps({"events": events}).encode())
    assert status == 200, text


def read(server: RunningServer) -> int:
    status, text = server.ask("/logs/default/read", b'{"query": "all", "limit": 1000}')
    assert status == 200, text
    return sum('"event"' in line for line in text.splitlines())


def test_a_server_that_is_asked_for_little_has_not_loaded_the_rest(tmp_path: Path) -> None:
    with RunningServer(*ALONE, cwd=tmp_path, program=[sys.executable, "-c", PROGRAM]) as server:
        amqp = server.further_url("amqp")
        append(server, 1)
        assert server.ask("/logs/default/head")[0] == 200
        assert read(server) == 1
        with Client(amqp) as client:
            client.receiver("default")
            assert client.sender("default").send(message(b"over AMQP")) == Accepted()
        assert server.ask("/futoin/default/futoin.evt.gen/1.1/ping?echo=1")[0] == 200
        assert server.ask("/metrics")[0] == 200
        assert not Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        assert server.terminate() == 0
        assert "loaded: []" in server.errors


def test_pages_are_read_before_arrow_is_there_and_after(tmp_path: Path) -> None:
    with RunningServer(*ALONE, cwd=tmp_path, program=starting.PROGRAM) as server:
        maps = Path(f"/proc/{server.process.pid}/maps")
        append(server, 100)
        assert "libarrow" not in maps.read_text()
        assert read(server) == 100
        eventually(lambda: "libarrow" in maps.read_text())
        assert read(server) == 100
        with BulkClient(server.further_url("grpc")) as bulk:
            assert bulk.count("default") == 100
