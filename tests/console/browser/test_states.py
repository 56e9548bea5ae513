"""What a page says where something is not as it should be: no answer, no right, somebody is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from headwater.amqp.client import Client
from headwater.client import connect
from headwater.core import Query
from tests.amqp.asking import DURABLE, EARLIEST, bound
from tests.server.running import RunningServer
from tests.waiting import eventually

from .conftest import Opening

if TYPE_CHECKING:
    from playwright.sync_api import Route


NAMES = ["server", "addresses", "role", "term", "lag", "lagMs", "ahead", "version", "heardMs", "runs"]
SERVERS = [
    ["a:8080", {"http": "http://a.example:8080"}, "primary", 7, 0, 0, None, "1.0", 200, True],
    ["b:8080", {"http": "http://b.example:8080"}, "following", None, 12, 40, None, "1.0", 300, True],
    ["c:8080", {}, "following", None, 90_000, 95_000, None, "1.0", 500, True],
    ["d:8080", {}, "following", None, None, None, None, "1.0", 61_000, False],
]
REQUESTS = "performance.getEntriesByType('resource').map((each) => [each.name, each.startTime])"
DISK = {"disk_free_bytes": 9e9, "disk_bytes": 20e9, "disk_reserve_bytes": 1e9}
SCRUB = {"scrub_running": 0, "scrub_ended_at": 0, "scrub_bytes": 0, "scrub_damaged": 0, "scrub_mended": 0}
SCRUBBED = """async (numbers) => {
    const script = document.querySelector('script[type=module]').src;
    return (await import(script.replace('app.js', 'storage.js'))).scrubbed(numbers);
}"""
RESERVE_IN = """async (line) => {
    const script = document.querySelector('script[type=module]').src,
        { reserveIn } = await import(script.replace('app.js', 'telling.js')),
        left = reserveIn({ step_s: 5, series: { disk_free_bytes: line } }, 9e9, 1e9);
    return left === null ? null : String(left);
}"""
ACTS = re.compile(r"\b(?:Close|New user|Trim|Unregister|Register)\b")


def answering(status: int, body: Any) -> Any:
    """What answers a request in the server's place."""
    kind = "application/problem+json" if status >= 400 else "application/json"
    return lambda route: route.fulfill(status=status, content_type=kind, body=json.dumps(body))


def with_entities(type: str, names: list[str], rows: list[Any]) -> Any:
    """What answers a survey as the server does, but with these entities of a type."""

    def answer(route: Route) -> None:
        told = route.fetch().json()
        told["entities"][f"io.headwater.{type}"] = {"attributeNames": names, "results": rows, "count": len(rows)}
        route.fulfill(json=told)

    return answer


def test_a_first_visit_asks_for_what_there_is_in_one_request_and_for_nothing_twice(
    shared: RunningServer, opening: Opening
) -> None:
    seen = opening(shared)
    page = seen.open("/")
    page.locator(".ready.good").wait_for()
    seen.wait(f"({REQUESTS}).some(([url]) => url.includes('/management?'))")
    asked = [(urlsplit(url).path, began) for url, began in page.evaluate(REQUESTS)]
    surveyed = next(began for path, began in asked if path == "/management")
    first = [path for path, began in asked if began < surveyed + 4000]  # the next survey is 5 s after this one, or more
    for path in ("/console/session", "/management"):
        assert first.count(path) == 1, asked
    assert not [path for path in first if path.startswith("/management/")]
    seen.wait("Object.keys(headwaterBegun.answers).length === 0")  # also the stream, whose answer does not end


@pytest.fixture
def readers(shared: RunningServer) -> Iterator[list[str]]:
    """A consumer group and a durable link, by the keys of their rows; they are forgotten in the end."""
    url, kinds = shared.further_url("amqp"), {"consumerGroup": "flights/workers", "durableLink": "flights/shop,1/in"}
    with Client(url, container_id="shop,1") as client:
        client.receiver("flights", filter=EARLIEST, properties=bound(None, "workers"), credit=1).take(1)[0].settle()
        client.receiver("flights", name="in", filter=EARLIEST, source=DURABLE, credit=1).take(1)[0].settle()
        client.flush()
    yield ["group:flights/workers", "durable:flights/shop,1/in"]
    with Client(url) as client:
        for type, name in kinds.items():
            assert client.manage("DELETE", type=f"io.headwater.{type}", name=name).status == 204


