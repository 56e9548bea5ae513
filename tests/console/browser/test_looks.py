"""Hostile names and data; what a first visit costs; what the policy forbids."""

from __future__ import annotations

import json
import shlex
import subprocess
import urllib.parse
from pathlib import Path

import pytest
from playwright.sync_api import Route

from headwater.client import connect
from headwater.core import Event
from headwater.core.settings import LogSettings
from tests.server.running import RunningServer

from .conftest import Opening, Seen, put


def test_a_very_long_name_is_cut_in_the_inspector(seen: Seen, server: RunningServer) -> None:
    name = "AVeryLongNameOfAType" * 10
    with connect(server.url) as client:
        client.log("empty").append([Event(name, b"{}", (f"{name}:{name}", "with words " * 20))])
    page = seen.open("/logs/empty?at=1")
    page.locator(".inspector header", has_text="AVeryLong").wait_for()
    wide = page.evaluate(
        """() => [...document.querySelectorAll('.inspector .card, .inspector header')].map(
            (each) => each.scrollWidth - each.clientWidth)"""
    )
    assert max(wide) <= 0


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<script>document.title='hacked'</script>",
    "'\"><svg/onload=document.title='hacked'>",
    "javascript:alert(1)",
    "\u202egnp.exe",
)


def test_names_of_others_are_texts(server: RunningServer, opening: Opening) -> None:
    with connect(server.url) as client:
        client.log("empty").append(
            [
                Event(text, json.dumps({text: text}).encode(), (f"key:{text}", text), attributes={"subject": text})
                for text in HOSTILE
            ]
        )
    for text in HOSTILE[:4]:
        name = urllib.parse.quote(text, safe="")
        put(server, f"/logs/empty/consumers/{name}/{name}", b'{"after": 0}')
    seen = opening(server)
    dialogs: list[str] = []
    seen.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    query = urllib.parse.quote(f"exact_tag='{HOSTILE[0]}'")
    for path in ("/", f"/logs/empty?q={query}&at=1", "/logs/empty", "/logs/empty/2", "/consumers", "/happenings"):
        page = seen.open(path)
        page.locator("h1").first.wait_for()
        seen.wait("!document.querySelector('.skeleton')")
        assert page.locator("main img, main script, main iframe").count() == 0
        assert page.locator("a[href^='javascript']").count() == 0
    page = seen.open("/logs/empty/5")
    page.locator("pre.data").wait_for()
    assert "\u202e" not in page.inner_text("body") and "\u27e8202e\u27e9" in page.inner_text("body")
    page.get_by_role("tab", name="Hex").click()
    assert dialogs == [] and "hacked" not in page.title()


def test_the_policy_stops_what_the_page_would_never_do(seen: Seen) -> None:
    page = seen.open("/")
    page.locator("h1").wait_for()
    seen.expected += ["policy", "Content Security Policy", "TrustedHTML", "Trusted", "violates"]
    page.evaluate(
        """() => { try { document.body.innerHTML += '<b>'; } catch (error) { window.refused = String(error); } }"""
    )
    assert "TrustedHTML" in page.evaluate("window.refused")


NUMBERS_SHOWN = """new MutationObserver((_, observer) => {
    if (!document.body?.innerText.includes("Ready")) return;
    window.numbers_ = performance.now();
    observer.disconnect();
}).observe(document, {childList: true, subtree: true, characterData: true})"""
FILES_BEFORE = """(ms) => performance.getEntriesByType("resource")
    .filter((each) => each.name.includes("/static/") && !each.name.endsWith("favicon.svg") && each.startTime < ms)
    .map((each) => [each.name, each.encodedBodySize])"""
RESTED = "performance.getEntriesByType('resource').some((each) => each.name.endsWith('/event.js') && each.responseEnd)"


def rested(seen: Seen) -> None:
    """Wait for the last of the scripts that come when the first page has what it needs."""
    seen.until(lambda: seen.page.evaluate(RESTED), lambda: seen.page.evaluate(FILES_BEFORE, 1e9))


