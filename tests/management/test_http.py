"""Management over HTTP: the same operations by method and path, and what HTTP itself asks for."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest

from headwater.core.access import OpenGuard
from headwater.core.loop.slices import Slices
from headwater.management import wire
from headwater.management.entities import LOG, NODE_TYPE
from headwater.management.operations import LOOKED_AT_MAX, RESULTS_MAX
from headwater.management.ports import Attributes, ReadOnly
from headwater.management.server import Application
from tests.http import asgi

from .asking import CONSUMER_TYPE, LOG_TYPE, PARTITION_TYPE, Node

JSON = [(b"content-type", b"application/json")]


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        assert self.headers[b"content-type"] == b"application/problem+json", self
        return str(self.json["type"]).removeprefix("urn:headwater:problem:")


class Served(Node):
    """The node behind HTTP."""

    def http(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **parameters: str | int
    ) -> Answer:
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        headers = JSON if sent else []
        query = urlencode(parameters).encode()

        async def run() -> Answer:
            application = Application(self.management(), OpenGuard())
            return Answer(*await asgi.ask(application, path, method, [sent], headers=headers, query=query))

        return asyncio.run(run())


@pytest.fixture
def node() -> Served:
    node = Served()
    for name in ("orders", "audit"):
        node.store.create(name)
    node.store.open("orders").register_consumer("alice", "a/b", after=0)
    return node


def test_the_types_are_listed_with_operations_and_attributes(node: Served) -> None:
    types = node.http("GET", "/management").json["types"]
    assert list(types) == [NODE_TYPE, LOG_TYPE, PARTITION_TYPE, CONSUMER_TYPE]
    assert types[LOG_TYPE] == {
        "operations": node.ask("GET-OPERATIONS").body[LOG_TYPE],  # type: ignore[index]
        "attributes": LOG.attribute_names,
    }


def test_a_log_is_made_read_changed_and_deleted(node: Served) -> None:
    made = node.http("PUT", "/management/log/clicks", {"partitions": 4, "retentionMs": 2**53 + 1})
    assert (made.status, made.json["retentionMs"], made.json["identity"]) == (201, 2**53 + 1, "log/clicks")
    assert node.http("GET", "/management/log/clicks").json == made.json
    assert node.http("GET", f"/management/{LOG_TYPE}/clicks").json == node.log("clicks").body
    changed = node.http("PATCH", "/management/log/clicks", {"retentionMs": None})
    assert (changed.status, changed.json["retentionMs"], changed.json["partitions"]) == (200, None, 4)
    gone = node.http("DELETE", "/management/log/clicks")
    assert (gone.status, gone.body) == (204, b"")
    assert node.http("GET", "/management/log/clicks").code == "log_not_found"


def test_names_with_slashes_are_one_segment(node: Served) -> None:
    name = "orders/alice/a%2Fb"
    answer = node.http("GET", f"/management/consumer/{quote(name, safe='')}")
    assert (answer.status, answer.json["name"], answer.json["component"]) == (200, name, "a/b")
    assert node.http("GET", f"/management/consumer/{name}").status == 404


def test_a_query_answers_what_amqp_does_by_parameters(node: Served) -> None:
    asked = node.http("GET", "/management/log", attributes="name,partitions", offset=1, count=1)
    expected = node.ask("QUERY", {"attributeNames": ["name", "partitions"]}, entityType=LOG_TYPE, offset=1, count=1)
    assert asked.json == {**expected.body, "count": expected.count, "total": 2} == {  # type: ignore[dict-item]
        "attributeNames": ["name", "partitions"], "results": [["orders", 1]], "count": 1, "total": 2,
    }  # fmt: skip
    assert "total" not in node.http("GET", "/management/log", filter="name=orders").json
    assert node.http("GET", "/management/log").json["attributeNames"] == LOG.attribute_names


def test_entities_of_some_types_are_answered_at_once_as_a_query_of_each_answers_them(node: Served) -> None:
    asked = node.http("GET", "/management", types=f"consumer,{LOG_TYPE},partition,client", count=1)
    assert (asked.status, list(asked.json["entities"])) == (200, [LOG_TYPE, PARTITION_TYPE, CONSUMER_TYPE])
    for name, found in asked.json["entities"].items():  # clients are no entities of this node
        assert found == node.http("GET", f"/management/{name}", count=1).json
    assert node.http("GET", "/management", types="log").json["entities"][LOG_TYPE]["count"] == 2


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"types": "log,nothing"}, "there is no type 'nothing'; the types are org.amqp.management"),
        ({"types": ""}, "there is no type ''"),
        ({"types": "log," * 100}, "types, got 101"),
        ({"types": "log", "count": "-1"}, "count"),
        ({"count": 1}, "specify their types"),
    ],
)
def test_types_that_there_are_not_are_refused(node: Served, parameters: dict[str, str | int], where: str) -> None:
    answer = node.http("GET", "/management", **parameters)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert where in answer.json["detail"]


def test_entities_of_many_types_are_bounded_as_those_of_one_are(monkeypatch: pytest.MonkeyPatch, node: Served) -> None:
    monkeypatch.setattr("headwater.management.server.RESULTS_MAX", 4)
    assert node.http("GET", "/management", types="log,partition").status == 200
    answer = node.http("GET", "/management", types="log,partition,consumer")
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert "more than 4 results" in answer.json["detail"]
    assert node.http("GET", "/management", types="log,partition,consumer", count=1).status == 200


def test_operations_of_the_node_are_performed_by_post(node: Served) -> None:
    path = f"/management/{NODE_TYPE}/self"
    types = node.http("POST", f"{path}/GET-ATTRIBUTES", {"entityType": LOG_TYPE})
    assert (types.status, types.json) == (200, {LOG_TYPE: LOG.attribute_names})
    found = node.http("POST", f"{path}/QUERY", {"attributeNames": ["identity"], "filter": "name!=audit"})
    assert found.json["results"] == node.query("identity", filter="name!=audit")
    assert ["management/self"] in found.json["results"] and ["log/audit"] not in found.json["results"]
    assert node.http("POST", f"{path}/GET-MGMT-NODES").json == []
    assert node.http("POST", f"{path}/NOTHING").code == "operation_not_found"
    assert node.http("POST", "/management/log/orders/PURGE").status == 404
    assert "send GET to the entity" in node.http("POST", "/management/log/orders/READ").json["detail"]
    assert node.http("POST", f"{path}/GET-TYPES", {"entitytype": LOG_TYPE}).code == "invalid_request"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/management/nothing", None, 404, "entity_not_found"),
        ("GET", "/management/nothing/x", None, 404, "entity_not_found"),
        ("GET", "/management/partition/orders%2F9", None, 404, "entity_not_found"),
        ("PUT", "/management/log/orders", {"partitions": 2}, 409, "log_exists"),
        ("PUT", "/management/consumer/orders%2Falice%2Fa%252Fb", {}, 409, "conflict"),
        ("PUT", "/management/log/new", {"partitionz": 2}, 400, "invalid_request"),
        ("PUT", "/management/log/new", {"partitions": 1.5}, 400, "invalid_request"),
        ("PUT", "/management/log/new", [], 400, "invalid_request"),
        ("PATCH", "/management/log/orders", {"partitions": 2}, 400, "invalid_request"),
        ("PATCH", "/management/consumer/orders%2Falice%2Fa%252Fb", {"acknowledged": 9}, 400, "invalid_request"),
        ("DELETE", "/management/partition/orders%2F0", None, 405, "method_not_allowed"),
        ("POST", "/management/log", {}, 405, "method_not_allowed"),
    ],
)
def test_what_is_not_done_is_a_problem_that_says_why(
    node: Served, method: str, path: str, body: Any, status: int, code: str
) -> None:
    answer = node.http(method, path, body)
    assert (answer.status, answer.code) == (status, code), answer
    assert answer.json["detail"]


def test_a_method_that_a_type_has_not_is_answered_with_those_that_it_has(node: Served) -> None:
    answer = node.http("PUT", "/management/partition/orders%2F0", {})
    assert (answer.status, answer.headers[b"allow"]) == (405, b"GET, HEAD")


@pytest.mark.parametrize(
    "parameters",
    [{"offset": -1}, {"count": "many"}, {"limit": 3}, {"attributes": "name,name"}, {"filter": "name"}],
)
def test_parameters_that_are_wrong_are_refused(node: Served, parameters: dict[str, Any]) -> None:
    assert node.http("GET", "/management/log", **parameters).code == "invalid_request"


def test_head_is_the_same_answer_without_its_body(node: Served) -> None:
    for path in ("/management", "/management/log", "/management/log/orders"):
        asked, head = node.http("GET", path), node.http("HEAD", path)
        assert (head.status, head.headers, head.body) == (200, asked.headers, b"")


def test_a_body_is_bounded_before_anything_is_made_of_it(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    long = b'{"partitions":1' + b" " * wire.BODY_BYTES_MAX + b"}"
    assert node.http("PUT", "/management/log/new", raw=long).code == "too_large"
    made: list[bytes] = []
    monkeypatch.setattr(wire.jsontext, "decode", lambda decoder, text: made.append(text))
    many = b'{"partitions":[' + b"1," * wire.VALUES_MAX * 4 + b"1]}"
    assert node.http("PUT", "/management/log/new", raw=many).code == "invalid_request"
    assert not made


class Many(ReadOnly):
    """More entities than anybody asks for at once; each is counted when it is read."""

    def __init__(self, count: int) -> None:
        self.count, self.reads = count, 0

    async def names(self, user: Any) -> list[str]:
        return [str(number) for number in range(self.count)]

    async def read(self, user: Any, name: str) -> Attributes:
        self.reads += 1
        return {"events": int(name) % 100}


class ServedMany(Served):
    """The node, whose logs are many."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.many = Many(count)

    def management(self) -> Any:
        management = super().management()
        management.serve(LOG, self.many)
        return management