def test_how_far_behind_consumers_were_in_the_last_hour_is_asked_of_the_server(
    shared: RunningServer, opening: Opening, readers: list[str]
) -> None:
    names = {f"{each.replace(',', '%2C')}/lag_seconds" for each in readers}
    eventually(lambda: names < set(json.loads(shared.ask("/console/history")[1])["series"]))
    page = opening(shared).open("/consumers?c=registered:flights/billing/invoicer")
    page.get_by_label("Time behind, in the last hour").first.wait_for()
    for key in ("registered:flights/billing/invoicer", *readers):
        page.locator(f"tr[data-key='{key}'] svg.spark[aria-label$='s behind, in the last hour']").wait_for()


def test_when_the_disk_is_at_its_reserve_is_said_where_that_is_known(shared: RunningServer, opening: Opening) -> None:
    falling = [9e9 - 1e6 * step for step in range(720)]
    seen = opening(shared)
    numbers = {"at": 1, "logs": {}, "server": {**DISK, **SCRUB, "scrub_running": 1, "scrub_bytes": 5e9}}
    seen.page.route(
        "**/console/stream",
        lambda route: route.fulfill(
            content_type="text/event-stream", body=f"event: stats\ndata: {json.dumps(numbers)}\n\n"
        ),
    )
    told = {"step_s": 5, "newest_at": 1, "series": {"disk_free_bytes": falling}}
    seen.page.route("**/console/history?*", answering(200, told))
    page = seen.open("/storage")
    page.get_by_text("At the rate of the last hour, the reserve is reached in about 11 h").wait_for()
    page.get_by_text("The scrub is verifying all files on the disk: 5 GB so far; no damage is known.").wait_for()
    for line, seconds in (
        ([None] * 600 + falling[:120], 40_000),
        ([None] * 660 + falling[:60], None),  # it was not measured for five minutes
        ([9e9] * 720, "Infinity"),
        (falling[::-1], "Infinity"),
        ([None] * 720, None),
    ):
        assert page.evaluate(RESERVE_IN, line) == (None if seconds is None else str(seconds))


def test_what_the_scrub_found_is_said(shared: RunningServer, opening: Opening) -> None:
    page = opening(shared).open("/storage")
    ended = {**SCRUB, "scrub_ended_at": 1.8e12, "scrub_bytes": 5e9}
    for numbers, told in (
        (DISK, None),  # logs are in memory
        (SCRUB, "The scrub has not verified the files yet; no damage is known."),
        (ended, "The scrub verified all files on the disk, until 2027-01-15 "),
        (ended, ": 5 GB; no damage is known."),
        ({**ended, "scrub_damaged": 1}, "; 1 damaged place; headwater scrub lists them."),
        ({**ended, "scrub_mended": 2}, "; no damage is known. 2 mended from the home since the start."),
    ):
        found = page.evaluate(SCRUBBED, numbers)
        assert found is None if told is None else told in found, found


@pytest.mark.parametrize("path", ["/", "/logs", "/consumers", "/webhooks", "/storage"])
def test_a_page_without_an_answer_says_why_and_goes_on_by_retry(
    shared: RunningServer, opening: Opening, path: str
) -> None:
    seen = opening(shared)
    seen.expected += ["503"]
    problem = {"type": "urn:headwater:problem:busy", "title": "Too busy", "detail": "a disk is full", "status": 503}
    seen.page.route("**/management?*", answering(503, problem))
    page = seen.open(path)
    told = page.locator("#notice .trouble")
    told.get_by_text("a disk is full").wait_for()
    assert "Too busy" in told.inner_text() and page.locator(".skeleton:visible").count() == 0
    page.unroute("**/management?*")
    told.get_by_role("button", name="Retry").click()
    told.wait_for(state="detached")
    page.locator("h1").first.wait_for()
    seen.wait("!document.querySelector('.skeleton')")


def test_the_servers_of_a_home_are_shown_with_their_role_and_how_far_behind_they_are(
    shared: RunningServer, opening: Opening
) -> None:
    seen = opening(shared)
    seen.page.route("**/management?*", with_entities("homeServer", NAMES, SERVERS))
    page = seen.open("/")
    card = page.locator("section", has=page.get_by_role("heading", name="Servers of this home"))
    card.get_by_text("3 run").wait_for()
    rows = [re.sub(r"\s+", " ", each) for each in card.locator("tbody tr").all_inner_texts()]
    assert rows[0].startswith("a:8080 http://a.example:8080 primary, term 7")
    assert any(each.startswith("b:8080 http://b.example:8080 following 12 under 1 s") for each in rows)
    assert any("d:8080" in each and "silent" in each for each in rows)
    needs = page.get_by_role("list", name="Needs attention")
    needs.get_by_text("The replica c:8080 is 1.6 min behind the home").wait_for()
    needs.get_by_text("The server d:8080 is silent").wait_for()


