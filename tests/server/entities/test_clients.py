"""Who uses the server and who changed what, on a server as users run it: clients without AMQP, users, causes."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from base64 import b64encode
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from headwater.amqp.client import Client
from headwater.amqp.protocol.types import Timestamp
from headwater.core import Grant, Right, User
from headwater.core.access import ANYBODY, OpenGuard
from headwater.management.entities import TYPES
from headwater.management.statuses import OperationRefused, Status
from headwater.server.bulk import callers
from headwater.server.bulk.callers import BulkCaller, BulkCallers
from headwater.server.entities.clients import Clients

from ...amqp.management.listening import listener, properties, selector
from ...management.asking import StrictGuard
from ...waiting import eventually
from ..running import RunningServer, headwater
from ..test_amqp import amqp_url
from .test_registration import PASSWORD, as_user, configured, user

CLIENT = "io.headwater.client"


def clients(client: Client) -> dict[str, dict[str, Any]]:
    body = client.manage("QUERY", {}, entityType=CLIENT).body
    return {row[0]: dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]}


def authorization(name: str) -> dict[str, str]:
    return {"authorization": "Basic " + b64encode(f"{name}:{PASSWORD}".encode()).decode()}


def place(connection: Any) -> str:
    host, port = connection.getsockname()[:2]
    return f"{host}:{port}"


def test_a_connection_that_has_asked_for_nothing_is_a_client_too(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server:
        host, port = server.url.partition("//")[2].split(":")
        with socket.create_connection((host, int(port))) as silent:
            local, local_port = silent.getsockname()
            name = f"http/{local}:{local_port}"

            def found() -> dict[str, Any]:
                status, text = server.ask(f"/management/{CLIENT}")
                assert status == 200
                body = json.loads(text)
                return {row[0]: dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]}

            eventually(lambda: name in found(), lambda: server.errors)
            assert found()[name]["request"] is None
            assert found()[name]["user"] == ""


def test_connections_of_http_and_websockets_are_seen_with_their_users_and_closed(tmp_path: Path) -> None:
    configured(tmp_path, "root")
    with RunningServer(cwd=tmp_path) as server, as_user(amqp_url(server), "root") as root:
        host = server.url.partition("//")[2]
        web = http.client.HTTPConnection(host, timeout=20)
        web.request("GET", "/logs", headers=authorization("root"))
        web.getresponse().read()
        said = {"f": "futoin.ping:1.0:ping", "p": {"echo": 1}, "rid": "C1", "sec": f"root:{PASSWORD}"}
        with closing(web), connect(f"ws://{host}/futoin/default") as web_socket:
            web_socket.send(json.dumps(said))
            web_socket.recv()
            found = clients(root)
            of_web = found[f"http/{place(web.sock)}"]
            assert (of_web["user"], of_web["request"], of_web["isAnswering"]) == ("root", "GET /logs", False)
            assert type(of_web["openedAt"]) is Timestamp and list(of_web) == TYPES[CLIENT].attribute_names
            of_socket = found[f"websocket/{place(web_socket.socket)}"]
            assert (of_socket["user"], of_socket["request"]) == ("root", "WEBSOCKET /futoin/default")
            assert root.manage("DELETE", type=CLIENT, name=of_web["name"]).status == 204
            with suppress(ConnectionResetError):
                assert web.sock.recv(1) == b""
            assert root.manage("READ", type=CLIENT, name=of_web["name"]).status == 404
            assert root.manage("DELETE", type=CLIENT, name=of_socket["name"]).status == 204
            with pytest.raises(ConnectionClosed) as closed:
                web_socket.recv()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "closed by root")
            eventually(lambda: of_socket["name"] not in clients(root), lambda: clients(root))


def test_who_changed_what_is_told_whatever_the_protocol(tmp_path: Path) -> None:
    configured(tmp_path, "root")
    with RunningServer(cwd=tmp_path) as server, as_user(amqp_url(server), "root") as root:
        receiver = listener(root, selector("eventType LIKE '%.log.%' OR eventType LIKE '%.user.%'"))

        def told() -> tuple[str, Any, Any]:
            found = properties(receiver.take(1)[0])
            return found["eventType"].removeprefix("io.headwater."), found.get("account"), found.get("user")

        web = http.client.HTTPConnection(server.url.partition("//")[2], timeout=20)
        fields = {**authorization("root"), "content-type": "application/json"}
        web.request("PUT", "/logs/fresh", b"{}", fields)
        assert web.getresponse().status in (200, 201)
        assert told() == ("log.created", None, "root")
        web.close()
        user(root, "CREATE", "alice", grants=["read:*"])
        assert told() == ("user.created", "alice", "root")
        user(root, "UPDATE", "alice", password="another password")
        changed = properties(receiver.take(1)[0])
        assert (changed["changed"], changed["grants"], changed["user"]) == ("password", '["read:*"]', "root")
        user(root, "DELETE", "alice")
        assert told() == ("user.deleted", "alice", "root")
        data = str(tmp_path / "headwater-data")
        made = headwater("user", "add", "bob", "--grant", "read:*", "--token", "--data", data, cwd=tmp_path)
        assert made.returncode == 0, made.stderr
        root.wait(lambda: user(root, "READ", "bob").status == 200)
        assert told() == ("user.created", "bob", None)  # by the command line: nobody whom the server knows


class Bulk:
    def __init__(self) -> None:
        self.seen = BulkCallers(clock=lambda: 5)

    @property
    def callers(self) -> dict[str, BulkCaller]:
        return dict(self.seen.known)


class NoHttp:
    open_connections: tuple[Any, ...] = ()


def test_callers_of_flight_are_seen_by_who_manages_and_by_themselves() -> None:
    bulk = Bulk()
    bulk.seen.seen("alice", "10.0.0.1")
    bulk.seen.seen("bob", "10.0.0.2")
    entities = Clients(StrictGuard(), NoHttp(), bulk)  # type: ignore[arg-type]
    alice = User("alice", (Grant("*", frozenset({Right.READ})),))
    names = ["flight/alice@10.0.0.1", "flight/bob@10.0.0.2"]
    assert asyncio.run(entities.names(ANYBODY)) == names
    assert asyncio.run(entities.names(alice)) == names[:1]
    assert asyncio.run(entities.read(alice, names[0]))["seenAt"] == 5
    with pytest.raises(Exception, match="no right to manage"):
        asyncio.run(entities.read(alice, names[1]))
    with pytest.raises(OperationRefused) as refused:
        asyncio.run(Clients(OpenGuard(), NoHttp(), bulk).delete(ANYBODY, names[1]))  # type: ignore[arg-type]
    assert refused.value.status is Status.CONFLICT


def test_callers_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "CALLERS_MAX", 2)
    now = [0]
    known = BulkCallers(clock=lambda: now[0])
    for name in ("a", "b", "a", "c"):
        known.seen(name, "10.0.0.1")
    assert list(known.known) == ["flight/a@10.0.0.1", "flight/c@10.0.0.1"]
    now[0] = callers.IDLE_MS
    assert list(known.known) == []
