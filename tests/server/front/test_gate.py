"""The gate: who passes in which state, what is counted, how a stop waits."""

from __future__ import annotations

import asyncio
import json

from headwater.core.loop.byte_account import ByteAccount
from headwater.http import Exchange, Message, Receive, Scope, Send
from headwater.server.front.gate import Gate, State
from headwater.server.front.meter import BOUNDS_S, RequestMeter
from tests.http.asgi import ask, scope


async def health(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class FrontEnd:
    """Answers when it is let go."""

    def __init__(self, content_type: bytes = b"text/plain", route: object = "/logs/{log}") -> None:
        self.go = asyncio.Event()
        self.content_type, self.route = content_type, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self.route
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", self.content_type)]})
        await self.go.wait()
        await send({"type": "http.response.body", "body": b"done"})


def new_gate() -> Gate:
    return Gate(health, {"/health/live"}, RequestMeter())


def test_only_health_passes_before_the_gate_opens_and_after_it_stops() -> None:
    async def scenario() -> None:
        gate, front_end = new_gate(), FrontEnd()
        front_end.go.set()
        assert [(await ask(gate, path)).status for path in ("/health/live", "/logs/a")] == [204, 503]
        gate.open(front_end)
        assert (await ask(gate, "/logs/a")).body == b"done"
        gate.stop()
        assert gate.state is State.STOPPING
        assert (await ask(gate, "/health/live")).status == 204
        refused = await ask(gate, "/logs/a")
        assert (refused.status, refused.headers[b"connection"], refused.headers[b"retry-after"]) == (
            503,
            b"close",
            b"5",
        )
        assert json.loads(refused.body) == {
            "type": "urn:headwater:problem:unready", "title": "Not ready", "status": 503,
            "detail": "the server is stopping; try again in a few seconds",
        }  # fmt: skip

    asyncio.run(scenario())


def test_messages_of_futoin_are_refused_in_its_form() -> None:
    async def scenario() -> None:
        gate, foreign = new_gate(), [(b"host", b"stranger.example")]
        starting = await ask(gate, "/futoin/a", method="POST")
        assert (starting.status, starting.headers[b"retry-after"]) == (503, b"5")
        assert starting.headers[b"content-type"] == b"application/futoin+json"
        detail = "the server is starting; try again in a few seconds"
        assert json.loads(starting.body) == {"e": "InternalError", "edesc": detail}
        assert json.loads((await ask(gate, "/futoin/a", headers=foreign)).body)["e"] == "InternalError"
        gate.read(FrontEnd(), lambda scope: False, lambda log: None)
        gate.primary = lambda: "http://b.example"
        away = await ask(gate, "/futoin/a", method="POST")
        assert (away.status, away.headers[b"headwater-primary"]) == (421, b"http://b.example")
        assert "http://b.example is the primary" in json.loads(away.body)["edesc"]

    asyncio.run(scenario())


def test_where_unfinished_bodies_are_too_much_the_largest_is_given_up_and_no_other() -> None:
    class Body:
        """A request whose body comes as it is let; the front end answers its length."""

        def __init__(self) -> None:
            self.pieces: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue()
            self.sent: list[Message] = []

        async def receive(self) -> Message:
            body, more = await self.pieces.get()
            return {"type": "http.request", "body": body, "more_body": more}

        async def send(self, message: Message) -> None:
            self.sent.append(message)

    async def front_end(scope: Scope, receive: Receive, send: Send) -> None:
        length, more = 0, True
        while more:
            message = await receive()
            length, more = length + len(message["body"]), message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % length})

    async def scenario() -> None:
        gate = Gate(health, (), RequestMeter(), ByteAccount(100))
        gate.open(front_end)
        bodies = [Body() for _ in range(4)]
        tasks = [asyncio.create_task(gate(scope("/"), body.receive, body.send)) for body in bodies]
        small, large, late, whole = bodies
        for body, size in ((small, 30), (large, 60)):
            body.pieces.put_nowait((bytes(size), True))
        whole.pieces.put_nowait((bytes(1000), False))  # is no unfinished one
        await asyncio.wait_for(tasks[3], 10)
        assert gate.unfinished.bytes == 90
        late.pieces.put_nowait((bytes(20), True))
        await asyncio.wait_for(tasks[1], 10)
        assert gate.unfinished.bytes == 50
        for body in (small, late):
            body.pieces.put_nowait((b"x", False))
        await asyncio.wait_for(asyncio.gather(*tasks), 10)
        assert [body.sent[0]["status"] for body in bodies] == [200, 503, 200, 200]
        assert [body.sent[1]["body"] for body in (small, late, whole)] == [b"31", b"21", b"1000"]
        assert b"unfinished bodies" in large.sent[1]["body"]
        greedy = Body()
        greedy.pieces.put_nowait((bytes(101), True))
        await asyncio.wait_for(gate(scope("/"), greedy.receive, greedy.send), 10)
        assert (greedy.sent[0]["status"], gate.unfinished.bytes, gate.requests) == (503, 0, 0)

    asyncio.run(scenario())


