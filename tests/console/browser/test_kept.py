"""What somebody chooses for a log in this browser, columns and pinned queries; and what is found in loaded rows."""

from __future__ import annotations

import json
from urllib.parse import quote

from playwright.sync_api import Route

from headwater.client import connect
from headwater.core import Event
from tests.server.running import RunningServer

from .conftest import Opening, Seen
from .test_looks import HOSTILE

ROW = """(number) => [...document.querySelectorAll(`.list .line[data-number='${number}'] > span`)].map(
    (cell) => cell.textContent)"""
TITLES = "() => [...document.querySelectorAll('.line.title > span')].map((cell) => cell.textContent)"


def columns(seen: Seen) -> list[str]:
    """The titles of the list."""
    found: list[str] = seen.page.evaluate(TITLES)
    return found


def test_a_key_of_tags_and_a_member_of_the_data_become_columns(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared)
    page = seen.open("/logs/flights")
    page.locator(".list .line[data-number='400']").wait_for()
    page.get_by_role("button", name="Columns").click()
    field = page.get_by_role("combobox", name="Tag key, or member of the data")
    for typed, offered, taken in (("tai", "tag key", "tail"), ("delay", "member of the data", "delay_min")):
        field.fill(typed)
        page.locator(".complete li", has_text=offered).first.wait_for()
        page.keyboard.press("Enter")
        page.locator(".chosen li", has_text=taken).wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    seen.wait(f"({TITLES})().length === 8")
    assert columns(seen)[3:5] == ["tail", "delay_min"]
    page.locator(".list .line[data-number='400']").wait_for()
    cells = page.evaluate(ROW, 400)
    assert cells[3:5] == ["N9", "39"] and "tail:N9" not in cells[5] and "flight:UA199" in cells[5]
    page = seen.open("/logs/flights/400?story=tail:N9")
    page.locator(".story li", has_text="N9, delay_min 39").first.wait_for()
    page = seen.open("/logs/flights")
    page.locator(".list .line[data-number='400']").wait_for()
    assert columns(seen)[3:5] == ["tail", "delay_min"], "they are kept"
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("button", name="Without tail").click()
    page.get_by_role("button", name="Done").click()
    seen.wait(f"({TITLES})().length === 7")
    assert columns(seen)[3] == "delay_min"
    page = seen.open("/logs/empty")
    page.get_by_text("Nothing was ever appended").wait_for()
    assert page.evaluate("localStorage.getItem('headwater.columns:empty')") is None, "each log has its own"


def test_enter_counts_while_what_was_typed_before_is_still_looked_up(shared: RunningServer, opening: Opening) -> None:
    page = opening(shared).open("/logs/flights")
    held: list[Route] = []
    page.route("**/terms?*prefix=tai*", lambda route: held.append(route))
    page.locator(".list .line[data-number='400']").wait_for()
    page.get_by_role("button", name="Columns").click()
    field = page.get_by_role("combobox", name="Tag key, or member of the data")
    for typed in ("tai", "delay"):
        field.fill(typed)
        page.keyboard.press("Enter")
    page.locator(".chosen li", has_text="delay_min").wait_for()
    assert page.locator(".chosen li").count() == len(held) == 1
    held[0].continue_()


def test_names_and_values_of_columns_are_texts_and_what_is_kept_may_be_anything(
    seen: Seen, server: RunningServer
) -> None:
    text = HOSTILE[0]
    with connect(server.url) as client:
        client.log("empty").append(
            [Event("T", json.dumps({text: text}).encode(), (f"{text}:{text}",)), Event("U", b"\xff")]
        )
    page = seen.open("/logs/empty")
    page.locator(".list .line[data-number='2']").wait_for()
    for broken in ("{", "7", '[{"kind": "tag"}, null, {"kind": "script", "name": "x"}, {"kind": "tag", "name": 7}]'):
        page.evaluate("(text) => localStorage.setItem('headwater.columns:empty', text)", broken)
        page.evaluate("(text) => localStorage.setItem('headwater.pins:empty', text)", broken)
        page = seen.open("/logs/empty")
        page.locator(".list .line[data-number='2']").wait_for()
        assert len(columns(seen)) == 6 and page.locator(".chip.pin").count() == 0
    chosen = [{"kind": "tag", "name": text}, {"kind": "field", "name": text}, {"kind": "field", "name": "__proto__"}]
    page.evaluate("(text) => localStorage.setItem('headwater.columns:empty', text)", json.dumps(chosen))
    page = seen.open("/logs/empty")
    page.locator(".list .line[data-number='1']").wait_for()
    assert columns(seen)[3:6] == [text, text, "__proto__"]
    assert page.evaluate(ROW, 1)[3:6] == [text, text, "\u2013"] and page.evaluate(ROW, 2)[3:6] == ["\u2013"] * 3
    assert page.locator("main img").count() == 0


