"""The OpenAPI document and the schemas: complete against the routes, kept by the answers and by what is delivered."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headwater.cne import server
from headwater.cne.server import Application
from headwater.cne.settings import Settings
from headwater.core import Event, OpenGuard
from headwater.storage.memory import MemoryStore
from tests.night import IS_NIGHT

from .builders import NODE_SYNC_STATE, bare, redfish, text, v1_value, v2_value, wrapped
from .world import V1, V2, World

DOCUMENT = json.loads(server.OPENAPI)
_store = MemoryStore()
_store.create("cne").append([Event("t", text(wrapped(v2_value(ResourceAddress="/a"))), source="/s")])


async def _served(scope: Any, receive: Any, send: Any) -> None:
    """Every case may come on a loop of its own, and gets an application of that loop."""
    if scope["type"] != "http":
        raise NotImplementedError
    app = Application(_store, OpenGuard(), Settings(timeout_ms=50))
    await app.start()
    try:
        await app(scope, receive, send)
    finally:
        await app.close()


_config = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": False}}})
schema = schemathesis.openapi.from_asgi("/api/ocloudNotifications/v2/openapi.json", _served, config=_config)
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip


@schema.parametrize()
@settings(
    max_examples=20 if IS_NIGHT else 10,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
def test_answers_keep_the_document(case):
    case.call_and_validate(checks=CHECKS)


def test_document_has_every_route_and_no_other():
    written = {
        (verb.upper(), path.lower().replace("{resourceaddress}", "{ResourceAddress}"))
        for path, item in DOCUMENT["paths"].items()
        for verb in item
    }
    served = {
        (method, f"/api/ocloudnotifications/{version}/{route.path}")
        for version in ("v1", "v2")
        for route in (*server.ROUTES, server._CURRENT_STATE)
        for method in route.handlers
    }
    served |= {("GET", "/ocloudnotifications/api_versions"), ("GET", "/health")}
    assert written == served


def validator(name: str) -> Any:
    return jsonschema_rs.validator_for(json.loads(server.SCHEMAS[name]))


@pytest.mark.parametrize("name", server.SCHEMAS)
def test_schema_is_a_schema(name):
    jsonschema_rs.meta.validate(json.loads(server.SCHEMAS[name]))


DELIVERED = {
    "event-v1": (V1, {}),
    "cloudevent-v1": (V1, {"v1_wraps": True}),
    "cloudevent-v2": (V2, {}),
}
GIVEN = {
    "a state": v2_value(ResourceAddress=NODE_SYNC_STATE),
    "a metric": v1_value(resource=NODE_SYNC_STATE, valueType="decimal64.3", value=100.3),
    "a Redfish event": v1_value(resource=NODE_SYNC_STATE, valueType="redfish-event", value=redfish()),
    "something of a vendor": v2_value(ResourceAddress=NODE_SYNC_STATE, value_type="vendor", value=[1, {"a": None}]),
}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("name", DELIVERED)
def test_what_is_delivered_keeps_its_schema(play, name, kind):
    base, options = DELIVERED[name]

    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "event-not-found")
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE, base)
        greetings = len(subscriber.calls)
        event = bare(GIVEN[kind], id=id, dataSchema="urn:s")
        validator("accepted-event").validate(event)
        assert (await world.ask("POST", f"{base}/create/event", event)).status == 202
        await subscriber.until(lambda subscriber: len(subscriber.calls) > greetings)
        validator(name).validate(subscriber.calls[-1].json)
        state = (await world.ask("GET", f"{base}{NODE_SYNC_STATE}/CurrentState")).json
        validator(name).validate(state)

    play(scenario, **options)


@pytest.mark.parametrize(("version", "value"), [("v1", v1_value), ("v2", v2_value)])
def test_what_the_document_publishes_has_one_spelling_and_is_accepted(version, value):
    event, cloudevent = bare(value()), wrapped(value())
    for kind, document in (("event", event), ("cloudevent", cloudevent)):
        validator(f"{kind}-request-{version}").validate(document)
        validator(f"accepted-{kind}").validate(document)
    other = {"v1": v2_value, "v2": v1_value}[version]
    assert not validator(f"event-request-{version}").is_valid(bare(other()))
    assert not validator(f"cloudevent-request-{version}").is_valid(wrapped(other()))


def test_accepted_schemas_take_what_is_accepted():
    validator("accepted-cloudevent").validate(wrapped(specversion="v1.0", time=...))
    validator("accepted-event").validate(bare(source=..., time=None))
    assert not validator("accepted-event").is_valid(bare(v1_value(value=None)))
