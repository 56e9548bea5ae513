"""A replica that listens, to a primary whose answer ends anywhere; and a primary whose listeners go away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from headwater.core.state import StateStore
from headwater.core.watch.threads import Threads
from headwater.homes.commit_feed import Committed
from headwater.homes.home_secret import SECRET_HEADER, SECRET_RECORD, HomeSecret, ensure_secret
from headwater.http import Message
from headwater.server.replicas import frame_push
from headwater.server.replicas.frame_listener import Listening
from headwater.server.replicas.frame_push import PushedFrames
from headwater.storage.frames.encoding import EncodedFrame
from headwater.storage.home.port import JOURNAL_KEY
from headwater.storage.maintenance.follower import Follower
from headwater.storage.memory import MemoryState
from headwater.storage.state.data_directory import open_state


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
        listening = Listening(cast(Follower, None), HomeSecret(state), lambda: address)  # it is told of no frame
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


class Peer:
    """A replica that asks a primary to be told, and what becomes of that."""

    def __init__(self, state: StateStore) -> None:
        secret = HomeSecret(state).value
        assert secret is not None
        self.scope = {
            "type": "http",
            "method": "GET",
            "path": frame_push.PATH,
            "headers": [(SECRET_HEADER, secret)],
        }
        self.is_gone, self.takes = asyncio.Event(), asyncio.Event()
        self.is_told = asyncio.Event()
        self.answer: list[Message] = []
        self._has_asked = False

    async def receive(self) -> Message:
        if not self._has_asked:
            self._has_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.is_told.set()
            await self.takes.wait()
        self.answer.append(message)


def pushed_to(is_over: Callable[[Peer, Committed], Awaitable[None]]) -> Peer:
    """What becomes of a replica that is told, until that is over."""

    async def run() -> Peer:
        state, committed = MemoryState(), Committed()
        ensure_secret(state)
        peer = Peer(state)
        telling = asyncio.ensure_future(PushedFrames(committed, HomeSecret(state))(peer.scope, peer.receive, peer.send))
        async with asyncio.timeout(60):
            await peer.is_told.wait()
            assert committed.has_listeners
            await is_over(peer, committed)
            await telling
        assert not committed.has_listeners
        return peer

    return asyncio.run(run())


def test_who_has_gone_away_listens_no_more() -> None:
    async def is_gone(peer: Peer, _: Committed) -> None:
        peer.takes.set()
        peer.is_gone.set()

    pushed_to(is_gone)


def test_who_takes_nothing_listens_no_more_and_its_answer_ends_when_it_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_push, "TAKEN_S", 0.1)

    async def is_silent(peer: Peer, committed: Committed) -> None:
        while committed.has_listeners:
            await asyncio.sleep(0.01)
        peer.takes.set()

    assert [each.get("more_body") for each in pushed_to(is_silent).answer] == [None, False]
