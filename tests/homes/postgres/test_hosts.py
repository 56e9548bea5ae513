"""The hosts at the address of a home: two that take writes are found; what silent ones do is not known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headwater.homes.postgres.hosts import WritableHosts, both_write, unknown_hosts

from ...waiting import eventually
from ..postgres_server import Postgres

Pair = tuple[Postgres, Postgres]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A database and its standby."""
    primary = Postgres()
    try:
        with closing(Postgres(standby_of=primary)) as standby:
            yield primary, standby
    finally:
        primary.close()


def address(*hosts: str) -> str:
    return f"postgresql://headwater@{','.join(hosts)}/postgres?target_session_attrs=read-write"


def test_two_hosts_that_take_writes_are_found_and_those_that_do_not_are_left_out(pair: Pair) -> None:
    primary, standby = pair
    one, two = (f"127.0.0.1:{each.port}" for each in pair)
    with closing(WritableHosts(address(one, two))) as hosts:
        assert hosts.are_several
        assert hosts.look() == [one]
        standby.promote()
        assert hosts.look() == [one, two]
        assert f"{one} and {two} accept writes" in str(both_write(hosts.look()))
        primary.configure("default_transaction_read_only = on")
        primary.reload()
        eventually(lambda: hosts.look() == [two])
        assert hosts.silent == []
        primary.kill()
        assert hosts.look() == [two]
        assert both_write(hosts.look()) is None


def test_of_two_that_took_writes_one_that_falls_silent_still_counts_until_it_says_otherwise(pair: Pair) -> None:
    primary, standby = pair
    one, two = (f"127.0.0.1:{each.port}" for each in pair)
    with closing(WritableHosts(address(one, two))) as hosts, closing(WritableHosts(address(one, two))) as later:
        standby.promote()
        assert hosts.look() == [one, two]
        primary.pause()
        assert hosts.look() == [one, two] and hosts.silent == [one]
        assert later.look() == [two] and later.silent == [one], "who saw no two knows of one"
        assert f"{one} did not answer, so it is unknown" in str(unknown_hosts(later.silent))
        assert hosts.look() == [one, two], "time proves nothing"
        primary.go_on()
        primary.kill()
        assert hosts.look() == [two], "its machine says that nobody listens"


def test_a_primary_that_is_silent_does_not_count_beside_the_standby_that_took_its_place(pair: Pair) -> None:
    primary, standby = pair
    one, two = (f"127.0.0.1:{each.port}" for each in pair)
    with closing(WritableHosts(address(one, two))) as hosts:
        assert hosts.look() == [one]
        primary.pause()
        assert hosts.look() == [] and hosts.silent == [one]
        standby.promote()
        assert hosts.look() == [two] and hosts.silent == [one]
        primary.go_on()
        assert hosts.look() == [one, two]


def test_one_database_of_two_names_is_one(pair: Pair) -> None:
    primary, _ = pair
    one, two = (f"{host}:{primary.port}" for host in ("127.0.0.1", "localhost"))
    with closing(WritableHosts(address(one, two))) as hosts:
        assert hosts.look() == [one]


def test_an_address_of_one_host_is_not_looked_at() -> None:
    with closing(WritableHosts(address("127.0.0.1:1"))) as hosts:
        assert not hosts.are_several
        assert hosts.look() == []
