from __future__ import annotations

import pyarrow.flight as flight
import pytest

from headwater.core import Event, Grant, LogSettings, Right
from headwater.core.errors import (
    ConsumerFenced,
    ConsumerNotFound,
    InvalidInput,
    InvalidPosition,
    InvalidSettings,
    LogExists,
    LogNotFound,
    Overloaded,
    WouldDrop,
)
from headwater.flight.client import BulkClient
from headwater.flight.server import actions
from headwater.flight.wire import ACTIONS
from headwater.server.bulk.calls import HANDLERS
from headwater.storage import Engine
from headwater.storage.memory import MemoryStore
from tests.docs.documents import ROOT, table_after

from ..conftest import Raw, batch, refusal
from ..memory_backend import MemoryBackend, serving

BODIES = {
    "logs": {},
    "info": {"log": "orders"},
    "head": {"log": "orders"},
    "heads": {"logs": ["orders"]},
    "position_at": {"log": "orders", "recorded_at": 0},
    "count": {"log": "orders"},
    "lend": {"log": "orders", "after": 0, "upto": 1, "incarnation": "i", "uid": 0},
    "create_log": {"log": "orders"},
    "trim": {"log": "orders", "below": 0},
    "consumers": {"log": "orders"},
    "consumer": {"log": "orders", "owner": "o", "component": "c"},
    "register_consumer": {"log": "orders", "owner": "o", "component": "c"},
    "acknowledge": {"log": "orders", "owner": "o", "component": "c", "sequence_number": 0},
    "unregister_consumer": {"log": "orders", "owner": "o", "component": "c"},
    "report_position": {"log": "orders", "stream": "s", "position": 0},
    "writer": {"log": "orders", "writer": "w"},
    "commit": {"log": "orders", "writer": "w", "batch": 0, "stages": []},
    "discard": {"log": "orders", "writer": "w", "batch": 0},
    "forget_writer": {"log": "orders", "writer": "gone"},
}


def test_every_action_is_handled_listed_and_documented(raw):
    handled = [*actions.HANDLERS, *HANDLERS]
    assert sorted(handled) == sorted(ACTIONS.keys() - {"logs"})
    assert [action.type for action in raw.client.list_actions()] == list(ACTIONS) == list(BODIES)
    rows = table_after(ROOT / "docs" / "reference" / "flight.md", "actions")
    said = {name.strip("`"): right for name, _, _, right in rows}
    assert said == {name: shape.right.value if shape.right else "none" for name, shape in ACTIONS.items()}


@pytest.mark.parametrize("right", list(Right))
def test_every_action_asks_for_its_right_before_it_looks_at_the_log(right):
    users = {"alice": ("secret", [Grant("orders", frozenset({right}))])}
    store = MemoryStore()
    store.create("orders").append([Event("A")])
    backend = MemoryBackend(store, users)
    with serving(backend) as server:
        raw = Raw(f"grpc://127.0.0.1:{server.port}", authorization="Bearer secret")
        for name, shape in ACTIONS.items():
            if shape.right in (right, None):
                raw.act(name, BODIES[name])
                continue
            for log in ("orders", "nothing"):
                kind, told = refusal(lambda name=name, log=log: raw.act(name, {**BODIES[name], "log": log}))
                assert kind is flight.FlightUnauthorizedError
                assert (told["error"], told["right"], told["log"]) == ("forbidden", shape.right, log)
        for call, needed in [
            (lambda: raw.get(log="orders"), Right.READ),
            (lambda: raw.plan(log="orders"), Right.READ),
            (lambda: raw.client.get_flight_info(flight.FlightDescriptor.for_path("orders"), raw.options), Right.READ),
            (lambda: raw.put({"append": {"log": "orders"}}, batch("A")), Right.APPEND),
            (
                lambda: raw.put({"stage": {"log": "orders", "writer": "w", "batch": 1, "part": 0}}, batch("A")),
                Right.APPEND,
            ),
        ]:
            if needed == right:
                call()
            else:
                assert refusal(call)[1]["right"] == needed
        seen = [info.descriptor.path for info in raw.client.list_flights(options=raw.options)]
        assert seen == ([[b"orders"]] if right == Right.READ else [])
        assert raw.act("logs")["logs"] == (["orders"] if right == Right.READ else [])
        assert list(raw.act("heads", BODIES["heads"])["heads"]) == raw.act("logs")["logs"]
        assert backend.refusals > 0
        raw.close()


