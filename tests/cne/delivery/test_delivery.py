"""Delivery: what subscribers get, and what becomes of those that are slow, dead, broken, or gone for a while."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from headwater.cne import service
from headwater.cne.delivery import owed_states
from headwater.cne.delivery.endpoint import ASKING_MAX
from headwater.cne.delivery.webhook import NOT_SENT
from headwater.cne.notifications.addresses import Address, Pattern
from headwater.core import Event
from headwater.core.errors import OutcomeUnknown, StorageUnavailable
from headwater.core.followers import FollowerKind
from headwater.storage import Engine
from headwater.storage.backup import backup, restore

from ..builders import NODE_SYNC_STATE, SYNC_STATE, text, v2_value, wrapped
from ..world import PATIENCE_S, V1, V2, Call, Subscriber, World

NUMBERS = [str(number) for number in range(30)]


async def node(world: World, name: str = "worker-0") -> str:
    """A publisher of one node's state, which is known."""
    id = await world.publisher(f"/cluster/node/{name}{SYNC_STATE}")
    await world.publish(id, "first")
    return id


def failing(answer: int | str | bytes, times: int) -> object:
    """Behaves so often wrongly with events that are not greetings, then well."""
    left = [times]

    async def behave(call: Call) -> int | str | bytes:
        if call.body and call.value != "first" and left[0]:
            left[0] -= 1
            return answer
        return 204

    return behave


def test_v2_subscriber_gets_cloudevents_in_the_order_of_the_log(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, *NUMBERS)
        await subscriber.got("first", *NUMBERS)
        call = subscriber.calls[-1]
        assert list(call.json) == ["specversion", "id", "source", "type", "time", "sequence", "data"]
        assert (call.headers["content-type"], call.headers["user-agent"]) == ("application/json", "headwater")
        assert not [name for name in call.headers if name.startswith("ce-")]
        assert call.json["sequence"] == "000000000000000031"
        assert subscriber.connections == 1, "the connection is kept"

    play(scenario)


def test_every_subscriber_gets_the_same_id(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscribers = [await world.subscriber() for _ in range(3)]
        for each in subscribers:
            await world.subscribe(each.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x")
        for each in subscribers:
            await each.got("first", "x")
        assert len({each.calls[-1].json["id"] for each in subscribers}) == 1

    play(scenario)


def test_v1_subscriber_gets_bare_events_with_the_subscriptions_id(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE, V1)
        await world.publish(id, "x")
        await subscriber.got("x")
        document = subscriber.calls[-1].json
        assert document["id"] == subscription
        assert "specversion" not in document and document["data"]["values"][0]["resource"] == NODE_SYNC_STATE

    play(scenario)


def test_v1_subscriber_gets_unique_ids_where_it_is_set_so(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE, V1)
        await world.publish(id, "x", "y")
        await subscriber.got("x", "y")
        stored = [event.id for event in world.store.open("cne").read()]
        assert [call.json["id"] for call in subscriber.calls if call.body] == stored[1:]

    play(scenario, v1_unique_ids=True)


def test_v1_subscriber_gets_cloudevents_where_it_is_set_so(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE, V1)
        await world.publish(id, "x")
        await subscriber.got("x")
        document = subscriber.calls[-1].json
        assert (document["specversion"], document["datacontenttype"]) == ("1.0", "application/json")
        assert document["subject"] == NODE_SYNC_STATE
        assert document["data"]["values"][0]["dataType"] == "notification"

    play(scenario, v1_wraps=True)


def test_binary_mode_on_request(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE, DeliveryMode="binary")
        await world.publish(id, "x", source="/naïve source")
        await subscriber.until(lambda subscriber: len(subscriber.calls) == 2)
        call = subscriber.calls[-1]
        assert (call.headers["ce-specversion"], call.headers["ce-type"]) == ("1.0", "event.sync")
        assert call.headers["ce-source"] == "/na%C3%AFve%20source"
        assert call.headers["content-type"] == "application/json"
        assert call.json["values"][0]["value"] == "x"

    play(scenario)


def test_extensions_and_dataschema_are_forwarded(play):
    async def scenario(world: World) -> None:
        await node(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        event = wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE), traceparent="00-x", dataschema="urn:schema")
        await world.ask("POST", f"{V2}/create/event", event)
        await subscriber.got("first", "LOCKED")
        found = subscriber.calls[-1].json
        assert (found["traceparent"], found["dataschema"], found["id"]) == ("00-x", "urn:schema", "ce-1")
        assert not [name for name in found if name.startswith("cne")]

    play(scenario)


def test_a_webhook_is_called_in_the_trace_of_its_event(play):
    parent, own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", f"00-{'1' * 32}-{'2' * 16}-00"

    async def scenario(world: World) -> None:
        await node(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        trace = {"traceparent": parent, "tracestate": "a=1"}
        event = wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE))
        await world.ask("POST", f"{V2}/create/event", event, headers=trace)
        await world.ask("POST", f"{V2}/create/event", event | {"id": "ce-2", "traceparent": own}, headers=trace)
        await world.ask("POST", f"{V2}/create/event", event | {"id": "ce-3", "traceparent": "00-x"})
        await subscriber.until(lambda got: len(got.values) >= 4)
        found = [(call.json["id"], call.headers.get("traceparent"), call.headers.get("tracestate"))
                 for call in subscriber.calls if call.body]  # fmt: skip
        assert found[-3:] == [("ce-1", parent, "a=1"), ("ce-2", own, None), ("ce-3", None, None)]
        assert subscriber.calls[-3].json["traceparent"] == parent

    play(scenario)


