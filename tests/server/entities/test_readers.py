"""Who is sent events, and what was refused, as entities of a server as users run it."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from headwater.management.entities import TYPES
from headwater.server.users import refusals
from headwater.server.users.accounts import hash_password
from headwater.server.users.refusals import Refusals

from ...waiting import eventually
from ..running import SILENCE_S_MAX, RunningServer
from .test_registration import PASSWORD

READER, REFUSAL = "io.headwater.reader", "io.headwater.refusal"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory: Path = tmp_path_factory.mktemp("readers")
    hashed = hash_password(PASSWORD)
    grants = {"root": "all:*", "alice": "read:orders", "bob": "read:orders"}
    users = "".join(f"[users.{name}]\npassword = '{hashed}'\ngrants = ['{each}']\n" for name, each in grants.items())
    (directory / "headwater.toml").write_text(users)
    with RunningServer("--log", "orders", cwd=directory) as running:
        yield running


def authorization(name: str, password: str = PASSWORD) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def ask(server: RunningServer, method: str, path: str, body: object = None, user: str = "root") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(server.url.partition("//")[2], timeout=SILENCE_S_MAX)
    with closing(connection):
        data = None if body is None else json.dumps(body)
        fields = {**authorization(user), **({"content-type": "application/json"} if data else {})}
        connection.request(method, path, data, fields)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None


def entities(server: RunningServer, type: str, user: str = "root", filter: str = "") -> list[dict[str, Any]]:
    status, body = ask(server, "GET", f"/management/{type}" + (f"?filter={filter}" if filter else ""), user=user)
    assert status == 200, body
    return [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]


def append(server: RunningServer, *events: dict[str, object]) -> int:
    status, body = ask(server, "POST", "/logs/orders/append", {"events": list(events)})
    assert status == 200, body
    return body["last"] if "last" in body else body["sequence_number"]


@contextmanager
def subscribed(server: RunningServer, query: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(server.url.partition("//")[2], timeout=SILENCE_S_MAX)
    with closing(connection):
        connection.request("GET", f"/logs/orders/subscribe?{query}", headers=authorization("alice"))
        with connection.getresponse() as answer:
            assert answer.status == 200
            yield answer


def only(server: RunningServer, **wanted: Any) -> dict[str, Any]:
    """The one reader that had these attributes when it was seen first: what a busy reader waits for changes."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = [each for each in entities(server, READER) if wanted.items() <= each.items()]
        return len(found) == 1

    eventually(is_there, lambda: (wanted, entities(server, READER)))
    return found[0]


def test_a_subscription_tells_how_far_it_is_and_ends_when_it_is_deleted(server: RunningServer) -> None:
    append(server, {"type": "A"}, {"type": "B"}, {"type": "A"})
    _, body = ask(server, "GET", "/logs/orders/head")
    with subscribed(server, 'query={"items":[{"types":["A"]}]}&from=1&heartbeat=300') as answer:
        told = only(server, protocol="http", position=body["head"])
        assert list(told) == TYPES[READER].attribute_names
        assert (told["log"], told["user"], told["peer"]) == ("orders", "alice", "127.0.0.1")
        assert (told["events"], told["lag"], told["lagMs"], told["waitsFor"]) == (2, 0, 0, "events")
        assert told["wants"] == '{"items":[{"types":["A"]}]}' and told["sentAt"] >= told["startedAt"]
        assert ask(server, "GET", f"/management/reader/{told['name']}")[1]["identity"] == f"reader/{told['name']}"
        assert [each["name"] for each in entities(server, READER, "alice")] == [told["name"]]
        assert entities(server, READER, "bob") == []
        assert ask(server, "GET", f"/management/reader/{told['name']}", user="bob")[0] == 403
        assert ask(server, "DELETE", f"/management/reader/{told['name']}", user="alice")[0] == 403
        assert ask(server, "DELETE", f"/management/reader/{told['name']}")[0] == 204
        assert answer.read().endswith(b": closed by root\n\n")
    eventually(lambda: entities(server, READER) == [], lambda: entities(server, READER))
    assert ask(server, "DELETE", f"/management/reader/{told['name']}")[0] == 404