def test_a_log_is_looked_at(client, log):
    assert client.logs() == ["orders"]
    assert client.info("orders") == log.info()
    head = client.head("orders")
    assert (head.head, head.first_retained, head.incarnation) == (100, 1, log.info().incarnation)
    assert client.count("orders") == 100
    assert client.count("orders", 10, 20) == 10
    assert client.sequence_number_at("orders", 0) == client.position_at("orders", 0) == 1  # its name in 0.1.0
    assert client.sequence_number_at("orders", 2**60) == 101
    with pytest.raises(LogNotFound):
        client.info("nothing")
    with pytest.raises(InvalidPosition):
        client.count("orders", 101)


def test_the_heads_of_many_logs_take_one_request(store, client, log, monkeypatch):
    names = ["orders", *(f"shop-{number}" for number in range(1100)), "nothing"]
    for name in names[1:-1]:
        store.create(name).append([Event("A")])
    asked = []
    act = actions.act
    monkeypatch.setattr(actions, "act", lambda *given: asked.append(given[2]) or act(*given))
    heads = client.heads(names)
    assert list(heads) == names[:-1]
    assert heads["orders"] == client.head("orders") and heads["shop-7"].head == 1
    assert asked == ["heads", "heads", "head", "head"]  # of 1,000 and 102; of the one that is not there; by this test

    monkeypatch.setattr(actions, "ACTIONS", {name: shape for name, shape in ACTIONS.items() if name != "heads"})
    assert client.heads(["orders", "nothing"]) == {"orders": heads["orders"]}, "a server of 0.1.0 is asked one by one"


def test_a_stream_tells_how_far_it_is(client, log):
    client.report_position("orders", "copy", 40)
    client.report_position("orders", "copy", 42)
    assert [(each.owner, each.name, each.position) for each in log.streams.all()] == [("spark", "copy", 42)]
    assert log.consumers() == [], "it holds back no trimming"
    for name, position, error in (("copy", 101, InvalidPosition), ("", 1, InvalidInput), ("a\n", 1, InvalidInput)):
        with pytest.raises(error):
            client.report_position("orders", name, position)
    with pytest.raises(LogNotFound):
        client.report_position("nothing", "copy", 0)
    assert log.streams.get("spark", "copy").position == 42


def test_streams_of_several_users_may_have_one_name_and_reading_is_right_enough():
    rights = [Grant("orders", frozenset({Right.READ}))]
    store = MemoryStore()
    log = store.create("orders")
    log.append([Event("A")])
    with serving(MemoryBackend(store, {"ann": ("secret-a", rights), "bob": ("secret-b", rights)})) as server:
        for name, secret, position in (("ann", "secret-a", 1), ("bob", "secret-b", 0)):
            with BulkClient(f"grpc://127.0.0.1:{server.port}", user=name, password=secret) as client:
                client.report_position("orders", "copy", position)
    assert [(each.owner, each.position) for each in log.streams.all()] == [("ann", 1), ("bob", 0)]


def test_a_report_is_tried_once(client, log, monkeypatch):
    calls = []

    def away(*_):
        calls.append(1)
        raise Overloaded(1, 1, 0)

    monkeypatch.setattr(MemoryBackend, "act", away)
    with pytest.raises(Overloaded):
        client.report_position("orders", "copy", 1)
    assert len(calls) == 1


def test_logs_are_created(client, store):
    assert client.create_log("new").settings == LogSettings()
    settings = LogSettings(partitions=4, partition_by="tag:x", retention_ms=5, keeps_history=False)
    assert client.create_log("set", settings).settings == settings == store.open("set").settings
    assert client.create_log("set").settings == settings
    with pytest.raises(LogExists):
        client.create_log("set", LogSettings())


