"""Current states: derived from the log, whoever wrote it; kept over restarts and trims."""

from __future__ import annotations

import json

import pytest

from headwater.cne.notifications import reader
from headwater.cne.notifications.addresses import NO_DATA, Pattern, Place
from headwater.cne.notifications.document import Members
from headwater.cne.notifications.notification import Dialect, Notification
from headwater.cne.states import States
from headwater.core import Event, Query, QueryItem
from headwater.core.loop.slices import Slices
from headwater.storage import Engine
from headwater.storage.memory import MemoryStore

from .builders import NODE_SYNC_STATE, SYNC_STATE, bare, text, v1_value, v2_value, wrapped
from .world import V1, V2, World


async def value_at(world: World, address: str, base: str = V2) -> str:
    answer = await world.ask("GET", f"{base}{address}/CurrentState")
    assert answer.status == 200, (answer.status, answer.problem)
    return answer.json["data"]["values"][0]["value"]


def test_newest_event_of_a_resource_is_its_state(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        for value in ("LOCKED", "HOLDOVER", "FREERUN"):
            await world.publish(id, value)
            assert await value_at(world, NODE_SYNC_STATE) == value

    play(scenario)


def test_v1_gets_its_own_dialect(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "LOCKED")
        answer = await world.ask("GET", f"{V1}{NODE_SYNC_STATE}/CurrentState")
        assert answer.json["dataContentType"] == "application/json"
        assert answer.json["data"]["values"][0]["dataType"] == "notification"

    play(scenario)


def test_address_may_be_a_pattern_and_several_resources_are_an_array(play):
    async def scenario(world: World) -> None:
        for node in ("worker-0", "worker-1"):
            id = await world.publisher(f"/cluster/node/{node}{SYNC_STATE}")
            await world.publish(id, node)
        assert await value_at(world, f"/cluster/node/*-1{SYNC_STATE}") == "worker-1"
        both = await world.ask("GET", f"{V2}/cluster/node/*{SYNC_STATE}/CurrentState")
        assert [each["data"]["values"][0]["value"] for each in both.json] == ["worker-0", "worker-1"]
        assert await value_at(world, "/cluster/node/worker-0/sync") == "worker-0"
        assert (await world.ask("GET", f"{V2}/cluster/node/worker-2/sync/CurrentState")).status == 404

    play(scenario)


def test_state_of_one_resource_has_its_own_values_only(play):
    async def scenario(world: World) -> None:
        values = [
            v2_value(ResourceAddress="/a/b/sync/x", value="X"),
            v2_value(ResourceAddress="/a/b/sync/y", value="Y"),
        ]
        assert (await world.ask("POST", f"{V2}/create/event", wrapped(*values))).status == 202
        assert await value_at(world, "/a/b/sync/y") == "Y"
        whole = (await world.ask("GET", f"{V2}/a/b/sync/CurrentState")).json
        assert [value["value"] for value in whole["data"]["values"]] == ["X", "Y"]

    play(scenario)


@pytest.mark.parametrize("value", ["event-not-found", "ptp-not-set", "/x/event-not-found"])
def test_value_that_says_there_is_none_is_no_state_but_greets_subscribers(play, value):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, value)
        assert (await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")).status == 404
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        assert subscriber.values == [value]

    play(scenario)


def no_data(word: str) -> list[dict[str, str]]:
    """What cloud-event-proxy sends where it has no data: the word is in the address, the values mean nothing."""
    address = f"/cluster/node/worker-0/{word}"
    metric = {"data_type": "metric", "value_type": "decimal64.3", "value": "0"}
    return [v2_value(ResourceAddress=address, value="FREERUN"), v2_value(ResourceAddress=address, **metric)]


@pytest.mark.parametrize("word", NO_DATA)
@pytest.mark.parametrize("has_publisher", [True, False])
def test_address_that_says_there_is_no_data_makes_no_state_of_the_value_beside_it(play, word, has_publisher):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "LOCKED", source=SYNC_STATE)
        more = {"source": SYNC_STATE, "data": {"version": "1.0", "values": no_data(word)}}
        event = bare(id=id, **more) if has_publisher else wrapped(**more)
        assert (await world.ask("POST", f"{V2}/create/event", event)).status == 202
        for address in (NODE_SYNC_STATE, "/cluster/node/worker-0", "/sync", f"/cluster/node/worker-0/{word}"):
            assert (await world.ask("GET", f"{V2}{address}/CurrentState")).status == 404, address
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        assert subscriber.values == ["FREERUN"], "greeted as at the peer, with the address that says what it is"
        await world.publish(id, "HOLDOVER", source=SYNC_STATE)
        assert await value_at(world, "/cluster/node/worker-0") == "HOLDOVER"
        tags = {tag for event in world.store.open("cne").read() for tag in event.tags}
        assert [tag for tag in tags if word in tag] == [] and f"resource:{SYNC_STATE}" in tags

    play(scenario, timeout_ms=10_000)


