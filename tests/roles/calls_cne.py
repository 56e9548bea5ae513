"""The calls of cloud native events, in both versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from .world import RESOURCE, Prepare, Role, Target, Verdict, World

VERSIONS = ("v1", "v2")
OUTSIDE = {"GET /health": "/health", "GET api_versions": "/ocloudNotifications/api_versions"}
"""Routes that are of no version."""


def _nothing(world: World) -> Target:
    return {}


def _event(world: World) -> Target:
    return {**world.publisher(), "event": world.fresh("event")}


def _schema(world: World) -> Target:
    return {"id": world.told("GET", "/ocloudNotifications/v1/schemas")[0]}


class Sample(NamedTuple):
    """How a route is called."""

    prepare: Prepare = _nothing
    body: Callable[[World, Target], Any] = lambda world, target: None


def _registration(world: World, target: Target) -> Any:
    return {"ResourceAddress": RESOURCE, "resource": RESOURCE, "EndpointUri": world.endpoint()}


def _cloudevent(world: World, target: Target) -> Any:
    value = {"ResourceAddress": RESOURCE, "data_type": "notification", "value_type": "enumeration", "value": "LOCKED"}
    return {
        "specversion": "1.0",
        "id": world.fresh("event"),
        "type": "event.sync",
        "source": "/node",
        "time": "2026-01-01T00:00:00Z",
        "data": {"version": "1.0", "values": [value]},
    }


SAMPLES: dict[str, Sample] = {
    "POST subscriptions": Sample(_nothing, _registration),
    "GET subscriptions/{id}": Sample(World.subscription),
    "DELETE subscriptions/{id}": Sample(World.subscription),
    "PUT subscriptions/status/{id}": Sample(World.subscription),
    "GET subscriptions/{id}/delivery": Sample(World.subscription),
    "POST subscriptions/{id}/resume": Sample(World.subscription),
    "POST publishers": Sample(_nothing, lambda world, target: {"resource": f"/{world.fresh('resource')}"}),
    "GET publishers/{id}": Sample(World.publisher),
    "DELETE publishers/{id}": Sample(World.publisher),
    "POST create/event": Sample(_nothing, _cloudevent),
    "POST log": Sample(_nothing, _cloudevent),
    "GET schemas/{id}": Sample(_schema),
}


def prepared(world: World, call: str) -> Target:
    """What the call is to be about."""
    return SAMPLES.get(call, Sample()).prepare(world)


def make(world: World, call: str, version: str, role: Role, target: Target) -> Verdict:
    """Make the call."""
    method, _, below = call.partition(" ")
    path = OUTSIDE.get(call, f"/ocloudNotifications/{version}/{below}").replace("/{ResourceAddress}", RESOURCE)
    given = SAMPLES.get(call, Sample()).body(world, target)
    body, headers = None, {}
    if given is not None:
        media_type = "application/cloudevents+json" if "specversion" in given else "application/json"
        body, headers = json.dumps(given).encode(), {"content-type": media_type}
    answer = world.ask(role, method, path.format_map(target), body, headers)
    if answer.status == 401:
        assert 'Basic realm="headwater"' in answer.headers["www-authenticate"], answer
        assert "credentials" in answer.headers["headwater-problem"], answer
        return Verdict.UNAUTHENTICATED
    if answer.status == 403:
        assert "no right to" in answer.headers["headwater-problem"], answer
        return Verdict.FORBIDDEN
    assert 200 <= answer.status < 300, (call, role.name, answer)
    return Verdict.DONE
