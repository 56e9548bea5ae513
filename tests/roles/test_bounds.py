"""What the matrix does not show: lists, the server's own log, what is sent before login, what a refusal gives away."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import urlsplit

import pytest

from headwater.amqp.protocol import sasl
from headwater.amqp.protocol.connection import Connection
from headwater.amqp.protocol.frames import AMQP_HEADER, SASL_HEADER, frame
from headwater.amqp.protocol.performatives import Target
from headwater.amqp.protocol.settings import ConnectionSettings

from . import calls_flight, calls_futoin, calls_http, table
from .test_matrix import changed
from .world import (
    ADMIN,
    APPENDER,
    CHIEF,
    ELSEWHERE,
    KNOWN_ROLES,
    LOG,
    MANAGER,
    NOBODY,
    OWNER,
    PASSWORD,
    READER,
    STRANGER,
    TIMEOUT_S,
    TYPE,
    V1,
    WATCHER,
    Role,
    Verdict,
    World,
)

pytestmark = pytest.mark.timeout(120)
READS = {
    READER: {LOG},
    OWNER: {LOG},
    STRANGER: {ELSEWHERE},
    CHIEF: {"$system"},
    APPENDER: set(),
    MANAGER: set(),
    WATCHER: set(),
}
"""Of the logs that are always there, who may read which."""
SEES = {**READS, CHIEF: {"$system", LOG, ELSEWHERE}, MANAGER: {LOG}}
"""Who may see what `$management` tells of a log: to manage it suffices."""
EVER = {LOG, ELSEWHERE, "$system"}


@pytest.mark.parametrize("role", KNOWN_ROLES, ids=lambda role: role.name)
def test_lists_show_what_the_user_may_read(world: World, role: Role) -> None:
    assert EVER & set(world.ask(role, "GET", "/logs").json["logs"]) == READS[role]
    caller = calls_flight.Caller(world, role)
    assert EVER & set(caller.act("logs", None)["logs"]) == READS[role]
    flights = caller.client.list_flights(b"", caller.options)
    assert EVER & {its.descriptor.path[0].decode() for its in flights} == READS[role]
    caller.client.close()


@pytest.mark.parametrize("role", KNOWN_ROLES, ids=lambda role: role.name)
def test_queries_show_what_the_user_may_see(world: World, role: Role) -> None:
    def named(type: str) -> set[str]:
        reply = world.client(role).manage("QUERY", {"attributeNames": ["name"]}, entityType=f"{TYPE}{type}")
        assert reply.status == 200
        return {row[0] for row in reply.body["results"]}

    assert EVER & named("log") == SEES[role]
    for type in ("partition", "consumer", "consumerGroup"):
        assert {name.split("/")[0] for name in named(type)} & EVER <= SEES[role], type
    for type in ("user", "connection", "session", "server"):
        assert bool(named(type)) is (role is CHIEF), type
    types = ("log", "partition", "consumer", "consumerGroup", "user", "connection", "session", "server")
    for type, found in world.ask(role, "GET", f"/management?types={','.join(types)}").json["entities"].items():
        assert {row[found["attributeNames"].index("name")] for row in found["results"]} == named(type[len(TYPE) :]), (
            type
        )
    mine = {link.partition("/")[0] for link in named("link")}
    assert len(mine) >= 1 if role is CHIEF else len(mine) == 1, "links of one's own connections, unless one manages all"


@pytest.mark.parametrize("role", KNOWN_ROLES, ids=lambda role: role.name)
def test_the_servers_own_log_is_for_who_manages_the_server(world: World, role: Role) -> None:
    read = world.ask(role, "GET", "/logs/$system/head")
    assert read.status == (200 if role is CHIEF else 403)
    body = json.dumps({"events": [{"type": "T", "data": "{}"}]}).encode()
    append = world.ask(role, "POST", "/logs/$system/append", body, {"content-type": "application/json"})
    assert append.status == 403


def test_nobody_appends_to_the_servers_own_log(world: World) -> None:
    body = json.dumps({"events": [{"type": "T", "data": "{}"}]}).encode()
    append = world.ask(ADMIN, "POST", "/logs/$system/append", body, {"content-type": "application/json"})
    assert append.status == 403


@pytest.mark.parametrize("row", [row for row in table.HTTP.rows if "{log}" in row.call], ids=lambda row: row.call)
def test_refusals_do_not_tell_which_logs_there_are(world: World, row: table.Row) -> None:
    call = row.call
    sample = calls_http.SAMPLES.get(call, calls_http.Sample())
    method, _, path = call.partition(" ")
    body = None if sample.body is None else json.dumps(sample.body).encode()
    headers = {"content-type": sample.media_type} if body else {}
    answers = []
    for log in (LOG, "nowhere"):
        target = {"log": log, "owner": "o", "component": "c", "number": "1", "group": "g", "worker": "w"}
        answer = world.ask(STRANGER, method, path.format_map(target) + sample.query, body, headers)
        answers.append((answer.status, answer.body.replace(log.encode(), b"LOG")))
    assert answers[0] == answers[1] and answers[0][0] == 403


def test_events_reach_who_may_hear_of_them(world: World) -> None:
    heard = {role: world.connected(role) for role in (READER, STRANGER, CHIEF)}
    receivers = {role: client.receiver("$events") for role, client in heard.items()}
    target = world.log()
    world.ask(NOBODY, "GET", "/logs")
    world.told("DELETE", f"/logs/{target['log']}")
    for role, receiver in receivers.items():
        found = set()
        for delivery in receiver.take(100, 1.0):
            told = delivery.message.application_properties or {}
            found.add(str(told.get("type") or (delivery.message.properties and delivery.message.properties.subject)))
        is_told_of_log = any(".log." in each for each in found)
        is_told_of_server = any("authentication" in each or "connection" in each for each in found)
        assert (is_told_of_log, is_told_of_server) == (role is READER, role is CHIEF), (role.name, found)
    for client in heard.values():
        client.close()


@pytest.mark.parametrize("mechanism", ["wrong password", "ANONYMOUS", "none"])
def test_what_is_sent_along_with_a_refused_login_is_not_looked_at(world: World, mechanism: str) -> None:
    """A client may send all it has to say without waiting for the verdict."""
    engine = Connection(ConnectionSettings(), "hasty", is_server=False, now=0.0)
    engine.start(uses_sasl=False)
    engine.open()
    session = engine.begin()
    session.attach_sender("hasty", target=Target(address=LOG))
    sent = engine.data_to_send()
    assert sent.startswith(AMQP_HEADER)
    login = {
        "wrong password": sasl.plain("mighty-0", "not the password"),
        "ANONYMOUS": b"",
    }
    if mechanism != "none":
        name = "PLAIN" if mechanism == "wrong password" else mechanism
        init = sasl.SaslInit(name, login[mechanism])
        sent = SASL_HEADER + frame(0, bytes(sasl.encode_sasl(init)), 1) + sent
    before = world.state()
    its = urlsplit(world.amqp_url)
    with socket.create_connection((its.hostname, its.port), TIMEOUT_S) as peer:
        peer.sendall(sent)
        received = b""
        while data := peer.recv(65536):
            received += data
    assert b"hasty" not in received, "the attach was answered"
    assert changed(before, world.state()) == {}


def test_a_right_that_is_taken_away_is_lost_on_open_connections(world: World) -> None:
    name = world.fresh("user")
    admin = world.client(ADMIN)
    made = admin.manage("CREATE", {"grants": ["all:*"], "password": PASSWORD}, type=f"{TYPE}user", name=name)
    assert made.status == 201
    role = Role(name, (), frozenset())
    assert world.ask(role, "GET", f"/logs/{LOG}/head").status == 200
    client = world.connected(role)
    assert client.manage("READ", type=f"{TYPE}log", name=LOG).status == 200
    caller = calls_flight.Caller(world, role)
    assert caller.act("head", {"log": LOG})["head"] > 0
    assert admin.manage("UPDATE", {"grants": []}, type=f"{TYPE}user", name=name).status == 200
    assert world.ask(role, "GET", f"/logs/{LOG}/head").status == 403
    assert client.manage("READ", type=f"{TYPE}log", name=LOG).status == 403
    deadline = time.monotonic() + TIMEOUT_S
    with pytest.raises(calls_flight.flight.FlightUnauthorizedError):
        while time.monotonic() < deadline:
            caller.act("head", {"log": LOG})
            time.sleep(0.1)
    caller.client.close()
    client.close()


def made(world: World, role: Role, kind: str) -> str:
    """The id of a subscription or publisher that the role has made."""
    body = json.dumps({"resource": f"/{world.fresh('own')}"}).encode()
    answer = world.ask(role, "POST", f"{V1}/{kind}", body, {"content-type": "application/json"})
    assert answer.status == 201, answer
    return str(answer.json["id"])


@pytest.mark.parametrize(("role", "kind"), [(READER, "subscriptions"), (APPENDER, "publishers")])
def test_what_one_has_made_oneself_takes_no_right_to_manage(world: World, role: Role, kind: str) -> None:
    mine = made(world, role, kind)
    other = MANAGER if role is READER else STRANGER
    assert world.ask(other, "DELETE", f"{V1}/{kind}/{mine}").status == 403
    if kind == "subscriptions":
        assert world.ask(role, "POST", f"{V1}/{kind}/{mine}/resume").status == 202
    assert world.ask(role, "DELETE", f"{V1}/{kind}/{mine}").status == 200
    assert mine not in {its["id"] for its in world.told("GET", f"{V1}/{kind}")}


def test_ones_own_subscription_is_deleted_over_amqp_without_the_right_to_manage(world: World) -> None:
    mine = made(world, READER, "subscriptions")
    assert world.client(APPENDER).manage("DELETE", type=f"{TYPE}subscription", name=mine).status == 403
    assert world.client(READER).manage("DELETE", type=f"{TYPE}subscription", name=mine).status == 204


@pytest.mark.parametrize("channel", calls_futoin.CHANNELS)
def test_to_register_a_known_consumer_again_takes_the_right_to_read(world: World, channel: str) -> None:
    function, known = "futoin.evt.poll:1.1:registerConsumer", {"component": "KNOWN"}
    for role, verdict in ((READER, Verdict.DONE), (MANAGER, Verdict.FORBIDDEN), (APPENDER, Verdict.FORBIDDEN)):
        assert calls_futoin.make(world, function, channel, role, known) is verdict, role.name


def test_a_consumer_is_polled_by_its_own_user_only(world: World) -> None:
    """Another of the same component is another consumer."""
    component = world.fresh("OWN").replace("-", "")
    register, poll = "futoin.evt.poll:1.1:registerConsumer", "futoin.evt.poll:1.1:pollEvents"
    assert calls_futoin.make(world, register, "POST", OWNER, {"component": component}) is Verdict.DONE
    body = json.dumps({"f": poll, "p": {"component": component, "last_id": "1"}}).encode()
    assert world.ask(READER, "POST", f"/futoin/{LOG}", body).json["e"] == "NotRegistered"
    [found] = [its for its in world.told("GET", f"/logs/{LOG}/consumers")["consumers"] if its["component"] == component]
    assert (found["owner"], found["acknowledged"]) == (OWNER.name, 0)
