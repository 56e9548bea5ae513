"""Every strange document, on every route that takes a body: an answer below 500, and life goes on."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.storage.memory import MemoryStore

from .builders import NODE_SYNC_STATE, bare, redfish, text, v1_value, v2_value, wrapped
from .world import V1, V2, World

STRANGE_VALUES: list[Any] = [None, "", " ", 0, -1, 1.5, 1e400, True, False, [], {}, [[]], {"a": {}}, "x" * 5000,
                             "\x00", "\ud800", "\uffff", "NaN", "%", "../..", "//", "*" * 100, 10**400]  # fmt: skip
REDFISH = [
    redfish(),
    redfish(event_type=None),
    redfish(Events=[]),
    {"Events": [{"EventId": "1", "MessageArgs": [], "OriginOfCondition": "/redfish/v1/Systems/1/"}], "Name": "Events"},
    redfish(hostname="ZZ-1", **{"Events@odata.count": 1}),
    redfish(Events=[redfish()["Events"][0], redfish()["Events"][0]]),
    redfish(Oem={"Vendor": {"@odata.type": "#V.v1.V", "deep": [{"x": None}]}}),
]
BASES = {"bare v1": bare(), "bare v2": bare(v2_value()), "wrapped v1": wrapped(v1_value()), "wrapped v2": wrapped()}


def spots(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something can be put in."""
    found = [path] if path else []
    if isinstance(document, dict):
        for name, inner in document.items():
            found += spots(inner, (*path, name))
    elif isinstance(document, list):
        for index, inner in enumerate(document):
            found += spots(inner, (*path, index))
    return found


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(document)
    spot = made
    for step in path[:-1]:
        spot = spot[step]
    if value is ...:
        del spot[path[-1]]
    else:
        spot[path[-1]] = value
    return made


@pytest.mark.parametrize("name", BASES)
def test_every_member_replaced_by_every_strange_value(play, name):
    document = BASES[name]

    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), "/", V1)
        taken = 0
        for number, path in enumerate(spots(document)):
            for which, value in enumerate([..., *STRANGE_VALUES]):
                own = f"{number}/{which}" if name.startswith("wrapped") else id
                case = changed({**document, "id": own}, path, value)
                for base in (V1, V2):
                    answer = await world.ask("POST", f"{base}/create/event", text(case))
                    assert answer.status in (202, 400, 413), (case, answer)
                    assert answer.status == 202 or answer.json["error"]
                    taken += answer.status == 202
        assert taken > 20
        await world.publish(id, "still alive")
        await subscriber.until(lambda subscriber: subscriber.values[-1:] == ["still alive"])

    play(scenario)


@pytest.mark.parametrize("index", range(len(REDFISH)))
def test_redfish_payload_is_delivered_as_it_is(play, index):
    async def scenario(world: World) -> None:
        address = "/cluster/node/nodename.example.com/redfish/v1/Systems"
        id = await world.publisher(address)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), address)
        value = v1_value(resource="/redfish/v1/Systems", valueType="redfish-event", value=REDFISH[index])
        event = bare(
            value, id=id, type="event.redfish.alert", source="/cluster/node/nodename.example.com/redfish/event"
        )
        assert (await world.ask("POST", f"{V1}/create/event", event)).status == 202
        await subscriber.until(lambda subscriber: len(subscriber.calls) == 2)
        assert subscriber.calls[-1].json["data"]["values"][0]["value"] == REDFISH[index]

    play(scenario)


ROUTES = [
    ("POST", "/subscriptions"), ("POST", "/publishers"), ("POST", "/create/event"), ("POST", "/log"),
    ("PUT", "/subscriptions/status/x"), ("POST", "/subscriptions/x/resume"), ("POST", "/dummy"),
]  # fmt: skip
RAW = [b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b"{}" * 2, b"[" * 90_000, b'{"id":' * 5000,
       b'{"id":"a","id":"b"}', b"\xef\xbb\xbf{}", b"NaN", b'{"a":1e999999}', b"\x00" * 100]  # fmt: skip
TYPES = ["application/json", "application/cloudevents+json", "application/cloudevents-batch+json", "text/plain", "é;=",
         ""]  # fmt: skip


@pytest.mark.parametrize("base", [V1, V2])
def test_every_route_outlives_every_raw_body(play, base):
    async def scenario(world: World) -> None:
        for method, path in ROUTES:
            for raw in RAW:
                for media_type in TYPES:
                    answer = await world.ask(method, base + path, raw, headers={"content-type": media_type})
                    assert answer.status < 500, (path, raw[:30], media_type)

    play(scenario)


@pytest.mark.parametrize("spot", ["ResourceAddress", "EndpointUri", "DeliveryMode"])
def test_strange_subscriptions_and_publishers(play, spot):
    async def scenario(world: World) -> None:
        subscriber = await world.subscriber()
        good = {"ResourceAddress": NODE_SYNC_STATE, "EndpointUri": subscriber.uri()}
        for value in STRANGE_VALUES:
            for path in (f"{V1}/subscriptions", f"{V2}/subscriptions", f"{V1}/publishers", f"{V2}/publishers"):
                answer = await world.ask("POST", path, text({**good, spot: value}))
                assert answer.status in (201, 400, 404, 409), (path, value, answer)
        for base in (V1, V2):
            assert (await world.ask("GET", f"{base}/subscriptions")).status == 200

    play(scenario)


def test_strange_addresses_of_current_states(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "x")
        for address in ("*", "*/*", ".", "./.", "%00", "%2F", "%ud800", "a" * 5000, "/".join("*" * 500), "ü", "%C3%BC"):
            for base in (V1, V2):
                answer = await world.ask("GET", f"{base}/{address}/CurrentState")
                assert answer.status in (200, 400, 404), address

    play(scenario)


def test_binary_mode_with_strange_headers(play):
    async def scenario(world: World) -> None:
        good = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
        for name in [*good, "ce-time", "ce-tags", "ce-x", "ce-"]:
            for value in ("", "%", "%ff", '"', "x" * 5000, "2.0", "%00", "a,b:"):
                headers = {**good, "ce-id": f"{name}{value[:9]}", name: value}
                answer = await world.ask("POST", f"{V2}/create/event", text(wrapped()["data"]), headers=headers)
                assert answer.status in (202, 400), (name, value, answer)

    play(scenario)


@given(raw=st.binary(max_size=300) | st.text(max_size=100).map(str.encode), route=st.sampled_from(ROUTES),
       media_type=st.sampled_from(TYPES))  # fmt: skip
def test_any_body_is_answered_below_500(raw, route, media_type):
    async def scenario() -> None:
        async with World(MemoryStore()) as world:
            for base in (V1, V2):
                answer = await world.ask(route[0], base + route[1], raw, headers={"content-type": media_type})
                assert answer.status < 500

    asyncio.run(scenario())
