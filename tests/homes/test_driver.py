"""What a driver does where the roles alone would not know: with a home that answers late."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.core.errors import StorageUnavailable
from headwater.core.watch.threads import Threads
from headwater.homes import driver
from headwater.homes.postgres.lease import Granted, LeaseStanding, Renewal
from headwater.homes.roles import events
from headwater.homes.roles.lease import LeaseTimes
from headwater.server.replicas.membership import Membership
from headwater.storage.frames.frame_log import Term

TIMES = LeaseTimes(length_s=6.0, jitter_s=0.1)
WAIT_S = 30.0


class Home:
    """One that gives its lease to who asks, and answers a renewal only when it may."""

    url = ""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.asks = threading.Event()
        """Somebody waits for a renewal."""
        self.renewals = 0
        self.released: list[Term] = []
        self.term = Term(0, 0)
        self.is_given = False
        self.looks = 0
        self.remaining_s = 1.0
        """Of a lease that is given, whenever that was."""
        self.is_slow = False
        """Whoever waits for a change gives up before it is made, and it is made."""

    def try_lease(
        self, server: str, addresses: object, nonce: int, length_s: float, *, member: str | None
    ) -> Granted | None:
        if not self.is_given:
            self.term, self.is_given = Term(self.term.number + 1, nonce), True
        if self.is_slow:
            raise StorageUnavailable("no answer")
        return Granted(self.term, 1)

    def renew_lease(self, term: Term, length_s: float) -> Renewal:
        if not self.answers.is_set():
            self.asks.set()
            self.answers.wait(WAIT_S)
        self.renewals += self.is_given and term == self.term
        if self.is_slow:
            raise StorageUnavailable("no answer")
        return Renewal(self.is_given and term == self.term, self.standing())

    def release_lease(self, term: Term) -> None:
        self.released.append(term)
        self.is_given = False

    def standing(self) -> LeaseStanding:
        self.looks += 1
        return LeaseStanding("one", {}, self.term, self.remaining_s * self.is_given, True, "", time.time(), 1)

    def end_sessions(self) -> None:
        pass

    def fence_journal(self, granted: Granted) -> bool:
        return True

    def fence_logs(self, granted: Granted) -> bool:
        return True

    def adopt(self, granted: Granted) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def ending(one: driver.Driver) -> Iterator[None]:
    """End it in the end."""
    try:
        yield
    finally:
        one.stop()
        one.ended()
        assert one.wait_until_over(WAIT_S)
        one.close()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_ended_because_of_time_gives_the_lease_back_though_it_was_renewed_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = Home()
    monkeypatch.setattr(driver, "PostgresHome", lambda *args, **kwargs: home)
    one = driver.Driver(home, "one", {}, times=TIMES)  # type: ignore[arg-type]
    one.start(Threads())
    one.opened()
    with ending(one):
        has_ended = threading.Event()
        assert one.wait_for_turn(has_ended.set, WAIT_S)
        one.caught_up()
        assert one.wait_until_primary()
        term = home.term
        home.answers.clear()
        assert home.asks.wait(WAIT_S)
        assert has_ended.wait(WAIT_S)
        home.answers.set()  # in time for the lease, and too late for who has ended
        wait_until(lambda: home.renewals >= 2 or not one.term)  # the role goes on, unless this machine was too slow
        one.ended()
        wait_until(lambda: term in home.released)
        assert one.wait_for_turn(lambda: None, WAIT_S), "and it can have the next turn"


def test_a_lease_is_kept_whose_home_answers_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home()
    home.is_slow, home.remaining_s = True, TIMES.length_s
    monkeypatch.setattr(driver, "PostgresHome", lambda *args, **kwargs: home)
    one = driver.Driver(home, "one", {}, times=TIMES)  # type: ignore[arg-type]
    one.start(Threads())
    one.opened()
    with ending(one):
        assert one.wait_for_turn(lambda: None, TIMES.length_s), "the home says whose nonce it is"
        one.caught_up()
        assert one.wait_until_primary()
        term = one.term
        wait_until(lambda: home.renewals > TIMES.length_s / TIMES.renewal_s)
        assert one.term == term
        assert one.may_act()


class OneHangs(Home):
    """Its answer to the first renewal does not come until the end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = threading.Event()
        self.hanging: list[Term] = []

    def renew_lease(self, term: Term, length_s: float) -> Renewal:
        if not self.hanging:
            self.hanging.append(term)
            self.is_over.wait(WAIT_S)
        return super().renew_lease(term, length_s)


