"""The endpoint table, row by row, v1 and v2: status codes, bodies, and what they do."""

from __future__ import annotations

import asyncio
import json

import pytest

from headwater.cne import server

from .builders import NODE_SYNC_STATE, SYNC_STATE, bare, text, v1_value, wrapped
from .world import V1, V2, Call, World

UNKNOWN = "11111111-2222-3333-4444-555555555555"


async def known(world: World, resource: str = NODE_SYNC_STATE) -> str:
    """A resource with a current state; answers its publisher's id."""
    id = await world.publisher(resource)
    await world.publish(id, "LOCKED")
    return id


def test_v2_subscription_is_made_shown_and_deleted(play):
    async def scenario(world: World) -> None:
        await known(world)
        subscriber = await world.subscriber()
        body = {"EndpointUri": subscriber.uri(), "ResourceAddress": NODE_SYNC_STATE, "SubscriptionId": "mine",
                "UriLocation": "http://elsewhere"}  # fmt: skip
        made = await world.ask("POST", f"{V2}/subscriptions", body)
        id = made.json["SubscriptionId"]
        location = f"http://cloud:9043{V2}/subscriptions/{id}"
        shown = {**body, "SubscriptionId": id, "UriLocation": location}
        assert (made.status, made.json, made.headers["location"]) == (201, shown, location)
        assert id != "mine"
        assert (await world.ask("GET", f"{V2}/subscriptions")).json == [shown]
        assert (await world.ask("GET", f"{V2}/subscriptions/")).json == [shown]
        found = await world.ask("GET", f"{V2}/subscriptions/{id}")
        assert (found.status, found.json) == (200, shown)
        gone = await world.ask("DELETE", f"{V2}/subscriptions/{id}")
        assert (gone.status, gone.body) == (204, b"")
        assert (await world.ask("GET", f"{V2}/subscriptions")).body == b"[]"

    play(scenario)


def test_v1_subscription_is_made_shown_and_deleted(play):
    async def scenario(world: World) -> None:
        subscriber = await world.subscriber()
        body = {"endpointUri": subscriber.uri(), "resource": "test/test"}
        made = await world.ask("POST", f"{V1}/subscriptions", body)
        id = made.json["id"]
        shown = {**body, "id": id, "uriLocation": f"http://cloud:9043{V1}/subscriptions/{id}"}
        assert (made.status, made.json) == (201, shown)
        again = await world.ask("POST", f"{V1}/subscriptions", body)
        assert (again.status, again.json) == (201, shown)
        assert (await world.ask("GET", f"{V1}/subscriptions")).json == [shown]
        assert (await world.ask("GET", f"{V1}/subscriptions/{id}")).json == shown
        gone = await world.ask("DELETE", f"{V1}/subscriptions/{id}")
        assert (gone.status, gone.json) == (200, {"status": "OK"})
        gone = await world.ask("DELETE", f"{V1}/subscriptions")
        assert (gone.status, gone.json) == (200, {"status": "deleted all subscriptions"})
        for method in ("GET", "DELETE"):
            lost = await world.ask(method, f"{V1}/subscriptions/{id}")
            assert (lost.status, lost.json) == (400, {"error": "subscription not found"})

    play(scenario)


def test_v1_subscription_may_have_no_endpoint(play):
    async def scenario(world: World) -> None:
        made = await world.ask("POST", f"{V1}/subscriptions", {"resource": "/mock"})
        assert (made.status, made.json["endpointUri"]) == (201, "")
        assert (await world.delivery(made.json["id"]))["standing"] == "none"

    play(scenario)


