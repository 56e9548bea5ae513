"""StarlingX's envelope, `{"ptp_lock_state": [...]}`: taken, and sent to those who look for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.cne.notifications.envelope import KEYS, enveloped
from headwater.core import Event

from ..builders import NODE_SYNC_STATE, v2_value, wrapped
from ..world import V1, V2, World

LOCK_STATE = "/sync/ptp-status/lock-state"
PATIENT_MS = 10_000
NODE_LOCK_STATE = f"/./controller-0{LOCK_STATE}"


def of_starlingx(id: str = "7f8c", **value: Any) -> dict[str, Any]:
    """An event as StarlingX makes it: its time has no point before the microseconds."""
    content = v2_value(ResourceAddress=f"/./controller-0/ptp1{LOCK_STATE}", value="Locked") | value
    return wrapped(content, id=id, source=LOCK_STATE, time="2023-10-05T12:34:54896244Z")


def test_events_in_it_are_taken_each_as_it_was_sent(play):
    async def scenario(world: World) -> None:
        body = {"ptp_lock_state": [of_starlingx("1", value="Locked"), of_starlingx("2", value="Holdover")]}
        for _ in range(2):  # the second time it is the same as the first: each is known by source and id
            assert (await world.ask("POST", f"{V2}/create/event", body)).status == 202
        events = list(world.store.open("cne").read())
        assert [json.loads(event.data) for event in events] == body["ptp_lock_state"]
        assert [(event.id, event.source) for event in events] == [("1", LOCK_STATE), ("2", LOCK_STATE)]
        assert events[0].attributes["time"] == "2023-10-05T12:34:54.896244Z"
        state = (await world.ask("GET", f"{V2}{LOCK_STATE}/CurrentState")).json
        assert state["data"]["values"][0]["value"] == "Holdover"

    play(scenario)


def test_what_is_wrong_in_it_is_told_by_its_path_and_nothing_is_taken(play):
    async def scenario(world: World) -> None:
        async def refusal(body: object, query: str = "") -> tuple[int, str]:
            answer = await world.ask("POST", f"{V2}/create/event", body, query=query)
            return answer.status, answer.json.get("path", "")

        broken = of_starlingx("2", value=None)
        assert await refusal({"sync": [of_starlingx(), broken]}) == (400, "$.sync[1].data.values[0].value")
        assert await refusal({"sync": [of_starlingx(), 5]}) == (400, "$.sync[1]")
        assert await refusal({"sync": [of_starlingx(id="x" * 600)]}) == (400, "$.sync[0].id")
        assert await refusal({"sync": [of_starlingx()]}, "strict=true") == (400, "$.sync[0].time")
        assert await refusal({"sync": [5] * 1001}) == (413, "")
        assert (await refusal({"other": [of_starlingx()]}))[0] == 400, "no name of the envelope"
        assert "cne" not in world.store.names() or not list(world.store.open("cne").read())

    play(scenario)


@pytest.mark.parametrize("resource", [LOCK_STATE, NODE_LOCK_STATE, f"/./*{LOCK_STATE}"])
def test_who_subscribes_with_that_mode_gets_it(play, resource):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_LOCK_STATE)
        await world.publish(id, "LOCKED")
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), resource, DeliveryMode="starlingx")
        await world.publish(id, "HOLDOVER")
        await subscriber.until(lambda subscriber: len(subscriber.calls) == 2)
        for call, value in zip(subscriber.calls, ("LOCKED", "HOLDOVER"), strict=True):
            assert call.headers["content-type"] == "application/json"
            [event] = call.json.pop("ptp_lock_state")
            assert (event["specversion"], event["data"]["values"][0]["value"]) == ("1.0", value)

    play(scenario, timeout_ms=PATIENT_MS)


def test_setting_says_how_those_get_events_who_say_nothing(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "LOCKED")
        v2, v1, other = [await world.subscriber() for _ in range(3)]
        await world.subscribe(v2.uri(), "/sync")
        await world.subscribe(v1.uri(), NODE_SYNC_STATE, V1)
        await world.subscribe(other.uri(), NODE_SYNC_STATE, DeliveryMode="structured")
        await world.publish(id, "HOLDOVER")
        await other.got("LOCKED", "HOLDOVER")
        await v1.got("HOLDOVER")
        await v2.until(lambda subscriber: len(subscriber.calls) == 2)
        assert [list(call.json) for call in v2.calls] == [["sync"], ["sync"]]
        refused = await world.ask("POST", f"{V1}/subscriptions", {"endpointUri": v1.uri("/x"), "resource": "/sync",
                                                                   "deliveryMode": "starlingx"})  # fmt: skip
        assert refused.status == 400 and "structured, binary" in refused.json["error"]

    play(scenario, delivery_mode="starlingx", timeout_ms=PATIENT_MS)


def test_envelope_does_not_count_where_an_event_is_as_large_as_it_may_be(play):
    async def scenario(world: World) -> None:
        subscriber = await world.subscriber()
        await world.publisher(NODE_SYNC_STATE)
        id = await world.subscribe(subscriber.uri(), "/sync", DeliveryMode="starlingx")
        event = wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE), specversion="1.0", pad="")
        while (await world.ask("POST", f"{V2}/create/event", event)).status == 202:
            event |= {"id": event["id"] + "1", "pad": event["pad"] + "x" * 40}
        assert len(event["pad"]) > 400
        await world.until_delivery(id, lambda found: found["delivered"] and not found["waiting"])
        assert (await world.delivery(id))["dead_letters"] == []

    play(scenario, event_bytes_max=1024, timeout_ms=PATIENT_MS)


def test_event_that_others_wrote_in_it_is_a_state(play):
    async def scenario(world: World) -> None:
        log = world.store.create("cne")
        log.append([Event("t", json.dumps({"ptp_lock_state": [of_starlingx()]}).encode(), source="/s")])
        state = (await world.ask("GET", f"{V2}{LOCK_STATE}/CurrentState")).json
        assert state["data"]["values"][0]["value"] == "Locked"

    play(scenario)


@pytest.mark.parametrize(("resource", "key"), [*KEYS.items(), ("/sync/ptp-status", "sync"), ("/*", "sync")])
def test_name_of_the_member_goes_by_the_resource_of_the_subscription(resource, key):
    assert json.loads(enveloped(b"{}", f"/./*{resource}")) == {key: [{}]}
