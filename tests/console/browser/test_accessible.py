"""Every page by the rules of WCAG 2.2 that a program can check: those of axe-core."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.install import unavailable
from tests.interop.runtimes import Axe
from tests.server.running import RunningServer

from .conftest import Opening
from .test_looks import LOOKS, PAGES

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
FOUND = """async (tags) => (await axe.run(document, {runOnly: {type: 'tag', values: tags}})).violations.map(
    (each) => [each.id, each.nodes.slice(0, 5).map((node) => node.html.slice(0, 200))])"""


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
