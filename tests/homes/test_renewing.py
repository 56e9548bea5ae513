"""A home that lost its newest: when a person has accepted that, no number of it is given a second time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.core.errors import AppendConditionFailed, PositionOfOtherIncarnation, StorageUnavailable
from headwater.homes.postgres.home import PostgresHome
from headwater.storage.catalog import incarnations
from headwater.storage.catalog.directories import RESTORE_JUMP
from headwater.storage.log import StoredLog

from ..storage.builders import event, numbers, unless
from .postgres_server import Postgres, fresh_home, postgres, shared_server
from .test_engine import Server, add, contents
from .test_following import Replica

Opens = Callable[..., Any]


@pytest.fixture
def url() -> str:
    return fresh_home()


@pytest.fixture
def opens(url: str, tmp_path: Path) -> Iterator[Opens]:
    """Opens a Server, or a Replica, with its copy in the directory of that name."""
    opened: list[Server | Replica] = []

    def one(kind: type[Server | Replica], name: str) -> Server | Replica:
        opened.append(kind(url, tmp_path / name))
        return opened[-1]

    yield one
    for each in opened:
        each.close()


def lose(url: str, log: StoredLog, after: int) -> None:
    """What a standby is like that lacks the newest events of a log."""
    with psycopg.connect(url, autocommit=True) as connection:
        key = log.meta.segments_id
        connection.execute(
            "DELETE FROM headwater.frame USING headwater.log WHERE log = id AND key = %s AND last > %s", (key, after)
        )
        [[content]] = connection.execute(
            "SELECT content FROM headwater.frame JOIN headwater.log ON log = id WHERE key = %s AND last = %s",
            (key, after),
        ).fetchall()
        crc = int.from_bytes(content[4:8], "little")
        connection.execute("UPDATE headwater.log SET head = %s, crc = %s WHERE key = %s", (after, crc, key))


def test_numbers_that_may_be_lost_are_not_given_again(url: str, opens: Opens) -> None:
    first = opens(Server, "a")
    lost = first.orders
    add(lost, 3)
    lost.register_consumer("o", "c", after=0)
    lost.acknowledge("o", "c", 2)
    old = lost.info().incarnation
    add(lost, 2, begin=3)
    first.close()
    lose(url, lost, after=3)
    second = opens(Replica, "b")
    second.home.accept(0)
    before = second.orders
    second.take_over()
    assert before.is_closed, "whoever followed it learns of the new one"
    orders = second.orders
    assert contents(orders) == [b"0", b"1", b"2"]
    assert orders.info().incarnation != old
    with pytest.raises(PositionOfOtherIncarnation):
        list(orders.read(after=5))
    [consumer] = orders.consumers()
    assert (consumer.component, consumer.acknowledged) == ("c", 2)
    assert orders.append([event(data=b"new")]).first == RESTORE_JUMP + 1
    with pytest.raises(AppendConditionFailed):
        orders.append([event(data=b"again")], unless(types=["E"]))
    assert numbers(orders.read()) == [1, 2, 3, RESTORE_JUMP + 1]
    assert second.engine.create("another").append([event()]).first == RESTORE_JUMP + 1


@pytest.fixture
def elsewhere() -> Iterator[Postgres]:
    """Another database cluster, which is empty."""
    with postgres() as server:
        yield server


def test_a_home_that_was_restored_elsewhere_gives_no_number_twice(
    url: str, opens: Opens, elsewhere: Postgres, tmp_path: Path
) -> None:
    first = opens(Server, "a")
    add(first.orders, 50)
    shared_server().copy_to(elsewhere)
    add(first.orders, 50, begin=50)
    first.close()
    replica = Replica(elsewhere.url, tmp_path / "b")
    try:
        with pytest.raises(StorageUnavailable, match="no known copy contains all of term 1"):
            replica.take_over()
    finally:
        replica.close()
    home = PostgresHome(elsewhere.url)
    try:
        assert home.standing().may_be_proved
        assert home.try_lease("c", {}, 3, 60) is None
        home.accept(0)
    finally:
        home.close()
    given: list[int] = []
    for name in ("b", "c"):  # the second one finds it accepted
        second = Server(elsewhere.url, tmp_path / name)
        try:
            given.append(second.orders.append([event(data=b"new")]).first)
        finally:
            second.close()
    assert given == [RESTORE_JUMP + 1, RESTORE_JUMP + 2]


def test_replicas_follow_into_the_new_incarnation_those_that_were_away_too(url: str, opens: Opens) -> None:
    first = opens(Server, "a")
    add(first.orders, 3)
    away, there = opens(Replica, "away"), opens(Replica, "there")
    for each in (away, there):
        assert len(contents(each.orders)) == 3
    away.close()
    first.close()
    second = opens(Replica, "b")
    second.home.accept(0)
    second.take_over()
    add(second.orders, 2, begin=3)
    followed = there.orders
    there.follow()
    assert followed.is_closed
    for each in (there, opens(Replica, "away")):
        assert numbers(each.orders.read()) == [1, 2, 3, RESTORE_JUMP + 1, RESTORE_JUMP + 2]
        assert each.orders.info().incarnation == second.orders.info().incarnation
    add(second.orders, 1, begin=5)
    assert contents(there.follow().orders)[-1] == b"5"
    assert there.lost == []


def test_it_is_done_once_and_again_by_the_next_primary_where_it_was_interrupted(
    url: str, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opens(Server, "a")
    add(first.orders, 1)
    first.engine.create("other")
    first.orders.register_consumer("o", "c", after=0)
    first.close()

    def interrupted(*_: object) -> None:
        raise StorageUnavailable("the database went away")

    second = opens(Replica, "b")
    second.home.accept(0)
    with monkeypatch.context() as failing:
        failing.setattr(incarnations, "renew_floors", interrupted)
        with pytest.raises(StorageUnavailable):
            second.take_over()
    second.close()
    third = opens(Replica, "c").take_over()
    incarnation = third.orders.info().incarnation
    assert [each.component for each in third.orders.consumers()] == ["c"]
    add(third.orders, 1, begin=1)
    assert contents(third.orders) == [b"0", b"1"]
    assert third.orders.head() == 2 * RESTORE_JUMP + 1, "it was renewed twice, which costs nothing but numbers"
    third.close()
    fourth = opens(Replica, "b").take_over()
    assert fourth.orders.info().incarnation == incarnation
    assert fourth.orders.head() == 2 * RESTORE_JUMP + 1