def test_first_state_of_a_source_that_had_none_is_kept_whatever_resource_its_value_names(play):
    async def scenario(world: World) -> None:
        none = {"source": SYNC_STATE, "data": {"version": "1.0", "values": no_data("event-not-found")}}
        value = v2_value(ResourceAddress="/cluster/node/worker-0/ens1")
        for event in (wrapped(**none), wrapped(value, source=SYNC_STATE, id="ce-2")):
            assert (await world.ask("POST", f"{V2}/create/event", event)).status == 202
        assert await value_at(world, NODE_SYNC_STATE) == "LOCKED"

    play(scenario)


def test_event_of_many_addresses_counts_once_and_leaves_room_for_others(play, monkeypatch):
    monkeypatch.setattr("headwater.cne.states.BYTES_MAX", 1024 * 1024)

    async def scenario(world: World) -> None:
        many = [v2_value(ResourceAddress=f"/cluster/node/worker-0/sync/{number}") for number in range(200)]
        assert (await world.ask("POST", f"{V2}/create/event", wrapped(*many))).status == 202
        assert (await world.ask("POST", f"{V2}/create/event", wrapped(id="ce-2", source=SYNC_STATE))).status == 202
        assert await value_at(world, "/cluster/node/worker-0/sync/199") == "LOCKED"
        assert await value_at(world, SYNC_STATE) == "LOCKED"

    play(scenario)


DATA_ONLY = json.dumps({"version": "1.0", "values": [v2_value(ResourceAddress=NODE_SYNC_STATE)]}).encode()
WRITTEN_BY_OTHERS = {
    "the data of a CloudEvent": Event("t", DATA_ONLY, source="/s", attributes={"time": "2024-05-06T07:08:09Z"}),
    "a bare event": Event("t", text(bare(v1_value(resource=NODE_SYNC_STATE)))),
    "a wrapped event": Event("t", text(wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE))), source="/s"),
}


@pytest.mark.parametrize("kind", WRITTEN_BY_OTHERS)
def test_event_that_others_wrote_is_a_state(play, kind):
    async def scenario(world: World) -> None:
        log = world.store.create("cne")
        log.append([Event("other", b"no JSON"), Event("other", b"{}"), Event("other", b"[]"), Event("o", b"\xff")])
        result = log.append([WRITTEN_BY_OTHERS[kind]])
        state = (await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")).json
        assert (state["type"], state["sequence"]) == ("t", f"{result.last:018d}")
        assert state["time"].endswith("Z")

    play(scenario)


def test_states_survive_a_restart_and_a_trim(run, tmp_path):
    async def before() -> None:
        with Engine(tmp_path) as engine:
            async with World(engine) as world:
                id = await world.publisher(NODE_SYNC_STATE)
                await world.publish(id, "LOCKED", "HOLDOVER")
                other = await world.publisher("/cluster/node/worker-1/sync/other")
                await world.publish(other, "FREERUN")
                assert await value_at(world, "/cluster/node/worker-1/sync/other") == "FREERUN"
            log = engine.open("cne")
            assert log.trim(log.head() + 1) == log.head() + 1  # everything is acknowledged
            assert list(log.read()) == []

    async def after() -> None:
        with Engine(tmp_path) as engine:
            async with World(engine) as world:
                assert await value_at(world, NODE_SYNC_STATE) == "HOLDOVER"
                assert await value_at(world, "/cluster/node/worker-1/sync/other") == "FREERUN"
                engine.open("cne").append([Event("t", text(wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE))))])
                assert await value_at(world, NODE_SYNC_STATE) == "LOCKED"

    run(before())
    run(after())
    run(again(tmp_path))


