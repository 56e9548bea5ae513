"""Who may do what: tokens, certificates, and everybody's own subscriptions."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headwater.cne.notifications import records
from headwater.cne.notifications.notification import Dialect
from headwater.core import Credentials, Forbidden, Grant, Right, TooManyLogins, Unauthenticated, User
from headwater.storage import Engine

from .builders import NODE_SYNC_STATE
from .world import V1, V2, Call, Subscriber, World

USERS = {
    "consumer": User("consumer", (Grant("cne", frozenset({Right.READ})),)),
    "other": User("other", (Grant("cne", frozenset({Right.READ})),)),
    "producer": User("producer", (Grant("cne", frozenset({Right.APPEND})),)),
    "chief": User("chief", (Grant("*", frozenset(Right)),)),
}


class Doorman:
    """A guard whose users' tokens are their names."""

    is_open = False

    async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
        if credentials is None or credentials.secret not in USERS:
            raise Unauthenticated("who are you")
        return USERS[credentials.secret]

    def authorize(self, user: User, right: Right, log: str) -> None:
        if not user.may(right, log):
            raise Forbidden(user.name, right, log)

    def key(self, name: str) -> bytes | None:
        return None


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


READS = [f"{V2}/subscriptions", f"{V2}/publishers", f"{V1}/subscriptions", f"{V2}{NODE_SYNC_STATE}/CurrentState"]
CHANGES = [
    ("POST", "/subscriptions", "consumer", "producer"),
    ("DELETE", "/subscriptions", "consumer", "producer"),
    ("DELETE", "/subscriptions/x", "consumer", "producer"),
    ("PUT", "/subscriptions/status/x", "consumer", "producer"),
    ("POST", "/subscriptions/x/resume", "consumer", "producer"),
    ("POST", "/publishers", "producer", "consumer"),
    ("DELETE", "/publishers", "producer", "consumer"),
    ("DELETE", "/publishers/x", "producer", "consumer"),
    ("POST", "/create/event", "producer", "consumer"),
    ("POST", "/log", "producer", "consumer"),
]


def test_changes_need_a_token_with_the_right(play):
    async def scenario(world: World) -> None:
        for method, path, may, may_not in CHANGES:
            without = await world.ask(method, V2 + path)
            assert (without.status, without.headers["www-authenticate"][:5]) == (401, "Basic"), path
            assert (await world.ask(method, V2 + path, headers=bearer("nobody"))).status == 401
            assert (await world.ask(method, V2 + path, headers=bearer(may_not))).status == 403, path
            assert (await world.ask(method, V2 + path, headers=bearer(may))).status not in (401, 403), path

    play(scenario, guard=Doorman())


def test_a_login_that_was_not_looked_at_is_to_come_again(play):
    class Crowded(Doorman):
        async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
            raise TooManyLogins(2.0)

    async def scenario(world: World) -> None:
        for path in (f"{V2}/subscriptions", f"{V1}/publishers"):
            answer = await world.ask("GET", path, headers=bearer("consumer"))
            assert (answer.status, answer.headers["retry-after"]) == (429, "2")

    play(scenario, guard=Crowded())


def test_reads_need_one_too_and_health_does_not(play):
    async def scenario(world: World) -> None:
        for path in READS:
            assert (await world.ask("GET", path)).status == 401
            assert (await world.ask("GET", path, headers=bearer("consumer"))).status in (200, 404)
        for path in (f"{V2}/health", f"{V1}/health", "/health", f"{V2}/openapi.json"):
            assert (await world.ask("GET", path)).status == 200

    play(scenario, guard=Doorman())


def test_one_user_may_have_so_many_subscriptions_and_costs_no_other_any(play):
    async def scenario(world: World) -> None:
        subscriber = await world.subscriber()

        async def subscribe(user: str, number: int) -> int:
            body = {"endpointUri": subscriber.uri(f"/{user}/{number}"), "resource": NODE_SYNC_STATE}
            return (await world.ask("POST", f"{V1}/subscriptions", body, headers=bearer(user))).status

        async def publish(user: str, number: int) -> int:
            body = {"ResourceAddress": f"/{user}/{number}"}
            return (await world.ask("POST", f"{V2}/publishers", body, headers=bearer(user))).status

        greedy = await asyncio.gather(*(subscribe("consumer", number) for number in range(5)))
        assert sorted(greedy) == [201, 201, 429, 429, 429]
        assert [await subscribe("other", number) for number in range(3)] == [201, 201, 429]
        assert sorted(await asyncio.gather(*(publish("producer", n) for n in range(3)))) == [201, 201, 429]
        await world.ask("DELETE", f"{V2}/subscriptions", headers=bearer("consumer"))
        assert await subscribe("consumer", 9) == 201

    play(scenario, guard=Doorman(), owner_subscriptions_max=2)