def test_v2_errors_have_an_empty_body_and_the_reason_in_a_header(play):
    async def scenario(world: World) -> None:
        await known(world)
        subscriber = await world.subscriber()
        good = {"EndpointUri": subscriber.uri(), "ResourceAddress": NODE_SYNC_STATE}
        await world.subscribe(**{"uri": good["EndpointUri"], "resource": NODE_SYNC_STATE})
        cases = [
            (400, b"", "malformed"),
            (400, b"{", "malformed"),
            (400, b"[]", "array"),
            (400, {"EndpointUri": subscriber.uri()}, "$.ResourceAddress"),
            (400, {"ResourceAddress": NODE_SYNC_STATE}, "$.EndpointUri"),
            (400, {**good, "ResourceAddress": 5}, "$.ResourceAddress"),
            (400, {**good, "ResourceAddress": "/" * 2000}, "$.ResourceAddress"),
            (400, {**good, "EndpointUri": "no uri"}, "$.EndpointUri"),
            (400, {**good, "EndpointUri": "ftp://127.0.0.1/x"}, "$.EndpointUri"),
            (400, {**good, "EndpointUri": "http://10.1.2.3/x"}, "is not allowed for webhooks"),
            (400, {**good, "EndpointUri": "http://u:p@127.0.0.1/x"}, "password"),
            (400, {**good, "EndpointUri": "http://127.0.0.1:1/x"}, "204"),
            (400, {**good, "DeliveryMode": "pigeon"}, "DeliveryMode"),
            (404, {**good, "ResourceAddress": "/cluster/node/notfound"}, "there is no event"),
            (409, good, "the same"),
        ]
        for status, body, reason in cases:
            answer = await world.ask("POST", f"{V2}/subscriptions", body)
            assert (answer.status, answer.body) == (status, b""), body
            assert reason in answer.problem, answer.problem
        for method in ("GET", "DELETE"):
            answer = await world.ask(method, f"{V2}/subscriptions/{UNKNOWN}")
            assert (answer.status, answer.body) == (404, b"")
        answer = await world.ask("GET", f"{V2}/nowhere/CurrentState")
        assert (answer.status, answer.body) == (404, b"")

    play(scenario)


def test_v1_errors_say_why_in_the_body(play):
    async def scenario(world: World) -> None:
        for body in (
            b"",
            b"{",
            {"endpointUri": "http://127.0.0.1:1/"},
            {"resource": "/x", "endpointUri": "http://10.0.0.1/"},
        ):
            answer = await world.ask("POST", f"{V1}/subscriptions", body)
            assert answer.status == 400 and answer.json["error"], body
        answer = await world.ask("GET", f"{V1}/nowhere/CurrentState")
        assert answer.status == 400 and "nowhere" in answer.json["error"]

    play(scenario)


def test_greeting_of_v2_is_the_current_state_under_a_fresh_id(play):
    async def scenario(world: World) -> None:
        await known(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        state = (await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")).json
        (call,) = subscriber.calls
        assert (call.method, call.headers["content-type"]) == ("POST", "application/json")
        assert call.json["id"] != state["id"]
        assert {**call.json, "id": ""} == {**state, "id": ""}

    play(scenario)


def test_greeting_of_a_resource_with_a_publisher_but_no_event_is_empty(play):
    async def scenario(world: World) -> None:
        await world.publisher(NODE_SYNC_STATE)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        assert [call.body for call in subscriber.calls] == [b""]

    play(scenario)


@pytest.mark.parametrize("answer", [200, 202, 302, 404, 500, "reset", b"nonsense\r\n\r\n"])
@pytest.mark.parametrize("base", [V1, V2])
def test_greeting_must_be_answered_204(play, base, answer):
    async def behave(call: Call) -> int | str | bytes:
        return answer

    async def scenario(world: World) -> None:
        await known(world)
        subscriber = await world.subscriber(behave)
        body = {"EndpointUri": subscriber.uri(), "ResourceAddress": NODE_SYNC_STATE}
        assert (await world.ask("POST", f"{base}/subscriptions", body)).status == 400
        assert (await world.ask("GET", f"{base}/subscriptions")).json == []

    play(scenario)


def test_greeting_of_v1_is_an_empty_post(play):
    async def scenario(world: World) -> None:
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), "/anything", V1)
        (call,) = subscriber.calls
        assert (call.method, call.body, call.headers["content-type"]) == ("POST", b"", "application/json")

    play(scenario)