def test_a_lease_is_kept_though_the_answer_to_one_renewal_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    home = OneHangs()
    monkeypatch.setattr(driver, "PostgresHome", lambda *args, **kwargs: home)
    one = driver.Driver(home, "one", {}, times=LeaseTimes(length_s=3.0))  # type: ignore[arg-type]
    one.start(Threads())
    one.opened()
    try:
        has_ended = threading.Event()
        assert one.wait_for_turn(has_ended.set, WAIT_S)
        one.caught_up()
        assert one.wait_until_primary()
        wait_until(lambda: home.renewals > 8 or has_ended.is_set())  # longer than the lease lasts
        assert home.hanging == [home.term] and not has_ended.is_set()
    finally:
        home.is_over.set()
        one.stop()
        one.ended()
        assert one.wait_until_over(WAIT_S)
        one.close()


def test_a_lease_whose_renewal_was_answered_too_late_counts_from_when_the_home_gave_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = Home()
    home.is_slow, home.is_given, home.term, home.remaining_s = True, True, Term(1, 7), 1.0
    monkeypatch.setattr(driver, "PostgresHome", lambda *args, **kwargs: home)
    one = driver.Driver(home, "one", {}, times=TIMES)  # type: ignore[arg-type]
    one._renew(home.term, driver.boot_time_s())
    renewed = one._renewed.get_nowait()
    assert renewed.term == home.term
    assert renewed.sent_at <= driver.boot_time_s() - (TIMES.length_s - home.remaining_s)


def test_nobody_takes_the_lease_before_its_copy_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home()
    monkeypatch.setattr(driver, "PostgresHome", lambda *args, **kwargs: home)
    one = driver.Driver(home, "one", {}, times=TIMES)  # type: ignore[arg-type]
    one.start(Threads())
    with ending(one):
        wait_until(lambda: home.looks >= 5)  # it knows that the lease is free
        assert not home.is_given and one.standing is not None
        one.opened()
        assert one.wait_for_turn(lambda: None, WAIT_S)


def test_who_began_a_turn_that_is_over_does_not_take_the_next_one_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PostgresHome", lambda *args, **kwargs: Home())
    one = driver.Driver(Home(), "one", {}, times=TIMES)  # type: ignore[arg-type]
    first, second = (Granted(Term(number, number), 1) for number in (1, 2))
    one._begin_turn(first)
    assert one.wait_for_turn(lambda: None, WAIT_S)
    one._end_turn()
    one._begin_turn(second)  # before whoever serves had time to look
    one.caught_up()
    assert one._events.get_nowait() == events.CaughtUp(first.term)
    told: list[bool] = []
    waiting = threading.Thread(target=lambda: told.append(one.wait_until_primary()), daemon=True)
    waiting.start()
    waiting.join(WAIT_S)
    assert told == [False]
    one.ended()
    assert one.wait_for_turn(lambda: None, WAIT_S)


def test_a_server_whose_turn_ended_before_it_was_the_primary_reads_nothing_old() -> None:
    """Another server may append by then, and the logs are open here."""
    driver = SimpleNamespace(caught_up=lambda: None, wait_until_primary=lambda: False, may_act=lambda: True)
    its: Any = SimpleNamespace(driver=driver, _is_primary=False, _is_deposed=False)
    assert not asyncio.run(Membership.begin(its))
    assert Membership.has_lapsed(its)
