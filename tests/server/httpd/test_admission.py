"""More HTTP connections than are allowed: those that are there stay, the others are told, and health is answered."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from headwater.core.loop.refused_connections import EACH_MAX
from headwater.core.watch.bus import Bus
from headwater.server.httpd.admission import SURPLUS_MAX, SURPLUS_OF_PLACE_MAX, Admission, Verdict

from ..running import SILENCE_S_MAX, RunningServer

LIMIT = 3
CLIENT = "io.headwater.client"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer("--storage", "memory", "--http-connections-max", str(LIMIT), cwd=tmp_path) as running:
        yield running


def connected(server: RunningServer) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SILENCE_S_MAX)


def asked(connection: socket.socket, path: str, *more: str) -> tuple[int, bytes, bytes]:
    """Status, head and body of the answer to a GET; the connection is kept where the server keeps it."""
    connection.sendall("\r\n".join((f"GET {path} HTTP/1.1", "host: localhost", *more, "", "")).encode())
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65_536)
        assert piece, received
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    [length] = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < length:
        body += connection.recv(65_536)
    return int(head.split()[1]), head.lower(), body


def test_who_comes_too_late_is_told_so_and_who_is_there_goes_on(server: RunningServer) -> None:
    with ExitStack() as stack:
        there = [stack.enter_context(connected(server)) for _ in range(LIMIT)]
        assert [asked(each, "/logs")[0] for each in there] == [200] * LIMIT
        for upgrade in ((), ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")):
            with connected(server) as late:
                status, head, body = asked(late, "/logs", *upgrade)
                assert (status, b"\r\nretry-after: 5" in head, late.recv(1)) == (503, True, b"")
                assert json.loads(body)["detail"] == "the server has 3 connections, the maximum"
        with connected(server) as late:
            status, head, body = asked(late, "/health/live")
            assert (status, json.loads(body), late.recv(1)) == (200, {"status": "live"}, b"")
        assert [asked(each, "/logs")[0] for each in there] == [200] * LIMIT
        told = asked(there[0], "/metrics")[2].decode()
        assert f"headwater_http_connections_open {LIMIT}.0" in told
        assert f"headwater_http_connections_total {LIMIT}.0" in told
        assert "headwater_http_connections_refused_total 2.0" in told
        there.pop().close()
        assert asked(there[0], "/logs")[0] == 200  # so the end of the other was seen
        with connected(server) as next_one:
            assert asked(next_one, "/logs")[0] == 200
    assert server.errors.count("level=warning") == 2
    server.wait_for('message="connection refused" protocol=http peer=127.0.0.1 reason=limit')


def test_beyond_a_few_that_are_read_everybody_is_told_and_counted(server: RunningServer) -> None:
    with ExitStack() as stack:
        there = [stack.enter_context(connected(server)) for _ in range(LIMIT)]
        assert [asked(each, "/logs")[0] for each in there] == [200] * LIMIT
        for _ in range(SURPLUS_OF_PLACE_MAX):
            stack.enter_context(connected(server))
        late = [stack.enter_context(connected(server)) for _ in range(3 * EACH_MAX)]
        for each in late:
            status, head, body = asked(each, "/logs")
            assert (status, b"\r\nretry-after: 5" in head, each.recv(1)) == (503, True, b"")
            assert body == b"the server has 3 connections, the maximum"
        told = asked(there[0], "/metrics")[2].decode()
        assert f"headwater_http_connections_refused_total {len(late)}.0" in told
    server.wait_for(f"reason=limit count={len(late) - EACH_MAX}")
    assert server.errors.count('message="connection refused"') == EACH_MAX + 1


def test_operators_are_answered_while_the_server_is_full_and_may_end_a_connection(server: RunningServer) -> None:
    with ExitStack() as stack:
        there = [stack.enter_context(connected(server)) for _ in range(LIMIT)]
        assert [asked(each, "/logs")[0] for each in there] == [200] * LIMIT
        for path in ("/console/session", "/metrics"):
            with connected(server) as late:
                assert (asked(late, path)[0], late.recv(1)) == (200, b"")
        with connected(server) as late:
            late.sendall(f"GET /management/{CLIENT} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            listed = b"".join(iter(lambda: late.recv(65_536), b""))
            assert listed.startswith(b"HTTP/1.1 200") and listed.count(b'"http/') == LIMIT + 1, listed
        host, port = there[0].getsockname()
        with connected(server) as late:
            name = quote(f"http/{host}:{port}", safe="")
            late.sendall(f"DELETE /management/{CLIENT}/{name} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            assert late.recv(12) == b"HTTP/1.1 204"
        assert there[0].recv(1) == b""
        with connected(server) as next_one:
            assert asked(next_one, "/logs")[0] == 200


def test_subscriptions_and_websockets_count(server: RunningServer) -> None:
    with ExitStack() as stack:
        websocket = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")
        key = "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA=="
        for path, *more in (("/futoin/default", *websocket, key), ("/logs/default/subscribe?query=all",)):
            held = stack.enter_context(connected(server))
            held.sendall("\r\n".join((f"GET {path} HTTP/1.1", "host: localhost", *more, "", "")).encode())
            assert held.recv(12) == (b"HTTP/1.1 101" if more else b"HTTP/1.1 200")
        with connected(server) as last, connected(server) as late:
            assert (asked(last, "/logs")[0], asked(late, "/logs")[0]) == (200, 503)


def test_a_surplus_connection_is_one_until_its_end() -> None:
    bus = Bus()
    admission = Admission(1, bus=bus)
    assert admission.judge(1, "a") is Verdict.SERVED
    half = SURPLUS_OF_PLACE_MAX
    assert [admission.judge(2 + number, "b") for number in range(half)] == [Verdict.SURPLUS] * half
    assert (admission.takes(2 + half, "b"), admission.takes(2 + half, "c")) == (False, True)
    assert admission.judge(2 + half, "b") is Verdict.DROPPED
    assert [admission.judge(2 + half + number, "c") for number in range(half)] == [Verdict.SURPLUS] * half
    assert not admission.takes(1 + SURPLUS_MAX, "d")
    assert admission.judge(2 + SURPLUS_MAX, "d") is Verdict.DROPPED
    assert (admission.takes(SURPLUS_MAX, "d"), admission.room(SURPLUS_MAX)) == (True, 1)
    assert admission.judge(1 + SURPLUS_MAX, "d") is Verdict.SERVED  # the first has gone, and those above have not
    admission.forget_surplus("b")
    assert admission.judge(2 + SURPLUS_MAX, "b") is Verdict.SURPLUS
    assert (admission.served, admission.refused, admission.surplus) == (2, 2, SURPLUS_MAX)
    assert list(bus.counts.values()) == [2]