def test_a_first_visit_is_small_and_a_second_one_asks_for_the_page_alone(seen: Seen) -> None:
    seen.page.add_init_script(NUMBERS_SHOWN)
    page = seen.open("/")
    page.get_by_text("Ready").wait_for()
    first = page.evaluate(FILES_BEFORE, page.evaluate("window.numbers_"))
    assert 0 < len(first) <= 7 and sum(size for _, size in first) <= 55_000  # with the page itself 60,000
    rested(seen)  # then come the scripts of what is opened next
    assert sum(size for _, size in page.evaluate(FILES_BEFORE, 1e9)) <= 125_000
    before = files_served(seen.server)
    seen.open("/").get_by_text("Ready").wait_for()
    rested(seen)
    assert before > 0 and files_served(seen.server) == before


def test_a_log_is_opened_with_scripts_that_have_come_before(seen: Seen) -> None:
    page = seen.open("/")
    rested(seen)
    before = files_served(seen.server)
    page.locator("#rail a.sub", has_text="flights").click()
    page.locator("hw-log .list .line[data-number]").first.wait_for()
    assert files_served(seen.server) == before


def files_served(server: RunningServer) -> int:
    """How many requests for files of the page the server has answered."""
    lines = [line for line in server.ask("/metrics")[1].splitlines() if "/console/static/" in line]
    return sum(
        int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("headwater_http_requests_total")
    )


def test_the_first_screen_says_what_needs_somebody(opening: Opening, tmp_path: Path) -> None:
    with RunningServer(
        "--storage", "memory", "--log", "orders", "--management-lag-events", "10", cwd=tmp_path
    ) as server:
        with connect(server.url) as client:
            client.create("quiet", LogSettings())
            client.log("orders").append([Event("T", b"{}")] * 50)
        put(server, "/logs/orders/consumers/billing/invoicer", b'{"after": 0}')
        seen = opening(server)
        page = seen.open("/")
        page.get_by_text("behind on orders").wait_for()
        page.get_by_role("link", name="Look at it").click()
        page.wait_for_url("**/consumers?c=registered*")
        page.locator("aside").get_by_text("lags").wait_for()
        seen.close()


@pytest.mark.parametrize("width", [1024, 320])
def test_an_inspector_without_room_beside_its_list_is_opened_and_closed(
    shared: RunningServer, opening: Opening, width: int
) -> None:
    page = opening(shared, viewport={"width": width, "height": 700}).open("/consumers")
    name, inspector = page.locator("td a", has_text="invoicer"), page.locator("aside")
    name.wait_for()
    assert not inspector.is_visible()
    name.click()
    inspector.get_by_role("button", name="Close").click()
    inspector.wait_for(state="hidden")
    name.click()
    inspector.get_by_text("events behind").wait_for()
    page.keyboard.press("Escape")
    inspector.wait_for(state="hidden")


def test_a_long_name_leaves_room_for_the_other_columns(server: RunningServer, opening: Opening) -> None:
    put(server, f"/logs/flights/consumers/{'owner' * 10}/{'component' * 6}", b'{"after": 11}')
    seen = opening(server, viewport={"width": 1440, "height": 900})
    seen.open("/consumers").locator("td a", has_text="owner").wait_for()
    title, listed = seen.box("th", "Behind, time"), seen.box(".card.scroll")
    assert title["x"] + title["width"] < listed["x"] + listed["width"]


def test_an_event_leads_only_to_events_that_there_are(server: RunningServer, seen: Seen) -> None:
    page = seen.open("/logs/flights/1")
    page.get_by_title("After in the log").wait_for()
    assert page.get_by_title("Before in the log").count() == 0
    page = seen.open("/logs/flights/400")
    page.get_by_title("Before in the log").wait_for()
    assert page.get_by_title("After in the log").count() == 0
    with connect(server.url) as client:
        client.log("flights").append([Event("Late")])
    page.get_by_title("After in the log").click()
    page.locator("h1", has_text="401").wait_for()
    seen.open("/logs/flights/0").get_by_text("There is no event with this number").wait_for()


