"""The gate: who passes in which state, what is counted, how a stop waits."""

from __future__ import annotations

import asyncio
import json

from headwater.http import Message, Receive, Scope, Send
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


def test_nothing_is_fresh_at_a_primary_whose_lease_has_ended() -> None:
    gate, why = new_gate(), "the lease was not renewed in time"
    gate.open(FrontEnd())
    assert gate.stale() is None and gate.stale("orders") is None
    gate.standing_by = lambda: why
    assert gate.stale() == gate.stale("orders") == why


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
        assert "ask the primary, http://b.example" in json.loads(away.body)["edesc"]

    asyncio.run(scenario())


def test_a_refusal_says_that_the_home_does_not_answer() -> None:
    async def scenario() -> None:
        gate = new_gate()
        gate.is_home_away, gate.standing_by = lambda: True, lambda: "the home does not answer"
        starting = json.loads((await ask(gate, "/logs")).body)["detail"]
        assert starting == "the home does not answer; check its database: the server is starting"
        gate.read(FrontEnd(), lambda scope: True, lambda log: "this replica is late")
        gate.primary = lambda: "http://b.example"
        late = json.loads((await ask(gate, "/logs")).body)["detail"]
        assert late == "the home does not answer; check its database: this replica is late"

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