def test_reads_may_be_public(play):
    async def scenario(world: World) -> None:
        for path in READS:
            assert (await world.ask("GET", path)).status in (200, 404)
        assert (await world.ask("POST", f"{V2}/subscriptions", b"{}")).status == 401

    play(scenario, guard=Doorman(), public_reads=True)


async def two_subscriptions(world: World, **of_whom: dict[str, object]) -> list[str]:
    """One of each of two callers; answers the ids."""
    subscriber = await world.subscriber()
    made = []
    for index, caller in enumerate(of_whom.values()):
        body = {"endpointUri": subscriber.uri(f"/{index}"), "resource": "/x"}
        answer = await world.ask("POST", f"{V1}/subscriptions", body, **caller)  # type: ignore[arg-type]
        assert answer.status == 201
        made.append(answer.json["id"])
    return made


async def ids(world: World, **caller: object) -> list[str]:
    answer = await world.ask("GET", f"{V1}/subscriptions", **caller)  # type: ignore[arg-type]
    return [each["id"] for each in answer.json]


def test_delete_of_all_subscriptions_takes_the_callers_own_only(play):
    async def scenario(world: World) -> None:
        mine, theirs = {"headers": bearer("consumer")}, {"headers": bearer("other")}
        _, second = await two_subscriptions(world, mine=mine, theirs=theirs)
        assert (await world.ask("DELETE", f"{V2}/subscriptions", **mine)).status == 204
        assert await ids(world, **mine) == [second]

    play(scenario, guard=Doorman())


def test_one_of_another_may_be_deleted_by_who_manages_the_log_only(play):
    async def scenario(world: World) -> None:
        mine, theirs = {"headers": bearer("consumer")}, {"headers": bearer("other")}
        first, second = await two_subscriptions(world, mine=mine, theirs=theirs)
        assert (await world.ask("DELETE", f"{V2}/subscriptions/{second}", **mine)).status == 403
        assert (await world.ask("DELETE", f"{V2}/subscriptions/{first}", **mine)).status == 204
        assert (await world.ask("DELETE", f"{V2}/subscriptions/{second}", headers=bearer("chief"))).status == 204

    play(scenario, guard=Doorman())


def test_without_users_callers_are_told_apart_by_their_address(play):
    async def scenario(world: World) -> None:
        first, _ = await two_subscriptions(world, mine={"peer": "10.0.0.1"}, theirs={"peer": "10.0.0.2"})
        await world.ask("DELETE", f"{V2}/subscriptions", peer="10.0.0.2")
        assert await ids(world) == [first]
        assert (await world.ask("DELETE", f"{V2}/subscriptions/{first}", peer="10.0.0.3")).status == 204

    play(scenario)


def test_delete_of_all_may_be_limited_to_one_endpoint(play):
    async def scenario(world: World) -> None:
        first, second = await two_subscriptions(world, one={}, two={})
        uri = world.app.service.subscriptions.by_id[second].endpoint
        assert (await world.ask("DELETE", f"{V2}/subscriptions", query=f"EndpointUri={uri}")).status == 204
        assert await ids(world) == [first]

    play(scenario)


async def of_two_callers(world: World, path: str) -> tuple[str, list[str]]:
    """One of each of two endpoints, made from one address; the first one's HOST:PORT, and the ids."""
    endpoints = [await world.subscriber(), await world.subscriber()]
    made = []
    for index, endpoint in enumerate(endpoints):
        body = {"EndpointUri": endpoint.uri("/events"), "ResourceAddress": f"/x/{index}"}
        body |= {"endpointUri": endpoint.uri("/events"), "resource": f"/x/{index}"}
        answer = await world.ask("POST", f"{V1}/{path}", body)
        assert answer.status == 201, answer.body
        made.append(answer.json["id"])
    return endpoints[0].uri("").removeprefix("http://").partition("/")[0], made


