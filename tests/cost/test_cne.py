"""Each O-Cloud route that takes a body, in both versions, with JSON that nobody asked for, and too much of what is."""

from __future__ import annotations

import json

import pytest

from headwater.cne import server as cne
from tests.cne.builders import bare, v1_value, wrapped
from tests.every import every

from .measuring import ObservedServer
from .shapes import ANY_JSON, Shape, cloudevents, filled, json_list

SIZE_MAX = 512 * 1024
VERSIONS = ("v1", "v2")
ROUTES = [
    (method, route.path)
    for route in cne.ROUTES
    for method in route.handlers
    if method in ("POST", "PUT") and not route.path.endswith("resume")
]
JSON = "application/json"
EVENT = "create/event"


def _around(document: dict[str, object], member: str) -> tuple[str, str]:
    """What comes before and after the value of a member of a good event."""
    before, _, after = json.dumps(document).partition(json.dumps(member))
    return before, after


def _values(values: list[object]) -> tuple[str, str]:
    return _around({**bare(), "data": {"version": "1.0", "values": values}}, "HERE")


VALUE = json.dumps(v1_value(resource="/r/{}"))
ASKED_FOR: dict[str, tuple[str, Shape]] = {
    "values": (JSON, json_list(_values(["HERE"])[0], VALUE, _values(["HERE"])[1])),
    "a value that goes on": (
        JSON,
        filled(_values([v1_value(value="HERE")])[0] + '"', "x", '"' + _values([v1_value(value="HERE")])[1]),
    ),
    "a value of digits": (
        JSON,
        filled(_values([v1_value(value="HERE")])[0], "9", _values([v1_value(value="HERE")])[1]),
    ),
    "members of an event": (JSON, json_list(json.dumps(bare())[:-1] + ",", '"m{}":1', "}")),
    "the same member of an event": (JSON, filled(json.dumps(bare())[:-1], ',"m":1', "}")),
    "members of a cloudevent": (
        "application/cloudevents+json",
        json_list(json.dumps(wrapped())[:-1] + ",", '"m{}":1', "}"),
    ),
    "cloudevents": ("application/cloudevents-batch+json", cloudevents),
    "members of a redfish event": (
        JSON,
        json_list('{"data":{"values":[{"value":{"Events":[', '{"EventId":"{}"}', "]}}]}}"),
    ),
    "slashes of a resource": (
        JSON,
        filled(_values([v1_value(resource="HERE")])[0] + '"', "/a", '"' + _values([v1_value(resource="HERE")])[1]),
    ),
}


@every("shape", ANY_JSON, ids=str)
@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
@pytest.mark.parametrize("version", VERSIONS)
def test_json_that_nobody_asked_for(server: ObservedServer, version: str, route: tuple[str, str], shape: str) -> None:
    method, path = route
    target = f"/ocloudNotifications/{version}/{path.format(id='1')}"
    server.check_growth(
        f"{method} {target}, {shape}",
        lambda size: server.exchange(method, target, ANY_JSON[shape](size), JSON),
        SIZE_MAX,
    )


@every("name", ASKED_FOR, ids=str)
@pytest.mark.parametrize("version", VERSIONS)
def test_too_much_of_what_is_asked_for(server: ObservedServer, version: str, name: str) -> None:
    media_type, shape = ASKED_FOR[name]
    target = f"/ocloudNotifications/{version}/{EVENT}"
    server.check_growth(
        f"{target}, {name}", lambda size: server.exchange("POST", target, shape(size), media_type), SIZE_MAX
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_resource_of_a_current_state(server: ObservedServer, version: str) -> None:
    def ask(size: int) -> None:
        server.exchange("GET", f"/ocloudNotifications/{version}/{'a/' * (size // 2)}CurrentState", b"", JSON)

    server.check_growth("CurrentState", ask, 32 * 1024)