async def again(tmp_path) -> None:
    with Engine(tmp_path) as engine:
        async with World(engine) as world:
            assert await value_at(world, NODE_SYNC_STATE) == "LOCKED"


def test_what_was_appended_while_no_front_end_ran_is_a_state(run, store):
    async def scenario() -> None:
        async with World(store) as world:
            id = await world.publisher(NODE_SYNC_STATE)
            await world.publish(id, "LOCKED")
        store.open("cne").append([Event("t", text(wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE, value="LATER"))))])
        async with World(store) as world:
            assert await value_at(world, NODE_SYNC_STATE) == "LATER"

    run(scenario())


def test_trim_waits_for_the_states(run, store):
    """An event that the states do not have yet is not trimmed away under them."""

    async def scenario() -> None:
        async with World(store) as world:
            id = await world.publisher(NODE_SYNC_STATE)
            await world.publish(id, "LOCKED")
            assert await value_at(world, NODE_SYNC_STATE) == "LOCKED"
        log = store.open("cne")
        log.append([Event("t", text(wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE, value="LATER"))))])
        assert log.trim(log.head() + 1) == log.head()
        async with World(store) as world:
            assert await value_at(world, NODE_SYNC_STATE) == "LATER"

    run(scenario())


def test_deleted_log_takes_its_states_along(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "LOCKED")
        assert await value_at(world, NODE_SYNC_STATE) == "LOCKED"
        world.store.delete("cne")
        assert (await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")).status == 404
        await world.publish(id, "FREERUN")
        assert await value_at(world, NODE_SYNC_STATE) == "FREERUN"

    play(scenario)


def test_where_no_more_states_fit_known_ones_stay_and_others_are_delivered(play, caplog):
    async def publish(world: World, number: int, value: str) -> None:
        made = v2_value(ResourceAddress=f"/a/b/sync/{number}", value=value)
        document = wrapped(made, id=f"{number}{value}", source="urn:x")
        assert (await world.ask("POST", f"{V2}/create/event", document)).status == 202

    async def scenario(world: World) -> None:
        await publish(world, 0, "ONE")
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), "/sync")
        for number in (1, 2, 3, 4, 0):
            await publish(world, number, "NEXT")
        await subscriber.got("ONE", *["NEXT"] * 5)
        for number in range(3):
            assert await value_at(world, f"/a/b/sync/{number}") == "NEXT"
        answer = await world.ask("GET", f"{V2}/a/b/sync/4/CurrentState")
        assert (answer.status, "/a/b/sync/4" in answer.problem, "cne.states_max is 3" in answer.problem) == (
            503, True, True
        )  # fmt: skip
        body = {"EndpointUri": subscriber.uri(), "ResourceAddress": "/a/b/sync/4"}
        assert (await world.ask("POST", f"{V2}/subscriptions", body)).status == 503
        assert "no room for the current state of /a/b/sync/3" in caplog.text

    play(scenario, states_max=3)


def two_cards(has_publisher: bool) -> list[tuple[str, str, str, str]]:
    """Source, address and value of events of two network cards, in the order in which they come."""
    if has_publisher:  # one producer: the addresses of the values are those of the cards
        source, first, second = SYNC_STATE, "/cluster/node/worker-0/ens1", "/cluster/node/worker-0/ens2"
        return [(source, first, "FREERUN"), (source, second, "FREERUN"), (source, second, "LOCKED")]
    return [
        ("/nic1", NODE_SYNC_STATE, "FREERUN"),
        ("/nic2", NODE_SYNC_STATE, "FREERUN"),
        ("/nic2", NODE_SYNC_STATE, "LOCKED"),
    ]


