"""The calls over HTTP of DCB, health and metrics: how each is made so that it succeeds for who may."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .world import Prepare, Role, Target, Verdict, World, on_log

_EVENTS = {"events": [{"type": "T", "data": "{}"}]}


class Sample(NamedTuple):
    """How a route is called."""

    body: Any = None
    prepare: Prepare = on_log
    query: str = ""
    media_type: str = "application/json"
    done: tuple[int, ...] = ()
    """Other answers that only those get who may."""


SAMPLES: dict[str, Sample] = {
    "PUT /logs/{log}": Sample({"partitions": 1}, World.no_log),
    "PATCH /logs/{log}": Sample({"event_bytes_max": 5000}, World.log),
    "DELETE /logs/{log}": Sample(None, World.log),
    "POST /logs/{log}/append": Sample(_EVENTS),
    "POST /logs/{log}/events": Sample(
        {"specversion": "1.0", "id": "1", "source": "/s", "type": "T"},
        World.log,
        media_type="application/cloudevents+json",
    ),
    "POST /logs/{log}/read": Sample({"query": {"all": True}}),
    "POST /logs/{log}/count": Sample({"query": "all", "by_type": True}),
    "POST /logs/{log}/histogram": Sample({"query": "all", "by_type": True}),
    "POST /logs/{log}/event-histogram": Sample({"query": "all", "by_type": True}),
    "GET /logs/{log}/terms": Sample(query="?kind=tag"),
    "GET /logs/{log}/position": Sample(query="?at=1"),
    "GET /logs/{log}/events/{number}": Sample(None, lambda world: {**on_log(world), "number": "1"}, "?form=amqp"),
    "GET /logs/{log}/subscribe": Sample(query="?query=all"),
    "GET /dcb/{log}/read": Sample(query="?query=all"),
    "POST /logs/{log}/trim": Sample({"below": 2}, World.log),
    "PUT /logs/{log}/consumers/{owner}/{component}": Sample({}, World.no_consumer),
    "DELETE /logs/{log}/consumers/{owner}/{component}": Sample(None, World.consumer),
    "POST /logs/{log}/consumers/{owner}/{component}/acknowledge": Sample({"sequence_number": 1}, World.consumer),
    "POST /logs/{log}/consumers/{owner}/{component}/reset": Sample({"after": 1}, World.consumer),
    "PUT /logs/{log}/groups/{group}/workers/{worker}": Sample({"lease_ms": 500}, World.workers),
    "DELETE /logs/{log}/groups/{group}/workers/{worker}": Sample(None, World.workers),
    "POST /logs/{log}/groups/{group}/workers/{worker}/acknowledge": Sample(
        {"partition": 0, "epoch": 1, "sequence_number": 0}, World.workers, done=(409,)
    ),
    "POST /dcb/{log}/append": Sample({"events": [{"type": "T", "data": "{}", "tags": ["a"]}]}),
}
"""Those that need more than the log."""


def prepared(world: World, call: str) -> Target:
    """What the call is to be about."""
    return SAMPLES.get(call, Sample()).prepare(world)


def make(world: World, call: str, role: Role, target: Target) -> Verdict:
    """Make the call."""
    sample = SAMPLES.get(call, Sample())
    method, _, path = call.partition(" ")
    body = None if sample.body is None else json.dumps(sample.body).encode()
    headers = {} if body is None else {"content-type": sample.media_type}
    answer = world.ask(role, method, path.format_map(target) + sample.query, body, headers)
    if answer.status == 401:
        assert 'Basic realm="headwater"' in answer.headers["www-authenticate"], answer
        assert answer.headers["content-type"] == "application/problem+json", answer
        assert answer.json["type"] == "urn:headwater:problem:unauthenticated", answer
        return Verdict.UNAUTHENTICATED
    if answer.status == 403:
        assert answer.headers["content-type"] == "application/problem+json", answer
        assert answer.json["type"] == "urn:headwater:problem:forbidden", answer
        assert answer.json["log"] == target["log"] and answer.json["right"] in ("read", "append", "manage"), answer
        return Verdict.FORBIDDEN
    assert 200 <= answer.status < 300 or answer.status in sample.done, (call, role.name, answer)
    return Verdict.DONE
