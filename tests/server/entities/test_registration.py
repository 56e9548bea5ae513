"""Users, and subscriptions of cloud native events, through `$management`; and all of it on a server as users run it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from headwater.amqp.client import Client, Reply
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.types import Described, Symbol
from headwater.management.entities import TYPES
from tests.passwords import HASH, PASSWORD

from ...matrix.world import CNE, Webhook
from ...waiting import eventually
from ..running import RunningServer
from ..test_amqp import amqp_url

USER, SUBSCRIPTION = "io.headwater.user", "io.headwater.subscription"


def configured(directory: Path, *names: str, grants: str = "all:*") -> None:
    """Users in the configuration file."""
    tables = [f"[users.{name}]\npassword = '{HASH}'\ngrants = ['{grants}']\n" for name in names]
    (directory / "headwater.toml").write_text("".join(tables))


def user(client: Client, operation: str, name: str, **attributes: Any) -> Reply:
    return client.manage(operation, attributes or None, type=USER, name=name)


def as_user(url: str, name: str, password: str = PASSWORD) -> Client:
    return Client(url.replace("://", f"://{quote(name)}:{quote(password)}@"), timeout_s=20)


def test_users_are_made_changed_and_removed(tmp_path: Path) -> None:
    configured(tmp_path, "root")
    with RunningServer(cwd=tmp_path) as server:
        url = amqp_url(server)
        with as_user(url, "root") as root:
            made = user(root, "CREATE", "alice", grants=["read:orders-*"], password="a long password")
            assert made.status == 201, made
            assert made.body["grants"] == ["read:orders-*"]
            assert (made.body["hasPassword"], made.body["tokens"], made.body["hasKey"]) == (True, 0, False)
            assert made.body["origin"] == "data directory"
            assert "password" not in made.body
            assert user(root, "CREATE", "alice", grants=["read:*"]).status == 409
            with as_user(url, "alice", "a long password") as alice:
                assert alice.manage("READ", type="io.headwater.log", name="default").status == 403
                changed = user(root, "UPDATE", "alice", grants=["read:*"])
                assert (changed.status, changed.body["grants"]) == (200, ["read:*"])
                # rights are those of now, also on a connection that was there before
                assert alice.manage("READ", type="io.headwater.log", name="default").status == 200
                assert user(alice, "READ", "alice").status == 403
                assert user(alice, "UPDATE", "alice", grants=["all:*"]).status == 403
                assert user(root, "UPDATE", "alice", password="another password").status == 200
                assert user(root, "DELETE", "alice").status == 204
                assert alice.manage("GET-TYPES").status == 401
            with pytest.raises(AmqpError) as refused:
                as_user(url, "alice", "a long password")
            assert refused.value.condition == conditions.UNAUTHORIZED_ACCESS
            assert user(root, "READ", "alice").status == 404
            assert user(root, "DELETE", "alice").status == 404


def test_what_a_user_cannot_be_is_a_bad_request(tmp_path: Path) -> None:
    configured(tmp_path, "root")
    with RunningServer(cwd=tmp_path) as server, as_user(amqp_url(server), "root") as root:
        for name, attributes in (
            ("a/b", {"grants": ["read:*"]}),
            ("", {}),
            ("alice", {"grants": ["fly:*"]}),
            ("alice", {"grants": "read"}),
            ("alice", {"grants": [5]}),
            ("alice", {"grants": None}),
            ("alice", {"password": "short"}),
            ("alice", {"password": "with\ncontrol"}),
            ("alice", {"hasKey": True}),
            ("alice", {"tokens": 5}),
        ):
            assert user(root, "CREATE", name, **attributes).status == 400, (name, attributes)
        assert user(root, "READ", "alice").status == 404
        assert user(root, "CREATE", "alice", grants='["read:*", "append:a"]', password="a long one").status == 201
        removed = root.manage("UPDATE", {"password": None}, type=USER, name="alice")
        assert (removed.status, removed.body["hasPassword"]) == (200, False)
        assert removed.body["grants"] == ["read:*", "append:a"]


def test_users_of_the_configuration_can_only_be_read(tmp_path: Path) -> None:
    configured(tmp_path, "root", "other")
    with RunningServer(cwd=tmp_path) as server, as_user(amqp_url(server), "root") as root:
        assert user(root, "READ", "other").body["origin"] == "configuration"
        assert user(root, "UPDATE", "other", grants=["read:*"]).status == 409
        assert user(root, "DELETE", "other").status == 409
        assert user(root, "CREATE", "other", grants=["read:*"]).status == 409
        names = root.manage("QUERY", {"attributeNames": ["name"]}, entityType=USER).body["results"]
        assert names == [["other"], ["root"]]


def test_nobody_can_lock_everybody_out(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server:
        url = amqp_url(server)
        with Client(url) as anybody:
            assert user(anybody, "CREATE", "alice", grants=["read:*"]).status == 409
            assert user(anybody, "CREATE", "root", grants=["all:*"], password=PASSWORD).status == 201
            assert anybody.manage("GET-TYPES").status == 401  # from now on, who asks must be somebody
        with as_user(url, "root") as root:
            assert user(root, "DELETE", "root").status == 409
            assert user(root, "UPDATE", "root", grants=["read:*"]).status == 409
            assert user(root, "CREATE", "second", grants=["manage:*"]).status == 201
            assert user(root, "UPDATE", "root", grants=["read:*"]).status == 200
            assert user(root, "READ", "second").status == 403


def test_users_are_kept(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server, Client(amqp_url(server)) as anybody:
        assert user(anybody, "CREATE", "root", grants=["all:*"], password=PASSWORD).status == 201
    with RunningServer(cwd=tmp_path) as server, as_user(amqp_url(server), "root") as root:
        assert user(root, "READ", "root").body["grants"] == ["all:*"]


def test_subscriptions_are_seen_and_deleted(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server, Client(amqp_url(server)) as client:
        assert client.manage("QUERY", {}, entityType=SUBSCRIPTION).body["results"] == []
        request = {"resource": "/east-edge-10/Node3/sync"}
        routes = "/api/ocloudNotifications/v1/subscriptions"
        status, text = server.ask(routes, json.dumps(request).encode())
        assert status == 201, text
        id = json.loads(text)["id"]
        reply = client.manage("READ", type=SUBSCRIPTION, name=id)
        assert reply.status == 200
        assert list(reply.body) == TYPES[SUBSCRIPTION].attribute_names
        assert (reply.body["resource"], reply.body["dialect"], reply.body["endpoint"]) == (
            request["resource"],
            "v1",
            "",
        )
        assert client.manage("UPDATE", {}, type=SUBSCRIPTION, name=id).status == 501
        assert client.manage("DELETE", type=SUBSCRIPTION, name=id).status == 204
        assert client.manage("DELETE", type=SUBSCRIPTION, name=id).status == 404
        assert client.manage("READ", type=SUBSCRIPTION, name=id).status == 404
        assert json.loads(server.ask(routes)[1]) == []


def test_a_subscription_tells_what_its_webhook_answered_last_and_since_when_it_fails(tmp_path: Path) -> None:
    answers = Webhook()
    with RunningServer(cwd=tmp_path) as server, closing(answers):
        request = {"ResourceAddress": "/sync", "EndpointUri": answers.url}
        place = "/east/node/sync/sync-status/sync-state"
        status, text = server.ask(f"{CNE}/publishers", json.dumps({"ResourceAddress": place}).encode())
        assert status == 201, text
        values = [{"ResourceAddress": place, "data_type": "notification", "value_type": "enumeration", "value": "X"}]
        event = {"id": json.loads(text)["SubscriptionId"], "type": "event.sync.sync-status", "source": "/sync"}
        notification = json.dumps({**event, "data": {"version": "1.0", "values": values}}).encode()
        status, text = server.ask(f"{CNE}/subscriptions", json.dumps(request).encode())
        assert status == 201, text
        path = f"/management/subscription/{json.loads(text)['SubscriptionId']}"

        def told() -> dict[str, Any]:
            return json.loads(server.ask(path)[1])

        before = told()
        assert (before["standing"], before["lastAnswer"], before["failingSince"]) == ("delivering", None, None)
        server.ask(f"{CNE}/create/event", notification)
        eventually(lambda: told()["lastAnswer"] == "answered 204", told)
        assert (told()["problem"], told()["delivered"], told()["waiting"]) == (None, 1, 0)
        answers.is_up = False
        server.ask(f"{CNE}/create/event", notification)
        eventually(lambda: told()["failures"] > 0, told)
        failing = told()
        assert failing["standing"] == "retrying" and failing["problem"] and failing["waiting"] == 1
        assert before["createdAt"] <= failing["failingSince"] <= failing["answeredAt"]
        assert failing["lastAnswer"] != "answered 204"


def test_the_server_tells_of_its_disk_and_its_health(tmp_path: Path) -> None:
    with RunningServer("--http-connections-max", "77", cwd=tmp_path) as server:
        told = json.loads(server.ask("/management/server/self")[1])
        assert (told["connectionsMax"], told["httpConnectionsMax"]) == (10_000, 77)
        assert told["diskBytes"] >= told["diskFreeBytes"] > 0 and told["diskReserveBytes"] > 0
        assert (told["unready"], told["troubles"], told["logs"]) == (None, [], 1)
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        told = json.loads(server.ask("/management/server/self")[1])
        assert (told["diskBytes"], told["diskFreeBytes"], told["diskReserveBytes"]) == (None, None, None)


def test_all_types_are_served_and_every_entity_can_be_read(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server, Client(amqp_url(server)) as client:
        assert list(client.manage("GET-TYPES").body) == list(TYPES)
        results = client.manage("QUERY", {"attributeNames": ["identity"]}).body["results"]
        assert ["log/default"] in results and ["server/self"] in results
        for (identity,) in results:
            assert client.manage("READ", identity=identity).status == 200


def test_what_management_does_is_heard_of(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server, Client(amqp_url(server)) as client:
        wanted = {
            "s": Described(Symbol("apache.org:selector-filter:string"), "log = 'new' AND eventType LIKE '%.log.%'")
        }
        receiver = client.receiver("$events", filter=wanted)
        for operation, body in (("CREATE", None), ("UPDATE", {"retentionMs": 5000}), ("DELETE", None)):
            assert client.manage(operation, body, type="io.headwater.log", name="new").status < 300
        told = [each.message.properties.subject for each in receiver.take(3)]  # type: ignore[union-attr]
        assert told == [f"io.headwater.log.{word}" for word in ("created", "changed", "deleted")]
