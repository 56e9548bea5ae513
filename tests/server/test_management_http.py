"""What management answers over HTTP is what it answers over AMQP, of every type, on a server as users run it."""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol.conditions import AmqpError
from headwater.flight.client import BulkClient
from headwater.management.entities import MANAGEMENT_NODE, TYPES, EntityType
from tests.amqp.asking import DURABLE, bound
from tests.waiting import eventually

from .bulk.test_bulk import WITH_FLIGHT
from .entities.test_registration import HASH, PASSWORD
from .running import SILENCE_S_MAX, RunningServer, headwater
from .test_amqp import amqp_url

MOVES = {
    "io.headwater.server": {"messagesReceived", "messagesSent", "connections", "connectionsTaken", "diskFreeBytes"},
    "io.headwater.log": {"eventsRead", "allocatedBytes"},
    "io.headwater.connection": {"bytesReceived", "bytesSent", "bytesHeld"},
    "io.headwater.session": {"sendable"},
    "io.headwater.link": {"credit", "deliveries", "unsettled", "lagMs", "messageAt", "waitsFor", "waitsSince"},
    "io.headwater.durableLink": {"lagMs"},
    "io.headwater.reader": {"lagMs", "waitsFor", "waitsSince"},
    "io.headwater.consumer": {"lagMs"},
    "io.headwater.consumerGroup": {"lagsMs"},
    "io.headwater.stream": {"lagMs"},
}
"""What changes by itself, or because it is asked for."""
NOT_COMPARED = frozenset({"io.headwater.client"})
"""Whoever asks over HTTP is one of them."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Both:
    """A server, asked over HTTP and over AMQP."""

    def __init__(self, server: RunningServer, client: Client, amqp_url: str = "") -> None:
        self.server, self.client, self.amqp_url = server, client, amqp_url

    def http(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = HTTPConnection(urlsplit(self.server.url).netloc, timeout=SILENCE_S_MAX)
        try:
            sent = None if body is None else json.dumps(body).encode()
            fields = {} if body is None else {"content-type": "application/json"}
            connection.request(
                method, path, sent, fields | {key.replace("_", "-"): its for key, its in headers.items()}
            )
            answer = connection.getresponse()
            return Answer(answer.status, {key.lower(): its for key, its in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def entity(self, method: str, type: str, name: str, body: Any = None) -> Answer:
        return self.http(method, f"/management/{type}/{quote(name, safe='')}", body)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """With an entity of every type but users, and what they were refused."""
    directory = tmp_path_factory.mktemp("managed")
    with RunningServer(*WITH_FLIGHT, cwd=directory) as server, Client(url := amqp_url(server)) as client:
        found = Both(server, client, url)
        assert found.entity("PUT", "log", "orders", {"partitions": 2}).status == 201
        assert found.entity("PUT", "consumer", "orders/alice/a%2Fb", {"acknowledged": 0}).status == 201
        found.http("POST", "/logs/orders/append", {"events": [{"type": "T"}] * 3})
        with BulkClient(server.further_url("grpc")) as bulk:
            bulk.report_position("orders", "copy/1", 1)
        client.receiver("orders", name="of a group", properties=bound(group="workers"))
        client.receiver("orders", name="lasting", source=DURABLE)
        v1 = "/ocloudNotifications/v1"
        made = found.http("POST", f"{v1}/publishers", {"resource": "/node/sync"}).json
        value = {"resource": "/node/sync", "dataType": "notification", "valueType": "enumeration", "value": "LOCKED"}
        event = {"id": made["id"], "type": "event.sync", "source": "/node", "time": "2026-01-01T00:00:00Z"}
        event["data"] = {"version": "1.0", "values": [value]}
        assert found.http("POST", f"{v1}/create/event", event).status < 300
        subscription = {"resource": "/node/sync", "endpointUri": f"{server.url}{v1}/dummy"}
        assert found.http("POST", f"{v1}/subscriptions", subscription).status == 201
        eventually(lambda: found.entity("GET", "consumer", "cne/headwater/cne").json["lag"] == 0)
        with server.open("/logs/orders/subscribe?query=all&from=1"):
            eventually(lambda: found.http("GET", "/management/reader?filter=events=3").json["count"] == 1)
            yield found


@pytest.mark.parametrize("type", TYPES.values(), ids=lambda type: type.name)
def test_the_same_question_has_the_same_answer(both: Both, type: EntityType) -> None:
    asked = both.client.manage("QUERY", {"attributeNames": ["name"]}, entityType=type.name)
    listed = both.http("GET", f"/management/{type.word}?attributes=name").json
    if type.name in NOT_COMPARED:
        assert listed["count"] >= 1
        return
    assert listed == {**asked.body, **dict.fromkeys(("count", "total"), len(asked.body["results"]))}
    assert listed["results"] or type.word in ("user", "token", "refusal", "homeServer")
    stays = [name for name in type.attribute_names if name not in MOVES.get(type.name, ())]
    rows = both.client.manage("QUERY", {"attributeNames": stays}, entityType=type.name).body["results"]
    query = urlencode({"attributes": ",".join(stays)})
    assert both.http("GET", f"/management/{type.name}?{query}").json["results"] == plain(rows)
    for [name] in listed["results"]:
        read = both.client.manage("READ", type=type.name, name=name)
        answer = both.entity("GET", type.word, name)
        assert (answer.status, list(answer.json)) == (read.status, list(read.body)) == (200, type.attribute_names)
        assert {key: answer.json[key] for key in stays} == {key: plain(read.body[key]) for key in stays}


def plain(value: Any) -> Any:
    """A value of AMQP as JSON has it."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("operation", [name for name in MANAGEMENT_NODE.operations if name != "READ"])
