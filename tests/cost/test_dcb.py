"""Each route of `/logs` and `/dcb`, with JSON that nobody asked for, and with what is asked for, but too much of it."""

from __future__ import annotations

import pytest

from headwater.core.access import OpenGuard
from headwater.dcb.server import Application
from headwater.storage.memory import MemoryStore
from tests.every import every

from .measuring import ObservedServer
from .shapes import (
    ANY_JSON,
    ANY_MESSAGE_PACK,
    ARROW_BODIES,
    EVENT,
    ITEM,
    Shape,
    cloudevents,
    filled,
    json_list,
    packed_tags,
)

ROUTES = [
    (method, path)
    for method, path in Application(MemoryStore(), OpenGuard()).routes.patterns
    if method in ("POST", "PUT", "PATCH")
]
MIB = 1024 * 1024
ANY_SIZE_MAX = 512 * 1024
SIZE_MAX = 4 * MIB
LONGEST = 88 * MIB
LONGEST_ARROW = 48 * MIB
MILLIONS_OF_TAGS = 12 * MIB
JSON = "application/json"
PACKED = "application/vnd.msgpack"
ARROW = "application/vnd.apache.arrow.stream"
BATCH = "application/cloudevents-batch+json"
ASKED_FOR: dict[str, tuple[str, str, Shape]] = {
    "events": ("/logs/{log}/append", JSON, json_list('{"events":[', EVENT, "]}")),
    "tags of an event": ("/logs/{log}/append", JSON, json_list('{"events":[{"type":"A","tags":[', '"t:{}"', "]}]}")),
    "one large event": ("/logs/{log}/append", JSON, filled('{"events":[{"type":"A","data":"', "AAAA", '"}]}')),
    "attributes": ("/logs/{log}/append", JSON, json_list('{"events":[{"type":"A","attributes":{', '"a{}":"b"', "}}]}")),
    "items of a condition": (
        "/logs/{log}/append",
        JSON,
        json_list('{"events":[{"type":"A"}],"condition":{"fail_if_events_match":{"items":[', ITEM, "]}}}"),
    ),
    "items of a query": ("/logs/{log}/read", JSON, json_list('{"query":{"items":[', ITEM, "]}}")),
    "types of a query": ("/logs/{log}/read", JSON, json_list('{"query":{"items":[{"types":[', '"A{}"', "]}]}}")),
    "tags of a query": ("/logs/{log}/read", JSON, json_list('{"query":{"items":[{"tags":[', '"t:{}"', "]}]}}")),
    "cloudevents": ("/logs/{log}/events", BATCH, cloudevents),
    "suite's events": ("/dcb/{log}/append", JSON, json_list('{"events":[', EVENT, "]}")),
    "suite's condition": (
        "/dcb/{log}/append",
        JSON,
        json_list('{"events":[{"type":"A"}],"condition":{"failIfEventsMatch":{"items":[', ITEM, "]}}}"),
    ),
}


@every("shape", ANY_JSON, ids=str)
@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_json_that_nobody_asked_for(server: ObservedServer, route: tuple[str, str], shape: str) -> None:
    method, path = route
    target = path.format(log="l", owner="o", component="c", group="g", worker="w")
    server.check_growth(
        f"{method} {path}, {shape}",
        lambda size: server.exchange(method, target, ANY_JSON[shape](size), JSON),
        ANY_SIZE_MAX,
    )


@every("name", ASKED_FOR, ids=str)
def test_too_much_of_what_is_asked_for(server: ObservedServer, name: str) -> None:
    path, media_type, shape = ASKED_FOR[name]
    server.check_growth(
        f"{path}, {name}", lambda size: server.exchange("POST", path.format(log="l"), shape(size), media_type), SIZE_MAX
    )


@pytest.mark.parametrize("name", ["events", "tags of an event", "one large event", "attributes", "cloudevents"])
def test_as_much_as_a_body_may_be(server: ObservedServer, name: str) -> None:
    path, media_type, shape = ASKED_FOR[name]
    server.check_growth(
        f"{path}, {name}", lambda size: server.exchange("POST", path.format(log="l"), shape(size), media_type), LONGEST
    )


@pytest.mark.parametrize("shape", ["members", "nested arrays", "one text", "white space"])
def test_as_much_json_as_a_body_may_be(server: ObservedServer, shape: str) -> None:
    body = ANY_JSON[shape]
    server.check_growth(shape, lambda size: server.exchange("POST", "/logs/l/append", body(size), JSON), LONGEST)


@every("shape", ANY_MESSAGE_PACK, ids=str)
def test_message_pack_that_nobody_asked_for(server: ObservedServer, shape: str) -> None:
    body = ANY_MESSAGE_PACK[shape]
    server.check_growth(shape, lambda size: server.exchange("POST", "/logs/l/append", body(size), PACKED), LONGEST)


@every("shape", ANY_MESSAGE_PACK, ids=str)
def test_events_in_message_pack_that_are_none(server: ObservedServer, shape: str) -> None:
    server.check_growth(
        shape,
        lambda size: server.exchange(
            "POST", "/logs/l/append", b"\x81\xa6events" + ANY_MESSAGE_PACK[shape](size), PACKED
        ),
        LONGEST,
    )


def test_as_many_tags_in_message_pack_as_events_may_have(server: ObservedServer) -> None:
    statuses = set()

    def append(size: int) -> None:
        statuses.add(server.exchange("POST", "/logs/l/append", packed_tags(size), PACKED))

    server.check_growth("millions of tags", append, MILLIONS_OF_TAGS)
    assert statuses == {200}


@pytest.mark.parametrize("name", ARROW_BODIES)
def test_as_much_arrow_as_a_body_may_be(server: ObservedServer, name: str) -> None:
    body, status = ARROW_BODIES[name]
    statuses = set()

    def append(size: int) -> None:
        statuses.add(server.exchange("POST", "/logs/l/append", body(size), ARROW))

    server.check_growth(f"Arrow, {name}", append, LONGEST_ARROW)
    assert statuses == {status}


def test_a_condition_in_the_path_is_as_bounded_as_one_in_the_body(server: ObservedServer) -> None:
    def append(size: int) -> None:
        tags = ",".join(["%22t%22"] * (size // 8))
        path = f"/logs/l/append?condition=%7B%22failIfEventsMatch%22:%7B%22items%22:[%7B%22tags%22:[{tags}]%7D]%7D%7D"
        assert server.exchange("POST", path, ARROW_BODIES["data"][0](1000), ARROW) in (400, 431)

    server.check_growth("a condition in the path", append, 200_000)
