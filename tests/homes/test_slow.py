"""A network between server and home that takes its time: what a server can do, and what it says of what it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.servers import ServerReport

from ..night import night
from ..waiting import eventually
from .postgres_server import Postgres, fresh_home, shared_server
from .proxy import Proxy
from .test_servers import Member, appends_in_one_term, command, database, url

__all__ = ["database", "url"]

HALF_S = 0.6
"""How long the network takes each way."""
START_S = 120.0


@pytest.fixture
def proxy(database: Postgres) -> Iterator[Proxy]:
    made = Proxy(database.port)
    yield made
    made.close()


@night
def test_a_server_becomes_the_primary_over_a_slow_network_and_appends(
    url: str, database: Postgres, proxy: Proxy, tmp_path: Path
) -> None:
    lease_s = 15
    proxy.delay_s = HALF_S
    far = proxy.before(url)
    member = Member(far, tmp_path / "a", lease_ms=f"{lease_s}000")
    try:
        eventually(member.is_primary, lambda: (tmp_path / "a.log").read_text(), within_s=START_S)
        appends_in_one_term(member, 2 * lease_s)
    finally:
        member.close()


@night
def test_a_network_that_is_too_slow_for_the_lease_is_told_with_a_longer_one(
    url: str, database: Postgres, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.delay_s = HALF_S
    far = proxy.before(url)
    printed = command("home", "status", "--home", far, "--home-lease-ms", "3000")
    assert "note: the home takes 1.2 s to answer, but a lease of 3 s requires an answer within 0.7 s; " in printed
    assert "set home_lease_ms to 7500 or more on all servers" in printed
    shown = json.loads(command("home", "status", "--home", far, "--home-lease-ms", "7500", "--json"))
    assert shown["slowness"] is None and shown["round_trip_s"] > 2 * HALF_S
    member = Member(far, tmp_path / "a", lease_ms="3000")
    try:
        log = tmp_path / "a.log"
        eventually(lambda: "a lease of 3 s requires an answer within 0.7 s" in log.read_text(), log.read_text)
    finally:
        member.close()


def test_status_judges_the_network_by_the_lease_of_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    url, standing = fresh_home(), PostgresHome.standing
    monkeypatch.setattr(PostgresHome, "standing", lambda home: standing(home)._replace(round_trip_s=1.2))
    assert "note: the home takes 1.2 s to answer, but a lease of 5 s" in command("home", "status", "--home", url)
    with closing(PostgresHome(url, lease_ms=30_000)) as home:
        assert "to answer" not in command("home", "status", "--home", url)
        with closing(PostgresHome(url, lease_ms=3_000)):  # servers must agree; the shortest one has the trouble
            assert home.lease_lengths() == [3_000, 30_000]
            told = command("home", "status", "--home", url, "--home-lease-ms", "9000")
    assert "but a lease of 3 s requires an answer within 0.7 s" in told


def test_what_a_server_asks_for_its_lease_takes_one_round_trip_each() -> None:
    url = fresh_home()
    proxy = Proxy(shared_server().port)
    sent: list[bytes] = []
    with closing(PostgresHome(proxy.before(url))) as home:
        granted = home.try_lease("one", {}, 1, 60)
        assert granted is not None and home.fence_journal(granted)
        home.adopt(granted)
        home.create("a" * 32, 0)
        report = ServerReport("one", {}, "primary", 1, 0, 0.0, "", "0.1.0", 2)
        asks: list[Callable[[], object]] = [
            home.standing,
            lambda: home.renew_lease(granted.term, 60),
            lambda: home.try_lease("one", {}, 1, 60),
            home.end_sessions,
            lambda: home.fence_journal(granted),
            lambda: home.fence_logs(granted),
            lambda: home.tell_of(report),
            home.heads,
        ]
        trips = []
        for ask in asks:
            ask()  # the first one prepares
            sent.clear()
            proxy.lose(lambda content: bool(sent.append(content)))
            ask()
            trips.append(len(sent))
    proxy.close()
    assert trips == [1] * len(asks)