@pytest.mark.parametrize("path", ["subscriptions", "publishers"])
def test_an_address_does_not_stand_for_all_who_call_from_it(play, path):
    async def scenario(world: World) -> None:
        place, (first, second) = await of_two_callers(world, path)
        refused = await world.ask("DELETE", f"{V1}/{path}")
        assert refused.status == 400 and "give ?EndpointUri=HOST:PORT" in refused.json["error"]
        assert [each["id"] for each in (await world.ask("GET", f"{V1}/{path}")).json] == [first, second]
        assert (await world.ask("DELETE", f"{V2}/{path}")).status == 400
        done = await world.ask("DELETE", f"{V1}/{path}", query=f"EndpointUri={place}")
        assert done.status == 200
        assert [each["id"] for each in (await world.ask("GET", f"{V1}/{path}")).json] == [second]
        assert (await world.ask("DELETE", f"{V1}/{path}")).status == 200, "there is one left, so it is no guess"
        assert (await world.ask("GET", f"{V1}/{path}")).json == []

    play(scenario)


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("Cloud.example.:9043", "cloud.example:9043"),
        ("[::1]:9043", "[::1]:9043"),
        ("10.0.0.1", "10.0.0.1"),
        ("evil.example/x?", "127.0.0.1:9043"),
        ("user@evil.example", "127.0.0.1:9043"),
        ('a"><script>', "127.0.0.1:9043"),
        ("evil%2eexample&x=1", "127.0.0.1:9043"),
        ("x" * 400, "127.0.0.1:9043"),
        ("", "127.0.0.1:9043"),
    ],
)
def test_location_has_a_host_that_is_one(play, host, shown):
    async def scenario(world: World) -> None:
        body = {"ResourceAddress": NODE_SYNC_STATE}
        made = await world.ask("POST", f"{V2}/publishers", body, headers={"host": host})
        base, _, id = made.json["UriLocation"].rpartition("/")
        assert (base, id) == (f"http://{shown}{V2}/publishers", made.json["SubscriptionId"])

    play(scenario)


@pytest.mark.parametrize("base", [V1, V2])
def test_answer_does_not_tell_a_refused_port_from_a_wrong_status(play, base, caplog):
    async def scenario(world: World) -> None:
        await world.publisher(NODE_SYNC_STATE)

        async def answering(answer: int | str) -> str:
            async def behave(call: Call) -> int | str | bytes:
                return answer

            return (await world.subscriber(behave)).uri()

        async def slow(call: Call) -> int | str | bytes:
            await asyncio.sleep(5)
            return 204

        closed = await Subscriber().start()
        await closed.stop()
        uris = [closed.uri(), await answering(200), await answering(404), await answering("reset")]
        uris += ["http://no-such-name.invalid:80/"] + ([(await world.subscriber(slow)).uri()] if base == V2 else [])
        told = set()
        for uri in uris:
            body = {"EndpointUri": uri, "ResourceAddress": NODE_SYNC_STATE}
            answer = await world.ask("POST", f"{base}/subscriptions", body)
            told.add((answer.status, answer.body, answer.problem))
        [(status, _, problem)] = told
        assert status == 400 and "204" in problem and "cne.hosts" in problem
        lines = [record.getMessage() for record in caplog.records if "was not registered" in record.getMessage()]
        assert len(lines) == len(uris) and "answered 404" in lines[2], "the operator is told what it was"
        assert len({line.partition(";")[2] for line in lines}) >= 4

    with caplog.at_level("INFO", "headwater.cne"):
        play(scenario, timeout_ms=2000)


