"""The stories of a log: those of its newest events, and any that is found by its tag."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.client import connect
from headwater.core import Event
from tests.server.running import RunningServer

from .conftest import PATIENCE_MS, Opening, Seen
from .test_looks import HOSTILE

if TYPE_CHECKING:
    from playwright.sync_api import Route


ROWS = "() => [...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"


def test_the_newest_tags_have_their_counts_and_lead_to_their_stories(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared)
    page = seen.open("/logs/flights")
    page.get_by_role("link", name="Stories").click()
    page.locator("td a", has_text="tail:N9").wait_for()
    page.get_by_role("group", name="Tag keys").get_by_role("button", name="tail").click()
    page.wait_for_url("**/logs/flights/stories?key=tail")
    seen.wait("document.querySelectorAll('tbody tr').length === 10")
    seen.wait(f"({ROWS})().every((row) => row[1] === '40')")
    rows = page.evaluate(ROWS)
    assert [row[0] for row in rows] == [f"tail:N{n}" for n in reversed(range(10))]
    assert rows[0][2].strip() == "FlightCancelled" and rows[0][4] == "400"
    for _ in range(3):
        page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.textContent") == "tail:N8"
    page.keyboard.press("Enter")
    page.wait_for_url("**/logs/flights/399?story=tail%3AN8")
    page.get_by_text("40 events in all").wait_for()
    page.go_back()
    seen.wait("document.querySelectorAll('tbody tr').length === 10")


def test_a_story_is_found_by_its_tag(shared: RunningServer, opening: Opening) -> None:
    from playwright.sync_api import expect  # not at collection

    seen = opening(shared)
    page = seen.open("/logs/flights/stories")
    page.locator("td a").first.wait_for()
    field = page.get_by_role("combobox", name="Tag of a story")
    held: list[Route] = []
    page.route(re.compile(r"/terms\?.*prefix=ta$"), lambda route: held.append(route))
    field.fill("ta")
    seen.until(lambda: len(held) == 2, lambda: [each.request.url for each in held])  # keys, and tags
    field.press("Enter")  # before what completes it has come
    field.press("Enter")  # of somebody who is in a hurry
    for route in held:
        route.continue_()
    expect(field).to_have_value("tail:", timeout=PATIENCE_MS)
    page.locator(".complete li", has_text="tail:N3").wait_for()
    field.fill("tail:N3")
    seen.wait("document.querySelectorAll('.complete li').length === 1")
    field.press("Enter")
    page.wait_for_url("**/logs/flights/394?story=tail%3AN3")
    page.get_by_text("40 events in all").wait_for()


def test_any_tag_is_a_text_and_one_that_nothing_has_is_said(seen: Seen, server: RunningServer) -> None:
    with connect(server.url) as client:
        client.log("empty").append([Event("<b>T</b>", b"{}", (text, f"<i>:{text}")) for text in HOSTILE])
    page = seen.open("/logs/empty/stories")
    seen.wait("document.querySelectorAll('tbody tr').length === 10")
    seen.wait(f"({ROWS})().every((row) => row[1] === '1')")
    assert page.locator("main img, main script, main td b, main td i i").count() == 0
    field = page.get_by_role("combobox", name="Tag of a story")
    field.fill("no such <b>tag</b>")
    field.press("Enter")
    page.get_by_text("No event has the tag no such <b>tag</b>.").wait_for()
    with connect(server.url) as client:
        client.log("empty").append([Event("T", b"{}", ("late:1",))])
    page.get_by_role("button", name="1 new event: show their tags").click()
    page.locator("td a", has_text="late:1").wait_for()
    page.locator("td a", has_text="<script>").first.click()
    page.get_by_text("The story of").wait_for()


def test_tags_further_down_come_when_they_are_asked_for(seen: Seen, server: RunningServer) -> None:
    with connect(server.url) as client:
        client.log("empty").append([Event("T", b"{}", ("old:1",)), *[Event("T", b"{}", ("new:1",))] * 200])
    page = seen.open("/logs/empty/stories")
    page.locator("td a", has_text="new:1").wait_for()
    assert page.locator("td a").count() == 1
    page.get_by_role("button", name="Earlier ones").click()
    page.locator("td a", has_text="old:1").wait_for()
    assert page.get_by_role("button", name="Earlier ones").count() == 0


def test_a_log_without_tags_says_what_a_story_is(seen: Seen) -> None:
    page = seen.open("/logs/empty/stories")
    page.get_by_text("No event here has a tag.").wait_for()
    page.locator(".empty [data-copy]").wait_for()


def test_the_story_of_many_events_looks_at_the_tags_of_each_a_few_times(seen: Seen, server: RunningServer) -> None:
    """Not once for each pair of them."""
    with connect(server.url) as client:
        client.log("empty").append([Event("T", b"{}", ("story:1", f"part:{n // 2}", "odd")) for n in range(300)])
    page = seen.open("/logs/empty/300?story=story%3A1")
    page.locator(".story a.tag", has_text="part:149").first.wait_for()
    page.get_by_role("button", name="Earlier events").click()
    page.locator(".story a.tag", has_text="part:100").first.wait_for()
    looked, events, ties = page.evaluate(LOOKED_AT)
    assert events == 113 and looked <= 5 * events
    assert ties == [f"part:{n}" for n in range(149, 92, -1)]


LOOKED_AT = """() => {
    const view = document.querySelector("hw-event");
    let looked = 0;
    for (const row of view.rows) {
        const tags = row.event.tags;
        Object.defineProperty(row.event, "tags", {get: () => (looked += 1, tags)});
    }
    view.told();
    const ties = [...new Set([...document.querySelectorAll(".story a.tag")].map((each) => each.textContent))];
    return [looked, view.rows.length, ties];
}"""
