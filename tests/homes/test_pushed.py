"""A replica that listens, to a primary whose answer ends anywhere."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import cast

from headwater.core.threads import Threads
from headwater.homes.committed import Committed
from headwater.server.pushed import Listening
from headwater.server.pushing import SECRET_RECORD, ensure_secret
from headwater.storage.data_directory import open_state
from headwater.storage.follower import Follower
from headwater.storage.frame import EncodedFrame
from headwater.storage.home import JOURNAL_KEY
from headwater.storage.memory import MemoryState


def test_the_frame_that_has_the_secret_is_known_by_its_bytes(tmp_path: Path) -> None:
    with closing(open_state(tmp_path)) as state:
        ensure_secret(state)
        state.put("home", "other", b"secret")
    [segment] = (tmp_path / "journal" / "log").glob("*.log")
    assert segment.read_bytes().count(SECRET_RECORD) == 1


def test_who_listens_is_not_told_what_ends_its_listening() -> None:
    committed = Committed(SECRET_RECORD)
    listener = committed.listen(lambda: None)
    assert listener is not None
    others, secret = (EncodedFrame(1, 1, 0, 0, 1, [content]) for content in (b"x", b"a" + SECRET_RECORD))
    committed.tell("a log", [secret])  # whatever an event of somebody's has in it
    committed.tell(JOURNAL_KEY, [others])
    assert len(listener.take()) == 2
    committed.tell(JOURNAL_KEY, [others, secret])
    committed.tell(JOURNAL_KEY, [others])
    assert (listener.take(), listener.is_overrun) == ([], True)


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
