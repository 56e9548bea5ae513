"""The catalog: complete, consistent, the same as its documentation, and strict about who may see what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.core import Grant, Notification, NotificationType, Right, User
from headwater.management import CATALOG, LOST, Kind, Scope, may_see
from tests.every import every

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "events.md"
COMMON = ("eventType", "time", LOST)
SEEN_BY = {
    "log": (Scope.LOG, "users with the right to read the log"),
    "peer": (Scope.PEER, "users with the right to manage the server, and the user that it names"),
    "server": (Scope.SERVER, "users with the right to manage the server"),
}


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


def sections() -> dict[str, str]:
    text = REFERENCE.read_text(encoding="utf-8")
    found = re.split(r"^### `(io\.headwater\.[A-Za-z.]+)`$", text, flags=re.MULTILINE)[1:]
    return {name: body.partition("\n## ")[0] for name, body in zip(found[::2], found[1::2], strict=True)}


def test_every_type_is_documented_in_the_order_of_the_catalog() -> None:
    assert list(sections()) == [type.value for type in CATALOG]


def rows_of(text: str) -> list[tuple[str, str, str]]:
    """The attributes in its list: name, type and meaning."""
    return re.findall(r"^- (`\w+`) \(([^)]+)\): (.*)$", text, flags=re.MULTILINE)


def shared_rows() -> dict[str, list[tuple[str, str, str]]]:
    """The lists of attributes that several types have, by the anchors of their headings."""
    text = REFERENCE.read_text(encoding="utf-8").partition("## Shared attributes\n")[2].partition("\n## ")[0]
    headings, tables = (re.split(r"^### (.*)$", text, flags=re.MULTILINE)[start::2] for start in (1, 2))
    return {heading.lower().replace(" ", "-"): rows_of(table) for heading, table in zip(headings, tables, strict=True)}


def test_the_documentation_says_who_sees_which_types() -> None:
    text = " ".join(REFERENCE.read_text(encoding="utf-8").split())
    assert {name: f"*{name}*: {who}" in text for name, (_, who) in SEEN_BY.items()} == dict.fromkeys(SEEN_BY, True)


@every("type", NotificationType)
def test_the_documentation_says_what_the_catalog_says(type: NotificationType) -> None:
    entry, text = CATALOG[type], sections()[type.value]
    [scope] = [name for name, (scope, _) in SEEN_BY.items() if scope is entry.scope]
    assert f"\n{entry.when} ({scope})" in text
    shared = shared_rows()
    rows = [row for anchor in re.findall(r"\]\(#([a-z-]+)\)", text) for row in shared[anchor]] + rows_of(text)
    expected = [
        (f"`{each.name}`", each.kind.value + ("" if each.is_required else ", optional"), each.meaning)
        for each in entry.attributes
        if each.name not in COMMON
    ]
    assert rows == expected