@pytest.mark.parametrize("path", ["subscriptions", "publishers"])
def test_delete_of_all_is_a_few_changes_of_the_state_and_lets_others_in_between(run, tmp_path, path):
    """Each change waits for the disk: one for each of thousands took minutes."""
    count = 2500

    async def scenario(world: World) -> None:
        registry = getattr(world.app.service, path)
        for number in range(count):
            body = {"ResourceAddress": f"/cluster/node-{number}/sync", "EndpointUri": f"http://127.0.0.1:9/{number}"}
            request = records.request_of(body, Dialect.V2, needs_endpoint=True)
            more = {"start": 0} if path == "subscriptions" else {}
            made = registry.record_of(request, Dialect.V2, "address:127.0.0.1", "http://cloud", **more)
            world.store.state.put(f"cne/{path[:-1]}", made.id, msgspec.json.encode(made), is_durable=False)
            registry.by_id[made.id] = made
        changes = []
        world.store.state.journal.append = counted(world.store.state.journal.append, changes)
        deletion = asyncio.ensure_future(world.ask("DELETE", f"{V2}/{path}"))
        await asyncio.sleep(0)
        assert (await world.ask("GET", f"{V2}/health")).status == 200
        assert not deletion.done()
        assert (await deletion).status == {"subscriptions": 204, "publishers": 200}[path]
        assert 0 < len(changes) <= 10
        assert (await world.ask("GET", f"{V2}/{path}")).json == []
        assert list(world.store.state.items(f"cne/{path[:-1]}")) == []

    async def within() -> None:
        with Engine(tmp_path) as engine:
            async with World(engine) as world:
                await scenario(world)

    run(within())


def counted(method: Any, calls: list[object]) -> Any:
    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return method(*args, **kwargs)

    return counting


def test_a_consumer_that_finds_its_subscriptions_there_deletes_all_and_makes_them_again(play):
    """What the consumer of cloud-event-proxy does when it starts again, on a node where it is the only one."""

    async def scenario(world: World) -> None:
        endpoint = await world.subscriber()
        await world.publisher(NODE_SYNC_STATE)
        body = {"EndpointUri": endpoint.uri("/event"), "ResourceAddress": NODE_SYNC_STATE}
        other = body | {"EndpointUri": endpoint.uri("/other")}
        assert [(await world.ask("POST", f"{V2}/subscriptions", each)).status for each in (body, other)] == [201, 201]
        assert (await world.ask("POST", f"{V2}/subscriptions", body)).status == 409
        assert (await world.ask("DELETE", f"{V2}/subscriptions")).status == 204
        assert (await world.ask("POST", f"{V2}/subscriptions", body)).status == 201

    play(scenario)


@pytest.mark.parametrize("given", ["http://HOST/1", "http://HOST", "HOST"])
def test_an_endpoint_is_chosen_by_its_uri_its_origin_or_its_authority(play, given):
    async def scenario(world: World) -> None:
        first, second = await two_subscriptions(world, one={}, two={})
        uri = world.app.service.subscriptions.by_id[second].endpoint
        place = uri.removeprefix("http://").partition("/")[0]
        query = f"EndpointUri={given.replace('HOST', place)}"
        assert (await world.ask("DELETE", f"{V2}/subscriptions", query=query)).status == 204
        assert await ids(world) == ([first] if given.endswith("/1") else [])

    play(scenario)


def certificate(name: str) -> dict[str, object]:
    return {"extensions": {"tls": {"client_cert_name": name}}}


def test_changes_may_need_a_client_certificate(play):
    async def scenario(world: World) -> None:
        for method, path, _, _ in CHANGES:
            assert (await world.ask(method, V2 + path)).status == 401
        for path in READS:
            assert (await world.ask("GET", path)).status in (200, 404)
        mine, theirs = certificate("CN=a"), certificate("CN=b")
        first, second = await two_subscriptions(world, mine=mine, theirs=theirs)
        assert (await world.ask("DELETE", f"{V2}/subscriptions/{second}", **mine)).status == 403
        assert (await world.ask("DELETE", f"{V2}/subscriptions", **mine)).status == 204
        assert await ids(world) == [second]
        assert first != second

    play(scenario, client_certificates=True)


def test_certificate_and_token_may_both_be_needed(play):
    async def scenario(world: World) -> None:
        path, token = f"{V2}/subscriptions", bearer("consumer")
        assert (await world.ask("DELETE", path, headers=token)).status == 401
        assert (await world.ask("DELETE", path, **certificate("CN=a"))).status == 401
        assert (await world.ask("DELETE", path, headers=token, **certificate("CN=a"))).status == 204

    play(scenario, guard=Doorman(), client_certificates=True)


@pytest.mark.parametrize("base", [V1, V2])
def test_refusal_has_the_form_of_its_version(play, base):
    async def scenario(world: World) -> None:
        answer = await world.ask("GET", f"{base}/subscriptions")
        assert bool(answer.body) == (base == V1)

    play(scenario, guard=Doorman())