@pytest.mark.parametrize("has_publisher", [True, False])
def test_state_of_a_resource_has_the_values_of_all_its_sources(run, tmp_path, has_publisher):
    async def values(world: World) -> list[str]:
        answer = await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")
        return [value["value"] for value in answer.json["data"]["values"]]

    async def scenario() -> None:
        with Engine(tmp_path) as engine:
            async with World(engine) as world:
                id = await world.publisher(NODE_SYNC_STATE) if has_publisher else ""
                for number, (source, address, value) in enumerate(two_cards(has_publisher)):
                    content = v2_value(ResourceAddress=address, value=value)
                    make = bare if has_publisher else wrapped
                    event = make(content, id=id or str(number), source=source)
                    assert (await world.ask("POST", f"{V2}/create/event", event)).status == 202
                assert await values(world) == ["LOCKED", "FREERUN"]
                subscriber = await world.subscriber()
                await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
                assert subscriber.values == ["FREERUN", "LOCKED"]
            async with World(engine) as world:
                assert await values(world) == ["LOCKED", "FREERUN"]

    run(scenario())


def test_states_of_earlier_versions_are_read(run, store: MemoryStore):
    async def scenario() -> None:
        async with World(store) as world:
            id = await world.publisher(NODE_SYNC_STATE)
            await world.publish(id, "LOCKED")
        kind = "cne/state/cne"
        [(name, entry), *others] = list(store.state.items(kind, NODE_SYNC_STATE))
        for each, _ in [(name, entry), *others]:
            store.state.delete(kind, each)
        store.state.put(kind, NODE_SYNC_STATE, entry.value)
        log = store.open("cne")
        log.trim(log.head() + 1)
        async with World(store) as world:
            assert await value_at(world, NODE_SYNC_STATE) == "LOCKED"
        assert [found for found, _ in store.state.items(kind, NODE_SYNC_STATE)] == [name]

    run(scenario())


def test_a_pattern_that_is_too_long_to_come_again_is_not_remembered(run):
    async def scenario() -> None:
        states = States(20)
        for pattern in ("/east/*/sync", f"/{'a/' * 2000}*"):
            assert await states.find(Pattern(pattern, Place()), Slices()) == []
        assert list(states._asked) == ["/east/*/sync"]

    run(scenario())


def test_what_is_remembered_of_patterns_is_bounded(run, monkeypatch):
    monkeypatch.setattr("headwater.cne.states.ASKED_MAX", 10)

    async def scenario() -> None:
        states = States(20)
        for number in range(25):
            await states.find(Pattern(f"/east/*/n{number}", Place()), Slices())
            assert len(states._asked) <= 10

    run(scenario())


@pytest.mark.parametrize("node", ["", "controller-0"])
def test_state_of_an_instance_is_found_delivered_and_read_by_its_node(play, node):
    lock = "/sync/ptp-status/lock-state"
    patterns = (f"/./controller-0{lock}", f"/./.{lock}", "/././sync", "/./controller-0/sync", f"/./*{lock}")

    async def scenario(world: World) -> None:
        address = f"/./controller-0/ptp-inst1{lock}"
        id = await world.publisher(address)
        await world.publish(id, "LOCKED")
        subscriber = await world.subscriber()
        for pattern in patterns:
            assert await value_at(world, pattern) == "LOCKED"
            await world.subscribe(subscriber.uri(pattern), pattern)
        await world.publish(id, "FREERUN")
        await subscriber.got(*["LOCKED"] * len(patterns), *["FREERUN"] * len(patterns))
        query = Query.of(QueryItem(tags=("node:controller-0", "instance:ptp-inst1")))
        log = world.store.open("cne")
        assert len(log.read_page(query, 0).events) == 2

    play(scenario, node=node)


def test_an_event_of_a_publisher_is_read_once_and_another_of_its_id_by_itself(play, store, monkeypatch):
    """Whoever writes to the log by another way may use any id, also that of an event that was only announced."""
    texts: list[object] = []
    read = reader.read

    def watched(members: Members, dialect: Dialect | None = None) -> Notification:
        texts.append(members["id"])
        return read(members, dialect)

    monkeypatch.setattr(reader, "read", watched)

    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "LOCKED")
        assert await value_at(world, NODE_SYNC_STATE) == "LOCKED"
        assert texts == [id]
        (event,) = store.open("cne").read()
        other = event.data.replace(b"LOCKED", b"FREERUN")
        feed = world.app.service._supervisor.present
        assert feed is not None
        feed.announce(event.event._replace(id="ce-2"), read(json.loads(event.data)))
        store.open("cne").append([event.event._replace(id="ce-2", data=other)])
        assert await value_at(world, NODE_SYNC_STATE) == "FREERUN"
        assert texts == [id, id]

    play(scenario)