def test_a_query_is_pinned_and_unpinned(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared)
    odd = "type=FlightCancelled 'tag=tail:N3' or 'exact_tag=it'\\''s <b>'"
    page = seen.open("/logs/flights?q=type%3DFlightCancelled+tag%3Dtail%3AN3")
    page.get_by_role("button", name="Pin", exact=True).focus()
    page.keyboard.press("Enter")
    pin = page.locator(".chip.pin a")
    pin.wait_for()
    assert pin.inner_text() == "type=FlightCancelled tag=tail:N3"
    assert page.get_by_role("button", name="Pin", exact=True).count() == 0
    page = seen.open(f"/logs/flights?q={quote(odd)}")
    page.get_by_role("button", name="Pin", exact=True).click()
    seen.wait("document.querySelectorAll('.chip.pin').length === 2")
    page = seen.open("/logs/flights")
    page.get_by_text("400 events").first.wait_for()
    page.locator(".chip.pin a", has_text="tail:N3").last.click()
    page.get_by_text("20 events match").wait_for()
    page.locator(".chip.pin", has_text="<b>").get_by_role("button").click()
    seen.wait("document.querySelectorAll('.chip.pin').length === 1")
    page.get_by_role("button", name="Unpin type=FlightCancelled tag=tail:N3").click()
    seen.wait("document.querySelectorAll('.chip.pin').length === 0")
    assert page.evaluate("localStorage.getItem('headwater.pins:flights')") == "[]"
    assert page.locator("main b b").count() == 0


def test_a_text_is_found_in_what_is_loaded(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared)
    page = seen.open("/logs/flights?q=tag%3Dtail%3AN3")
    page.get_by_text("40 events match").wait_for()
    page.locator(".list .line[data-number='394']").wait_for()
    page.keyboard.press("Control+f")
    page.get_by_role("search").get_by_text("in 40 loaded, not in the log").wait_for()
    page.keyboard.type('MIN": 43')
    expected = [str(number + 1) for number in range(399, -1, -1) if number % 10 == 3 and number % 60 == 43]
    page.get_by_text(f"{len(expected)} events have it, in 40 loaded, not in the log").wait_for()
    for at, number in enumerate(expected[:2], 1):
        page.keyboard.press("Enter")
        page.locator(f".list .line[data-number='{number}'][aria-selected='true'].hit").wait_for()
        page.get_by_role("search").get_by_text(f"{at} of {len(expected)}, in 40 loaded").wait_for()
    page.keyboard.press("Shift+Enter")
    page.locator(f".list .line[data-number='{expected[0]}'][aria-selected='true']").wait_for()
    page.get_by_role("textbox", name="Find in the loaded events").fill("<b>")
    page.get_by_text("0 events have it").wait_for()
    page.get_by_role("textbox", name="Find in the loaded events").fill("43")
    seen.wait("CSS.highlights.get('found').size > 0")
    page.keyboard.press("Escape")
    page.get_by_role("search").wait_for(state="detached")
    assert page.locator(".line.hit").count() == 0 and not page.evaluate("CSS.highlights.has('found')")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "grid"


def test_what_is_found_grows_with_what_is_loaded_and_with_what_comes(seen: Seen, server: RunningServer) -> None:
    with connect(server.url) as client:
        client.log("empty").append([Event("T", b'{"n": "\xc4\xb0needle\xc4\xb0"}')] * 150)
    page = seen.open("/logs/empty")
    page.locator(".list .line[data-number='150']").wait_for()
    page.keyboard.press("f")
    page.get_by_text("up to date").wait_for()
    page.keyboard.press("Control+f")
    page.keyboard.type("needle")
    page.get_by_text("50 events have it, in 50 loaded").wait_for()
    with connect(server.url) as client:
        client.log("empty").append([Event("T", b'{"n": "Needle"}'), Event("T", b"{}")])
    page.get_by_text("51 events have it, in 52 loaded").wait_for()