def test_a_subscription_that_takes_nothing_says_so(server: RunningServer) -> None:
    for _ in range(20):
        append(server, {"type": "Large", "data": "x" * 900_000})
    with subscribed(server, "query=all&from=1"):
        told = only(server, protocol="http", waitsFor="reading")
        assert told["lag"] > 0 and told["lagMs"] >= 0
        assert ask(server, "DELETE", f"/management/reader/{told['name']}")[0] == 204
        eventually(lambda: entities(server, READER) == [], lambda: entities(server, READER))


def test_a_push_of_futoin_tells_what_it_waits_for_and_ends_with_its_connection(server: RunningServer) -> None:
    host = server.url.partition("//")[2]
    with connect(f"ws://{host}/futoin/orders") as socket:
        call = {"f": "futoin.evt.push:1.1:readyToReceive", "p": {"component": "LIVE", "want": ["PUSHED"]}, "rid": "C1"}
        socket.send(json.dumps({**call, "sec": f"alice:{PASSWORD}"}))
        assert json.loads(socket.recv())["r"] is True
        told = only(server, protocol="futoin", waitsFor="events")
        assert (told["component"], told["wants"], told["user"], told["events"]) == ("LIVE", "PUSHED", "alice", 0)
        last = append(server, {"type": "PUSHED", "data": "{}"})
        pushed = json.loads(socket.recv())
        told = only(server, protocol="futoin", waitsFor="answers")
        assert (told["events"], told["position"]) == (1, last)
        socket.send(json.dumps({"r": True, "rid": pushed["rid"]}))
        told = only(server, protocol="futoin", waitsFor="events")
        assert ask(server, "DELETE", f"/management/reader/{told['name']}")[0] == 204
        with pytest.raises(Exception, match="closed by root"):
            socket.recv()
    eventually(lambda: entities(server, READER) == [], lambda: entities(server, READER))


def test_what_was_refused_is_told_with_whom_and_why(server: RunningServer) -> None:
    assert ask(server, "POST", "/logs/orders/append", {"events": [{"type": "A"}]}, user="alice")[0] == 403
    status, _ = server.ask("/logs", headers=authorization("mallory", "wrong password"))
    assert status == 401
    found = entities(server, REFUSAL)
    assert list(found[0]) == TYPES[REFUSAL].attribute_names
    access = next(each for each in found if each["kind"] == "access" and each["right"] == "append")
    assert (access["user"], access["log"], access["reason"], access["peer"]) == ("alice", "orders", "forbidden", None)
    login = next(each for each in found if each["kind"] == "login" and each["user"] == "mallory")
    assert (login["reason"], login["peer"], login["count"]) == ("wrong", "127.0.0.1", 1)
    assert entities(server, REFUSAL, filter="user=mallory,reason=wrong") == [login]
    assert entities(server, REFUSAL, "alice") == []
    assert ask(server, "GET", f"/management/refusal/{login['name']}", user="alice")[0] == 403
    assert ask(server, "GET", "/management/refusal/99999")[0] == 404
    assert ask(server, "DELETE", f"/management/refusal/{login['name']}")[0] == 405


def noted(table: Refusals) -> list[tuple[Any, ...]]:
    rows = [row for number in table.numbers() if (row := table.row(number)) is not None]
    return [(row.about.user, row.about.peer, row.count) for row in rows]


def test_one_peer_has_a_few_rows_whatever_names_it_makes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "ROWS_OF_PLACE_MAX", 2)
    table = Refusals(lambda: 1000)
    for name in ("a", "b", "c", "d", "a"):
        table.note("login", "wrong", user=name, peer="10.0.0.1")
    table.note("login", "wrong", user="c", peer="10.0.0.2")
    assert noted(table) == [("a", "10.0.0.1", 2), ("b", "10.0.0.1", 1), (None, "10.0.0.1", 2), ("c", "10.0.0.2", 1)]


def test_so_many_are_kept_and_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "ROWS_MAX", 2)
    now = [1000]
    table = Refusals(lambda: now[0])
    for peer in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.3"):
        table.note("login", "wrong", user="a", peer=peer)
    assert noted(table) == [("a", "10.0.0.1", 2), ("a", "10.0.0.3", 1)]
    now[0] += refusals.KEPT_MS
    assert table.numbers() == [] and table.row(1) is None
    table.note("login", "wrong", user="x" * 10_000, peer="10.0.0.2")
    assert len(noted(table)[0][0]) == refusals.TEXT_CHARS_MAX