def test_answers_that_are_collected_for_http_1_0_count_with_bodies_and_leave_with_their_clients() -> None:
    class Reader:
        """A client of HTTP/1.0, that leaves when it is let; its answer grows as it is asked to."""

        def __init__(self) -> None:
            self.sizes: asyncio.Queue[int] = asyncio.Queue()
            self.left = asyncio.Event()
            self.sent: list[Message] = []

        async def receive(self) -> Message:
            await self.left.wait()
            return {"type": "http.disconnect"}

        async def send(self, message: Message) -> None:
            self.sent.append(message)

    async def scenario() -> None:
        collected: asyncio.Queue[int] = asyncio.Queue()
        readers = {path: Reader() for path in ("/small", "/large", "/late")}

        async def front_end(scope: Scope, receive: Receive, send: Send) -> None:
            exchange, reader = Exchange(scope, receive, send), readers[scope["path"]]
            await exchange.start(b"text/plain")
            gone = asyncio.ensure_future(exchange.disconnected())
            try:
                while not gone.done():
                    growing = asyncio.ensure_future(reader.sizes.get())
                    await asyncio.wait((growing, gone), return_when=asyncio.FIRST_COMPLETED)
                    if growing.cancel():
                        return
                    await exchange.send(bytes(growing.result()))
                    collected.put_nowait(growing.result())
            finally:
                gone.cancel()

        gate = Gate(health, (), RequestMeter(), ByteAccount(100))
        gate.open(front_end)
        tasks = {
            path: asyncio.create_task(gate(scope(path, version="1.0"), reader.receive, reader.send))
            for path, reader in readers.items()
        }

        async def grow(path: str, size: int) -> None:
            readers[path].sizes.put_nowait(size)
            await asyncio.wait_for(collected.get(), 10)

        await grow("/small", 30)
        await grow("/large", 60)
        assert gate.unfinished.bytes == 90
        await grow("/late", 20)
        await asyncio.wait_for(tasks["/large"], 10)
        assert gate.unfinished.bytes == 50
        assert readers["/large"].sent[0]["status"] == 503
        for path in ("/small", "/late"):
            readers[path].left.set()
            await asyncio.wait_for(tasks[path], 10)
            assert readers[path].sent == []
        assert (gate.unfinished.bytes, gate.requests) == (0, 0)

    asyncio.run(scenario())


def test_a_stop_waits_for_what_runs_and_not_for_streams() -> None:
    async def scenario() -> None:
        gate, plain = new_gate(), FrontEnd()
        stream = FrontEnd(b"text/event-stream; charset=utf-8")

        async def front_ends(scope: Scope, receive: Receive, send: Send) -> None:
            await (stream if scope["path"] == "/stream" else plain)(scope, receive, send)

        gate.open(front_ends)
        running = [asyncio.create_task(ask(gate, path)) for path in ("/plain", "/stream")]
        await asyncio.sleep(0)
        assert (gate.requests, gate.streams) == (1, 1)
        gate.stop()
        assert not await gate.requests_finished(0.01)
        plain.go.set()
        assert await gate.requests_finished(5)
        assert not await gate.streams_finished(0.01)
        stream.go.set()
        assert await gate.streams_finished(5)
        assert [(await task).status for task in running] == [200, 200]

    asyncio.run(scenario())


def test_requests_are_measured_by_route_template_and_streams_only_counted() -> None:
    async def scenario() -> None:
        gate, front_end = new_gate(), FrontEnd()
        front_end.go.set()
        gate.open(front_end)
        for _ in range(3):
            await ask(gate, "/logs/a", "BREW")
        front_end.content_type = b"text/event-stream"
        await ask(gate, "/logs/a")
        front_end.route = None
        front_end.content_type = b"text/plain"
        await ask(gate, "/nowhere")
        assert gate.meter.counts == {
            ("other", "/logs/{log}", 200): 3,
            ("GET", "/logs/{log}", 200): 1,
            ("GET", "unmatched", 200): 1,
        }
        assert set(gate.meter.latencies) == {("other", "/logs/{log}"), ("GET", "unmatched")}

    asyncio.run(scenario())


def test_an_application_that_fails_is_counted_as_500_and_runs_no_more() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        gate = new_gate()
        gate.open(fail)
        try:
            await ask(gate, "/logs/a")
        except ZeroDivisionError:
            assert gate.requests == 0
            assert gate.meter.counts == {("GET", "unmatched", 500): 1}
        else:
            raise AssertionError("the error was swallowed")

    asyncio.run(scenario())


def test_websockets_are_streams_and_refused_when_stopping() -> None:
    async def scenario() -> None:
        gate = new_gate()
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "websocket.connect"}

        async def send(message: Message) -> None:
            sent.append(message)

        async def accept(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "websocket.accept"})
            assert (gate.requests, gate.streams) == (0, 1)

        gate.open(accept)
        socket = scope("/futoin", type="websocket")
        del socket["method"]
        await gate(socket, receive, send)
        gate.stop()
        await gate(socket, receive, send)
        assert [message["type"] for message in sent] == ["websocket.accept", "websocket.close"]
        assert gate.meter.counts == {("WEBSOCKET", "unmatched", 101): 1}

    asyncio.run(scenario())


def test_latencies_fall_in_cumulated_buckets() -> None:
    meter = RequestMeter()
    for duration_s in (0.0001, 0.0005, 0.02, 60.0):
        meter.measure("GET", "/", 200, duration_s)
    buckets = dict(meter.latencies["GET", "/"].cumulated())
    assert (buckets["0.0005"], buckets["0.025"], buckets["10.0"], buckets["+Inf"]) == (2, 3, 3, 4)
    assert len(buckets) == len(BOUNDS_S) + 1
