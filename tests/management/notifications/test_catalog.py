"""The catalog: complete, consistent, the same as its documentation, and strict about who may see what."""

from __future__ import annotations

import re

import pytest

from headwater.core import Grant, Notification, NotificationType, Right, User
from headwater.management import CATALOG, LOST, Kind, Scope, may_see
from tests.docs.documents import table_after
from tests.docs.events import PAGE, written
from tests.every import every


def test_every_type_is_in_the_catalog() -> None:
    assert set(CATALOG) == set(NotificationType)


@every("type", NotificationType)
def test_every_type_begins_with_its_name_and_time_and_may_tell_of_a_loss(type: NotificationType) -> None:
    entry = CATALOG[type]
    assert entry.type is type
    assert entry.names[:2] == ("eventType", "time") and entry.names[-1] == LOST
    assert len(set(entry.names)) == len(entry.names)
    assert all(each.is_required for each in entry.attributes[:2]) and not entry.attributes[-1].is_required
    assert entry.attributes[1].kind is Kind.TIMESTAMP


@every("type", NotificationType)
def test_a_type_that_is_about_a_log_names_it(type: NotificationType) -> None:
    entry = CATALOG[type]
    assert entry.scope is not Scope.LOG or "log" in entry.names


def test_an_attribute_of_one_name_means_values_of_one_kind() -> None:
    kinds: dict[str, Kind] = {}
    for entry in CATALOG.values():
        for each in entry.attributes:
            assert kinds.setdefault(each.name, each.kind) is each.kind, (entry.type, each)


def user(pattern: str, *rights: Right) -> User:
    return User("alice", (Grant(pattern, frozenset(rights)),))


OF_LOG = Notification(NotificationType.LOG_TRIMMED, 0, {"log": "orders"})
OF_SERVER = Notification(NotificationType.AUTHENTICATION_FAILED, 0, {"user": "bob"})
OF_WEBHOOK = Notification(NotificationType.WEBHOOK_FAILING, 0, {"log": "orders", "endpoint": "http://x"})
OF_NO_LOG = Notification(NotificationType.LINK_REFUSED, 0, {"address": "?"})


@pytest.mark.parametrize(
    ("who", "seen"),
    [
        (user("*", *Right), [OF_LOG, OF_SERVER, OF_WEBHOOK, OF_NO_LOG]),
        (user("*", Right.MANAGE), [OF_SERVER, OF_WEBHOOK, OF_NO_LOG]),
        (user("*", Right.READ), [OF_LOG]),
        (user("orders", *Right), [OF_LOG]),
        (user("invoices", *Right), []),
        (user("orders", Right.APPEND, Right.MANAGE), []),
        (User("nobody", ()), []),
    ],
)
def test_a_listener_sees_what_happens_to_logs_that_it_may_read_and_manages_the_server_to_see_more(
    who: User, seen: list[Notification]
) -> None:
    assert [each for each in (OF_LOG, OF_SERVER, OF_WEBHOOK, OF_NO_LOG) if may_see(who, each)] == seen


def test_the_reference_describes_every_type_as_the_catalog_does() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run python -m tests.docs.events"
    assert set(re.findall(r"^### `(.+)`$", page, re.MULTILINE)) == {type.value for type in NotificationType}


def test_the_reference_says_who_sees_a_scope() -> None:
    assert [row[0] for row in table_after(PAGE, "scopes")] == [scope.value for scope in Scope]
