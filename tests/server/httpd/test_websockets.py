"""WebSockets through the server as it runs: upgrade, bounds, silent peers, stopping."""

from __future__ import annotations

import base64
import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headwater.server.users.accounts import hash_password

from ..running import RunningServer

PATH = "/futoin/default"
PASSWORD = "correcthorse"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer("--storage", "memory", cwd=tmp_path) as running:
        yield running


def opened(server: RunningServer, path: str = PATH, **more: Any) -> ClientConnection:
    return connect(f"ws{server.url.removeprefix('http')}{path}", compression=None, **more)


def ask(connection: ClientConnection, f: str, **p: Any) -> Any:
    connection.send(json.dumps({"f": f, "p": p, "rid": "C1"}).encode())
    return json.loads(connection.recv(timeout=10))


def test_a_session_over_a_real_socket(server: RunningServer) -> None:
    with opened(server) as connection:
        assert ask(connection, "futoin.evt.push:1.1:registerConsumer", component="C") == {"r": True, "rid": "C1"}
        assert ask(connection, "futoin.evt.push:1.1:readyToReceive", component="C")["r"] is True
        body = b'{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":[1]}}'
        assert server.ask(PATH, body) == (200, '{"r":"1"}')
        pushed = connection.recv(timeout=10)
        assert isinstance(pushed, bytes)
        assert json.loads(pushed)["p"]["events"][0]["data"] == [1]
        connection.send(b'{"r":true,"rid":"S1"}')


def test_no_websocket_elsewhere(server: RunningServer) -> None:
    for path in ("/", "/logs", "/metrics", "/futoin/default/deeper", "/health/live"):
        with pytest.raises(InvalidStatus), opened(server, path):
            pass
    assert server.ask("/health/live")[0] == 200


def test_a_message_over_the_limit_ends_its_connection_only(server: RunningServer) -> None:
    with opened(server) as other, opened(server, max_size=None) as connection:
        with pytest.raises(ConnectionClosed) as closed:
            connection.send(b"x" * (9 * 2**20))
            connection.recv(timeout=10)
        assert closed.value.rcvd is not None, "it must get to know why"
        assert closed.value.rcvd.code == 1009
        assert ask(other, "futoin.evt.gen:1.1:ping", echo=1)["r"] == {"echo": 1}


def test_a_peer_that_breaks_the_protocol_ends_its_connection_only(server: RunningServer) -> None:
    with opened(server) as other:
        for garbage in (
            b"\xff" * 100,
            b"\x81\x05hello",
            b"\x80\x80\x00\x00\x00\x00",
            b"\x81\x82\x00\x00\x00\x00\xff\xff",
        ):
            with raw(server) as broken:
                broken.sendall(garbage)
                broken.shutdown(socket.SHUT_WR)
                while broken.recv(4096):
                    pass
        assert ask(other, "futoin.evt.gen:1.1:ping", echo=1)["r"] == {"echo": 1}
    assert "Traceback" not in server.errors


def raw(server: RunningServer) -> socket.socket:
    """A socket with an open WebSocket on it, to be misused."""
    address = urlsplit(server.url)
    assert address.hostname is not None
    made = socket.create_connection((address.hostname, address.port or 0), timeout=10)
    made.sendall(
        b"GET %b HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % PATH.encode()
    )
    head = b""
    while b"\r\n\r\n" not in head:
        head += made.recv(4096)
    assert head.startswith(b"HTTP/1.1 101 ")
    return made


@pytest.fixture
def closed_server(tmp_path: Path) -> Iterator[RunningServer]:
    """One with a user, and little room for messages of strangers."""
    user = f'[users.alice]\npassword = "{hash_password(PASSWORD)}"\ngrants = ["all:*"]\n'
    (tmp_path / "users.toml").write_text(user, encoding="utf-8")
    room = ("--memory-peers", "256MiB")
    with RunningServer("--storage", "memory", "--config", "users.toml", *room, cwd=tmp_path) as running:
        yield running


