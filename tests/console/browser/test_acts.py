"""What is done from the console: it says what it will do before it does it, and that is what is done."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.amqp.client import AmqpError, Client
from headwater.amqp.protocol.types import Described, Symbol
from headwater.client import connect
from headwater.core.settings import LogSettings
from tests.amqp.asking import bound
from tests.server.running import RunningServer

from .conftest import Opening, Seen, flights, put
from .test_states import answering, with_entities

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


EARLIEST = {
    "begin": Described(
        Symbol("amqp:event-streams-delivery-annotations-filter"), {Symbol("event-streams-offset"): Symbol("@earliest")}
    )
}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[RunningServer]:
    """On disk, with small segments to be trimmed, and two consumers that are behind."""
    with RunningServer("--data", "data", "--log", "flights", cwd=tmp_path) as running:
        with connect(running.url) as client:
            client.log("flights").append(flights())
        register(running, "billing", "invoicer", 100)
        register(running, "spark", "archiver", 250)
        yield running


def register(server: RunningServer, owner: str, component: str, after: int) -> None:
    put(server, f"/logs/flights/consumers/{owner}/{component}", json.dumps({"after": after}).encode())


def positions(server: RunningServer) -> dict[str, int]:
    """By component."""
    found = json.loads(server.ask("/logs/flights/consumers")[1])["consumers"]
    return {each["component"]: each["acknowledged"] for each in found}


def test_a_consumer_is_skipped_to_the_head_and_put_back(kept: RunningServer, opening: Opening) -> None:
    seen = opening(kept)
    page = seen.open("/consumers?c=registered:flights/billing/invoicer")
    page.get_by_text("skips 300").wait_for()
    assert "300" in page.locator("tr[data-key='registered:flights/billing/invoicer']").inner_text()
    page.get_by_role("button", name="Skip to the head").click()
    seen.toast("billing / invoicer continues after 400")
    assert positions(kept)["invoicer"] == 400
    page.locator("#toast").get_by_role("button", name="Undo").click()
    seen.toast("Its position did not change")
    assert positions(kept)["invoicer"] == 100


def test_a_consumer_is_moved_to_a_number_and_unregistered_by_its_name(kept: RunningServer, opening: Opening) -> None:
    seen = opening(kept)
    page = seen.open("/logs/flights/consumers?c=registered:flights/billing/invoicer")
    page.get_by_role("textbox", name="Number or time").fill("50")
    page.get_by_text("goes back by 50").wait_for()
    page.get_by_role("button", name="Continue after 50").click()
    seen.toast("continues after 50")
    assert positions(kept)["invoicer"] == 50
    page.get_by_role("button", name="Unregister").click()
    dialog = page.get_by_role("dialog", name="Unregister billing / invoicer?")
    assert "It holds back" in dialog.inner_text()
    assert page.evaluate("document.activeElement.textContent") == "Keep it"
    act = dialog.get_by_role("button", name="Unregister")
    assert act.is_disabled()
    dialog.get_by_role("textbox").fill("invoice")
    assert act.is_disabled()
    dialog.get_by_role("textbox").fill("invoicer")
    act.click()
    seen.toast("is unregistered")
    assert set(positions(kept)) == {"archiver"}


def agree_to_drop(page: Page, title: str, drops: int) -> str:
    """Type the log's name where it is asked for, and what was said before."""
    dialog = page.get_by_role("dialog", name=title)
    said = dialog.inner_text()
    act = dialog.get_by_role("button", name=f"Drop {drops} events")
    assert act.is_disabled()
    dialog.get_by_role("textbox").fill("flights")
    act.click()
    return said


def offers_no_undo(page: Page) -> bool:
    return page.locator("#toast").get_by_role("button", name="Undo").count() == 0


def retention(server: RunningServer) -> int | None:
    found: int | None = json.loads(server.ask("/logs/flights")[1])["settings"]["retention_ms"]
    return found


