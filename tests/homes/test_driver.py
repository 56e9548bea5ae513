"""The driver of the roles, at a real home: what it makes of a turn that ends while nobody asked for that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core.threads import Threads
from headwater.homes.driver import Driver
from headwater.homes.lease import LeaseTimes
from headwater.homes.postgres import PostgresHome
from headwater.homes.roles import Role

from ..waiting import eventually
from .postgres_server import fresh_home

PATIENCE_S = 60.0


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Of a server that is the primary."""
    home = PostgresHome(fresh_home())
    driver = Driver(home, "one", {}, times=LeaseTimes(length_s=600))
    driver.start(Threads())
    begin(driver)
    yield driver
    driver.stop()
    driver.ended()
    driver.wait_until_over(PATIENCE_S)
    driver.close()
    home.close()


def begin(driver: Driver) -> None:
    assert driver.wait_for_turn(lambda: None, PATIENCE_S)
    driver.caught_up()
    assert driver.wait_until_primary()


def test_a_server_whose_turn_was_ended_by_time_gives_the_lease_back_though_it_was_renewed(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = driver.term
    with monkeypatch.context() as moment:
        moment.setattr(driver, "may_act", lambda: False)  # the lease is good for minutes
        eventually(lambda: driver.role is not Role.PRIMARY)
    driver.ended()
    begin(driver)  # it is free, for this server or another one
    assert driver.term > first


def test_a_server_that_ends_its_turn_by_itself_gives_the_lease_back(driver: Driver) -> None:
    first = driver.term
    driver.ended()
    begin(driver)
    assert driver.term > first
