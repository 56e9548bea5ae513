"""A replica that listens, to a primary whose answer ends anywhere."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import cast

from headwater.core.threads import Threads
from headwater.server.pushed import Listening
from headwater.server.pushing import ensure_secret
from headwater.storage.follower import Follower
from headwater.storage.memory import MemoryState


def test_an_answer_that_ends_within_a_length_is_listened_to_again() -> None:
    state, threads = MemoryState(), Threads()
    ensure_secret(state)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(30)
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        listening = Listening(cast(Follower, None), state, lambda: address)  # it is told of no frame
        listening.start(threads)
        try:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    assert connection.recv(65536).startswith(b"GET /home/frames ")
                    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n\x00\x00\x00")
        finally:
            listening.stop()
    assert threads.restarts == {}
