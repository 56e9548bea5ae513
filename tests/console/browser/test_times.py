"""When the events of a log were: by recording, and by their own times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.client import connect
from headwater.core import Event
from tests.server.running import RunningServer
from tests.waiting import eventually

from .conftest import Opening, Seen
from .test_queries import run

if TYPE_CHECKING:
    from playwright.sync_api import Route


ROWS = """() => [...document.querySelectorAll('hw-bars tbody tr')].map(
    (row) => [...row.cells].map((cell) => cell.textContent))"""


def numbers(seen: Seen) -> list[list[str]]:
    """The chart as numbers: [from, events]. A redraw takes them away for a moment."""
    found = list[list[str]]()
    eventually(lambda: found.extend(seen.page.evaluate(ROWS)) or found)
    return found


def over_event_time(seen: Seen, path: str = "/logs/flights?times=event") -> None:
    """Show a log so, with the numbers of its chart."""
    page = seen.open(path)
    page.locator("hw-bars[label^='Events by event time']").wait_for()
    page.locator("hw-bars summary").click()
    page.locator("hw-bars tbody tr").first.wait_for()


def test_the_histogram_is_over_the_events_own_times_too(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared)
    page = seen.open("/logs/flights")
    page.locator("hw-bars[label^='Events by recording time']").wait_for()
    switch = page.get_by_role("group", name="Which time")
    switch.get_by_role("button", name="Event time").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/logs/flights?times=event")
    page.locator("hw-bars[label^='Events by event time']").wait_for()
    page.locator("hw-bars summary").click()
    page.locator("hw-bars tbody tr").first.wait_for()
    rows = numbers(seen)
    assert rows[0][0].startswith("2013-01-01") and sum(int(events) for _, events in rows) == 400
    switch.get_by_role("button", name="Recorded").click()
    page.locator("hw-bars[label^='Events by recording time']").wait_for()
    page.go_back()
    page.locator("hw-bars[label^='Events by event time']").wait_for()


def test_a_range_of_event_time_narrows_the_chart_and_not_the_list(
    shared: RunningServer, opening: Opening, tmp_path: Path
) -> None:
    seen = opening(shared)
    over_event_time(seen)
    page = seen.page
    page.locator("hw-bars tbody button").first.focus()
    page.keyboard.press("Enter")
    page.locator(".chip", has_text="event time").wait_for()
    assert "since=1357017300000&until=" in page.url
    page.locator("hw-bars summary").click()
    page.locator("hw-bars tbody tr").first.wait_for()
    rows = numbers(seen)
    assert all(each[0].startswith("2013-01-01") for each in rows)
    page.get_by_text("400 events").first.wait_for()
    copied = page.locator("hw-bars [data-copy]").get_attribute("data-copy") or ""
    told = json.loads(run(copied, tmp_path))
    assert [f"{each['events']:,}" for each in told["buckets"]] == [events for _, events in rows]
    page.get_by_role("button", name="Any time").click()
    page.locator(".chip", has_text="event time").wait_for(state="detached")
    assert "since" not in page.url


def test_a_range_of_recording_is_chosen_from_the_numbers(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared)
    page = seen.open("/logs/flights")
    page.locator("hw-bars summary").click()
    page.locator("hw-bars tbody button").first.click()
    page.locator(".chip", has_text="recorded").wait_for()
    assert "from=" in page.url and "before=" in page.url


def test_a_scan_that_takes_many_requests_says_how_far_it_is(seen: Seen, server: RunningServer) -> None:
    with connect(server.url) as client:
        client.log("empty").append([Event("T")] * 3)
    answers = [(1, 3, False), (2, 2, False), (3, 1, True)]

    def cut(route: Route) -> None:
        events, first, is_complete = answers.pop(0)
        body = {**route.fetch().json(), "events": events, "first": first, "is_complete": is_complete}
        if not is_complete:
            shown.append(seen.page.locator("section[aria-label='How many, and when'] header").inner_text())
        route.fulfill(json=body)

    shown: list[str] = []
    seen.page.route("**/event-histogram", cut)
    page = seen.open("/logs/empty?times=event")
    page.locator("hw-bars[label^='Events by event time']").wait_for()
    seen.wait("!document.body.textContent.includes('of them are read')")
    assert answers == [] and "times of 1 of them are read" in shown[1]
    assert page.locator("main b b").count() == 0
