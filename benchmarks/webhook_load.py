"""Publishers and subscribers of notifications, in a process of their own; run as `python -m benchmarks.webhook_load`.

Takes the server's URL and a `Load` as JSON, and prints a `Report` as JSON. One event loop has all the subscribers and
publishers, so that the time between sending and arriving is taken by one clock. Both are bare protocols: what they
cost is not to be measured.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

API = "/api/ocloudNotifications/v2"
RESOURCE = "/cluster/node/worker-0/sync/sync-status/sync-state"
SLOW_S = 1.5
PATIENCE_S = 120.0
_MARK = b'"value":"n'
_NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass(frozen=True)
class Load:
    """What is to be done."""

    events: int
    subscribers: int
    """Good ones, whose latencies count."""
    rate: float = 0.0
    """Events a second; 0 = as fast as they are taken."""
    publishers: int = 1
    """At once."""
    slow: int = 0
    """Subscribers that take SLOW_S for each event."""
    dead: int = 0
    """Subscribers that are gone after they subscribed."""
    states: int = 0
    """Questions for the current state, one after the other, at the end."""


@dataclass
class Report:
    """What came of it: times in seconds."""

    latencies: list[float] = field(default_factory=list)
    """From sending an event to its arrival, for each event and good subscriber."""
    states: list[float] = field(default_factory=list)
    seconds: float = 0.0
    """From the first event sent to the last one delivered."""
    delivered: int = 0


def run(url: str, load: Load) -> Report:
    """Put the load on a server, from another process."""
    command = [sys.executable, "-m", "benchmarks.webhook_load", url, json.dumps(asdict(load))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=2 * PATIENCE_S)
    return Report(**json.loads(done.stdout))


class Subscriber(asyncio.Protocol):
    """One connection of a subscriber: answers 204 to everything, perhaps late."""

    def __init__(self, arrived: Callable[[int], None], pause_s: float = 0.0) -> None:
        self._arrived, self._pause_s = arrived, pause_s
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._buffer += data
        while (request := _request(self._buffer)) is not None:
            body, self._buffer = request
            found = body.find(_MARK)
            if found >= 0:
                start = found + len(_MARK)
                self._arrived(int(body[start : body.index(b'"', start)]))
            if self._pause_s and found >= 0:
                asyncio.get_running_loop().call_later(self._pause_s, self._answer)
            else:
                self._answer()

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(_NO_CONTENT)  # type: ignore[attr-defined]


class Publisher(asyncio.Protocol):
    """One connection of a publisher: the next event goes when the one before is taken, and not before its time."""

    def __init__(self, requests: Iterator[tuple[bytes, float]], done: asyncio.Future[None]) -> None:
        self._requests, self._done = requests, done
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._buffer += data
        if b"Event sent" in self._buffer:
            self._buffer = b""
            self._next()
        elif b"HTTP/1.1 202" not in self._buffer and b"\r\n\r\n" in self._buffer:
            self._done.set_exception(RuntimeError(f"the server answered {self._buffer[:200]!r}"))

    def _next(self) -> None:
        found = next(self._requests, None)
        if found is None:
            self._done.set_result(None)
            self._transport.close()
            return
        request, at = found
        delay = at - time.perf_counter()
        loop = asyncio.get_running_loop()
        if delay > 0:
            loop.call_later(delay, self._send, request)
        else:
            self._send(request)

    def _send(self, request: bytes) -> None:
        self._transport.write(request)  # type: ignore[attr-defined]


class Round:
    """One load on one server."""

    def __init__(self, url: str, load: Load) -> None:
        self._url, self._load = url, load
        self._sent = [0.0] * load.events
        self._report = Report()
        self._all_arrived = asyncio.Event()

    async def play(self) -> Report:
        """Subscribe, publish, wait for everything to arrive, ask for states."""
        loop, load = asyncio.get_running_loop(), self._load
        made = await asyncio.to_thread(self._post, "/publishers", {"ResourceAddress": RESOURCE})
        publisher = made["SubscriptionId"]
        await asyncio.to_thread(self._post, "/create/event", json.loads(_event(publisher, "first")))
        good = [await self._subscribe(self._arrived, 0.0) for _ in range(load.subscribers)]
        bad = [await self._subscribe(_ignored, SLOW_S) for _ in range(load.slow)]
        for _ in range(load.dead):
            (await self._subscribe(_ignored, 0.0)).close()
        began = time.perf_counter()
        host = urlsplit(self._url)
        requests, ends = self._requests(publisher, began), []
        for _ in range(load.publishers):
            ends.append(loop.create_future())
            await loop.create_connection(lambda end=ends[-1]: Publisher(requests, end), host.hostname, host.port)
        await asyncio.gather(*ends)
        async with asyncio.timeout(PATIENCE_S):
            await self._all_arrived.wait()
        self._report.seconds = time.perf_counter() - began
        self._report.states = await asyncio.to_thread(self._ask_states)
        for server in (*good, *bad):
            server.close()
        return self._report

    def _requests(self, publisher: str, began: float) -> Iterator[tuple[bytes, float]]:
        for number in range(self._load.events):
            at = began + number / self._load.rate if self._load.rate else 0.0
            body = _event(publisher, f"n{number}")
            head = f"POST {API}/create/event HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            self._sent[number] = max(at, time.perf_counter())
            yield head.encode() + body, at

    def _arrived(self, number: int) -> None:
        report = self._report
        report.latencies.append(time.perf_counter() - self._sent[number])
        report.delivered += 1
        if report.delivered == self._load.events * self._load.subscribers:
            self._all_arrived.set()

    async def _subscribe(self, arrived: Callable[[int], None], pause_s: float) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Subscriber(arrived, pause_s), "127.0.0.1", 0)
        uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/event"
        await asyncio.to_thread(self._post, "/subscriptions", {"EndpointUri": uri, "ResourceAddress": RESOURCE})
        return server

    def _post(self, path: str, body: object) -> dict[str, str]:
        request = urllib.request.Request(f"{self._url}{API}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found: dict[str, str] = json.loads(answer.read())
            return found

    def _ask_states(self) -> list[float]:
        times = []
        for _ in range(self._load.states):
            began = time.perf_counter()
            with urllib.request.urlopen(f"{self._url}{API}{RESOURCE}/CurrentState", timeout=PATIENCE_S) as answer:
                assert _MARK in answer.read()
            times.append(time.perf_counter() - began)
        return times


def _ignored(number: int) -> None:
    """A slow subscriber's events do not count."""


def _event(publisher: str, value: str) -> bytes:
    content = {"ResourceAddress": RESOURCE, "data_type": "notification", "value_type": "enumeration", "value": value}
    metric = {**content, "data_type": "metric", "value_type": "decimal64.3", "value": "99.1"}
    data = {"version": "1.0", "values": [content, metric]}
    type = "event.sync.sync-status.synchronization-state-change"
    source = "/sync/sync-status/sync-state"
    document = {"id": publisher, "type": type, "source": source, "time": "2024-05-06T07:08:09Z", "data": data}
    return json.dumps(document).encode()


def _request(buffer: bytes) -> tuple[bytes, bytes] | None:
    """The body of the first request in a buffer, and what comes after it."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = buffer[:end].lower()
    at = head.find(b"content-length:")
    length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    stop = end + 4 + length
    return (buffer[end + 4 : stop], buffer[stop:]) if len(buffer) >= stop else None


def main() -> None:
    """See the module."""
    import uvloop

    url, load = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(asdict(runner.run(_play(url, Load(**json.loads(load)))))))


async def _play(url: str, load: Load) -> Report:
    return await Round(url, load).play()


if __name__ == "__main__":
    main()
