"""An application in this process over logs in memory, and a client that speaks ASGI to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from headwater.core import OpenGuard
from headwater.dcb import Application
from headwater.storage.memory import MemoryStore


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def code(self) -> str:
        """The code of a problem document, whose form is checked on the way."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        problem = self.json
        assert problem["status"] == self.status
        assert problem["title"] and problem["detail"]
        return problem["type"].removeprefix("urn:headwater:problem:")


class Connection:
    """One request as the ASGI server sees it: the test decides when the client takes more, and when it leaves."""

    def __init__(self, app: Application, scope: dict[str, Any], body: bytes = b"", *, takes: int | None = None) -> None:
        self._app, self.scope = app, scope
        self._request = [{"type": "http.request", "body": body, "more_body": False}]
        self.messages: list[dict[str, Any]] = []
        self._takes = asyncio.Semaphore(takes if takes is not None else 1 << 30)
        self._left = asyncio.Event()
        self._changed = asyncio.Event()
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def take(self, pieces: int = 1) -> None:
        """The client takes so many pieces more."""
        for _ in range(pieces):
            self._takes.release()

    def leave(self) -> None:
        """The client goes away."""
        self._left.set()

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def is_complete(self) -> bool:
        return len(self.messages) > 1 and not self.messages[-1].get("more_body", False)

    async def until(self, found: Any) -> None:
        """Waits until `found(self)` holds."""
        async with asyncio.timeout(10):
            while not found(self):
                self._changed.clear()
                await self._changed.wait()

    async def end(self) -> Answer:
        async with asyncio.timeout(20):
            await self.task
        return Answer(self.status, self.headers, self.body)

    async def _receive(self) -> dict[str, Any]:
        if self._request:
            return self._request.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self._takes.acquire()
        self.messages.append(message)
        self._changed.set()


class Client:
    """Asks one application, request by request, on a loop of its own."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self._runner = asyncio.Runner()

    def run(self, scenario: Any) -> Any:
        return self._runner.run(scenario)

    def connect(
        self,
        method: str,
        path: str,
        body: Any = b"",
        *,
        headers: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        takes: int | None = None,
    ) -> Connection:
        """A request under way; only inside a scenario."""
        fields = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            fields.append((b"content-type", b"application/json"))
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": quote(path, safe="/%").encode(),
            "root_path": "",
            "query_string": urlencode(parameters or {}).encode(),
            "headers": fields,
            "client": ("127.0.0.1", 50000),
        }
        return Connection(self.app, scope, body, takes=takes)

    def ask(self, method: str, path: str, body: Any = b"", **keywords: Any) -> Answer:
        async def scenario() -> Answer:
            return await self.connect(method, path, body, **keywords).end()

        return self.run(scenario())

    def get(self, path: str, **keywords: Any) -> Answer:
        return self.ask("GET", path, **keywords)

    def post(self, path: str, body: Any = b"", **keywords: Any) -> Answer:
        return self.ask("POST", path, body, **keywords)

    def put(self, path: str, body: Any = b"", **keywords: Any) -> Answer:
        return self.ask("PUT", path, body, **keywords)

    def append(self, *events: Mapping[str, Any], **body: Any) -> Answer:
        """Append to the log `courses`."""
        return self.post("/logs/courses/append", {"events": list(events), **body})

    def read(self, query: Any = "all", **body: Any) -> list[Any]:
        """The envelopes that a read of the log `courses` answers."""
        answer = self.post("/logs/courses/read", {"query": query, **body})
        assert answer.status == 200, answer.body
        return answer.lines

    def close(self) -> None:
        self.run(self.app.close())
        self._runner.close()


def event(type: str = "CourseDefined", *tags: str, **more: Any) -> dict[str, Any]:
    return {"type": type, "data": "{}", "tags": list(tags) or ["course:c1"], **more}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> Iterator[Client]:
    """A client of an application with the empty log `courses`."""
    store.create("courses")
    made = Client(Application(store, OpenGuard()))
    yield made
    made.close()


@pytest.fixture
def client_of(store: MemoryStore) -> Iterator[Any]:
    """Makes clients of applications with other settings."""
    made: list[Client] = []

    def make(guard: Any = None, **settings: Any) -> Client:
        made.append(Client(Application(store, guard or OpenGuard(), **settings)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(name="event")
def _event() -> Any:
    """Builds an event of the wire: `event(type, *tags, **fields)`."""
    return event