def test_same_subscription_at_the_same_time_is_made_once(play):
    async def scenario(world: World) -> None:
        await known(world)
        subscriber = await world.subscriber()
        body = {"EndpointUri": subscriber.uri(), "ResourceAddress": NODE_SYNC_STATE}
        answers = await asyncio.gather(*(world.ask("POST", f"{V2}/subscriptions", body) for _ in range(5)))
        assert sorted(answer.status for answer in answers) == [201, 409, 409, 409, 409]

    play(scenario)


@pytest.mark.parametrize("other", [f"{NODE_SYNC_STATE}/", NODE_SYNC_STATE[1:], f"/{NODE_SYNC_STATE}",
                                   NODE_SYNC_STATE.replace("/sync/", "//sync/")])  # fmt: skip
def test_same_address_with_other_slashes_is_the_same_pair(play, other):
    async def scenario(world: World) -> None:
        subscriber = await world.subscriber()
        id = await known(world)
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        body = {"EndpointUri": subscriber.uri(), "ResourceAddress": other}
        assert (await world.ask("POST", f"{V2}/subscriptions", body)).status == 409
        assert await world.publisher(other) == id
        body = {"EndpointUri": subscriber.uri("/new"), "ResourceAddress": other}
        answers = await asyncio.gather(*[world.ask("POST", f"{V2}/subscriptions", each) for each in (
            body, body | {"ResourceAddress": NODE_SYNC_STATE})])  # fmt: skip
        assert sorted(answer.status for answer in answers) == [201, 409]

    play(scenario)


def test_publishers(play):
    async def scenario(world: World) -> None:
        endpoint = await world.subscriber()
        body = {"ResourceAddress": NODE_SYNC_STATE, "EndpointUri": endpoint.uri()}
        made = await world.ask("POST", f"{V2}/publishers", body)
        assert made.status == 201 and made.json["ResourceAddress"] == NODE_SYNC_STATE
        assert [call.body for call in endpoint.calls] == [b""]
        again = await world.ask("POST", f"{V1}/publishers", {"resource": NODE_SYNC_STATE})
        id = made.json["SubscriptionId"]
        assert (again.status, again.json["id"], again.json["resource"]) == (201, id, NODE_SYNC_STATE)
        assert (await world.ask("GET", f"{V2}/publishers")).json == [made.json]
        assert (await world.ask("GET", f"{V2}/publishers/{id}")).json == made.json
        assert (await world.ask("GET", f"{V2}/publishers/{UNKNOWN}")).status == 400
        for each in (UNKNOWN, id, id):
            assert (await world.ask("DELETE", f"{V2}/publishers/{each}")).status == 200
        assert (await world.ask("GET", f"{V2}/publishers")).json == []
        gone = await world.ask("DELETE", f"{V1}/publishers")
        assert (gone.status, gone.json) == (200, {"status": "deleted all publishers"})
        refused = await world.ask("POST", f"{V2}/publishers", {**body, "EndpointUri": "http://127.0.0.1:1/"})
        assert refused.status == 400 and "204" in refused.json["error"]
        assert (await world.ask("POST", f"{V2}/publishers", b"")).status == 400

    play(scenario)


@pytest.mark.parametrize("base", [V1, V2])
def test_event_of_an_unknown_publisher_is_refused(play, base):
    async def scenario(world: World) -> None:
        answer = await world.ask("POST", f"{base}/create/event", bare(id=UNKNOWN))
        assert answer.status == 400
        assert answer.json["error"].startswith(f"no publisher data for id {UNKNOWN}")

    play(scenario)


