"""What systemd is told: to wait while the server starts, and that it is ready as soon as it answers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headwater.server.process.service_manager import ServiceManager

from ..running import SILENCE_S_MAX, RunningServer

EXTEND = "EXTEND_TIMEOUT_USEC=60000000"


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(address)
        bound.settimeout(SILENCE_S_MAX)
        yield bound


def told_until_ready(systemd: socket.socket) -> list[str]:
    told = [systemd.recv(4096).decode()]
    while told[-1] != "READY=1":
        told.append(systemd.recv(4096).decode())
    return told


def test_the_server_says_that_it_is_ready_when_it_answers(tmp_path: Path) -> None:
    with (
        listening(str(tmp_path / "notify")) as systemd,
        RunningServer("--data", "data", cwd=tmp_path, variables={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as server,
    ):
        told = told_until_ready(systemd)
        assert server.ask("/logs/default/head")[0] == 200
        assert told[0] == EXTEND, "the time for a start may have been short"
        assert server.terminate() == 0
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(4096)


def test_more_time_is_asked_for_again_and_again_until_it_is_ready() -> None:
    address = f"\0headwater-service-manager-{os.getpid()}"
    with listening(address) as systemd, closing(ServiceManager(f"@{address[1:]}", every_s=0.01)) as manager:
        assert [systemd.recv(4096).decode() for _ in range(3)] == [EXTEND] * 3
        manager.ready()
        assert set(told_until_ready(systemd)) <= {EXTEND, "READY=1"}


def test_a_socket_that_is_not_there_keeps_nothing_from_starting(tmp_path: Path) -> None:
    missing = {"NOTIFY_SOCKET": str(tmp_path / "nowhere")}
    with RunningServer("--storage", "memory", cwd=tmp_path, variables=missing) as server:
        assert server.ask("/health/ready")[0] == 200
        server.wait_for("cannot notify systemd of READY=1")