def logged_in(server: RunningServer, connection: ClientConnection) -> None:
    message = {"f": "futoin.evt.gen:1.1:ping", "p": {"echo": 1}, "rid": "C0", "sec": f"alice:{PASSWORD}"}
    connection.send(json.dumps(message).encode())
    assert json.loads(connection.recv(timeout=10)) == {"r": {"echo": 1}, "rid": "C0"}


def large(size: int, **more: Any) -> bytes:
    """An addEvents of about that size."""
    events = [{"type": "A", "data": "x" * 60_000} for _ in range(size // 60_100)]
    return json.dumps({"f": "headwater.evt.gen:1.0:addEvents", "p": {"events": events}, "rid": "C1", **more}).encode()


def closed_with(connection: ClientConnection) -> tuple[int, str]:
    """Why the server closed it."""
    with pytest.raises(ConnectionClosed) as closed:
        connection.recv(timeout=10)
    assert closed.value.rcvd is not None, "it must get to know why"
    return closed.value.rcvd.code, closed.value.rcvd.reason


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_known_peer_may_send_more_than_a_stranger(closed_server: RunningServer, is_cut: bool) -> None:
    def send(connection: ClientConnection, body: bytes) -> None:
        with suppress(ConnectionClosed):
            connection.send([body[at : at + 1000] for at in range(0, len(body), 1000)] if is_cut else body)

    with opened(closed_server, max_size=None) as connection:
        send(connection, large(2**16)[: 2**16].ljust(2**16))
        assert "Anonymous not allowed" in str(connection.recv(timeout=10)), "so much is looked at"
        send(connection, large(8_000_000, sec=f"alice:{PASSWORD}"))
        code, reason = closed_with(connection)
        assert code == 1009 and ("256 fragments" if is_cut else "there is memory for at most") in reason
    with opened(closed_server, max_size=None) as connection:
        logged_in(closed_server, connection)
        send(connection, large(8_000_000, sec=f"alice:{PASSWORD}"))
        assert json.loads(connection.recv(timeout=20))["r"]
    login = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    with opened(closed_server, max_size=None, additional_headers={"authorization": f"Basic {login}"}) as connection:
        send(connection, large(8_000_000))
        assert json.loads(connection.recv(timeout=20))["r"]
    wrong = base64.b64encode(b"alice:wrong").decode()
    with opened(closed_server, max_size=None, additional_headers={"authorization": f"Basic {wrong}"}) as connection:
        send(connection, large(8_000_000))
        assert closed_with(connection)[0] == 1009


def test_the_fragments_of_a_message_are_counted_also_where_they_are_empty(closed_server: RunningServer) -> None:
    begin, more, end = (bytes([first, 0x80, 0, 0, 0, 0]) for first in (0x02, 0x00, 0x80))
    with opened(closed_server) as connection:
        connection.socket.sendall(begin + more * 254 + end)
        assert "InvalidRequest" in str(connection.recv(timeout=10)), "so many are looked at"
        connection.socket.sendall(begin + more * 255 + end)
        assert closed_with(connection)[0] == 1009
    with opened(closed_server) as connection:
        logged_in(closed_server, connection)
        connection.socket.sendall(begin + more * 32_782 + end)
        assert "InvalidRequest" in str(connection.recv(timeout=10)), "so many are looked at"
        connection.socket.sendall(begin + more * 32_783 + end)
        assert closed_with(connection) == (1009, "a message can have at most 32784 fragments")


def test_a_stopping_server_says_goodbye(server: RunningServer) -> None:
    with opened(server) as connection:
        ask(connection, "futoin.evt.gen:1.1:ping", echo=1)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
    assert server.process.wait(20) == 0


def test_connections_are_counted_as_streams(server: RunningServer) -> None:
    with opened(server) as connection:
        ask(connection, "futoin.evt.gen:1.1:ping", echo=1)
        assert "headwater_http_streams 1.0" in server.ask("/metrics")[1]
    deadline = time.monotonic() + 10
    counted = 'headwater_http_requests_total{method="WEBSOCKET",route="/futoin/{log}",status="101"} 1.0'
    while counted not in (metrics := server.ask("/metrics")[1]):
        assert time.monotonic() < deadline, metrics
