"""An application in this process over logs in memory, and peers that speak FutoIn messages to it over ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from headwater.core import OpenGuard
from headwater.futoin.server import Application
from headwater.futoin.settings import Settings
from headwater.storage.memory import MemoryLog, MemoryStore

LOG = "orders"
PATIENCE_S = 10
QUICK = Settings(answer_s=0.4, retry_s=0.02, seen_interval_s=0.05)
"""Pushes fail and are repeated within the time of a test."""


@dataclass
class Answer:
    """What came back over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Socket:
    """A WebSocket as the ASGI server sees it. What the application sends is read by `next`."""

    def __init__(self, app: Application, scope: dict[str, Any]) -> None:
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._reads = asyncio.Event()
        self._reads.set()
        self.is_gone = False
        self._inbox.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.ensure_future(app(scope, self._inbox.get, self._send))

    async def _send(self, message: dict[str, Any]) -> None:
        await self._reads.wait()
        if self.is_gone:
            raise OSError("the peer has left")
        self._outbox.put_nowait(message)

    def say(self, message: Mapping[str, Any] | bytes | str) -> None:
        """Send a message: a mapping is JSON in a binary frame, a string is a text frame."""
        if isinstance(message, str):
            self._inbox.put_nowait({"type": "websocket.receive", "text": message})
        else:
            body = message if isinstance(message, bytes) else json.dumps(message).encode()
            self._inbox.put_nowait({"type": "websocket.receive", "bytes": body})

    async def frame(self) -> dict[str, Any]:
        """The next frame that the application sends."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._outbox.get()

    async def body(self) -> bytes:
        """The bytes of the next message."""
        frame = await self.frame()
        assert frame["type"] == "websocket.send", frame
        return frame["bytes"]

    async def next(self) -> Any:
        """The next message, from JSON."""
        return json.loads(await self.body())

    async def ask(self, f: str, p: Mapping[str, Any] | None = None, rid: str = "C1", **more: Any) -> Any:
        """Call a function and return the next message, which must be its reply."""
        self.say({"f": f, "p": p or {}, "rid": rid, **more})
        reply = await self.next()
        assert reply["rid"] == rid, reply
        return reply

    async def is_silent(self) -> bool:
        """Whether nothing comes for a while."""
        await asyncio.sleep(0.15)
        return self._outbox.empty()

    def leave(self) -> None:
        """The peer goes away."""
        self.is_gone = True
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})

    def stop_reading(self) -> None:
        """The peer takes nothing any more; what is sent waits."""
        self._reads.clear()

    def go_on_reading(self) -> None:
        self._reads.set()


class Peer:
    """A FutoIn peer of one application, on a loop of its own."""

    def __init__(self, store: MemoryStore, guard: Any, settings: Settings) -> None:
        self.store = store
        self._runner = asyncio.Runner()
        self.app = self._runner.run(_application(store, guard, settings))

    @property
    def log(self) -> MemoryLog:
        return self.store.open(LOG)

    def run(self, scenario: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(scenario)

    def scope(self, type: str, path: str, **more: Any) -> dict[str, Any]:
        headers = [(name.encode(), value.encode()) for name, value in more.pop("headers", {}).items()]
        scope = {
            "type": type,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "scheme": "http" if type == "http" else "ws",
            "client": ("127.0.0.1", 50000),
        }
        return scope | more

    async def exchange(self, method: str, path: str, body: bytes = b"", **more: Any) -> Answer:
        """One HTTP request, in pieces as its server may give them."""
        pieces = [body[: len(body) // 2], body[len(body) // 2 :]]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if pieces:
                return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(self.scope("http", path, method=method, **more), receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, b"".join(each["body"] for each in sent[1:]))

    def http(self, method: str, path: str, body: bytes = b"", **more: Any) -> Answer:
        return self.run(self.exchange(method, path, body, **more))

    def post(self, message: Any, **more: Any) -> Any:
        """The reply to a message over HTTP."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.http("POST", f"/futoin/{LOG}", body, **more).json

    def call(self, f: str, p: Mapping[str, Any] | None = None, **more: Any) -> Any:
        """The reply to a call over HTTP."""
        return self.post({"f": f, "p": p or {}, **more})

    def add(self, *types: str, data: Any = None) -> list[str]:
        """Add events of these types; answers their ids."""
        return [self.call("futoin.evt.gen:1.1:addEvent", {"type": type, "data": data})["r"] for type in types]

    def poll(self, component: str = "C", **p: Any) -> Any:
        return self.call("futoin.evt.poll:1.1:pollEvents", {"component": component, **p})

    def polled(self, component: str = "C", **p: Any) -> list[int]:
        """The ids that a poll answers."""
        return [int(event["id"]) for event in self.poll(component, **p)["r"]]

    def register(self, component: str = "C") -> None:
        assert self.call("futoin.evt.poll:1.1:registerConsumer", {"component": component}) == {"r": True}

    def acknowledged(self, component: str = "C", owner: str = "anybody") -> int:
        consumer = self.log.consumer(owner, component)
        assert consumer is not None
        return consumer.acknowledged

    def socket(self, path: str = f"/futoin/{LOG}", **more: Any) -> Socket:
        """A WebSocket, accepted; only inside a scenario."""
        return Socket(self.app, self.scope("websocket", path, **more))

    async def connected(self, **more: Any) -> Socket:
        socket = self.socket(**more)
        assert (await socket.frame())["type"] == "websocket.accept"
        return socket

    def close(self) -> None:
        async def end() -> None:
            self.app.stop()
            current = asyncio.current_task()
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not current), return_exceptions=True)
            await self.app.close()

        self.run(end())
        self._runner.close()


async def _application(store: MemoryStore, guard: Any, settings: Settings) -> Application:
    return Application(store, guard, settings)


@pytest.fixture
def peer_of() -> Iterator[Callable[..., Peer]]:
    """Makes peers of applications with other guards, settings and stores."""
    made: list[Peer] = []

    def make(guard: Any = None, settings: Settings = QUICK, store: MemoryStore | None = None) -> Peer:
        if store is None:
            store = MemoryStore()
            store.create(LOG)
        made.append(Peer(store, guard or OpenGuard(), settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def peer(peer_of: Callable[..., Peer]) -> Peer:
    """A peer of an application with the empty log `orders`, which lets everybody do everything."""
    return peer_of()
