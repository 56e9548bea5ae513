"""A front end in this process, its log store, and subscribers that behave as the test says; all on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from headwater.cne.server import Application
from headwater.cne.settings import Settings
from headwater.core import Bus, Guard, OpenGuard
from headwater.core.store import LogStore

V1, V2 = "/api/ocloudNotifications/v1", "/api/ocloudNotifications/v2"
PATIENCE_S = 20
QUICK = {"retry_ms_min": 5, "retry_ms_max": 20, "timeout_ms": 500}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        return self.headers.get("headwater-problem", "")


@dataclass
class Call:
    """One request that a subscriber got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def value(self) -> str:
        return self.json["data"]["values"][0]["value"]


Behaviour = Callable[[Call], Awaitable[int | str | bytes]]


async def obliging(call: Call) -> int | str | bytes:
    return 204


@dataclass
class Subscriber:
    """A web server: `behave` answers a status, bytes to send as they are, or "reset" to break the connection off."""

    behave: Behaviour = obliging
    calls: list[Call] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> Subscriber:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def uri(self, path: str = "/event") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def values(self) -> list[str]:
        """The values of the events that it got, in order."""
        return [call.value for call in self.calls if call.body]

    async def until(self, holds: Callable[[Subscriber], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds(self):
                self._changed.clear()
                await self._changed.wait()

    async def got(self, *values: str) -> None:
        """Wait until it has got so many events; they must be these."""
        await self.until(lambda subscriber: len(subscriber.values) >= len(values))
        assert self.values == list(values)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").rstrip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                call = Call(first.split()[0], first.split()[1], headers, body)
                self.calls.append(call)
                self._changed.set()
                answer = await self.behave(call)
                if answer == "reset":
                    writer.transport.abort()
                    return
                if isinstance(answer, int):
                    empty = b"" if answer == 204 else b"content-length: 0\r\n"
                    answer = b"HTTP/1.1 %d Whatever\r\n%b\r\n" % (answer, empty)
                assert isinstance(answer, bytes)
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the server closed it, or the test is over
        finally:
            with contextlib.suppress(Exception):
                writer.close()
            self._tasks.discard(task)


class World:
    """The front end, and those whom it talks to."""

    def __init__(self, store: LogStore, guard: Guard | None = None, **settings: Any) -> None:
        self.store = store
        self.bus = Bus()
        merged = Settings(**QUICK | settings)
        self.app: Application = Application(store, guard or OpenGuard(), merged, bus=self.bus)
        self._subscribers: list[Subscriber] = []

    async def __aenter__(self) -> World:
        await self.app.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.app.close()
        for each in self._subscribers:
            await each.stop()

    async def subscriber(self, behave: Behaviour = obliging) -> Subscriber:
        self._subscribers.append(await Subscriber(behave).start())
        return self._subscribers[-1]

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = b"",
        *,
        headers: Mapping[str, str] | None = None,
        query: str = "",
        peer: str = "127.0.0.1",
        extensions: Any = None,
    ) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"host": "cloud:9043", **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": quote(path, safe="/%*").encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in fields.items()],
            "client": (peer, 4711),
            "server": ("127.0.0.1", 9043),
            "extensions": extensions or {},
        }
        messages: list[dict[str, Any]] = []
        given = [{"type": "http.request", "body": raw, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)

        async with asyncio.timeout(PATIENCE_S):
            await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        return Answer(messages[0]["status"], found, b"".join(each.get("body", b"") for each in messages[1:]))

    async def publisher(self, resource: str) -> str:
        answer = await self.ask("POST", f"{V2}/publishers", {"ResourceAddress": resource})
        assert answer.status == 201, answer
        return answer.json["SubscriptionId"]

    async def publish(self, id: str, *values: str, resource: str = "", **more: Any) -> None:
        """One event for each value."""
        resource = resource or self.app.service.publishers.by_id[id].resource
        for value in values:
            content = {"ResourceAddress": resource, "data_type": "notification", "value_type": "enumeration"}
            data = {"version": "1.0", "values": [{**content, "value": value}]}
            event = {"id": id, "type": "event.sync", "source": "/sync/source", "data": data, **more}
            answer = await self.ask("POST", f"{V2}/create/event", event)
            assert (answer.status, answer.json) == (202, {"status": "Event sent"}), answer

    async def subscribe(self, uri: str, resource: str, base: str = V2, **more: Any) -> str:
        body = {"EndpointUri": uri, "ResourceAddress": resource, **more}
        answer = await self.ask("POST", f"{base}/subscriptions", body)
        assert answer.status == 201, (answer.status, answer.problem, answer.body)
        return answer.json["SubscriptionId" if base.endswith("v2") else "id"]

    async def delivery(self, id: str) -> Any:
        return (await self.ask("GET", f"{V2}/subscriptions/{id}/delivery")).json

    async def until_delivery(self, id: str, holds: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while not holds(found := await self.delivery(id)):
                await asyncio.sleep(0.005)
        return found
