"""What goes on while a page is open: events that come, a server that is killed, a log that is deleted."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from headwater.client import connect
from headwater.core import Event
from tests.server.running import RunningServer

from .conftest import Opening, Seen

if TYPE_CHECKING:
    from playwright.sync_api import Page


AWAY = "Failed to load resource"


@pytest.fixture
def port() -> Iterator[int]:
    """One that was free."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        found = bound.getsockname()[1]
    yield found


def counted(seen: Seen, number: int) -> None:
    seen.wait(f"document.querySelector('[data-counted]')?.dataset.counted === '{number}'")


def test_a_tail_misses_nothing_and_doubles_nothing_over_a_server_that_is_killed(
    opening: Opening, tmp_path: Path, port: int
) -> None:
    arguments = ("--data", "data", "--log", "orders", "--http-port", str(port))
    with RunningServer(*arguments, cwd=tmp_path) as server:
        seen = opening(server)
        seen.expected.append(AWAY)
        page = seen.open("/logs/orders")
        page.get_by_text("Nothing was ever appended").wait_for()
        page.get_by_role("button", name="Follow").click()
        page.get_by_role("button", name="Following").wait_for()
        counted(seen, 0)  # what came before it knew where the log ends is there, and did not come since
        with connect(server.url) as client:
            for _ in range(15):
                client.log("orders").append([Event("T", b"{}")] * 200)
        counted(seen, 3000)
        server.process.kill()
        page.get_by_text("Away since").first.wait_for()
    with RunningServer(*arguments, cwd=tmp_path) as server:
        with connect(server.url) as client:
            for _ in range(5):
                client.log("orders").append([Event("U", b"{}")] * 200)
        counted(seen, 4000)
        page.locator("#state", has_text="Live").wait_for()
        page.locator(".list .line[data-number='4000']").wait_for()
        page.locator(".list").evaluate("list => { list.scrollTop = 1500 * 28; }")
        page.locator(".list .line[data-number='2500']").wait_for()
        with connect(server.url) as client:
            client.log("orders").append([Event("V", b"{}")] * 7)
        page.get_by_role("button", name="7 new").click()
        page.locator(".list .line[data-number='4007']").wait_for()
        seen.close()


def test_more_than_is_kept_is_counted_and_said(seen: Seen, server: RunningServer) -> None:
    page = seen.open("/logs/empty")
    page.get_by_text("Nothing was ever appended").wait_for()
    page.keyboard.press("f")
    page.get_by_role("button", name="Following").wait_for()
    counted(seen, 0)
    with connect(server.url) as client:
        for _ in range(14):
            client.log("empty").append([Event("T", b"{}")] * 500)
    counted(seen, 7000)
    page.get_by_text("the newest 5,000 are kept here, 2,000 more are in the log").wait_for()
    assert page.locator(".list .line").count() < 120


def test_a_page_says_that_the_server_is_away_and_goes_on_by_itself(opening: Opening, tmp_path: Path, port: int) -> None:
    arguments = ("--data", "data", "--log", "orders", "--http-port", str(port))
    with RunningServer(*arguments, cwd=tmp_path) as server:
        seen = opening(server)
        seen.expected.append(AWAY)
        page = seen.open("/")
        page.get_by_text("Ready").wait_for()
        server.process.kill()
        page.locator("#state", has_text="Away since").wait_for()
        assert page.get_by_text("orders").count(), "the last numbers stay"
        page.locator(".head .ready.bad", has_text="Away since").wait_for()
        assert page.get_by_text("Ready", exact=True).count() == 0 and page.get_by_text("following").count() == 0
    with RunningServer(*arguments, cwd=tmp_path):
        page.locator("#state", has_text="Live").wait_for()
        seen.close()


def test_a_log_that_is_deleted_is_followed_no_more(seen: Seen, server: RunningServer) -> None:
    seen.expected.append("404")
    page = seen.open("/logs/flights")
    page.locator(".list .line[data-number='400']").wait_for()
    page.keyboard.press("f")
    page.get_by_role("button", name="Following").wait_for()
    page.get_by_text("up to date").wait_for()
    with connect(server.url) as client:
        client.delete("flights")
    page.get_by_text("log_not_found").wait_for()
    assert page.get_by_text("up to date").count() == 0 and page.get_by_role("button", name="Following").count() == 0


def test_a_log_that_is_gone_leads_to_the_others(seen: Seen) -> None:
    seen.expected.append("404")
    page = seen.open("/logs/nothere")
    page.get_by_text("log_not_found").wait_for()
    for act in ("Append", "Export", "Follow", "Copy"):
        assert page.get_by_role("button", name=act).count() == 0
    assert page.locator("main .card").count() == 0
    page.get_by_role("link", name="All logs").click()
    page.locator("td", has_text="flights").wait_for()
    page = seen.open("/nowhere")
    assert "route_not_found" in page.inner_text("body")


SIGHT = """
Object.defineProperty(document, 'visibilityState', { get: () => window.sight ?? 'visible' });
"""
"""What a window says of itself: a test hides it, since a browser that has no screen never does."""


def turn(page: Page, sight: str) -> None:
    page.evaluate(f"window.sight = {sight!r}; document.dispatchEvent(new Event('visibilitychange'))")


def test_a_window_that_is_hidden_holds_no_stream_and_goes_on_where_it_was(seen: Seen, server: RunningServer) -> None:
    ended: list[str] = []
    page = seen.page
    page.on("requestfailed", lambda request: ended.append(request.url))
    page.add_init_script(SIGHT)
    page.clock.install()
    seen.open("/logs/flights")
    page.get_by_role("button", name="Follow").click()
    counted(seen, 0)
    seen.until(lambda: any("/subscribe" in url for url in seen.requests), lambda: seen.requests)
    turn(page, "hidden")
    page.clock.run_for(20_000)
    assert ended == []
    page.clock.run_for(11_000)
    seen.until(
        lambda: {"subscribe", "stream"} <= {urlsplit(url).path.rpartition("/")[2] for url in ended}, lambda: ended
    )
    begun = len(seen.requests)
    with connect(server.url) as client:
        client.log("flights").append([Event("Hidden")] * 3)
    turn(page, "visible")
    counted(seen, 3)
    assert any("/subscribe" in url and "after=400" in url for url in seen.requests[begun:])