def test_a_query_answers_so_many_and_refuses_more_with_the_way_out() -> None:
    node = ServedMany(RESULTS_MAX + 1)
    refused = node.http("GET", "/management/log", attributes="name")
    assert (refused.status, node.many.reads) == (400, 0)
    assert "offset and count" in refused.json["detail"]
    page = node.http("GET", "/management/log", attributes="name", offset=1, count=RESULTS_MAX).json
    assert page["count"] == len(page["results"]) == RESULTS_MAX
    assert page["results"][0] == ["1"]


def test_a_filter_reads_no_further_than_the_page_needs() -> None:
    node = ServedMany(5_000)
    found = node.http("GET", "/management/log", attributes="name", filter="events=7", offset=1, count=2).json
    assert found["results"] == [["107"], ["207"]]
    assert node.many.reads == 208
    assert node.http("GET", "/management/log", attributes="identity", filter="name=4711").json["count"] == 1
    assert node.many.reads == 208, "a name is known without reading"
    assert ServedMany(LOOKED_AT_MAX + 1).http("GET", "/management/log", filter="events=7").status == 400


def test_a_long_query_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []

    async def pause(self: Slices) -> None:
        asked.append(None)

    monkeypatch.setattr(Slices, "pause", pause)
    node = ServedMany(1_000)
    node.http("GET", "/management/log", attributes="name,events")
    assert len(asked) >= 1_000 + 1_000 // wire.ROWS_AT_ONCE