def test_settings_that_drop_events_say_which_and_want_the_name_of_the_log(opening: Opening, tmp_path: Path) -> None:
    with RunningServer("--data", "data", "--log", "flights", cwd=tmp_path) as running:
        with connect(running.url) as client:
            client.log("flights").append(flights())
        seen = opening(running)
        seen.expected = ["status of 409"]
        page = seen.open("/logs/flights/settings")
        page.get_by_label("retention_ms").fill("1")
        page.get_by_role("button", name="Save").click()
        dialog = page.get_by_role("dialog", name="Change the settings of flights?")
        dialog.get_by_role("button", name="Keep it").click()
        assert retention(running) is None
        page.get_by_role("button", name="Save").click()
        said = agree_to_drop(page, "Change the settings of flights?", 400)
        assert "400 events of flights, 1 to 400, are deleted permanently" in said
        assert "They were recorded from" in said
        seen.toast("The settings are changed")
        assert offers_no_undo(page)
        assert retention(running) == 1
        seen.close()


def test_a_consumer_whose_move_drops_events_asks_and_cannot_be_put_back(kept: RunningServer, opening: Opening) -> None:
    with connect(kept.url) as client:
        client.log("flights").unregister_consumer("spark", "archiver")
        client.change("flights", LogSettings(retention_until_acknowledged=True), drops_at_most=100)
    seen = opening(kept)
    seen.expected = ["status of 409"]
    page = seen.open("/consumers?c=registered:flights/billing/invoicer")
    page.get_by_text("skips 300").wait_for()
    page.get_by_role("button", name="Skip to the head").click()
    said = agree_to_drop(page, "Move billing / invoicer?", 300)
    assert "300 events of flights, 101 to 400, are deleted permanently" in said
    seen.toast("billing / invoicer continues after 400")
    assert offers_no_undo(page)
    assert positions(kept) == {"invoicer": 400}


def test_a_double_click_appends_one_event(seen: Seen, server: RunningServer) -> None:
    page = seen.open("/logs/empty")
    page.get_by_role("button", name="Append").click()
    dialog = page.get_by_role("dialog", name="Append to empty")
    dialog.get_by_label("Type").fill("Twice")
    dialog.get_by_role("button", name="Append").dblclick()
    seen.toast("is durable")
    sent = [url for url in seen.requests if url.endswith("/logs/empty/append")]
    assert len(sent) == 1
    assert json.loads(server.ask("/logs/empty/head")[1])["head"] == 1


