"""A planned change of the primary: the named server takes over, or the reason is told why it does not."""

from __future__ import annotations

import signal
import socket
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headwater.core.watch.threads import Threads
from headwater.homes import driver
from headwater.homes.hand_over import HandOver
from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.servers import ServerReport
from headwater.homes.roles import events
from headwater.storage.frames.frame_log import Term

from ..waiting import eventually
from .postgres.test_upgrade import make_first
from .test_driver import TIMES, WAIT_S, Home, ending, wait_until
from .test_evidence import appended
from .test_servers import LEASE_MS, Join, Member, command, database, join, metrics_of, servers, status, url

__all__ = ["database", "join", "url"]


def name_of(member: Member) -> str:
    return f"{socket.gethostname()}:{member.port}"


def hand_over(primary: Path, url: str, to: str, expected: int = 0) -> str:
    return command("home", "hand-over", to, "--data", str(primary), "--home", url, "--home-lease-ms", LEASE_MS,
                   expected=expected)  # fmt: skip


def is_told(member: Member) -> bool:
    """Whether the primary of this term tells it what was stored: a new term ends the sessions of others."""
    return "headwater_replica_is_told 1.0" in metrics_of(member)


def is_fit(url: str, member: Member) -> bool:
    found = servers(url).get(member.url, {})
    return found.get("role") == "following" and found.get("lag_events") == 0 and found["lag_s"] < 2


def test_the_named_server_takes_over_and_the_others_leave_it_the_lease(join: Join, url: str, tmp_path: Path) -> None:
    first = join("a")
    eventually(first.is_primary)
    others = [join("b"), join("c")]
    assert first.append(0) == 1
    eventually(lambda: all(is_fit(url, each) for each in others))
    places = {first.port: "a", others[0].port: "b", others[1].port: "c"}
    primary = first
    for number, to in enumerate((others[1], others[0], first), 1):
        told = hand_over(tmp_path / places[primary.port], url, name_of(to))
        assert told.startswith(f"{name_of(to)} is the primary since ") and f"term {number + 1}" in told
        assert "released its lease" in status(url)["why"]
        eventually(to.is_primary)
        assert to.append(number) == number + 1
        primary = to
        eventually(lambda to=to: all(is_fit(url, each) for each in (first, *others) if each is not to))
        eventually(lambda to=to: all(is_told(each) for each in (first, *others) if each is not to))
    assert hand_over(tmp_path / "a", url, name_of(first)).startswith(f"{name_of(first)} is the primary since ")


def test_a_server_that_is_not_fit_is_refused_with_the_reason(join: Join, url: str, tmp_path: Path) -> None:
    first = join("a")
    eventually(first.is_primary)
    second = join("b")
    eventually(lambda: is_fit(url, second))
    assert "server nobody is not running; running servers: " in hand_over(tmp_path / "a", url, "nobody", expected=4)
    assert "is a replica; run this on the primary's machine" in hand_over(
        tmp_path / "b", url, name_of(second), expected=4
    )
    second.process.send_signal(signal.SIGSTOP)
    assert f"it does not answer at {second.url}" in hand_over(tmp_path / "a", url, name_of(second), expected=4)
    second.process.send_signal(signal.SIGCONT)
    with closing(PostgresHome(url)) as home:
        fit = ServerReport("c.example:8080", {}, "following", 0, 0, 0.0, "", "0.2.0", 2)
        for report, why in (
            (fit._replace(lag_events=3, lag_s=7.0), "it is 3 events behind, and last caught up 7 s ago"),
            (fit._replace(lag_events=None, lag_s=None), "its copy has not caught up with the home yet"),
            (fit._replace(ahead="orders ends with 7"), "its copy is ahead of the home: orders ends with 7"),
        ):
            home.tell_of(report)
            assert why in hand_over(tmp_path / "a", url, fit.name, expected=4)
    assert status(url)["term"] == 1 and first.append(0) == 1


def test_a_server_without_room_is_refused(join: Join, url: str, tmp_path: Path) -> None:
    first = join("a")
    eventually(first.is_primary)
    full = Member(url, tmp_path / "b", "--limits-disk-reserve-bytes", str(2**60))
    try:
        eventually(lambda: is_fit(url, full))
        told = hand_over(tmp_path / "a", url, name_of(full), expected=4)
        assert "cannot be the primary: " in told and "free" in told
    finally:
        full.close()
    assert status(url)["term"] == 1


def test_a_home_of_the_version_before_is_handed_over_and_upgraded_under_its_servers(
    join: Join, url: str, tmp_path: Path
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        make_first(connection)
    first = join("a")
    eventually(first.is_primary)
    second = join("b")
    assert first.append(0) == 1
    eventually(lambda: is_fit(url, second))
    assert "run headwater home upgrade when all servers are upgraded" in command("home", "check", "--home", url)
    assert hand_over(tmp_path / "a", url, name_of(second)) == f"{name_of(second)} is the primary, term 2\n"
    eventually(lambda: appended(second, 1) == 2)
    eventually(lambda: servers(url)[first.url]["role"] == "following")
    assert "upgraded the home from version 1 to 2" in command("home", "upgrade", "--home", url)
    eventually(lambda: first.is_primary() or second.is_primary())
    eventually(lambda: 3 in (appended(first, 2), appended(second, 2)))
    for member in (first, second):
        eventually(lambda member=member: member.contents() == [b"0", b"1", b"2"])


def test_the_lease_is_left_to_the_named_server_for_as_long_as_one_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    home, free_for_s = Home(), list[float]()
    home.term = Term(3, 7)
    monkeypatch.setattr(driver, "PostgresHome", lambda *args, **kwargs: home)
    one = driver.Driver(home, "one", {}, times=TIMES)  # type: ignore[arg-type]
    one.hand_over = lambda: HandOver("two", 3)
    given = home.try_lease
    monkeypatch.setattr(
        home, "try_lease", lambda *args, **kwargs: (free_for_s.append(one.free_for_s), given(*args, **kwargs))[1]
    )
    one.start(Threads())
    one.opened()
    with ending(one):
        assert one.wait_for_turn(lambda: None, WAIT_S), "the named server did not come"
        assert free_for_s[0] >= TIMES.length_s
        one.caught_up()
        assert one.wait_until_primary()
        one.hand_over = lambda: HandOver("one", one.term)
        assert one._looked() == events.Tick(), "to itself, nothing is handed over"
        one.hand_over = lambda: HandOver("two", one.term - 1)
        assert one._looked() == events.Tick(), "that term is over"
        one.hand_over = lambda: HandOver("two", one.term)
        one.ended()
        wait_until(lambda: home.released)
