from __future__ import annotations

import pytest

from headwater.core import Credentials, Grant, Right, Unauthenticated, User
from headwater.flight.server import sessions
from headwater.flight.server.backend import Login
from headwater.flight.server.sessions import IDLE_S, LIFETIME_S, RECHECK_S, SHOWN_S, TOKEN_PREFIX, Sessions, new_token

ALICE = User("alice", (Grant("*", frozenset({Right.READ})),))
LOGIN = Login(ALICE, "sealed")
SHOWN = Credentials("alice", "secret")


class World:
    def __init__(self):
        self.now = 0.0
        self.users = {"alice": ALICE}
        self.asked = 0
        self.seal = "sealed"
        self.sessions = Sessions(self.recheck, lambda: self.now)

    def recheck(self, name, seal, peer):
        self.asked += 1
        if name not in self.users or seal != self.seal:
            raise Unauthenticated("gone")
        return self.users[name]


@pytest.fixture
def world():
    return World()


def test_tokens_are_long_and_never_the_same():
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(token.startswith(TOKEN_PREFIX) and len(token) >= 43 for token in tokens)


def test_a_token_stands_for_its_user_and_no_other_does(world):
    world.sessions.begin("t", SHOWN, LOGIN)
    assert world.sessions.user("t", "") == ALICE
    with pytest.raises(Unauthenticated):
        world.sessions.user("u", "")


def test_the_user_is_looked_up_again_after_a_second(world):
    assert RECHECK_S == 1.0
    world.sessions.begin("t", SHOWN, LOGIN)
    world.now = RECHECK_S / 2
    world.users["alice"] = User("alice", ())
    assert world.sessions.user("t", "") == ALICE
    assert world.asked == 0
    world.now = RECHECK_S
    assert world.sessions.user("t", "") == User("alice", ())
    assert world.sessions.user("t", "") == User("alice", ())
    assert world.asked == 1


def test_the_session_of_a_user_who_is_gone_is_over(world):
    world.sessions.begin("t", SHOWN, LOGIN)
    world.now = RECHECK_S
    user = world.users.pop("alice")
    with pytest.raises(Unauthenticated):
        world.sessions.user("t", "")
    world.users["alice"] = user
    with pytest.raises(Unauthenticated):
        world.sessions.user("t", "")
    assert len(world.sessions) == 0


def test_the_sessions_of_a_password_that_was_changed_are_over(world):
    world.sessions.begin("t", SHOWN, LOGIN)
    world.now = RECHECK_S
    assert world.sessions.user("t", "") == ALICE
    world.seal = "sealed anew"
    world.now = 2 * RECHECK_S
    with pytest.raises(Unauthenticated):
        world.sessions.user("t", "")
    world.seal = "sealed"
    with pytest.raises(Unauthenticated):
        world.sessions.user("t", "")
    assert world.sessions.token_of(SHOWN) is None


def test_a_session_ends_when_idle_and_in_any_case_after_its_lifetime(world):
    world.sessions.begin("idle", SHOWN, LOGIN)
    world.now = IDLE_S
    with pytest.raises(Unauthenticated):
        world.sessions.user("idle", "")
    world.sessions.begin("busy", SHOWN, LOGIN)
    began = world.now
    while world.now + IDLE_S / 2 < began + LIFETIME_S:
        world.now += IDLE_S / 2
        world.sessions.user("busy", "")
    world.now = began + LIFETIME_S
    with pytest.raises(Unauthenticated):
        world.sessions.user("busy", "")
    assert len(world.sessions) == 0


def test_the_same_credentials_find_their_session_for_a_minute(world):
    world.sessions.begin("t", SHOWN, LOGIN)
    assert world.sessions.token_of(SHOWN) == "t"
    assert world.sessions.token_of(Credentials("alice", "wrong")) is None
    world.now = SHOWN_S
    assert world.sessions.token_of(SHOWN) is None
    world.sessions.begin("u", SHOWN, LOGIN)
    assert world.sessions.token_of(SHOWN) == "u"
    assert world.sessions.user("t", "") == ALICE


def test_there_are_so_many_sessions_and_the_one_used_least_goes(world, monkeypatch):
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    for name in "abc":
        world.sessions.begin(name, Credentials("alice", name), LOGIN)
    world.sessions.user("a", "")
    world.sessions.begin("d", Credentials("alice", "d"), LOGIN)
    assert len(world.sessions) == 3
    assert world.sessions.token_of(Credentials("alice", "b")) is None
    assert world.sessions.token_of(Credentials("alice", "a")) == "a"


def test_logins_that_are_put_off_are_few_and_soon_forgotten(monkeypatch):
    now = [100.0]
    sessions = Sessions(lambda name, seal, peer: User(name, ()), lambda: now[0])
    monkeypatch.setattr("headwater.flight.server.sessions.PUT_OFF_MAX", 2)
    shown = Credentials("alice", "secret")
    for token in ("a", "b", "c"):
        sessions.put_off(token, shown)
        now[0] += 1
    assert [sessions.put_off_by(token) for token in ("a", "b", "c", "d")] == [None, shown, shown, None]
    sessions.begin("b", shown, Login(User("alice", ()), ""))
    assert sessions.put_off_by("b") is None and sessions.user("b", "").name == "alice"
    now[0] += 60
    assert sessions.put_off_by("c") is None
    sessions.put_off("e", shown)
    assert len(sessions._put_off) == 1