def test_operations_of_the_node_answer_the_same(both: Both, operation: str) -> None:
    arguments = {"attributeNames": ["identity", "type"], "filter": "type=io.headwater.log"}
    asked = both.client.manage(operation, {"attributeNames": ["identity", "type"]}, filter="type=io.headwater.log")
    path = f"/management/org.amqp.management/self/{operation}"
    answer = both.http("POST", path, arguments if operation == "QUERY" else {})
    expected = plain(asked.body)
    found = {key: its for key, its in answer.json.items() if key != "count"} if operation == "QUERY" else answer.json
    assert (answer.status, found) == (200, expected)


@pytest.mark.parametrize(
    ("method", "operation", "type", "name", "body"),
    [
        ("GET", "READ", "log", "nowhere", None),
        ("GET", "READ", "connection", "4711", None),
        ("GET", "READ", "link", "x", None),
        ("PUT", "CREATE", "log", "orders", {"partitions": 3}),
        ("PUT", "CREATE", "log", "other", {"partitions": "many"}),
        ("PUT", "CREATE", "log", "a/b", {}),
        ("PATCH", "UPDATE", "log", "orders", {"partitions": 3}),
        ("PATCH", "UPDATE", "consumer", "orders/alice/a%2Fb", {"acknowledged": 99}),
        ("DELETE", "DELETE", "consumerGroup", "orders/workers", None),
        ("DELETE", "DELETE", "user", "nobody", None),
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(
    both: Both, method: str, operation: str, type: str, name: str, body: Any
) -> None:
    told = both.client.manage(operation, body, type=f"io.headwater.{type}", name=name)
    answer = both.entity(method, type, name, body)
    assert answer.status == told.status >= 400, (answer, told)
    assert answer.json["detail"] == told.description
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_group_is_moved_over_http_and_by_command_once_it_has_no_members(both: Both) -> None:
    def offset(client: Client) -> int:
        [delivery] = client.receiver("one", properties=bound(group="moved"), credit=1).take(1)
        return int(delivery.message.delivery_annotations["event-streams-offset"])

    assert both.entity("PUT", "log", "one", {}).status == 201
    both.http("POST", "/logs/one/append", {"events": [{"type": "T"}] * 5})
    with Client(both.amqp_url) as member:
        member.receiver("one", properties=bound(group="moved"), credit=0)
        held = both.entity("PATCH", "consumerGroup", "one/moved", {"positions": {"0": 1}})
        assert held.status == 409 and "the group has 1 members" in held.json["detail"]
    eventually(lambda: both.entity("GET", "consumerGroup", "one/moved").json["members"] == 0)
    for given in (
        {"1": 1},
        {"x": 1},
        {"00": 1},
        {"00000000099": 1},
        {"0": 6},
        {"0": -1},
        {"0": "1"},
        {"0": True},
        {"0": None},
        "all",
        ["0"],
    ):
        answer = both.entity("PATCH", "consumerGroup", "one/moved", {"positions": given})
        assert answer.status == 400 and "positions: " in answer.json["detail"], given
    moved = both.entity("PATCH", "consumerGroup", "one/moved", {"positions": {"0": 2}}).json
    assert (moved["positions"], moved["lags"]) == ({"0": 2}, {"0": 3})
    with Client(both.amqp_url) as member:
        assert offset(member) == 3
        address = ("one/moved", "--after", "0", "--url", both.server.url)
        refused = headwater("groups", "reset", *address, cwd=Path())
        assert refused.returncode == 1 and "the group has 1 members" in refused.stderr
    eventually(lambda: both.entity("GET", "consumerGroup", "one/moved").json["members"] == 0)
    assert headwater("groups", "reset", *address, cwd=Path()).stdout == "one/moved continues after 0\n"
    with Client(both.amqp_url) as member:
        assert offset(member) == 1
    assert both.entity("PATCH", "consumerGroup", "one/nobody", {"positions": {"0": 1}}).status == 404


def test_a_connection_of_amqp_is_closed_over_http(both: Both) -> None:
    with contextlib.ExitStack() as ending:
        victim = Client(both.amqp_url)
        ending.callback(victim.drop)
        victim.receiver("orders", name="victim")
        query = urlencode({"attributes": "name,connection", "filter": "linkName=victim"})
        [[link, connection]] = both.http("GET", f"/management/link?{query}").json["results"]
        assert both.entity("DELETE", "link", link).status == 204
        assert both.entity("DELETE", "connection", connection).status == 204
        with pytest.raises(AmqpError, match="closed by"):
            victim.wait(lambda: False)
    eventually(lambda: both.entity("GET", "connection", connection).status == 404)


def test_what_web_pages_may_not_do_is_refused_here_too(both: Both) -> None:
    path = "/management/log/orders"
    for headers in ({"origin": "http://evil.test"}, {"sec_fetch_site": "cross-site"}):
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            assert both.http(method, path, **headers).status == 403, (method, headers)
    for type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert both.http("PATCH", path, {"eventBytesMax": 2048}, content_type=type).status == 415
    assert both.http("PATCH", path, {"eventBytesMax": 2048}, content_type="application/xml").status == 415
    assert both.http("POST", "/management/management/self/GET-TYPES").status == 415, "without a media type"
    assert both.entity("GET", "log", "orders").json["eventBytesMax"] != 2048
    merge = both.http("PATCH", path, {"eventBytesMax": 2048}, content_type="application/merge-patch+json")
    assert merge.json["eventBytesMax"] == 2048


def test_who_lacks_the_right_is_told_which(tmp_path: Path) -> None:
    grants = {"root": "all:*", "reader": "read:default"}
    tables = [f"[users.{name}]\npassword = '{HASH}'\ngrants = ['{its}']\n" for name, its in grants.items()]
    (tmp_path / "headwater.toml").write_text("".join(tables))
    with RunningServer(cwd=tmp_path) as server:
        asking = Both(server, None)  # type: ignore[arg-type]

        def ask(name: str, method: str, path: str, body: Any = None) -> Answer:
            shown = b64encode(f"{name}:{PASSWORD}".encode()).decode()
            return asking.http(method, path, body, authorization=f"Basic {shown}")

        assert asking.http("GET", "/management").status == 401
        refused = ask("reader", "PATCH", "/management/log/default", {"retentionMs": 5})
        assert (refused.status, refused.json["right"], refused.json["log"]) == (403, "manage", "default")
        assert ask("reader", "GET", "/management/log").json["count"] == 1
        assert ask("reader", "GET", "/management/user").json["count"] == 0
        made = ask("root", "PUT", "/management/user/alice", {"grants": ["read:*"], "password": "a long password"})
        assert (made.status, made.json["grants"], "password" in made.json) == (201, ["read:*"], False)
        assert ask("root", "DELETE", "/management/user/alice").status == 204