def test_overlapping_subscriptions_of_one_endpoint_deliver_once(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        for resource in (NODE_SYNC_STATE, "/cluster/node/worker-0/sync", "/cluster/node/*/sync/*"):
            await world.subscribe(subscriber.uri(), resource)
        await world.publish(id, "x", "y")
        await subscriber.got("first", "first", "first", "x", "y")

    play(scenario)


def test_subscriber_gets_nothing_that_it_did_not_ask_for(play):
    async def scenario(world: World) -> None:
        one, two = await node(world, "worker-1"), await node(world, "worker-2")
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), f"/cluster/node/worker-2{SYNC_STATE}")
        await world.publish(one, "no")
        await world.publish(two, "yes")
        await subscriber.got("first", "yes")

    play(scenario)


def test_it_is_looked_once_who_asks_for_events_at_the_same_addresses(play, monkeypatch):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x")
        await subscriber.got("first", "x")
        monkeypatch.setattr(
            Pattern, "matches", lambda pattern, address: looks.append(address) or matches(pattern, address)
        )
        await world.publish(id, *NUMBERS)
        await subscriber.got("first", "x", *NUMBERS)
        assert not looks

    looks: list[Address] = []
    matches = Pattern.matches
    play(scenario)


def test_an_endpoint_gets_what_its_subscriptions_of_the_moment_ask_for(play):
    """What is remembered of who asks holds until one comes or goes; and for more addresses than are remembered."""

    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        places = [f"/cluster/node/worker-{number}{SYNC_STATE}" for number in range(2 * ASKING_MAX)]
        await world.subscribe(subscriber.uri(), places[0])
        await world.publish(id, "0")
        other = await world.subscribe(subscriber.uri(), "/cluster/node/*/sync")
        await subscriber.got("first", "0", "0")
        for number, place in enumerate(places[1:] + places[:1], 1):
            await world.publish(id if place == places[0] else await world.publisher(place), str(number), resource=place)
        await world.ask("DELETE", f"{V2}/subscriptions/{other}")
        await world.publish(await world.publisher(places[1]), "no", resource=places[1])
        await world.publish(id, "last")
        await subscriber.until(lambda subscriber: subscriber.values[-1] == "last")
        assert "no" not in subscriber.values

    play(scenario)


