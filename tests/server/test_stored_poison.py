"""What earlier versions took, and no reader survived: it is delivered as a stub, and everybody gets past it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.amqp.client import Client, Delivery
from headwater.amqp.protocol.performatives import Released
from headwater.client import connect
from headwater.core import Encoding, Event
from headwater.core.limits import EventColumns
from headwater.core.local import LocalLog
from headwater.storage import Engine
from tests.amqp.asking import EARLIEST, bound, sql

from .running import RunningServer, headwater
from .test_poison import POISON, forms

GOOD = Event("Good", b'{"n":1}', ("a:1",), "good", "/s")
ATTRIBUTES: dict[str, dict[str, str]] = {
    "time": {"time": "now", "subject": "kept"},
    "subject": {"subject": "", "time": "2026-01-01T00:00:00Z"},
}


def poison() -> list[Event]:
    """Messages, whole and with an envelope, each with an id that says which it is."""
    return [
        Event(
            "Bad", form.data, ("a:1",), f"{name} {index}", "/s", {}, "g", form.envelope, Encoding[form.encoding.upper()]
        )
        for name, message in POISON.items()
        for index, form in enumerate(forms(message))
    ]


def append_unchecked(log: LocalLog, events: Sequence[Event]) -> None:
    """As an earlier version did that looked at nothing."""
    log.append_columns(EventColumns.unchecked(*zip(*events, strict=True), 1000))


STORED = [GOOD._replace(id="first"), *poison()]
STORED += [Event("Odd", b"kept", (), name, "/s", attributes) for name, attributes in ATTRIBUTES.items()]
STORED.append(GOOD._replace(id="last"))
BAD = {event.id for event in STORED if event.type == "Bad"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored")
    with Engine(path / "data", maintains=False) as engine:
        log = engine.create("orders")
        for event in STORED:
            append_unchecked(log, [event])
        log.append([GOOD._replace(id="checked")])
    return path


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[RunningServer]:
    with RunningServer("--data", "data", cwd=directory) as running:
        yield running


@pytest.fixture(scope="module")
def amqp_url(server: RunningServer) -> str:
    return server.further_url("amqp")


def check_data(id: str, data: bytes) -> None:
    """A stub for poison, and else the data."""
    if id in BAD:
        said = json.loads(data)["unfit"]
        assert said["reason"].startswith(("envelope: not an AMQP message: ", "data: not an AMQP message: "))
        assert said["bytes"] > 0
    else:
        assert data in (b'{"n":1}', b"kept")


def check_deliveries(deliveries: Sequence[Delivery], expected: Sequence[Event]) -> None:
    assert [delivery.message.properties.message_id for delivery in deliveries] == [event.id for event in expected]
    for delivery in deliveries:
        check_data(delivery.message.properties.message_id, b"".join(delivery.message.body))


EVERYTHING = [*STORED, GOOD._replace(id="checked")]


def test_a_receiver_of_amqp_gets_past_it(amqp_url: str) -> None:
    with Client(amqp_url) as client:
        found = client.receiver("orders", filter=EARLIEST, credit=500).take(len(EVERYTHING))
        check_deliveries(found, EVERYTHING)
        given = {each.message.properties.message_id: each.message.application_properties for each in found}
    assert given["time"]["cloudEvents:headwaterunfit"] == "time"
    assert given["time"]["cloudEvents:subject"] == "kept"
    assert given["subject"]["cloudEvents:headwaterunfit"] == "subject"


def test_a_filter_of_a_receiver_looks_at_the_stub(amqp_url: str) -> None:
    with Client(amqp_url) as client:
        receiver = client.receiver("orders", filter=EARLIEST | sql("properties.subject = 'Good'"), credit=500)
        found = receiver.take(3)
    check_deliveries(found, [event for event in EVERYTHING if event.type == "Good"])


def test_a_group_goes_on_behind_it_also_where_it_is_given_back(amqp_url: str) -> None:
    with Client(amqp_url) as client:
        receiver = client.receiver("orders", filter=EARLIEST, properties=bound(None, "G"), credit=500)
        for delivery in receiver.take(len(EVERYTHING)):
            delivery.settle()
        receiver.close()
        client.sender("orders").send(b"\x00\x53\x75\xa0\x03end")
        receiver = client.receiver("orders", properties=bound(None, "G"), credit=500)
        (delivery,) = receiver.take(1)
        assert b"".join(delivery.message.body) == b"end"
        delivery.settle()


def test_it_is_sent_again_as_a_stub(amqp_url: str) -> None:
    with Client(amqp_url) as client:
        receiver = client.receiver("orders", filter=EARLIEST, credit=2)
        _, first = receiver.take(2)
        first.settle(Released())
        receiver.link.grant(1)
        (again,) = receiver.take(1)
        check_deliveries([again], [STORED[1]])


def ask(server: RunningServer, function: str, **parameters: Any) -> Any:
    call = {"f": f"futoin.evt.poll:1.1:{function}", "p": parameters, "sec": "anybody:secret"}
    status, text = server.ask("/futoin/orders", json.dumps(call).encode())
    assert status == 200, text
    return json.loads(text)["r"]


def test_a_consumer_of_futoin_gets_past_it(server: RunningServer) -> None:
    ask(server, "registerConsumer", component="P")
    found, last_id = [], None
    while page := ask(server, "pollEvents", component="P", last_id=last_id):
        found += page
        last_id = page[-1]["id"]
    assert [int(each["id"]) for each in found][: len(EVERYTHING)] == list(range(1, len(EVERYTHING) + 1))
    for event, each in zip(EVERYTHING, found, strict=False):
        data = each["data"]["data"]  # none of these types is one of FutoIn
        if event.id in BAD:
            check_data(event.id, json.dumps(data).encode())
        else:
            assert "unfit" not in data


def test_a_batch_of_cloudevents_has_it_too(server: RunningServer) -> None:
    status, text = server.ask(
        "/logs/orders/read", b'{"query": "all"}', {"accept": "application/cloudevents-batch+json"}
    )
    assert status == 200, text
    found = json.loads(text)[: len(EVERYTHING)]
    assert [each["id"] for each in found] == [event.id for event in EVERYTHING]
    for each in found:
        if each["id"] in BAD:
            check_data(each["id"], json.dumps(each["data"]).encode())
    by_id = {each["id"]: each for each in found}
    assert by_id["time"]["headwaterunfit"] == "time" and by_id["time"]["time"].startswith("20")
    assert "subject" not in by_id["subject"]
    status, text = server.ask("/logs/orders/events/2?form=cloudevent")
    assert status == 200 and "unfit" in json.loads(text)["data"]
    for form in ("amqp_bytes", "futoin"):
        with server.open(f"/logs/orders/events/2?form={form}") as answer:
            assert b'"unfit"' in answer.read()


def test_programs_get_what_is_stored(server: RunningServer) -> None:
    with connect(server.url) as client:
        found = [event.event for event in client.log("orders").read(limit=len(EVERYTHING))]
    assert found == EVERYTHING


def test_check_lists_it(directory: Path, server: RunningServer, tmp_path: Path) -> None:
    assert headwater("backup", "copy", "--data", "data", cwd=directory).returncode == 0
    done = headwater("check", "--data", "copy", "--json", cwd=directory)
    assert done.returncode == 0, done.stderr
    (log,) = [each for each in json.loads(done.stdout)["logs"] if each["name"] == "orders"]
    unfit = [number for number, event in enumerate(STORED, 1) if event.type != "Good"]
    assert [each["sequence_number"] for each in log["unfit"]] == unfit
    assert log["unfit_events"] == len(unfit)
    said = headwater("check", "--data", "copy", cwd=directory).stdout
    assert "event 2 is delivered as a stub: data: not an AMQP message: " in said
    assert " is delivered without an attribute: attributes.time: expected an RFC 3339 time" in said
