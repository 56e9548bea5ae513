"""The OpenAPI document: complete against the routes, and kept by the answers (schemathesis)."""

from __future__ import annotations

from importlib.resources import files

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headwater.console import server as console
from headwater.core import Event, OpenGuard
from headwater.dcb import Application
from headwater.futoin.settings import Settings
from headwater.management import server as management
from headwater.server.app import by_room
from headwater.server.startup.event_forms import event_forms
from headwater.storage.memory import MemoryStore
from tests.console.hosting import console_host
from tests.management.asking import Node
from tests.night import IS_NIGHT

DOCUMENT = files("headwater.dcb").joinpath("openapi.yaml").read_text()


def _rooms():
    """What the document is about: logs, and management."""
    store = MemoryStore()
    for name in ("a", "b"):
        store.create(name).append([Event("T", b"{}", ("t:1",)), Event("U", b"\xff")])
    guard = OpenGuard()
    entities = management.Application(Node(store).management(), guard)
    return (
        Application(store, guard, forms=event_forms(Settings())),
        entities,
        console.Application(console_host(store, guard)),
    )


_served = by_room({"management": _rooms()[1], "console": _rooms()[2]}, _rooms()[0])


async def _without_lifespan(scope, receive, send):
    """The application as one that outlives the loader, which would start and stop it."""
    if scope["type"] != "http":
        raise NotImplementedError
    await _served(scope, receive, send)


# Its coverage phase makes thousands of cases, which takes a minute; the fuzzing phase does with dozens.
_config = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": False}}})
schema = schemathesis.openapi.from_asgi("/openapi.yaml", _without_lifespan, config=_config)
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip


@schema.exclude(operation_id=["subscribe", "stream", "deleteLog", "deleteEntity"]).parametrize()
@settings(
    max_examples=30 if IS_NIGHT else 10,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
def test_answers_keep_the_document(case):
    """`subscribe` and `stream` do not end; `deleteLog` and `deleteEntity` would take the logs from the others. They
    have their own tests."""
    if "log" in (case.path_parameters or {}):
        case.path_parameters["log"] = "ab"[len(case.path_parameters["log"]) % 2]
    case.call_and_validate(checks=CHECKS)


def test_document_has_every_route_and_no_other():
    document = yaml.safe_load(DOCUMENT)
    verbs = {"get", "put", "post", "patch", "delete"}
    written = {(verb.upper(), path) for path, item in document["paths"].items() for verb in item if verb in verbs}
    assert written == {pattern for room in _rooms() for pattern in room.routes.patterns}


def test_document_is_served(client):
    answer = client.get("/openapi.yaml")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/yaml")
    assert answer.body.decode() == DOCUMENT


def examples(operation):
    """The bodies that the document shows for a request."""
    path = yaml.safe_load(DOCUMENT)["paths"][f"/logs/{{log}}/{operation}"]
    content = path["post"]["requestBody"]["content"]["application/json"]
    return [each["value"] for each in content.get("examples", {}).values()] or [content["example"]]


@pytest.mark.parametrize("operation", ["append", "read"])
def test_examples_of_the_document_work(client, operation):
    for example in examples(operation):
        answer = client.post(f"/logs/courses/{operation}", example)
        assert answer.status == 200, answer.body


def schemas():
    """Every schema of the document, wherever it stands."""
    waiting = [yaml.safe_load(DOCUMENT)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if "type" in node and isinstance(node["type"], str | list):
                yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def contents():
    """The forms of every body, in their order."""
    waiting = [yaml.safe_load(DOCUMENT)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if isinstance(node.get("content"), dict):
                yield list(node["content"])
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def test_generators_make_clients_of_the_document_that_compile_and_read():
    """Some take the first form of a body for all, name a parameter as its schema, or make a class of `true`."""
    assert all(forms[0] == "application/json" for forms in contents() if "application/x-ndjson" in forms)
    reserved = {"arguments", "await", "class", "default", "delete", "function", "import", "interface", "package"}
    assert reserved.isdisjoint(name.lower() for name in yaml.safe_load(DOCUMENT)["components"]["schemas"])
    assert not [each for each in schemas() if each["type"] == "boolean" and "enum" in each]


def test_document_has_one_spelling_of_each_field():
    for schema in schemas():
        names = [name.replace("_", "").lower() for name in schema.get("properties", ())]
        assert len(names) == len(set(names)), names


def test_integers_of_the_document_say_how_wide_they_are():
    integers = [schema for schema in schemas() if "integer" in schema["type"]]
    assert integers and all(schema.get("format") in ("int32", "int64") for schema in integers), integers


@pytest.mark.parametrize(
    "name", ["Append", "Event", "Read", "Query", "QueryItem", "Condition", "Settings", "OperationArguments"]
)
def test_what_is_sent_is_closed_and_has_no_alternatives(name):
    schema = yaml.safe_load(DOCUMENT)["components"]["schemas"][name]
    assert schema["additionalProperties"] is False
    assert not {"oneOf", "anyOf", "not", "allOf"} & schema.keys()
    with_default = [name for name, each in schema["properties"].items() if "default" in each]
    assert not with_default, "TypeScript's generator makes them required"
