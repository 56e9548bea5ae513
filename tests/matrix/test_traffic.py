"""What each protocol is said to have taken in and given out, by writers and readers of all of them."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from ..waiting import eventually
from .cases import CASES
from .readers import READERS
from .world import World
from .writers import WRITERS

PLAIN = next(case for case in CASES if case.name == "plain")
NOTIFICATION = next(case for case in CASES if case.name == "notification")
SERVED_BY = {"amqp": "amqp", "cne": "cne", "flight": "flight", "futoin": "futoin", "webhook": "cne"}
"""By how their names begin; all others speak HTTP."""


def protocol_of(name: str) -> str:
    return next((protocol for word, protocol in SERVED_BY.items() if name.startswith(word)), "http")


def traffic(world: World) -> dict[tuple[str, str], int]:
    families = text_string_to_metric_families(world.call("GET", "/metrics").body.decode())
    return {
        (sample.labels["protocol"], sample.labels["direction"]): int(sample.value)
        for family in families
        for sample in family.samples
        if sample.name == "headwater_events_total"
    }


def grown(world: World, before: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """By how much, where it did."""
    return {key: count - before[key] for key, count in traffic(world).items() if count != before[key]}


def until_grown(world: World, before: dict[tuple[str, str], int], by: dict[tuple[str, str], int]) -> None:
    """Wait until it has grown by that, and by nothing else."""
    eventually(lambda: grown(world, before) == by, lambda: (by, grown(world, before)))


def test_each_protocol_counts_the_events_that_came_in_by_it(world: World) -> None:
    for writer in WRITERS:
        before, protocol = traffic(world), protocol_of(writer.name)
        world.write(writer, NOTIFICATION if protocol == "cne" else PLAIN)
        expected = {(protocol, "in"): 1, **({("cne", "out"): 1} if protocol == "cne" else {})}
        until_grown(world, before, expected)


def test_each_protocol_counts_the_events_that_went_out_by_it(world: World) -> None:
    nothing = traffic(world)
    writer = next(writer for writer in WRITERS if writer.name == "amqp")
    world.write(writer, replace(PLAIN, name="before reading"))
    until_grown(world, nothing, {("amqp", "in"): 1})
    world.look()
    for reader in READERS:
        protocol = protocol_of(reader.name)
        if protocol == "cne":
            continue  # webhooks are above; a state that is asked for is a state
        before = traffic(world)
        seen = len(reader.read(world))
        assert seen, reader.name
        until_grown(world, before, {(protocol, "out"): seen})


def test_what_was_appended_before_does_not_count_again(world: World) -> None:
    event = b'{"events":[{"type":"T","id":"only-once","source":"/s"}]}'
    before = traffic(world)
    for _ in range(3):
        assert world.post("/logs/matrix/append", event).status == 200
    assert grown(world, before)["http", "in"] == 1
