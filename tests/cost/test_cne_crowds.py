"""Cloud Native Events with many subscriptions, publishers, states: no event and no list holds the event loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headwater.storage import Engine

from .crowds import CNE, RESOURCES, crowded, publish, publishers, subscriptions, webhooks, write_records
from .measuring import ObservedServer

NODES = (500, 2_000)
CROWD = 10_000
JSON = "application/json"


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedServer]:
    """It has the states of three sites, of NODES."""
    with crowded(tmp_path_factory.mktemp("states"), lambda engine: None) as server:
        publish(server, (f"/c/s{count}/n{n}/sync/{r}" for count in NODES for n in range(count) for r in RESOURCES))
        assert server.exchange("GET", f"{CNE}/c/s{NODES[0]}/n1/sync/CurrentState", b"", "") == 200
        yield server


@pytest.mark.parametrize("pattern", ["/c/s{}/*/sync", "/c/s{}"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_current_states_of_many_nodes(states: ObservedServer, version: str, pattern: str) -> None:
    statuses = set()

    def ask(count: int) -> None:
        path = f"/ocloudNotifications/{version}{pattern.format(count)}/CurrentState"
        statuses.add(states.exchange("GET", path, b"", ""))

    states.check_growth(f"CurrentState of {pattern}", ask, NODES[-1])
    assert statuses == {200}


@pytest.mark.parametrize("pattern", ["/c/*/n1-{}/sync", "/*/*/*/sync/none-{}"])
def test_current_state_of_a_pattern_that_matches_nothing(states: ObservedServer, pattern: str) -> None:
    """Each is new, so that no answer is remembered."""
    numbers = iter(range(1_000_000))
    path = f"{CNE}{pattern}/CurrentState"
    states.check_holds("no state", lambda: states.exchange("GET", path.format(next(numbers)), b"", ""))


def test_greeting_of_a_subscription_and_a_ping(states: ObservedServer) -> None:
    """Of some of the states; the others are looked through."""
    numbers = iter(range(1_000_000))
    statuses = set()
    with webhooks() as uri:

        def subscribe() -> None:
            number = next(numbers)
            asked = {"ResourceAddress": f"/c/*/n{number}/sync", "EndpointUri": uri.format(number)}
            statuses.add(states.exchange("POST", f"{CNE}/subscriptions", json.dumps(asked).encode(), JSON))

        states.check_holds("a subscription", subscribe)
        asked = {"ResourceAddress": f"/c/s{NODES[0]}/*", "EndpointUri": uri.format("all")}
        made = states.made("POST", f"{CNE}/subscriptions", asked)
        path = f"{CNE}/subscriptions/status/{made['SubscriptionId']}"
        states.check_holds("a ping", lambda: statuses.add(states.exchange("PUT", path, b"", JSON)))
        assert states.exchange("DELETE", f"{CNE}/subscriptions", b"", JSON) in (204, 400)
    assert statuses == {201, 202}


def test_lists_and_deleting_of_all_of_an_owner(tmp_path: Path) -> None:
    def fill(engine: Engine) -> None:
        write_records(engine, "subscription", subscriptions(CROWD, "http://127.0.0.1:9/{}"))
        write_records(engine, "publisher", publishers(CROWD))

    with crowded(tmp_path, fill) as server:
        for what in ("subscriptions", "publishers"):
            server.check_holds(f"list of {what}", partial(server.exchange, "GET", f"{CNE}/{what}", b"", ""))
        server.check_holds("query", partial(server.exchange, "GET", "/management/subscription", b"", ""))
        for what in ("subscriptions", "publishers"):
            server.check_holds(
                f"own {what}", partial(server.exchange, "DELETE", f"{CNE}/{what}?EndpointUri=x", b"", "")
            )
        statuses = []
        server.check_holds(
            "deleting all", lambda: statuses.append(server.exchange("DELETE", f"{CNE}/subscriptions", b"", "")), tries=1
        )
        assert statuses == [204]
        assert server.exchange("GET", f"{CNE}/subscriptions", b"", "") == 200


def test_start_with_many_subscriptions(tmp_path: Path) -> None:
    """Their log is deleted, and made anew: delivery ends, and begins again."""
    with (
        webhooks() as uri,
        crowded(tmp_path, lambda engine: write_records(engine, "subscription", subscriptions(CROWD, uri))) as server,
    ):
        publish(server, ["/c/first/sync/x"])

        def begin_again() -> None:
            assert server.exchange("DELETE", "/logs/cne", b"", "") == 204
            publish(server, ["/c/first/sync/x"])

        server.check_holds("delivery begins", begin_again)


@pytest.mark.parametrize("resource", ["/./n{}/sync", "/sync"])
def test_routing_to_many_subscriptions(tmp_path: Path, resource: str) -> None:
    with (
        webhooks() as uri,
        crowded(
            tmp_path, lambda engine: write_records(engine, "subscription", subscriptions(CROWD, uri, resource))
        ) as server,
    ):
        publish(server, ["/c/first/sync/x"])
        server.settle()
        numbers = iter(range(1_000_000))
        server.check_holds(
            f"an event that {resource} asks for",
            lambda: publish(server, [f"/c/n{next(numbers)}/sync/ptp-status/lock-state"]),
        )
