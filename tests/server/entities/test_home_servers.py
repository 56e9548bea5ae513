"""The servers of a shared home, as entities of management."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from headwater.core import OpenGuard
from headwater.core.access import ANYBODY, Grant, Right, User
from headwater.core.errors import StorageUnavailable
from headwater.homes.postgres.lease import LeaseStanding
from headwater.homes.postgres.servers import ServerReport
from headwater.management.entities import TYPES
from headwater.management.statuses import OperationRefused
from headwater.server.entities.home_servers import KEPT_S, HomeServers
from headwater.storage.frames.frame_log import Term

PRIMARY = ServerReport("a:8080", {"http": "http://a:8080"}, "primary", 7, 0, 0.0, "", "1.0", 1, 0.2)
REPLICA = ServerReport("b:8080", {}, "following", 0, 12, 1.5, "", "1.0", 1, 0.4)
GONE = ServerReport("b:8080", {}, "following", 0, None, None, "log x: the copy has 3, its home 2", "0.9", 1, 90.0)


class Home:
    """Answers what a test sets."""

    def __init__(self, *reports: ServerReport) -> None:
        self.reports: Sequence[ServerReport] = reports
        self.is_away = False
        self.asked = 0
        self.now = 100.0

    def __call__(self) -> Sequence[ServerReport]:
        self.asked += 1
        if self.is_away:
            raise StorageUnavailable("the home does not answer")
        return self.reports


def of(home: Home) -> HomeServers:
    standing = LeaseStanding("a:8080", {}, Term(7, 1), 3.0, True, "", 0.0, 1, since=1.5, why="b:8080 is gone")
    return HomeServers(OpenGuard(), home, lambda: home.now, standing=lambda: standing)


def test_each_server_has_its_role_and_how_far_it_is_behind() -> None:
    async def run() -> None:
        servers = of(Home(PRIMARY, GONE, REPLICA))
        assert await servers.names(ANYBODY) == ["a:8080", "b:8080", "b:8080 (2)"]
        told = [await servers.read(ANYBODY, name) for name in await servers.names(ANYBODY)]
        assert [each["role"] for each in told] == ["primary", "following", "following"]
        assert [each["term"] for each in told] == [7, None, None]
        assert [(each["since"], each["why"]) for each in told] == [(1500, "b:8080 is gone"), (None, None), (None, None)]
        assert [(each["lag"], each["lagMs"]) for each in told] == [(0, 0), (None, None), (12, 1500)]
        assert [(each["runs"], each["heardMs"]) for each in told] == [(True, 200), (False, 90_000), (True, 400)]
        assert told[1]["ahead"] == "log x: the copy has 3, its home 2" and told[0]["ahead"] is None
        assert list(told[0]) == [each.name for each in TYPES["io.headwater.homeServer"].own]
        with pytest.raises(OperationRefused, match="there is no server 'c:1' of this home"):
            await servers.read(ANYBODY, "c:1")

    asyncio.run(run())


def test_the_home_is_asked_once_a_second_and_while_it_is_away_what_it_said_last_grows_old() -> None:
    async def run() -> None:
        home = Home(PRIMARY)
        servers = of(home)
        for _ in range(3):
            assert await servers.names(ANYBODY) == ["a:8080"]
        assert home.asked == 1
        home.is_away, home.now = True, home.now + KEPT_S
        assert (await servers.read(ANYBODY, "a:8080"))["heardMs"] == 1200
        home.now += 60
        assert (await servers.read(ANYBODY, "a:8080"))["runs"] is False
        home.is_away, home.now = False, home.now + KEPT_S
        assert (await servers.read(ANYBODY, "a:8080"))["heardMs"] == 200

    asyncio.run(run())


def test_who_does_not_manage_the_server_sees_none_and_without_a_home_there_are_none() -> None:
    async def run() -> None:
        home = Home(PRIMARY)
        assert await of(home).names(User("bob", (Grant("*", frozenset({Right.READ})),))) == []
        assert home.asked == 0
        assert await HomeServers(OpenGuard(), None).names(ANYBODY) == []

    asyncio.run(run())
