"""The application under an ASGI server that is not ours, over a socket: streams, early refusals, the end."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import uvicorn

from headwater.core import Event, OpenGuard
from headwater.dcb import Application
from headwater.storage.memory import MemoryStore


class Served:
    """An application served by uvicorn in a thread, on a free port: front ends know ASGI alone."""

    def __init__(self, store: MemoryStore) -> None:
        self.app = Application(store, OpenGuard(), body_bytes_max=1000)
        config = uvicorn.Config(self.app, port=0, log_level="critical", http="httptools", loop="uvloop", lifespan="off")
        self.server = uvicorn.Server(config)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        asyncio.run(self.server.serve([self.listener]))

    def stop(self) -> None:
        self.app.stop()
        self.server.should_exit = True
        self.thread.join(20)
        self.listener.close()

    @contextmanager
    def asking(self, head: str, body: bytes = b"") -> Iterator[socket.socket]:
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=10)) as connection:
            connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
            yield connection


@pytest.fixture
def store():
    made = MemoryStore()
    made.create("courses")
    return made


@pytest.fixture
def served(store):
    made = Served(store)
    yield made
    made.stop()


def read_until(connection: socket.socket, found: bytes) -> bytes:
    received = b""
    while found not in received:
        piece = connection.recv(65536)
        assert piece, f"closed before {found!r}: {received!r}"
        received += piece
    return received


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def post(path: str, body: bytes) -> str:
    return f"POST {path} HTTP/1.1\nHost: x\nConnection: close\nContent-Length: {len(body)}"


def test_append_and_read_over_a_socket(served):
    body = b'{"events":[{"type":"T","tags":["n:1"]}]}'
    with served.asking(post("/logs/courses/append", body), body) as connection:
        assert b'"sequence_number":1' in read_all(connection)
    body = b'{"query":"all"}'
    with served.asking(post("/logs/courses/read", body), body) as connection:
        head, _, lines = read_all(connection).partition(b"\r\n\r\n")
    assert b"headwater-head: 1" in head
    assert json.loads(lines)["sequence_number"] == 1


def test_body_over_the_limit_is_refused_before_it_arrives(served):
    head = "POST /logs/courses/append HTTP/1.1\nHost: x\nContent-Length: 1000000000"
    with served.asking(head, b"{") as connection:
        answer = read_all(connection)  # the server closes: the rest is never read
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"too_large" in answer


def test_slow_client_over_a_socket_gets_all_in_the_end(served, store):
    for _ in range(10):
        store.open("courses").append([Event("T", b"x" * 5000, ("n:1",)) for _ in range(1000)])
    body = b'{"query":"all"}'
    with served.asking(post("/logs/courses/read", body), body) as connection:
        begin = read_until(connection, b"\r\n\r\n")
        rest = read_all(connection)
    assert (begin + rest).count(b'"sequence_number":') == 10_000


def test_stop_ends_a_subscription_with_its_last_chunk(served, store):
    with served.asking("GET /logs/courses/subscribe?query=all HTTP/1.1\nHost: x") as connection:
        read_until(connection, b"retry: 1000")
        store.open("courses").append([Event("T")])
        read_until(connection, b'"sequence_number":1')
        served.stop()
        assert read_all(connection).endswith(b"0\r\n\r\n")
