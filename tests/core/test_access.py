"""Who may do what."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core import ANYBODY, Credentials, Grant, OpenGuard, Right, User
from headwater.core.access import Forbidden
from tests.every import every

READ, APPEND, MANAGE, METRICS = Right
OF_LOGS = READ, APPEND, MANAGE


def user(pattern: str, *rights: Right) -> User:
    return User("alice", (Grant(pattern, frozenset(rights)),))


@every(
    ("pattern", "log", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "Orders", False),
        ("orders", "orders2", False),
        ("orders-*", "orders-7", True),
        ("orders-*", "orders", False),
        ("*", "orders", True),
        ("?", "a", True),
        ("?", "ab", False),
        ("[ab]", "b", True),
        ("*", "*", True),
        ("?", "*", False),
        ("[*]", "*", False),
        ("**", "*", False),
        ("orders-*", "*", False),
        ("", "*", False),
    ],
)
def test_a_grant_is_for_the_logs_that_its_pattern_matches(pattern: str, log: str, expected: bool) -> None:
    assert user(pattern, READ).may(READ, log) is expected


@pytest.mark.parametrize("given", Right)
def test_rights_do_not_include_each_other(given: Right) -> None:
    assert [right for right in Right if user("*", given).may(right, "orders")] == [given]


def test_grants_add_up() -> None:
    both = User("bob", (Grant("a*", frozenset({READ})), Grant("*b", frozenset({APPEND}))))
    assert [both.may(right, "ab") for right in OF_LOGS] == [True, True, False]
    assert [both.may(right, "a") for right in OF_LOGS] == [True, False, False]
    assert not any(User("nobody", ()).may(right, "a") for right in Right)


@pytest.mark.parametrize(
    ("pattern", "given", "expected"),
    [
        ("*", MANAGE, [READ, MANAGE]),
        ("*", READ, []),
        ("*", APPEND, []),
        ("*", METRICS, []),
        ("$*", MANAGE, []),
        ("$system", READ, []),
    ],
)
def test_the_servers_own_log_is_for_who_manages_the_server_and_nobody_appends_to_it(
    pattern: str, given: Right, expected: list[Right]
) -> None:
    assert [right for right in OF_LOGS if user(pattern, given).may(right, "$system")] == expected


def test_nobody_appends_to_the_servers_own_log_even_where_there_are_no_users() -> None:
    OpenGuard().authorize(ANYBODY, READ, "$system")
    with pytest.raises(Forbidden):
        OpenGuard().authorize(ANYBODY, APPEND, "$system")


def test_without_users_everybody_may_do_everything() -> None:
    guard = OpenGuard()
    who = asyncio.run(guard.authenticate(None, "127.0.0.1"))
    assert who is ANYBODY
    for right in Right:
        assert who.may(right, "orders") and who.may(right, "*")
        guard.authorize(who, right, "*")


def test_a_refusal_says_who_what_and_where() -> None:
    assert str(Forbidden("alice", APPEND, "orders")) == "user 'alice' has no right to append log 'orders'"
    assert str(Forbidden("alice", Right.MANAGE, "*")) == "user 'alice' has no right to manage the server"


def test_a_secret_is_never_shown() -> None:
    assert "hunter2" not in repr(Credentials("alice", "hunter2"))
