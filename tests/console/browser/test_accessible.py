"""Every page by the rules of WCAG 2.2 that a program can check: those of axe-core."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.install import unavailable
from tests.interop.runtimes import Axe
from tests.server.running import RunningServer

from .conftest import Opening
from .test_looks import LOOKS, PAGES
from .test_states import answering, with_entities

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
FOUND = """async (tags) => (await axe.run(document, {runOnly: {type: 'tag', values: tags}})).violations.map(
    (each) => [each.id, each.nodes.slice(0, 5).map((node) => node.html.slice(0, 200))])"""
HOOK_NAMES = ["name", "endpoint", "standing", "failures", "deadLetters", "dialect", "log", "resource", "createdAt"]
HOOKS = [
    [name, f"http://{name}/ack", standing, failures, dead, "v2", "flights", "/node", 1]
    for name, standing, failures, dead in (
        ("good", "delivering", 0, 0),
        ("bad", "retried", 3, 0),
        ("off", "suspended", 9, 2),
    )
]
USER_NAMES = ["name", "grants", "hasPassword", "tokens", "hasKey", "origin"]
USERS = [
    ["alice", ["all:*"], True, 2, False, "data directory"],
    ["robot", ["read,append:orders*"], False, 0, True, "configuration"],
]
DELIVERY = {"cursor": 1, "is_current": True, "waiting": 0, "dead_letters": []}


@pytest.mark.parametrize("look", ["light", "dark", "narrow"])
def test_no_page_breaks_a_rule(shared: RunningServer, opening: Opening, look: str) -> None:
    axe = Axe()
    if reason := axe.missing():
        unavailable(reason)
    seen = opening(shared, **LOOKS[look])
    broken: dict[str, Any] = {}
    for path in PAGES:
        page = seen.open(path)
        page.locator("h1").first.wait_for()
        seen.wait("!document.querySelector('.skeleton')")
        page.evaluate(axe.source())
        if found := page.evaluate(FOUND, RULES):
            broken[path] = found
    assert broken == {}, broken


@pytest.mark.parametrize("look", ["light", "dark", "narrow"])
def test_lists_of_webhooks_and_users_and_one_of_them_beside_break_no_rule(
    shared: RunningServer, opening: Opening, look: str
) -> None:
    axe = Axe()
    if reason := axe.missing():
        unavailable(reason)
    seen = opening(shared, **LOOKS[look])
    seen.page.route("**/management?*", with_entities("subscription", HOOK_NAMES, HOOKS))
    seen.page.route("**/subscriptions/*/delivery", answering(200, DELIVERY))
    users = {"attributeNames": USER_NAMES, "results": USERS, "count": len(USERS)}
    seen.page.route("**/management/user?*", answering(200, users))
    for path, one in (("/webhooks", "http://bad/ack"), ("/users", "alice")):
        page = seen.open(path)
        opener = page.get_by_role("button", name=one)
        opener.wait_for()
        page.evaluate(axe.source())
        assert page.evaluate(FOUND, RULES) == [], path
        opener.click()
        page.locator("aside h2", has_text=one).wait_for()
        assert page.evaluate(FOUND, RULES) == [], f"{path}, with {one} beside it"