def test_what_a_user_may_not_see_is_said(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared)

    def without_manage(route: Route) -> None:
        told = route.fetch().json()
        told.update(server=["read"], has_users=True, user="bob", grants=[{"logs": "*", "rights": ["read"]}])
        route.fulfill(json=told)

    seen.page.route("**/console/session", without_manage)
    page = seen.open("/")
    page.get_by_text("are shown with manage on the server").wait_for()
    page.get_by_text("requires manage on the server").wait_for()
    assert page.locator("#rail").get_by_role("link", name="Storage").count() == 0
    for path, told in (
        ("/connections", "shown to users with manage on the server"),
        ("/users", "shown to users with manage on the server"),
        ("/storage", "shown to users with manage on the server"),
        ("/logs/flights/storage", "requires manage on flights"),
        ("/consumers", "requires manage on flights"),
    ):
        seen.open(path).get_by_text(told).first.wait_for()
        assert page.locator("main button", has_text=ACTS).count() == 0


def test_the_keyboard_walks_through_rows_and_opens_one(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared)
    hooks = [[name, f"http://{name}/ack", "delivering", 0, 0, "v2", "cne", "/node", 1] for name in ("one", "two")]
    names = ["name", "endpoint", "standing", "failures", "deadLetters", "dialect", "log", "resource", "createdAt"]
    told = {"cursor": 1, "is_current": True, "waiting": 0, "dead_letters": []}
    seen.page.route("**/management?*", with_entities("subscription", names, hooks))
    seen.page.route("**/subscriptions/*/delivery", answering(200, told))
    page = seen.open("/webhooks")
    page.get_by_role("button", name="http://two/ack").wait_for()
    focused = "document.activeElement.textContent"
    page.keyboard.press("j")
    seen.wait(f"{focused} === 'http://one/ack'")
    page.keyboard.press("j")
    seen.wait(f"{focused} === 'http://two/ack'")
    page.keyboard.press("Enter")
    page.locator("aside h2", has_text="http://two/ack").wait_for()
    page.keyboard.press("k")
    seen.wait(f"{focused} === 'http://one/ack'")
    page = seen.open("/logs")
    page.locator("td a", has_text="flights").wait_for()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/logs/flights")


def test_a_list_of_the_first_thousand_says_how_many_there_are(shared: RunningServer, opening: Opening) -> None:
    seen = opening(shared)

    def many(route: Route) -> None:
        told = route.fetch().json()
        for type, total in (("log", 2501), ("consumer", 1200)):
            assert (
                told["entities"][f"io.headwater.{type}"]["total"] == told["entities"][f"io.headwater.{type}"]["count"]
            )
            told["entities"][f"io.headwater.{type}"]["total"] = total
        route.fulfill(json=told)

    seen.page.route("**/management?*", many)
    for path in ("/", "/logs", "/storage"):
        seen.open(path).locator(".head", has_text="first 2 of 2,501 logs; filters cover only those").wait_for()
    seen.page.keyboard.press("Control+k")
    seen.page.get_by_role("dialog", name="Go to").get_by_text("first 2 of 2,501 logs").wait_for()
    page = seen.open("/consumers")
    page.locator(".head", has_text="first 1 of 1,200 consumers; filters cover only those").wait_for()
    rail = page.locator("#rail").get_by_role("link")
    assert rail.filter(has_text="2,501").count() == rail.filter(has_text="1,200").count() == 1