def test_an_append_that_is_sent_again_is_recognised(seen: Seen, server: RunningServer) -> None:
    seen.expected = ["Failed to load resource"]
    page = seen.open("/logs/empty")
    page.get_by_role("button", name="Append").click()
    dialog = page.get_by_role("dialog", name="Append to empty")
    dialog.get_by_label("Type").fill("Twice")

    def lose_the_answer(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/append", lose_the_answer, times=1)
    dialog.get_by_role("button", name="Append").click()
    dialog.get_by_text("The server does not answer").or_(
        dialog.get_by_text("The server or the network is down")
    ).wait_for()
    dialog.get_by_role("button", name="Append").click()
    seen.toast("is durable")
    assert json.loads(server.ask("/logs/empty/head")[1])["head"] == 1


def test_what_a_trim_drops_is_shown_before_and_a_consumer_is_respected(kept: RunningServer, opening: Opening) -> None:
    seen = opening(kept)
    page = seen.open("/logs/flights/storage")
    page.get_by_label("Trim events below", exact=True).fill("301")
    page.get_by_text("Held back by").wait_for()
    assert page.locator("[data-events]").get_attribute("data-events") == "100"
    page.get_by_role("button", name="Trim").click()
    dialog = page.get_by_role("dialog", name="Trim flights?")
    act = dialog.get_by_role("button", name="Drop 100 events")
    assert act.is_disabled()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert json.loads(kept.ask("/logs/flights")[1])["first_retained"] == 1, "Escape keeps it"
    register(kept, "late", "comer", 40)
    page.get_by_role("button", name="Trim").click()
    act = page.get_by_role("button", name="Drop 40 events")
    act.wait_for()
    page.get_by_role("dialog").get_by_role("textbox").fill("flights")
    act.click()
    seen.toast("flights begins at 41")
    assert json.loads(kept.ask("/logs/flights")[1])["first_retained"] == 41


def test_a_log_is_made_changed_and_deleted_by_its_name(kept: RunningServer, opening: Opening) -> None:
    seen = opening(kept)
    page = seen.open("/logs")
    page.get_by_role("button", name="New log").click()
    page.get_by_role("dialog").get_by_label("Name").fill("orders")
    page.get_by_role("dialog").get_by_label("Partitions").fill("3")
    page.get_by_role("button", name="Create").click()
    page.wait_for_url("**/logs/orders")
    page.get_by_text("Nothing was ever appended").wait_for()
    page.get_by_role("link", name="Settings").click()
    page.locator("#setting-retention_ms").fill("60000")
    page.get_by_role("button", name="Save").click()
    seen.toast("The settings are changed")
    assert json.loads(kept.ask("/logs/orders")[1])["settings"]["retention_ms"] == 60000
    page.get_by_role("button", name="Delete this log").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("orders")
    page.get_by_role("button", name="Delete it").click()
    seen.toast("orders is deleted")
    assert json.loads(kept.ask("/logs")[1])["logs"] == ["flights"]


def test_an_event_is_appended_and_a_condition_refuses_the_next(seen: Seen, server: RunningServer) -> None:
    page = seen.open("/logs/empty")
    seen.expected.append("409")
    page.get_by_role("button", name="Append", exact=True).click()
    dialog = page.get_by_role("dialog", name="Append to empty")
    dialog.get_by_label("Type").fill("OrderPlaced")
    dialog.get_by_label("Tags").fill("order:1")
    dialog.get_by_label("Fail if").fill("tag=order:1")
    dialog.get_by_role("button", name="Append").click()
    page.locator(".list .line[data-number='1']").wait_for()
    page.get_by_role("button", name="Append", exact=True).first.click()
    dialog.get_by_label("Type").fill("OrderPlaced")
    dialog.get_by_label("Tags").fill("order:1")
    dialog.get_by_label("Fail if").fill("tag=order:1")
    dialog.get_by_role("button", name="Append").click()
    dialog.get_by_text("Refused:").wait_for()
    assert json.loads(server.ask("/logs/empty")[1])["head"] == 1


def test_a_tag_with_spaces_is_appended_in_quotes(seen: Seen, server: RunningServer) -> None:
    page = seen.open("/logs/empty")
    page.get_by_role("button", name="Append", exact=True).click()
    dialog = page.get_by_role("dialog", name="Append to empty")
    dialog.get_by_label("Type").fill("OrderPlaced")
    tags = dialog.get_by_label("Tags")
    tags.fill("order:1 'customer:Ann")
    dialog.get_by_role("button", name="Append").click()
    dialog.get_by_text("is not closed").wait_for()
    tags.fill("order:1 'customer:Ann Lee' it's\\ odd'")
    command = dialog.locator("[data-copy]").get_attribute("data-copy") or ""
    assert "'customer:Ann Lee'" in command
    dialog.get_by_role("button", name="Append").click()
    seen.toast("is durable")
    with connect(server.url) as client:
        [event] = client.log("empty").read()
    assert set(event.tags) == {"order:1", "customer:Ann Lee", "its\\ odd"}


def test_a_time_is_read_in_the_zone_in_which_times_are_shown(shared: RunningServer, opening: Opening) -> None:
    """Of somebody in New York, who has switched to local times or not; by UTC, at which hour it is."""
    seen = opening(shared, timezone_id="America/New_York")
    for zone, hours in (
        ("UTC", {"2026-01-31 12:00": 12, "2026-01-31": 0, "2026-01-31 12:00 local": 17}),
        ("local", {"2026-01-31 12:00": 17, "2026-07-31 12:00:30.5": 16, "2026-01-31T12:00Z": 12, "2026-01-31": 5,
                   "2026-01-31T12:00+02:00": 10, "2026-01-31 12:00 UTC": 12}),
    ):  # fmt: skip
        page = seen.open("/logs/flights/storage")
        field = page.get_by_label("Trim events below", exact=True)
        field.wait_for()
        assert (field.get_attribute("placeholder") or "").endswith(f"12:00 {zone}")
        for typed, hour in hours.items():
            with page.expect_request("**/position?at=*") as asked:
                field.fill(typed)
            assert time.gmtime(int(asked.value.url.partition("at=")[2]) / 1000).tm_hour == hour, (zone, typed)
        field.fill("31.1.2026")
        page.get_by_text("Expected a number or a time").wait_for()
        page.locator("h1").click()
        page.keyboard.press("u")
        page.locator("#toast").wait_for()


def test_a_group_is_moved_once_its_members_have_left(opening: Opening, tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", "--log", "flights", cwd=tmp_path) as server:
        with connect(server.url) as client:
            client.log("flights").append(flights())
        with Client(server.further_url("amqp")) as member:
            member.receiver("flights", properties=bound(group="till"), credit=0)
            seen = opening(server)
            page = seen.open("/consumers?c=group:flights/till")
            page.locator("aside h2", has_text="till").wait_for()
            move = page.locator("aside").get_by_role("button", name="Skip to the head")
            move.wait_for()
            assert move.is_disabled()
        page = seen.open("/consumers?c=group:flights/till")
        page.get_by_role("textbox", name="Number or time").fill("50")
        page.get_by_role("button", name="Continue after 50").click()
        seen.toast("till continues after 50")
        command = page.locator("aside [data-copy]").first.get_attribute("data-copy") or ""
        assert command.startswith("headwater groups reset flights/till --after 50 --url")
        [entity] = json.loads(server.ask("/management/consumerGroup?attributes=positions")[1])["results"]
        assert entity == [{"0": 50}]
        seen.close()


def test_dead_letters_are_sent_again_once_their_endpoint_is_well(opening: Opening, tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", "--log", "flights", cwd=tmp_path) as server:
        seen = opening(server)
        hook = {"name": "1", "endpoint": "http://x/ack", "standing": "delivering", "failures": 0, "deadLetters": 2,
                "dialect": "v2", "log": "cne", "resource": "/node", "createdAt": 1}  # fmt: skip
        letters = [{"sequence_number": number, "id": "", "reason": "answered 400", "at": 1} for number in (7, 9)]
        told = {"cursor": 9, "is_current": True, "waiting": 0, "dead_letters": letters, "dead_letters_total": 2}
        seen.page.route("**/management?*", with_entities("subscription", list(hook), [list(hook.values())]))
        seen.page.route("**/subscriptions/1/delivery", answering(200, told))
        seen.page.route("**/subscriptions/1/resume", answering(202, told))
        page = seen.open("/webhooks")
        page.get_by_text("Given up: 2 in all").wait_for()
        with page.expect_request("**/ocloudNotifications/v2/subscriptions/1/resume") as asked:
            page.get_by_role("button", name="Send them again").click()
        assert asked.value.method == "POST"
        seen.toast("It is retried at once")
        seen.close()


def test_a_connection_is_closed_and_its_client_is_told(opening: Opening, tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", "--log", "flights", cwd=tmp_path) as server:
        with connect(server.url) as client:
            client.log("flights").append(flights())
        url = server.further_url("amqp")
        first, second = Client(url, container_id="till-<b>berlin</b>"), Client(url, container_id="till-wien")
        try:
            first.receiver("flights", filter=EARLIEST, credit=10).take(10)
            stalled = second.receiver("flights", filter=EARLIEST, credit=10)
            stalled.take(1)
            seen = opening(server)
            page = seen.open("/connections")
            tile = page.locator(".tiles.kinds button", has_text="AMQP 1.0")
            tile.get_by_text("of 10,000").wait_for()
            tile.locator("svg.spark[aria-label$=' connections']").wait_for()
            row = page.locator("tr", has_text="till-<b>berlin</b>")
            row.get_by_role("button", name="Close").click()
            dialog = page.get_by_role("dialog")
            assert "amqp:connection:forced" in dialog.inner_text() and "Its 1 link ends" in dialog.inner_text()
            assert page.evaluate("document.activeElement.textContent") == "Keep it"
            dialog.get_by_role("button", name="Close connection 1").click()
            seen.toast("Connection 1 is closed")
            row.wait_for(state="detached")
            page.get_by_role("button", name="Links of 2").click()
            page.get_by_role("button", name="Detach").click()
            page.get_by_role("button", name="Detach it").click()
            seen.toast("is detached")
            with pytest.raises((AmqpError, OSError), match=r"forced|pipe|reset|closed"):
                first.receiver("flights", filter=EARLIEST).take(1)
            with pytest.raises(AmqpError, match="detach"):
                stalled.take(300)
            seen.close()
        finally:
            for each in (first, second):
                with suppress(AmqpError, OSError):
                    each.close()