@pytest.mark.parametrize("base", [V1, V2])
def test_log_writes_into_the_servers_diary_and_into_no_log(play, base, caplog):
    async def scenario(world: World) -> None:
        with caplog.at_level("INFO", "headwater.cne.events"):
            answer = await world.ask("POST", f"{base}/log", bare())
        assert (answer.status, answer.json) == (202, {"status": "Event published to log"})
        assert "LOCKED" in caplog.text
        assert world.store.names() == []
        assert (await world.ask("POST", f"{base}/log", b"?")).status == 400

    play(scenario)


@pytest.mark.parametrize("base", [V1, V2])
def test_health_dummies_and_ping(play, base):
    async def scenario(world: World) -> None:
        health = await world.ask("GET", f"{base}/health")
        assert (health.status, health.body, health.headers["content-type"]) == (200, b"OK", "text/plain; charset=utf-8")
        head = await world.ask("HEAD", f"{base}/health")
        assert (head.status, head.body, head.headers) == (200, b"", health.headers)
        assert (await world.ask("HEAD", f"{base}/dummy")).status == 405
        for path in ("dummy", "dummy2"):
            answer = await world.ask("POST", f"{base}/{path}", b"anything")
            assert (answer.status, answer.body) == (204, b"")
        lost = await world.ask("PUT", f"{base}/subscriptions/status/{UNKNOWN}")
        assert (lost.status, lost.json) == (400, {"error": "subscription not found"})
        await known(world)
        subscriber = await world.subscriber()
        id = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE, base)
        greetings = len(subscriber.calls)
        sent = await world.ask("PUT", f"{base}/subscriptions/status/{id}")
        assert (sent.status, sent.json) == (202, {"status": "ping sent"})
        await subscriber.until(lambda subscriber: len(subscriber.calls) > greetings)
        assert subscriber.calls[-1].value == "LOCKED"

    play(scenario)


@pytest.mark.parametrize(
    ("method", "path"),
    [("PATCH", "/subscriptions"), ("POST", "/health"), ("GET", "/create/event"), ("DELETE", "/x/CurrentState")],
)
def test_wrong_method_is_405_without_a_body(play, method, path):
    async def scenario(world: World) -> None:
        answer = await world.ask(method, V2 + path)
        assert answer.status == 405
        assert answer.headers["allow"]

    play(scenario)


@pytest.mark.parametrize(
    "path",
    [
        "/api",
        "/api/ocloudNotifications",
        "/api/ocloudNotifications/v3/health",
        f"{V2}x",
        f"{V2}resourceDoesNotExist/CurrentState",
        f"{V2}/nothing",
        f"{V2}/CurrentState",
        f"{V2}/%ff/x",
    ],
)
def test_unknown_path_is_404_without_a_body(play, path):
    async def scenario(world: World) -> None:
        answer = await world.ask("GET", path)
        assert (answer.status, answer.body) == (404, b"")

    play(scenario)


@pytest.mark.parametrize(
    "prefix",
    [
        "/api/ocloudNotifications",
        "/ocloudNotifications",
        "/api/cloudNotifications",
        "/OcloudNotifications",
        "/API/OCLOUDNOTIFICATIONS",
    ],
)
def test_every_prefix_of_the_field_is_served(play, prefix):
    async def scenario(world: World) -> None:
        assert (await world.ask("GET", f"{prefix}/v1/health")).body == b"OK"
        made = await world.ask("POST", f"{prefix}/v2/publishers", {"ResourceAddress": "/mock"})
        assert made.json["UriLocation"].startswith(f"http://cloud:9043{prefix}/v2/publishers/")
        assert (await world.ask("GET", f"{prefix}/v2/SUBSCRIPTIONS")).body == b"[]"

    play(scenario)


def test_aliases_of_other_vendors(play):
    async def scenario(world: World) -> None:
        assert (await world.ask("GET", "/health")).json == {"health": True}
        assert (await world.ask("GET", "/ocloudNotifications/api_versions")).json == {
            "SubscriptionVersion": ["v1", "v2"]
        }

    play(scenario)