def test_connections_and_tokens_of_which_the_first_thousand_are_listed_say_so(
    shared: RunningServer, opening: Opening
) -> None:
    seen = opening(shared)
    totals = {"connection": 2501, "client": 1600, "reader": 1200, "refusal": 1100, "token": 1001}

    def many(route: Route) -> None:
        told = route.fetch().json()
        route.fulfill(json=told | {"total": totals[urlsplit(route.request.url).path.rpartition("/")[2]]})

    seen.page.route(re.compile(rf"/management/({'|'.join(totals)})\?"), many)
    head = seen.open("/connections").locator(".head")
    for text in (
        "of 2,501 AMQP connections; filters cover only those",
        "of 1,600 other clients; filters cover only those",
        "of 1,200 readers; filters cover only those",
        "of 1,100 refusals; filters cover only those",
    ):
        head.get_by_text(text).wait_for()
    assert head.get_by_text("open", exact=False).count() == 0
    seen.open("/users").locator(".head", has_text="first 0 of 1,001 tokens; filters cover only those").wait_for()


def test_what_happened_before_the_newest_is_shown_by_more_and_by_its_kind(opening: Opening, tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", "--log", "orders", "--management-keep", cwd=tmp_path) as server:
        with connect(server.url) as client:
            client.create("gone")
            client.delete("gone")
            for number in range(310):
                client.log("orders").register_consumer("shop", f"c{number}")
            registered = Query.where(types=["io.headwater.consumer.registered"])
            eventually(lambda: len(list(client.log("$system").read(registered))) == 310)
        seen = opening(server)
        page = seen.open("/happenings")
        page.locator("td strong", has_text="consumer.registered").first.wait_for()
        rows = "document.querySelectorAll('main tbody tr').length"
        seen.wait(f"{rows} === 300")
        assert page.locator("td strong", has_text="log.deleted").count() == 0
        page.get_by_role("button", name="More").click()
        page.locator("td strong", has_text="log.deleted").wait_for()
        assert page.evaluate(rows) > 310 and page.get_by_role("button", name="More").count() == 0
        page = seen.open("/happenings")
        seen.wait(f"{rows} === 300")
        page.get_by_role("group", name="Type").get_by_role("button", name="log", exact=True).click()
        page.locator("td strong", has_text="log.deleted").wait_for()
        seen.close()


EMPTY = {"logs": [], "servers": [], "troubles": [], "consumers": [], "webhooks": []}
NEEDS = """async ([world, numbers, happened]) => {
    const { needs } = await import(document.querySelector('script[type=module]').src.replace('app.js', 'overview.js'));
    return needs(world, numbers, happened.map((each) => ({time: Date.now(), ...each})), new Map([['c', 312e6]]));
}"""


def test_what_needs_somebody_says_what_since_when_and_what_it_causes(shared: RunningServer, opening: Opening) -> None:
    page = opening(shared).open("/")
    page.get_by_text("Nothing needs attention").wait_for()

    def needs(happened: tuple[Any, ...] = (), numbers: Any = None, **world: Any) -> list[list[Any]]:
        found: list[list[Any]] = page.evaluate(NEEDS, [{**EMPTY, **world}, numbers, list(happened)])
        return found

    assert needs() == []
    lagging = {"key": "c", "lags": True, "title": "billing / invoicer", "log": "orders", "lag": 12, "lagMs": 2460000}
    [[kind, what, more, address]] = needs(consumers=[lagging])
    assert (kind, what) == ("bad", "billing / invoicer is 41 min behind on orders")
    assert more == "12 events. Holds back 312 MB from trimming." and address == "/consumers?c=c"
    hook = {"endpoint": "http://x/ack", "standing": "suspended", "failures": 9, "problem": "refused", "deadLetters": 2}
    [[kind, what, more, address]] = needs(webhooks=[{**hook, "failingSince": 1}])
    assert kind == "bad" and what.startswith("The webhook http://x/ack is suspended since ") and address == "/webhooks"
    assert more == "refused. Delivery stops until it is resumed; 2 events given up."
    [[kind, what, more, address]] = needs(logs=[{"name": "orders", "problem": "damaged"}])
    assert (kind, what, address) == ("bad", "The log orders cannot be opened", "/storage")
    [[kind, what, _, address]] = needs(numbers={"server": {"disk_free_bytes": 15, "disk_reserve_bytes": 10}})
    assert (kind, what, address) == ("warn", "The disk is near its reserve", "/storage")
    wrong = {"eventType": "io.headwater.authentication.failed"}
    [[kind, what, more, _]] = needs((wrong,) * 5)
    assert (kind, what) == ("warn", "Logins fail") and more.startswith("5 wrong logins")
    many = needs((wrong,) * 5, consumers=[lagging], webhooks=[hook], troubles=["bulk is down", "another"])
    assert [each[0] for each in many] == ["bad"] * 4 + ["warn"], "all of them, the worst first"
