"""Servers that forward to their primary, as processes: one address serves everything."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from contextlib import closing
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as websocket

from headwater.client import connect
from headwater.core import Event
from headwater.core.errors import LogNotFound

from ..waiting import eventually
from .test_hand_over import hand_over, is_fit, name_of
from .test_replicas import knows_primary, metrics, pair
from .test_servers import PATIENCE_S, Join, Member, command, database, join, url

__all__ = ["database", "join", "pair", "url"]


def asked(member: Member, method: str, path: str, body: object = None, **fields: str) -> tuple[int, str | None, bytes]:
    """Status, the primary that is named, and the body of an answer."""
    asking = http.client.HTTPConnection("127.0.0.1", member.port, timeout=PATIENCE_S)
    with closing(asking):
        data = None if body is None else json.dumps(body)
        asking.request(method, path, data, {"content-type": "application/json", **fields} if data else fields)
        answered = asking.getresponse()
        return answered.status, answered.getheader("headwater-primary"), answered.read()


def test_a_replica_forwards_what_is_for_the_primary(pair: tuple[Member, Member]) -> None:
    first, second = pair
    for method, path, body, expected in (
        ("PUT", "/logs/other", {}, 201),
        ("POST", "/logs/other/append", {"events": [{"type": "E"}]}, 200),
        ("GET", "/management", None, 200),
        ("GET", "/console/", None, 200),
        ("DELETE", "/logs/other", None, 204),
        ("GET", "/logs/nowhere/head", None, 404),
        ("GET", "/home/frames", None, 403),
    ):
        status, named, _ = asked(second, method, path, body)
        assert (status, named) == (expected, None if status == 403 else first.url), path
    text = metrics(second)
    assert 'headwater_forwarded_total{kind="request"} 7.0' in text
    assert 'headwater_forwarding_failures_total{outcome="outcome_unknown"} 0.0' in text
    with pytest.raises(LogNotFound), connect(second.url, retry_s=0) as server:
        server.log("nowhere").head()


def test_a_client_of_one_address_writes_and_goes_to_the_primary_next(pair: tuple[Member, Member]) -> None:
    _, second = pair
    with connect(second.url) as server:
        log = server.log("orders")
        assert [log.append([Event("E")]).first for _ in range(3)] == [1, 2, 3]
    assert 'headwater_forwarded_total{kind="request"} 1.0' in metrics(second)


def test_a_websocket_of_futoin_at_a_replica_is_the_primarys(pair: tuple[Member, Member]) -> None:
    first, second = pair
    with websocket(f"ws://127.0.0.1:{second.port}/futoin/orders") as connection:
        for number in range(1, 4):
            event = {"f": "futoin.evt.gen:1.1:addEvent", "p": {"type": "E", "data": number}, "rid": f"C{number}"}
            connection.send(json.dumps(event))
            assert json.loads(connection.recv(PATIENCE_S))["r"] == str(number)
        first.end(signal.SIGKILL)
        with pytest.raises(ConnectionClosed):
            connection.recv(PATIENCE_S)
    eventually(second.is_primary)
    assert len(second.contents()) == 3


@pytest.mark.parametrize("at", ["primary", "replica"])
@pytest.mark.parametrize("ends", ["primary", "replica", "role"])
def test_a_websocket_is_closed_with_a_reason_when_its_server_stops_or_changes_its_role(
    pair: tuple[Member, Member], tmp_path: Path, at: str, ends: str
) -> None:
    first, second = pair
    member = first if at == "primary" else second
    with websocket(f"ws://127.0.0.1:{member.port}/futoin/orders") as connection:
        connection.send(json.dumps({"f": "futoin.evt.gen:1.1:addEvent", "p": {"type": "E", "data": 1}, "rid": "C1"}))
        assert json.loads(connection.recv(PATIENCE_S))["r"] == "1"
        if ends == "role":
            eventually(lambda: is_fit(first.home, second))
            hand_over(tmp_path / "a", first.home, name_of(second))
        else:
            (first if ends == "primary" else second).end(signal.SIGTERM)
        if (at, ends) == ("primary", "replica"):
            return
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(PATIENCE_S)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1012, "the server is stopping")


def test_a_primary_that_ends_under_an_append_leaves_one_answer_and_no_double(
    pair: tuple[Member, Member], tmp_path: Path
) -> None:
    """Appends at the replica go on through a takeover; each is there once, or was refused and is not there."""
    first, second = pair
    done: dict[int, int] = {}
    with connect(second.url, retry_s=PATIENCE_S) as server:
        log = server.log("orders")
        for number in range(40):
            if number == 10:
                first.end(signal.SIGKILL)
            done[number] = log.append([Event("E", str(number).encode(), id=f"n-{number}")]).first
    eventually(second.is_primary)
    assert second.contents() == [str(number).encode() for number in range(40)]
    assert len(set(done.values())) == 40


def test_what_a_frozen_primary_does_not_answer_is_an_unknown_outcome(pair: tuple[Member, Member], join: Join) -> None:
    first, second = pair
    third = join("c")
    eventually(lambda: knows_primary(third))
    first.process.send_signal(signal.SIGSTOP)
    with closing(socket.create_connection(("127.0.0.1", second.port), PATIENCE_S)) as asking:
        body = json.dumps({"events": [{"type": "E", "id": "lost"}]}).encode()
        head = f"POST /logs/orders/append HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        asking.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        received = asking.recv(65536)
    assert received.split()[1] in (b"504", b"503"), received
    eventually(lambda: second.is_primary() or third.is_primary())
    replica = third if second.is_primary() else second
    eventually(lambda: knows_primary(replica))
    with connect(replica.url, retry_s=PATIENCE_S) as server:
        assert server.log("orders").append([Event("E", id="lost")]).first == 1
    first.process.send_signal(signal.SIGCONT)


def test_a_replica_believes_no_client_that_says_it_is_a_replica(pair: tuple[Member, Member]) -> None:
    claims = {"headwater-peer": "http 192.0.2.1", "headwater-home-secret": "guessed", "host": "stranger.example"}
    for member in pair:
        status, _, body = asked(member, "GET", "/management", **claims)
        assert (status, json.loads(body)["type"]) == (421, "urn:headwater:problem:host_not_served")


def test_a_replica_that_hears_of_a_renewed_secret_goes_on_forwarding(
    pair: tuple[Member, Member], tmp_path: Path
) -> None:
    _, second = pair
    assert asked(second, "GET", "/management")[0] == 200
    command("home", "renew-secret", "--data", str(tmp_path / "a"))
    for _ in range(20):  # before it hears of it, and after
        assert asked(second, "GET", "/management", host="localhost")[0] == 200
