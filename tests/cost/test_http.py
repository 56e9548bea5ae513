"""HTTP itself, below every route: bodies in chunks of a byte, and requests in a row that are refused."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Thread
from urllib.parse import urlsplit

import pytest

from tests.server.running import SILENCE_S_MAX

from .measuring import ObservedServer
from .shapes import PIPELINED, chunked

SIZE_MAX = 256 * 1024
HEAD = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
PATHS = ("/logs/l/append", "/futoin/l", "/api/ocloudNotifications/v2/create/event", "/nowhere")


def send_whole(server: ObservedServer, data: bytes) -> None:
    """On a connection of its own; all answers are read, to the end of the connection."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=SILENCE_S_MAX) as peer:
        sending = Thread(target=_send, args=(peer, data))
        sending.start()
        with suppress(ConnectionError):
            while peer.recv(2**20):
                pass
        sending.join()


def _send(peer: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError):
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("path", PATHS)
def test_chunks_of_a_byte(server: ObservedServer, path: str) -> None:
    head = HEAD % path.encode()
    server.check_growth(path, lambda size: send_whole(server, head + chunked(size)), SIZE_MAX)


@pytest.mark.parametrize("name", PIPELINED)
def test_requests_in_a_row_that_are_refused(server: ObservedServer, name: str) -> None:
    server.check_growth(name, lambda size: send_whole(server, PIPELINED[name](size)), SIZE_MAX)