def test_deleted_subscription_gets_nothing_more(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        gone, there = await world.subscriber(), await world.subscriber()
        subscription = await world.subscribe(gone.uri(), NODE_SYNC_STATE)
        await world.subscribe(there.uri(), NODE_SYNC_STATE)
        await world.ask("DELETE", f"{V2}/subscriptions/{subscription}")
        await world.publish(id, "x")
        await there.got("first", "x")
        assert gone.values == ["first"]

    play(scenario)


@pytest.mark.parametrize(
    "answer", [500, 503, "reset", b"nonsense\r\n\r\n", 429, b"HTTP/1.1 204 \r\n\r\nHTTP/1.1 500 x"]
)
def test_failed_delivery_is_tried_again_in_order(play, answer):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber(failing(answer, 3))
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x", "y", "z")
        await subscriber.until(lambda subscriber: subscriber.values[-1:] == ["z"])
        assert list(dict.fromkeys(subscriber.values)) == ["first", "x", "y", "z"]
        status = await world.until_delivery(subscription, lambda status: status["is_current"])
        assert (status["standing"], status["failures"], status["dead_letters_total"]) == ("delivering", 0, 0)

    play(scenario)


@pytest.mark.parametrize("status", [200, 202, 204])
def test_what_consumers_in_the_field_answer_is_a_success(play, status):
    async def behave(call: Call) -> int | str | bytes:
        if not call.body or call.value == "first":
            return 204
        return 204 if status == 204 else b"HTTP/1.1 %d OK\r\ncontent-length: 2\r\n\r\nok" % status

    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber(behave)
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x", "y")
        await subscriber.got("first", "x", "y")
        assert subscriber.connections == 1

    play(scenario)


def test_subscriber_that_does_not_answer_in_time_gets_it_again(play):
    async def scenario(world: World) -> None:
        silent = [True]

        async def behave(call: Call) -> int | str | bytes:
            if call.body and call.value == "x" and silent.pop():
                silent.append(False)
                await asyncio.sleep(30)
            return 204

        id = await node(world)
        subscriber = await world.subscriber(behave)
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x")
        await subscriber.got("first", "x", "x")

    play(scenario, timeout_ms=100)


def test_slow_and_dead_subscribers_hold_nobody_up(play):
    async def scenario(world: World) -> None:
        async def slowly(call: Call) -> int | str | bytes:
            if call.body and call.value != "first":
                await forever.wait()
            return 204

        forever = asyncio.Event()
        id = await node(world)
        slow, dead, good = await world.subscriber(slowly), await world.subscriber(), await world.subscriber()
        for each in (slow, dead, good):
            await world.subscribe(each.uri(), NODE_SYNC_STATE)
        await dead.stop()
        await world.publish(id, *NUMBERS)
        await good.got("first", *NUMBERS)
        assert len(slow.values) < 4
        forever.set()
        await slow.until(lambda subscriber: subscriber.values[-1] == NUMBERS[-1])

    play(scenario, timeout_ms=60_000)


def test_name_that_does_not_resolve_fails_like_a_dead_endpoint(play, monkeypatch):
    async def scenario(world: World) -> None:
        id = await node(world)
        good, lost = await world.subscriber(), await world.subscriber()
        await world.subscribe(good.uri(), NODE_SYNC_STATE)
        subscription = await world.subscribe(lost.uri().replace("127.0.0.1", "consumer.invalid"), NODE_SYNC_STATE)
        resolver.is_down = True
        world.app.service.webhooks._caller.names.forget()
        await lost.stop()
        await world.publish(id, "x")
        await good.got("first", "x")
        status = await world.until_delivery(subscription, lambda status: status["failures"] > 1)
        assert status["standing"] == "retrying" and status["problem"]

    class Resolver:
        is_down = False

        async def resolve(self, host: str) -> Sequence[str]:
            if self.is_down:
                raise OSError("no such name")
            return ["127.0.0.1"]

    resolver = Resolver()
    monkeypatch.setattr("headwater.cne.delivery.webhook.addresses_of", resolver.resolve)
    play(scenario)


def test_full_queue_waits_in_the_log_and_live_never_overtakes_replay(play):
    async def scenario(world: World) -> None:
        gate = asyncio.Event()

        async def behind_the_gate(call: Call) -> int | str | bytes:
            if call.body and call.value != "first":
                await gate.wait()
            return 204

        id = await node(world)
        subscriber = await world.subscriber(behind_the_gate)
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        numbers = [str(number) for number in range(300)]
        await world.publish(id, *numbers[:250])
        assert (await world.delivery(subscription))["waiting"] <= 6
        gate.set()
        for number in numbers[250:]:  # live, while the rest is read from the log
            await world.publish(id, number)
        await subscriber.got("first", *numbers)

    play(scenario, queue_events_max=5, timeout_ms=60_000)


def test_refused_event_is_a_dead_letter_and_the_next_ones_go_on(play):
    async def picky(call: Call) -> int | str | bytes:
        return 422 if call.body and call.value == "bad" and not forgiving else 204

    forgiving: list[bool] = []

    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber(picky)
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "bad", "good")
        await subscriber.got("first", "bad", "bad", "bad", "good")
        status = await world.until_delivery(subscription, lambda status: status["is_current"])
        (letter,) = status["dead_letters"]
        assert (letter["sequence_number"], letter["reason"]) == (2, "answered 422")
        forgiving.append(True)
        assert (await world.ask("POST", f"{V2}/subscriptions/{subscription}/resume")).status == 202
        await subscriber.got("first", "bad", "bad", "bad", "good", "bad")
        status = await world.until_delivery(subscription, lambda status: not status["dead_letters"])
        assert status["dead_letters_total"] == 1

    play(scenario)


