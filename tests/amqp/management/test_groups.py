"""What it takes to list consumer groups: each is looked up by itself, ten times as many at ten times the cost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.amqp.management.groups import ConsumerGroups
from headwater.amqp.positions import stored as stored_module
from headwater.amqp.positions.stored import Change, store
from headwater.core.access import ANYBODY, OpenGuard
from headwater.core.state import kinds_of_log
from headwater.management.logs import LogRights

from ..served import Served

PARTITIONS = 2


class Counted(dict[Any, Any]):
    """A dictionary that counts what is looked at."""

    looks = 0

    def get(self, key: object, default: object = None) -> Any:
        Counted.looks += 1
        return super().get(key, default)

    def items(self) -> Any:
        Counted.looks += len(self)
        return super().items()

    def __iter__(self) -> Iterator[Any]:
        Counted.looks += len(self)
        return super().__iter__()


def looks_of_listing(served: Served, count: int, *, has_node: bool) -> int:
    """How many entries are looked at when so many groups are listed, each with all that there is to know of it."""

    async def lookups() -> int:
        entities = ConsumerGroups(served.container, LogRights(served.store, OpenGuard()))
        if has_node:
            node = await served.container.nodes.node_of("split")
            for number in range(count):
                for partition in range(PARTITIONS):
                    node.positions.group_position(f"g{number}", partition, after=number)
                    node.positions.record_epoch(f"g{number}", partition, 1)
            node.positions._groups = Counted(node.positions._groups)
            node.positions._epochs = Counted(node.positions._epochs)
        else:
            incarnation = served.store.incarnation_of("split")
            changes = [
                Change(f"amqp-group\ng{number}\n{partition}", {"after": number})
                for number in range(count)
                for partition in range(PARTITIONS)
            ]
            await asyncio.to_thread(store, served.store.state, incarnation, changes)
        Counted.looks = 0
        names = await entities.names(ANYBODY)
        listed = [await entities.read(ANYBODY, name) for name in names]
        assert sorted(each["positions"]["1"] for each in listed) == list(range(count))
        return Counted.looks

    served.log("split", partitions=PARTITIONS)
    looks: int = served.run(lookups)
    return looks


def test_groups_of_an_open_log_are_listed_by_looks_in_proportion_to_their_number() -> None:
    with Served() as few, Served() as many:
        one, ten = looks_of_listing(few, 20, has_node=True), looks_of_listing(many, 200, has_node=True)
    assert 0 < ten <= 11 * one


def test_groups_of_a_log_without_a_node_are_read_by_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    load = stored_module.load
    monkeypatch.setattr("headwater.amqp.streams.nodes.load", lambda *given: loads.append(given) or load(*given))
    with Served() as served:
        looks_of_listing(served, 100, has_node=False)
    assert len(loads) == 1  # for the names


def test_what_one_group_has_is_the_same_with_a_node_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    with Served() as served:
        served.log("split", partitions=PARTITIONS)
        kind = kinds_of_log(served.store.incarnation_of("split"))[1]
        served.store.state.put(kind, "amqp-group\na\n1", b'{"after": 7}')
        served.store.state.put(kind, "amqp-epoch\na\n0", b'{"epoch": 3}')

        async def read() -> Any:
            return await ConsumerGroups(served.container, LogRights(served.store, OpenGuard())).read(ANYBODY, "split/a")

        stored = served.run(read)
        assert (stored["positions"], stored["epochs"]) == ({"1": 7}, {"0": 3})
        served.run(lambda: served.container.nodes.node_of("split"))
        assert served.run(read) == stored