def test_two_slashes_in_a_path_are_redirected_to_one(play):
    async def scenario(world: World) -> None:
        answer = await world.ask("GET", f"{V2}//cluster//node/x/CurrentState", query="a=b")
        assert (answer.status, answer.headers["location"]) == (301, f"{V2}/cluster/node/x/CurrentState?a=b")
        assert (await world.ask("GET", "//evil.example/x")).headers["location"] == "/evil.example/x"

    play(scenario)


def test_schemas_and_the_openapi_document_are_served(play):
    async def scenario(world: World) -> None:
        names = (await world.ask("GET", f"{V2}/schemas")).json
        assert names == list(server.SCHEMAS)
        for name in names:
            answer = await world.ask("GET", f"{V1}/schemas/{name}")
            assert answer.headers["content-type"] == "application/schema+json"
            assert answer.json["$id"] == f"urn:headwater:schema:cne:{name}"
        assert (await world.ask("GET", f"{V2}/schemas/none")).status == 404
        assert set((await world.ask("GET", f"{V2}/openapi.json")).json["components"]["schemas"]) == {
            name for name in names if not name.startswith("accepted-")
        }

    play(scenario)


def test_body_over_its_limit_is_413_and_a_compressed_one_415(play):
    async def scenario(world: World) -> None:
        assert (await world.ask("POST", f"{V2}/create/event", bytes(1024 * 1024 + 1))).status == 413
        packed = await world.ask("POST", f"{V2}/create/event", b"x", headers={"content-encoding": "gzip"})
        assert packed.status == 415

    play(scenario)


def test_event_over_64_kib_as_it_is_delivered_is_413(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(SYNC_STATE)
        overhead = 0
        for length in (65_536, 65_000):
            event = bare(v1_value(value="x" * length), id=id)
            answer = await world.ask("POST", f"{V1}/create/event", event)
            overhead = max(overhead, len(text(event)) - length)
            assert answer.status == (413 if length == 65_536 else 202), answer.body
        spread = json.dumps(bare(id=id), indent=4).replace("    ", " " * 4000).encode()
        assert len(spread) > 65_536
        assert (await world.ask("POST", f"{V1}/create/event", spread)).status == 202

    play(scenario)


def test_limit_of_an_event_is_a_setting(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(SYNC_STATE)
        event = bare(v1_value(value="x" * 2000), id=id)
        answer = await world.ask("POST", f"{V1}/create/event", event)
        assert answer.status == 413 and "1024" in answer.json["error"]

    play(scenario, event_bytes_max=1024)


def test_there_are_no_more_subscriptions_than_are_allowed(play):
    async def scenario(world: World) -> None:
        subscriber = await world.subscriber()
        for number in range(2):
            await world.subscribe(subscriber.uri(f"/{number}"), "/x", V1)
        body = {"endpointUri": subscriber.uri("/2"), "resource": "/x"}
        assert (await world.ask("POST", f"{V1}/subscriptions", body)).status == 429
        for number in range(3):
            answer = await world.ask("POST", f"{V2}/publishers", {"ResourceAddress": f"/{number}"})
            assert answer.status == (201 if number < 2 else 429)

    play(scenario, subscriptions_max=2)


def test_stopped_front_end_takes_nothing_new(play):
    async def scenario(world: World) -> None:
        world.app.stop()
        answer = await world.ask("POST", f"{V2}/create/event", wrapped())
        assert answer.status == 503 and answer.headers["retry-after"]

    play(scenario)


def test_routes_of_v1_that_are_not_there_say_so_in_its_form(play):
    async def scenario(world: World) -> None:
        for _ in range(2):  # the way of a path is remembered
            assert (await world.ask("GET", f"{V1}/nothing/here")).body
            assert not (await world.ask("GET", f"{V2}/nothing/here")).body

    play(scenario)
