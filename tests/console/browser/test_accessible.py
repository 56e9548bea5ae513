"""Every page is whole, wide and narrow, in light and dark, and keeps the rules of WCAG 2.2 that a program can check:
those of axe-core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.interop.install import unavailable
from tests.interop.runtimes import Axe
from tests.server.running import RunningServer

from .conftest import Opening
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


PAGES = (
    "/", "/logs", "/logs/flights", "/logs/flights?q=tag%3Dtail%3AN1&at=11", "/logs/flights/11",
    "/logs/flights?times=event", "/logs/flights/stories", "/logs/flights/consumers", "/logs/flights/storage",
    "/logs/flights/settings", "/consumers", "/connections",
    "/connections/http", "/connections/refused", "/webhooks", "/storage", "/happenings", "/pipelines", "/users",
)  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1440, "height": 900}},
    "narrow": {"viewport": {"width": 320, "height": 700}},
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "forced_colors": "none", "reduced_motion": "no-preference"},
    "dark": {"color_scheme": "dark", "forced_colors": "none", "reduced_motion": "no-preference"},
    "forced": {"color_scheme": "light", "forced_colors": "active", "reduced_motion": "reduce"},
}
"""What a page is turned to while it is open: only its style sheet looks at it."""
LOOKS_OF = {"wide": ("light", "dark", "forced"), "narrow": ("light",)}
UNNAMED = """() => [...document.querySelectorAll('button, a[href], input, select')].filter((each) =>
    each.checkVisibility() && !each.textContent.trim() && !each.ariaLabel && !each.title
    && !each.labels?.length && !each.querySelector('[aria-label]')).map((each) => each.outerHTML)"""


def faults(page: Page) -> Iterator[str]:
    """What no page may have, in any look."""
    if not page.title().endswith("Headwater"):
        yield f"its title is {page.title()}"
    yield from (f"trouble: {each}" for each in page.locator(".trouble").all_inner_texts())
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if wide > 0:
        yield f"it is {wide} px wider than its window"
    yield from (f"without a name: {each}" for each in page.evaluate(UNNAMED))


@pytest.mark.parametrize("size", SIZES)
def test_every_page_is_whole_and_breaks_no_rule(shared: RunningServer, opening: Opening, size: str) -> None:
    """Forced colours are the browser's: no rule looks at them."""
    axe = Axe()
    reason = axe.missing()
    seen = opening(shared, **SIZES[size])
    wrong: list[str] = []
    for path in PAGES:
        page = seen.open(path)
        page.locator("h1").first.wait_for()
        seen.wait("!document.querySelector('.skeleton')")
        if reason is None:
            page.evaluate(axe.source())
        for look in LOOKS_OF[size]:
            page.emulate_media(**LOOKS[look])
            broken = page.evaluate(FOUND, RULES) if reason is None and look != "forced" else []
            wrong += [f"{path}, {look}: {each}" for each in (*faults(page), *broken)]
    assert not wrong, "\n".join(wrong)
    if reason is not None:
        unavailable(reason)


@pytest.mark.parametrize("size", SIZES)
def test_lists_of_webhooks_and_users_and_one_of_them_beside_break_no_rule(
    shared: RunningServer, opening: Opening, size: str
) -> None:
    axe = Axe()
    if reason := axe.missing():
        unavailable(reason)
    seen = opening(shared, **SIZES[size])
    seen.page.route("**/management?*", with_entities("subscription", HOOK_NAMES, HOOKS))
    seen.page.route("**/subscriptions/*/delivery", answering(200, DELIVERY))
    users = {"attributeNames": USER_NAMES, "results": USERS, "count": len(USERS)}
    seen.page.route("**/management/user?*", answering(200, users))
    wrong: list[str] = []

    def look_at(page: Page, name: str) -> None:
        for look in LOOKS_OF[size]:
            if look != "forced":
                page.emulate_media(**LOOKS[look])
                wrong.extend(f"{name}, {look}: {each}" for each in page.evaluate(FOUND, RULES))

    for path, one in (("/webhooks", "http://bad/ack"), ("/users", "alice")):
        page = seen.open(path)
        opener = page.get_by_role("button", name=one)
        opener.wait_for()
        page.evaluate(axe.source())
        look_at(page, path)
        opener.click()
        page.locator("aside h2", has_text=one).wait_for()
        look_at(page, f"{path}, with {one} beside it")
    assert not wrong, "\n".join(wrong)