def test_a_form_that_is_too_large_to_be_shown_has_its_command(server: RunningServer, seen: Seen) -> None:
    with connect(server.url) as client:
        client.log("empty").append([Event("Large", b'"' + b"x" * 300_000 + b'"')])
    page = seen.open("/logs/empty/1")
    for tab, told in (("CloudEvent", b"x" * 300_000), ("AMQP", b'"sections"')):
        page.get_by_role("tab", name=tab).click()
        copied = page.locator("[role=tabpanel] [data-copy]").get_attribute("data-copy")
        assert copied is not None
        done = subprocess.run(shlex.split(copied), capture_output=True, check=True, timeout=60)
        assert told in done.stdout


def test_a_narrow_page_has_room_for_what_matters(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared, viewport={"width": 320, "height": 700})

    def width(selector: str) -> float:
        box = seen.box(selector)
        assert box["x"] >= 0 and box["x"] + box["width"] <= 320, selector
        return box["width"]

    seen.open("/logs/flights")
    assert width(".list .line[data-number] .type") > 110
    assert width(".query button[aria-pressed]:has(kbd)") > 60 and width(".same code") > 200
    seen.open("/logs/flights/settings")
    assert width("#setting-retention_ms") > 200


REDRAWN = """async () => {
    const core = await import(document.querySelector('script[type=module]').src.replace('app.js', 'core.js'));
    const link = [...document.querySelectorAll('td a')].find((each) => each.textContent === 'flights');
    link.focus();
    core.stats.value = {...core.stats.peek()};
    return [document.activeElement.textContent, link.isConnected];
}"""
"""As if the next measurement had come: what shows numbers is drawn anew. What has the focus then; whether it stayed."""


def test_what_is_drawn_anew_keeps_the_focus_and_waits_for_a_click_to_end(seen: Seen) -> None:
    page = seen.open("/logs")
    page.locator("td a", has_text="flights").wait_for()
    assert page.evaluate(REDRAWN) == ["flights", False]
    box = seen.box("td a", "flights")
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    assert page.evaluate(REDRAWN) == ["flights", True]
    page.mouse.up()
    page.wait_for_url("**/logs/flights")


def test_a_form_that_comes_late_does_not_replace_the_one_chosen_since(seen: Seen) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "cloudevents" in route.request.headers["accept"]:
            held.append(route)
        else:
            route.continue_()

    seen.page.route("**/read", hold)
    page = seen.open("/logs/flights/3")
    page.get_by_role("tab", name="Data").click()
    chosen = page.locator("[role=tabpanel] pre.data").inner_text()
    seen.until(lambda: held, lambda: "the first form was never asked for")
    with page.expect_response("**/read"):
        held[0].continue_()
    page.wait_for_timeout(200)
    assert page.locator("[role=tabpanel] pre.data").inner_text() == chosen


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_data_that_is_nested_without_end_is_shown_as_it_is(
    server: RunningServer, seen: Seen, opened: str, closed: str
) -> None:
    data = opened * 10_000 + ("1" if closed == "}" else "") + closed * 10_000
    with connect(server.url) as client:
        number = client.log("empty").append([Event("Deep", data.encode())]).first
    page = seen.open(f"/logs/empty/{number}")
    page.get_by_role("tab", name="Data").click()
    shown = page.locator("[role=tabpanel] pre.data", has_text=opened * 9)
    assert shown.evaluate("(node) => node.textContent") == data
    nested = opened * 60 + "1" + closed * 60
    with connect(server.url) as client:
        number = client.log("empty").append([Event("Nested", nested.encode())]).first
    page = seen.open(f"/logs/empty/{number}")
    page.get_by_role("tab", name="Data").click()
    page.locator("[role=tabpanel] pre.data > span:nth-child(121)").wait_for()
    lines = page.locator("[role=tabpanel] pre.data > span").all_text_contents()
    assert len(lines) == 121
    assert max(len(line) - len(line.lstrip()) for line in lines) == 48