def test_settings_that_do_not_fit_are_refused(raw, client):
    told = refusal(lambda: raw.act("create_log", {"log": "x", "settings": {"partitions": 0}}))[1]
    assert (told["error"], told["where"]) == ("invalid_settings", "partitions")
    told = refusal(lambda: raw.act("create_log", {"log": "x", "settings": {"partition": 1}}))[1]
    assert told["message"] == "create_log.settings: object contains unknown field `partition`"
    assert refusal(lambda: raw.act("create_log", {"log": "../x"}))[1]["error"] == "invalid_log_name"
    assert raw.act("create_log", {"log": "x", "settings": {"partitions": None}})["settings"]["partitions"] == 1
    with pytest.raises(InvalidSettings):
        LogSettings(partitions=0)


def test_logs_are_trimmed_as_far_as_consumers_allow(client):
    client.register_consumer("orders", "o", "c", after=49)
    assert client.trim("orders", 90) == 50
    with pytest.raises(InvalidPosition, match=r"below: .*got 102"):
        client.trim("orders", 102)


def test_consumers_register_acknowledge_and_go(client):
    first = client.register_consumer("orders", "o", "c", after=10)
    assert (first.acknowledged, first.epoch) == (10, 1)
    second = client.register_consumer("orders", "o", "c")
    assert (second.acknowledged, second.epoch) == (10, 2)
    with pytest.raises(ConsumerFenced):
        client.acknowledge("orders", "o", "c", 20, epoch=1)
    assert client.acknowledge("orders", "o", "c", 20, epoch=2).acknowledged == 20
    assert client.consumer("orders", "o", "c") == client.consumers("orders")[0]
    client.unregister_consumer("orders", "o", "c")
    assert client.consumer("orders", "o", "c") is None
    with pytest.raises(ConsumerNotFound):
        client.unregister_consumer("orders", "o", "c")
    with pytest.raises(InvalidInput, match="owner: expected 1 to 256 characters"):
        client.register_consumer("orders", "", "c")


def test_a_first_consumer_drops_no_more_than_is_allowed(tmp_path):
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0) as store:
        log = store.create("orders", LogSettings(retention_until_acknowledged=True))
        log.append([Event("E") for _ in range(50)])
        with serving(MemoryBackend(store)) as server, BulkClient(f"grpc://127.0.0.1:{server.port}", retries=0) as bulk:
            with pytest.raises(WouldDrop) as refused:
                bulk.register_consumer("orders", "o", "c", after=40)
            assert (refused.value.drops, bulk.consumers("orders")) == (40, [])
            with pytest.raises(WouldDrop):
                bulk.register_consumer("orders", "o", "c", after=40, drops_at_most=39)
            assert bulk.register_consumer("orders", "o", "c", after=40, drops_at_most=40).acknowledged == 40


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("reset", {}, "action: got 'reset', expected one of logs, info"),
        ("head", b"{", "head: malformed JSON in line 1"),
        ("head", b"", "head: object missing required field `log`"),
        ("head", {"log": "orders", "more": 1}, "head: object contains unknown field `more`"),
        ("count", {"log": "orders", "after": "1"}, "count.after: expected `int | null`, got `str`"),
        ("trim", {"log": "orders", "below": -1}, "trim.below: expected `int` >= 0"),
        ("writer", {"log": "orders", "writer": "w" * 257}, "writer.writer: expected `str` of length <= 256"),
        ("writer", {"log": "orders", "writer": "a\n"}, "writer: expected 1 to 256 printable characters"),
        ("head", {"log": "x" * 2_000_000}, "head: 2000011 bytes given, at most 1048576 are allowed"),
    ],
)
def test_an_action_that_does_not_fit_is_refused_with_its_place(raw, name, body, text):
    kind, told = refusal(lambda: raw.act(name, body))
    assert kind is flight.FlightServerError
    assert told["message"].startswith(text)
