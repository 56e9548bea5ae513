"""Which connections are used again: those on which nothing can be mistaken for an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.waiting import eventually

from headwater.client import RemoteLog, Server, ServerUnreachable, connect
from headwater.core import AppendCondition, Event, Query, errors

HEAD_1 = b'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"head":1}'
HEAD_2 = b'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"head":2}'


@contextmanager
def answering(*answers: list[Callable[[socket.socket], None]]) -> Iterator[str]:
    """A server that does these things on each of its connections in turn, a thing for a request."""

    def serve() -> None:
        for steps in answers:
            peer, _ = listener.accept()
            peers.append(peer)
            with suppress(OSError):  # its client may go away with words unread
                for step in steps:
                    if not peer.recv(65536):
                        break
                    step(peer)

    peers: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
        for peer in peers:
            peer.close()


def test_what_came_behind_an_answer_is_no_answer_to_the_next_request() -> None:
    late = threading.Event()

    def say_twice(peer: socket.socket) -> None:
        peer.sendall(HEAD_1)
        late.wait(10)
        peer.sendall(HEAD_1)  # nobody asked

    with (
        answering([say_twice], [lambda peer: peer.sendall(HEAD_2)]) as url,
        connect(url, retry_s=0) as server,
    ):
        log = server.log("orders")
        assert log.head() == 1
        (idle,) = server._transport.targets.current.idle
        late.set()
        eventually(idle.is_stale)
        assert log.head() == 2


def test_a_connection_that_the_server_closed_is_not_used() -> None:
    def say_and_close(peer: socket.socket) -> None:
        peer.sendall(HEAD_1)
        peer.shutdown(socket.SHUT_RDWR)

    with (
        answering([say_and_close], [lambda peer: peer.sendall(HEAD_2)]) as url,
        connect(url, retry_s=0) as server,
    ):
        log = server.log("orders")
        assert log.head() == 1
        eventually(server._transport.targets.current.idle[0].is_stale)
        assert log.head() == 2


def test_a_refused_append_leaves_its_connection_open(server: Server, log: RemoteLog) -> None:
    log.append([Event("A", tags=("a:1",))])
    for _ in range(3):
        with pytest.raises(errors.AppendConditionFailed):
            log.append([Event("A")], AppendCondition(Query.where(tags=["a:1"])))
        (idle,) = server._transport.targets.current.idle
        assert not idle.is_stale()


def test_what_accepts_and_does_no_tls_is_told_as_a_time_limit_of_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        with (
            connect(url, timeout_s=0.05, retry_s=0) as server,
            pytest.raises(ServerUnreachable, match="timed out while connecting"),
        ):
            server.logs()