def test_dead_letter_that_is_refused_again_stays_one(play):
    async def picky(call: Call) -> int | str | bytes:
        return 400 if call.body and call.value == "bad" else 204

    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber(picky)
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "bad")
        await world.until_delivery(subscription, lambda status: status["dead_letters"])
        await world.ask("POST", f"{V2}/subscriptions/{subscription}/resume")
        await subscriber.until(lambda subscriber: subscriber.values.count("bad") == 6)
        await world.publish(id, "good")
        await subscriber.until(lambda subscriber: subscriber.values[-1] == "good")
        status = await world.delivery(subscription)
        assert (len(status["dead_letters"]), status["dead_letters_total"]) == (1, 1)

    play(scenario)


def test_endpoint_that_fails_for_too_long_is_suspended_and_goes_on_where_it_was_when_it_is_resumed(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await subscriber.stop()
        await world.publish(id, "x")
        status = await world.until_delivery(subscription, lambda status: status["standing"] == "suspended")
        assert status["problem"] and status["failing_since"] and not status["is_current"]
        await world.publish(id, "y", "z")
        await subscriber.start()
        resumed = await world.ask("POST", f"{V2}/subscriptions/{subscription}/resume")
        assert resumed.json["standing"] != "suspended"
        await subscriber.got("first", "x", "y", "z")
        status = await world.until_delivery(subscription, lambda status: status["is_current"])
        assert status["dead_letters_total"] == 0

    play(scenario, suspend_after_ms=30)


def test_subscribing_again_resumes(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await subscriber.stop()
        await world.publish(id, "x")
        await world.until_delivery(subscription, lambda status: status["standing"] == "suspended")
        await subscriber.start()
        body = {"EndpointUri": subscriber.uri(), "ResourceAddress": NODE_SYNC_STATE}
        assert (await world.ask("POST", f"{V2}/subscriptions", body)).status == 409
        await subscriber.got("first", "x")
        await subscriber.stop()
        await world.publish(id, "y")
        await world.until_delivery(subscription, lambda status: status["standing"] == "suspended")
        await subscriber.start()
        await world.subscribe(subscriber.uri(), "/cluster/node/worker-0")
        # The greeting, and what was missed.
        await subscriber.until(lambda subscriber: subscriber.values[2:] == ["y", "y"])

    play(scenario, suspend_after_ms=30)


def test_gone_endpoint_is_suspended_at_once(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber(failing(410, 1))
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x")
        await world.until_delivery(subscription, lambda status: status["standing"] == "suspended")
        await world.ask("POST", f"{V2}/subscriptions/{subscription}/resume")
        await subscriber.got("first", "x", "x")

    play(scenario)


def test_trimmed_events_are_a_recorded_gap_and_the_state_they_led_to_is_delivered(play):
    async def scenario(world: World) -> None:
        id, other = await node(world), await node(world, "worker-1")
        subscriber = await world.subscriber()
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await subscriber.stop()
        await world.publish(id, "x", "y")
        await world.until_delivery(subscription, lambda status: status["standing"] == "suspended")
        await world.publish(id, "z")
        await world.publish(other, "elsewhere")
        log = world.store.open("cne")
        while log.trim(log.head() + 1) <= log.head():
            await asyncio.sleep(0.01)
        await subscriber.start()
        await world.ask("POST", f"{V2}/subscriptions/{subscription}/resume")
        await subscriber.got("first", "z")
        status = await world.until_delivery(subscription, lambda status: status["is_current"])
        assert [(gap["first"], gap["last"]) for gap in status["gaps"]] == [(3, 6)]
        await world.publish(id, "live")
        await subscriber.got("first", "z", "live")

    play(scenario, suspend_after_ms=30)


def test_event_of_others_that_is_too_large_to_deliver_is_a_dead_letter(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        large = v2_value(ResourceAddress=NODE_SYNC_STATE, value="x" * 70_000)
        world.store.open("cne").append([Event("t", text(wrapped(large)))])
        await world.publish(id, "next")
        await subscriber.got("first", "next")
        (letter,) = (await world.delivery(subscription))["dead_letters"]
        assert "65536" in letter["reason"]

    play(scenario)


def test_event_between_greeting_and_registration_is_not_lost(play):
    async def scenario(world: World) -> None:
        id = await node(world)

        async def publishing(call: Call) -> int | str | bytes:
            if len(subscriber.calls) in (1, 2):
                await world.publish(id, f"during {len(subscriber.calls)}")
            return 204

        subscriber = await world.subscriber(publishing)
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await subscriber.got("first", "during 1", "during 2")
        # The endpoint is there already: the second subscription's events are caught up with.
        await world.subscribe(subscriber.uri(), "/cluster/node/worker-0")

    async def second(world: World) -> None:
        one, two = await node(world, "worker-1"), await node(world, "worker-2")

        async def publishing(call: Call) -> int | str | bytes:
            if len(subscriber.calls) == 2:
                await world.publish(two, "during")
            return 204

        subscriber = await world.subscriber(publishing)
        await world.subscribe(subscriber.uri(), "/cluster/node/worker-1")
        await world.subscribe(subscriber.uri(), "/cluster/node/worker-2")
        await world.publish(one, "after")
        await subscriber.until(lambda subscriber: len(subscriber.values) == 4)
        assert sorted(subscriber.values) == ["after", "during", "first", "first"]

    play(scenario)
    play(second)


class Late:
    """A change of the state that is made later than anybody waits for it."""

    def __init__(self, method: Any) -> None:
        self._method, self.lands = method, threading.Event()

    def __call__(self, *given: Any) -> NoReturn:
        def land() -> None:
            self.lands.wait(PATIENCE_S)
            self._method(*given)

        threading.Thread(target=land, daemon=True).start()
        raise OutcomeUnknown("$state")


def test_a_subscription_of_which_nobody_was_told_is_delivered_to_when_it_is_there(play, store, monkeypatch):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        late = Late(store.state.put)
        monkeypatch.setattr(service, "LANDED_S", 0.01)
        with monkeypatch.context() as slow:
            slow.setattr(store.state, "put", late)
            body = {"EndpointUri": subscriber.uri(), "ResourceAddress": NODE_SYNC_STATE}
            answer = await world.ask("POST", f"{V2}/subscriptions", body)
        assert answer.status == 504
        await world.publish(id, "second")
        assert (await world.ask("GET", f"{V2}/subscriptions")).json == []
        late.lands.set()
        await subscriber.got("first", "second")
        [found] = (await world.ask("GET", f"{V2}/subscriptions")).json
        late = Late(store.state.delete_all)
        path = f"{V2}/subscriptions/{found['SubscriptionId']}"
        with monkeypatch.context() as slow:
            slow.setattr(store.state, "delete_all", late)
            assert (await world.ask("DELETE", path)).status == 504
        assert (await world.ask("GET", path)).status == 200
        late.lands.set()
        async with asyncio.timeout(PATIENCE_S):
            while (await world.ask("GET", path)).status != 404:
                await asyncio.sleep(0.01)
        assert world.app.service.endpoints() == []

    play(scenario)


def test_what_could_not_be_removed_is_there(play, store, monkeypatch):
    async def scenario(world: World) -> None:
        publisher = await node(world)
        subscriber = await world.subscriber()
        id = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)

        def refused(*_: object) -> NoReturn:
            raise StorageUnavailable("the home is away")

        paths = (f"{V2}/subscriptions/{id}", f"{V2}/publishers/{publisher}")
        with monkeypatch.context() as away:
            away.setattr(store.state, "delete_all", refused)
            for path in paths:
                assert (await world.ask("DELETE", path)).status == 503
                assert (await world.ask("GET", path)).status == 200
        await world.publish(publisher, "second")
        await subscriber.got("first", "second")
        for path in paths:
            assert (await world.ask("DELETE", path)).status in (200, 204)
            assert (await world.ask("GET", path)).status in (400, 404)

    play(scenario)


def test_a_webhook_tells_where_it_stands_in_the_log(play):
    async def scenario(world: World) -> None:
        own, other = await node(world), await node(world, "worker-1")
        is_up = True

        async def behave(call: Call) -> int:
            return 204 if is_up or not call.body else 503

        async def until_it_stands_at(number: int) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while [each.after for each in await world.app.service.followers()] != [number]:
                    await asyncio.sleep(0.005)

        subscriber = await world.subscriber(behave)
        id = await world.subscribe(subscriber.uri(), f"/cluster/node/worker-0{SYNC_STATE}")
        await world.publish(other, "of no concern")
        await until_it_stands_at(3)
        [follower] = await world.app.service.followers()
        assert (follower.log.name, follower.kind, follower.owner) == ("cne", FollowerKind.WEBHOOK, id)
        is_up = False
        await world.publish(own, "waits")
        await world.publish(other, "of no concern")
        await world.until_delivery(id, lambda found: found["failures"] > 0)
        await until_it_stands_at(3)
        is_up = True
        await until_it_stands_at(5)
        await world.app.service.unsubscribe(world.app.service.subscriptions.by_id[id])
        assert await world.app.service.followers() == []

    play(scenario)


def test_subscriptions_and_cursors_survive_a_restart(run, tmp_path):
    """One subscriber is up to date, one lags, one is suspended: each goes on where it was."""

    async def scenario() -> None:
        good, lagging, gone = Subscriber(), Subscriber(), Subscriber(failing(410, 1))
        for each in (good, lagging, gone):
            await each.start()
        with Engine(tmp_path) as engine:
            async with World(engine) as world:
                id = await node(world)
                ids = [await world.subscribe(each.uri(), NODE_SYNC_STATE) for each in (good, lagging, gone)]
                await world.publish(id, "1")
                await lagging.got("first", "1")
                await world.until_delivery(ids[2], lambda status: status["standing"] == "suspended")
                await world.until_delivery(ids[1], lambda status: status["is_current"])
                await lagging.stop()
                await world.publish(id, "2", "3")
                await good.got("first", "1", "2", "3")
        await lagging.start()
        with Engine(tmp_path) as engine:
            async with World(engine) as world:
                listed = [each["SubscriptionId"] for each in (await world.ask("GET", f"{V2}/subscriptions")).json]
                assert sorted(listed) == sorted(ids)  # of one millisecond in either order
                await lagging.got("first", "1", "2", "3")
                await world.publish(id, "4")
                await good.got("first", "1", "2", "3", "4")
                await lagging.got("first", "1", "2", "3", "4")
                assert gone.values == ["first", "1"], "nothing is sent to it"
                assert (await world.delivery(ids[2]))["standing"] == "suspended"
                await world.ask("POST", f"{V2}/subscriptions/{ids[2]}/resume")
                await gone.got("first", "1", "1", "2", "3", "4")
        for each in (good, lagging, gone):
            await each.stop()

    run(scenario())


def test_what_was_appended_while_no_front_end_ran_is_delivered(run, store):
    async def scenario() -> None:
        subscriber = await Subscriber().start()
        async with World(store) as world:
            id = await node(world)
            await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        store.open("cne").append(
            [Event("t", text(wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE, value="by AMQP"))))]
        )
        async with World(store) as world:
            await subscriber.got("first", "by AMQP")
            await world.publish(id, "x")
            await subscriber.got("first", "by AMQP", "x")
        await subscriber.stop()

    run(scenario())


def test_restored_backup_goes_on_with_its_states_and_delivers_nothing_twice(run, tmp_path):
    async def scenario() -> None:
        subscriber = await Subscriber().start()
        with Engine(tmp_path / "a") as engine:
            async with World(engine) as world:
                id = await node(world)
                await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
                await world.publish(id, "x")
                await subscriber.got("first", "x")
                log = engine.open("cne")
                while log.trim(log.head() + 1) <= log.head():
                    await asyncio.sleep(0.01)
        backup(tmp_path / "a", tmp_path / "saved")
        restore(tmp_path / "saved", tmp_path / "b")
        with Engine(tmp_path / "b") as engine:
            async with World(engine) as world:
                state = await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")
                assert state.json["data"]["values"][0]["value"] == "x"
                await world.publish(id, "y")
                await subscriber.got("first", "x", "y")
        await subscriber.stop()

    run(scenario())


def test_log_that_is_deleted_and_made_again_is_delivered_from(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        world.store.delete("cne")
        await world.publish(id, "anew")
        await subscriber.got("first", "anew")

    play(scenario)


def test_a_thousand_subscriptions(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        uris = [subscriber.uri(f"/{number}") for number in range(1000)]
        await asyncio.gather(*(world.subscribe(uri, NODE_SYNC_STATE) for uri in uris))
        assert len((await world.ask("GET", f"{V2}/subscriptions")).json) == 1000
        await world.publish(id, "x", "y")
        await subscriber.until(lambda subscriber: len(subscriber.calls) >= 3000)
        assert len(subscriber.calls) == 3000
        by_path: dict[str, list[str]] = {}
        for call in subscriber.calls:
            by_path.setdefault(call.path, []).append(call.value)
        assert set(map(tuple, by_path.values())) == {("first", "x", "y")}

    play(scenario, timeout_ms=20_000)


def test_webhook_that_must_be_asked_first_is_asked(play):
    async def scenario(world: World) -> None:
        await node(world)
        for allowed, status in ((b"headwater", 201), (b"*", 201), (b"headwater.evil", 400), (b"", 400)):

            async def behave(call: Call, allowed: bytes = allowed) -> int | str | bytes:
                if call.method != "OPTIONS":
                    return 204
                assert call.headers["webhook-request-origin"] == "headwater"
                return b"HTTP/1.1 200 OK\r\nWebHook-Allowed-Origin: %b\r\ncontent-length: 0\r\n\r\n" % allowed

            subscriber = await world.subscriber(behave)
            body = {"EndpointUri": subscriber.uri(), "ResourceAddress": NODE_SYNC_STATE}
            assert (await world.ask("POST", f"{V2}/subscriptions", body)).status == status
            assert subscriber.calls[0].method == "OPTIONS"

    play(scenario, webhook_handshake=True)


def test_redirect_is_not_followed(play):
    async def scenario(world: World) -> None:
        id = await node(world)
        target = await world.subscriber()
        answer = f"HTTP/1.1 307 x\r\nlocation: {target.uri()}\r\ncontent-length: 0\r\n\r\n".encode()
        subscriber = await world.subscriber(failing(answer, 100))
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x")
        await subscriber.until(lambda subscriber: subscriber.values.count("x") == 3)
        assert target.calls == []

    play(scenario)


def test_endless_answer_is_cut_off(play):
    async def endless(call: Call) -> int | str | bytes:
        if call.body and call.value != "first":
            return b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n" + bytes(200_000)
        return 204

    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber(endless)
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x", "y")
        await subscriber.got("first", "x", "y")

    play(scenario)


def test_delivery_of_an_unknown_subscription_is_404(play):
    async def scenario(world: World) -> None:
        for method, path in (("GET", "delivery"), ("POST", "resume")):
            answer = await world.ask(method, f"{V2}/subscriptions/none/{path}")
            assert (answer.status, json.loads(answer.body)) == (404, {"error": "subscription not found"})

    play(scenario)


def test_who_slept_through_its_turn_calls_nobody_until_it_has_it_again(play, store, monkeypatch):
    turn = [True]
    monkeypatch.setattr(store, "may_act", lambda: turn[0])

    async def scenario(world: World) -> None:
        id = await node(world)
        subscriber = await world.subscriber()
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        turn[0] = False
        await world.publish(id, "x", "y")
        webhooks = world.app.service.webhooks
        sent = asyncio.get_running_loop().create_future()
        post = webhooks.post

        async def watched(*given: Any, **named: Any) -> Any:
            outcome = await post(*given, **named)
            if not sent.done():
                sent.set_result(outcome)
            return outcome

        monkeypatch.setattr(webhooks, "post", watched)
        assert await sent is NOT_SENT
        assert subscriber.values == ["first"]
        status = await world.until_delivery(subscription, lambda status: not status["is_current"])
        assert (status["standing"], status["failures"]) == ("delivering", 0)
        turn[0] = True
        await subscriber.got("first", "x", "y")

    play(scenario)


def test_who_slept_through_its_turn_registers_nobody(play, store, monkeypatch):
    turn = [True]
    monkeypatch.setattr(store, "may_act", lambda: turn[0])

    async def scenario(world: World) -> None:
        await node(world)
        subscriber = await world.subscriber()
        turn[0] = False
        with pytest.raises(AssertionError):
            await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        assert subscriber.calls == []

    play(scenario)


def test_subscriber_gets_every_current_state_and_none_after_a_newer_event(play):
    async def scenario(world: World) -> None:
        ids = {number: await world.publisher(f"/cluster/node/n{number}{SYNC_STATE}") for number in map(str, range(60))}
        for value, id in ids.items():
            await world.publish(id, value)
        reached, may_go_on = asyncio.Event(), asyncio.Event()

        async def behave(call: Call) -> int:
            if call.value == "5":
                reached.set()
                await may_go_on.wait()
            return 204

        subscriber = await world.subscriber(behave)
        subscription = await world.subscribe(subscriber.uri(), "/sync")
        assert subscriber.values == list(ids)[-32:]
        async with asyncio.timeout(PATIENCE_S):
            await reached.wait()
        await world.publish(ids["3"], "newer 3")
        await world.publish(ids["6"], "newer 6")
        newest = await world.ask("GET", f"{V2}/cluster/node/n6{SYNC_STATE}/CurrentState")
        assert newest.json["data"]["values"][0]["value"] == "newer 6"
        may_go_on.set()
        wanted = [*ids, "newer 3", "newer 6"]
        wanted.remove("6")
        await subscriber.until(lambda it: len(it.values) >= len(wanted))
        assert sorted(subscriber.values) == sorted(wanted)
        assert (await world.ask("PUT", f"{V2}/subscriptions/status/{subscription}")).status == 202
        current = sorted({*wanted} - {"3"})
        await subscriber.until(lambda it: len(it.values) >= len(wanted) + len(current))
        assert sorted(subscriber.values[len(wanted) :]) == current

    play(scenario, timeout_ms=10_000, queue_events_max=10)


def test_states_that_are_owed_follow_where_the_endpoint_is_suspended_meanwhile(play):
    async def scenario(world: World) -> None:
        ids = {number: await world.publisher(f"/cluster/node/n{number}{SYNC_STATE}") for number in map(str, range(40))}
        for value, id in ids.items():
            await world.publish(id, value)
        answers = [204] * 34 + [410]

        async def behave(call: Call) -> int:
            return answers.pop(0) if answers else 204

        subscriber = await world.subscriber(behave)
        subscription = await world.subscribe(subscriber.uri(), "/sync")
        await world.until_delivery(subscription, lambda found: found["standing"] == "suspended")
        await world.ask("POST", f"{V2}/subscriptions/{subscription}/resume")
        await subscriber.until(lambda it: len(it.values) >= 41)
        assert sorted(subscriber.values) == sorted([*ids, "2"]), "that of the 410 comes again"

    play(scenario)


def test_pings_that_come_again_and_again_hold_back_no_state_and_do_not_add_up(play, monkeypatch):
    monkeypatch.setattr(owed_states, "PIECE_STATES", 2)
    values = list("abcde")

    async def scenario(world: World) -> None:
        for value in values:
            await world.publish(await world.publisher(f"/cluster/node/{value}{SYNC_STATE}"), value)
        pings = [0]

        async def behave(call: Call) -> int:
            if 0 < pings[0] < 20:
                pings[0] += 1
                await world.ask("PUT", f"{V2}/subscriptions/status/{subscription}")
            return 204

        subscriber = await world.subscriber(behave)
        subscription = await world.subscribe(subscriber.uri(), "/sync")
        await subscriber.got(*values)
        pings[0] = 1
        await world.ask("PUT", f"{V2}/subscriptions/status/{subscription}")
        await subscriber.until(lambda it: len(it.values) >= 25)
        assert subscriber.values[5:15] == [*values, *values]
        await world.publish(await world.publisher(f"/cluster/node/last{SYNC_STATE}"), "last")
        await subscriber.until(lambda it: it.values.count("last") == 1)

    play(scenario)
