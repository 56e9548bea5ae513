"""Queries of chips, the same by commands that are run, the list, and one event in all of its forms."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.client import connect
from headwater.core import Event, Query, QueryItem
from headwater.formats.querytext import parse_query
from tests.night import night
from tests.odd_tags import ODD_TAGS
from tests.server.running import RunningServer, environment
from tests.server.starting import PROGRAM

from .conftest import PATIENCE_MS, Opening, Seen, flights

if TYPE_CHECKING:
    from playwright.sync_api import Route


QUERY = "/logs/flights?q=type%3DFlightDeparted%20tag%3Dtail%3AN1"


def run(command: str, cwd: Path) -> str:
    """Run a command that was copied, by a shell; `headwater` is this one."""
    program = cwd / "bin"
    program.mkdir(exist_ok=True)
    script = program / "headwater"
    script.write_text(f'#!/bin/sh\nexec "{PROGRAM[0]}" -c "from headwater.cli.main import main; main()" "$@"\n')
    script.chmod(0o755)
    found = subprocess.run(
        ["sh", "-c", command],
        env={**environment(), "PATH": f"{program}:/usr/bin:/bin"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, (command, found.stderr)
    return found.stdout


def elsewhere(seen: Seen, log: str, items: list[dict[str, list[str]]], backwards: bool = False) -> dict[str, list[str]]:
    """What the page would show and copy for a query."""
    given = {"log": log, "items": items, "backwards": backwards}
    found: dict[str, list[str]] = seen.page.evaluate(
        """async ({log, items, backwards}) => {
            const script = document.querySelector('script[type=module]').src;
            return (await import(script.replace('app.js', 'query.js'))).elsewhere(log, items, {backwards});
        }""",
        given,
    )
    return found


def test_on_an_empty_log_the_command_that_is_shown_appends_and_the_event_appears(
    seen: Seen, server: RunningServer, tmp_path: Path
) -> None:
    page = seen.open("/logs/empty")
    page.get_by_text("Nothing was ever appended").wait_for()
    command = page.locator(".empty [data-copy]").get_attribute("data-copy")
    assert command is not None and server.url in command
    run(command, tmp_path)
    page.locator(".list .line[data-number='1']").wait_for()
    assert "OrderPlaced" in page.locator(".list .line[data-number='1']").inner_text()


def test_a_query_of_chips_is_in_the_address_and_back_leads_back(seen: Seen) -> None:
    page = seen.open("/logs/flights")
    page.get_by_text("400 events").first.wait_for()
    field = page.get_by_role("combobox", name="Type or tag")
    field.fill("FlightC")
    page.locator(".complete li", has_text="FlightCancelled").wait_for()
    field.press("Enter")
    page.get_by_text("100 events match").wait_for()
    field = page.get_by_role("combobox", name="Type or tag")
    field.fill("tail:N3")
    page.locator(".complete li", has_text="tail:N3").wait_for()
    field.press("Enter")
    page.get_by_text("20 events match").wait_for()
    assert "q=type%3DFlightCancelled+tag%3Dtail%3AN3" in page.url
    page.go_back()
    page.get_by_text("100 events match").wait_for()
    page.go_forward()
    page.get_by_text("20 events match").wait_for()
    page.get_by_role("button", name="Without tail:N3").click()
    page.get_by_text("100 events match").wait_for()


def test_a_query_is_typed_term_by_term_while_its_events_come(seen: Seen) -> None:
    page = seen.open("/logs/flights")
    page.get_by_text("400 events").first.wait_for()
    page.keyboard.press("/")
    for typed, counted in (("FlightC", "100 events match"), ("tail:N3", "20 events match")):
        page.keyboard.type(typed)
        page.locator(".complete li", has_text=typed).first.wait_for()
        page.keyboard.press("Enter")
        page.get_by_text(counted).wait_for()
        page.locator(".list .line[data-number]").first.wait_for()
    assert "q=type%3DFlightCancelled+tag%3Dtail%3AN3" in page.url
    page.keyboard.type("fgt")
    assert page.evaluate("[document.activeElement.value, document.documentElement.dataset.theme ?? null]") == [
        "fgt",
        None,
    ]
    assert page.get_by_role("button", name="Following").count() == 0


def test_a_type_has_one_colour_in_the_query_the_counts_and_the_list(seen: Seen) -> None:
    page = seen.open("/logs/flights?q=type%3DFlightDeparted%20type%3DFlightCancelled")
    page.locator(".line[data-number] .square").first.wait_for()
    colours = page.evaluate("""() => [...document.querySelectorAll("hw-log .square")].map((each) =>
        [each.parentElement.textContent.match(/Flight[A-Z][a-z]+/)[0], each.className])""")
    places = {name: {colour for found, colour in colours if found == name} for name, _ in colours}
    assert sorted(places) == ["FlightCancelled", "FlightDeparted"]
    assert [len(each) for each in places.values()] == [1, 1] and len(set.union(*places.values())) == 2


FEW = "/logs/flights?q=type%3DFlightDeparted%20tag%3Dorigin%3AEWR"


@pytest.mark.parametrize("kept", [0, 3])
@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("address", ["/logs/flights?", QUERY + "&", FEW + "&"])
def test_events_that_come_while_a_log_is_opened_are_in_its_list(
    seen: Seen, address: str, order: str, kept: int
) -> None:
    """What is counted is there, though a page that was read a moment before lacks what came last."""
    shortened: list[str] = []

    def lacks_some_at_first(route: Route) -> None:
        if shortened:
            route.continue_()
            return
        shortened.append(route.request.url)
        *lines, end = route.fetch().text().splitlines(keepends=True)
        left = lines[-kept:] if order == "newest" else lines[:kept]
        body = "".join([*(left if kept else ()), end])
        route.fulfill(status=200, content_type="application/x-ndjson;end=line", body=body)

    seen.page.route("**/logs/flights/read", lacks_some_at_first)
    page = seen.open(f"{address}order={order}")
    first = page.locator(".ground .line[aria-rowindex='1'][data-number]")
    first.wait_for()
    assert shortened
    rows = seen.page.evaluate("document.querySelector('hw-log').list.rows.length")
    counted = page.locator("hw-log h2").first.inner_text().split(" ")[0].replace(",", "")
    assert rows == int(counted) or rows >= 100  # of what matches, a page at a time
    assert page.locator(".line.missing").count() == 0


def test_a_page_of_rows_that_fails_leaves_the_counts_and_says_why(seen: Seen) -> None:
    problem = json.dumps({"title": "Damaged", "status": 500, "detail": "the frame at 17 is damaged", "code": "x"})
    seen.page.route(
        "**/logs/flights/read",
        lambda route: route.fulfill(status=500, content_type="application/problem+json", body=problem),
    )
    seen.expected.append("500")
    page = seen.open("/logs/flights")
    seen.toast("the frame at 17 is damaged")
    assert "400 events" in page.locator("hw-log h2").first.inner_text()


@pytest.mark.parametrize("kept", [0, 0.5, -1])
def test_events_of_an_answer_that_broke_off_are_not_shown_as_all(seen: Seen, kept: float) -> None:
    def cut(route: Route) -> None:
        whole = route.fetch().body()
        body = whole[: int(kept * len(whole))] if kept >= 0 else whole[: whole.rindex(b'{"end"')]
        route.fulfill(status=200, content_type="application/x-ndjson;end=line", body=body)

    seen.page.route("**/logs/flights/read", cut)
    seen.open("/logs/flights").get_by_text("The answer was cut off").first.wait_for()
    seen.page.unroute_all(behavior="wait")


def test_an_export_of_an_answer_that_broke_off_makes_no_file(seen: Seen) -> None:
    page = seen.open("/logs/flights")
    page.locator(".line[data-number]").first.wait_for()
    seen.page.route("**/logs/flights/read", lambda route: route.fulfill(status=200, body=route.fetch().body()[:-20]))
    for form in ("NDJSON", "CloudEvents", "CSV"):
        page.get_by_role("button", name="Export").click()
        dialog = page.get_by_role("dialog", name="Export")
        dialog.get_by_label("Form").select_option(form)
        dialog.get_by_role("button", name="Save a file").click()
        dialog.get_by_text("Only a part arrived").wait_for()
        dialog.get_by_role("button", name="Cancel").click()
    seen.page.unroute_all(behavior="wait")


def test_what_is_shown_as_a_command_gives_the_same(seen: Seen, server: RunningServer, tmp_path: Path) -> None:
    page = seen.open(QUERY)
    page.get_by_text("20 events match").wait_for()
    page.locator(".list .line[data-number]").nth(8).wait_for()
    expected = [int(each) for each in page.locator(".list .line[data-number]").evaluate_all(NUMBERS)]
    copied = {}
    for name in ("headwater", "curl", "Python"):
        page.locator(".same").get_by_role("button", name=name, exact=True).click()
        copied[name] = page.locator(".same [data-copy]").get_attribute("data-copy") or ""
    assert server.url in copied["headwater"]
    by_curl = [json.loads(line)["sequence_number"] for line in run(copied["curl"], tmp_path).splitlines()]
    by_command = [
        json.loads(line)["sequence_number"] for line in run(copied["headwater"] + " --json", tmp_path).splitlines()
    ]
    assert by_curl[: len(expected)] == by_command[: len(expected)] == expected and len(by_curl) == 20
    script = tmp_path / "copied.py"
    script.write_text(copied["Python"])
    by_python = subprocess.run(
        [sys.executable, str(script)], env=environment(), capture_output=True, text=True, check=False, timeout=60
    )
    assert by_python.returncode == 0, (copied["Python"], by_python.stderr)
    assert [int(line.split()[0]) for line in by_python.stdout.splitlines()] == by_curl


NUMBERS = "lines => lines.map(line => line.dataset.number)"


def test_any_tag_survives_the_shell_the_address_and_python(seen: Seen, server: RunningServer, tmp_path: Path) -> None:
    wanted = [tag for tag in ODD_TAGS if len(tag) < 300]
    with connect(server.url) as client:
        client.log("empty").append([Event('Odd type\'s "name"', b"{}", (tag,)) for tag in wanted])
    seen.open("/")
    page = seen.page
    page.locator("h1").wait_for()
    commands, scripts = [], ["from contextlib import redirect_stdout", "import io"]
    for tag in wanted:
        found = elsewhere(seen, "empty", [{"types": ['Odd type\'s "name"'], "tags": [], "exact": [tag]}])
        commands.append(found["curl"][1] + "; echo --")
        scripts.append(f"exec({found['Python'][1]!r})\nprint('--')")
    answers = run("\n".join(commands), tmp_path).split("--\n")[:-1]
    numbers = [[json.loads(line)["sequence_number"] for line in answer.split("\n") if line] for answer in answers]
    assert numbers == [[place + 1] for place in range(len(wanted))]
    (tmp_path / "all.py").write_text("\n".join(scripts))
    by_python = subprocess.run(
        [sys.executable, str(tmp_path / "all.py")],
        env=environment(PYTHONIOENCODING="utf-8"),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [each.split()[0] for each in by_python.stdout.split("--\n")[:-1]] == [str(n[0]) for n in numbers]


HOSTILE = ("'; touch hacked; '", "$(touch hacked)", "--query=all", "two  words \\", "\U0001f680'\"")


def test_a_hostile_tag_is_one_word_of_the_command_line(seen: Seen, server: RunningServer, tmp_path: Path) -> None:
    with connect(server.url) as client:
        client.log("empty").append([Event("T", b"{}", (tag,)) for tag in (*HOSTILE, "other")])
    seen.open("/").locator("h1").wait_for()
    queries = [[{"types": [], "tags": [], "exact": [tag]}] for tag in HOSTILE]
    queries.append([{"types": ["T"], "tags": [], "exact": [tag]} for tag in HOSTILE])
    found = []
    for query in queries:
        command = elsewhere(seen, "empty", query)["headwater"][1]
        lines = run(f"{command} --json", tmp_path).split("\n")
        found.append([json.loads(line)["event"]["tags"] for line in lines if line])
    assert found == [*([[tag]] for tag in HOSTILE), [[tag] for tag in HOSTILE]]
    assert not (tmp_path / "hacked").exists()


def test_any_query_is_the_same_query_to_the_server(seen: Seen) -> None:
    chosen = random.Random(7)
    texts = [*ODD_TAGS[:60], "A", "type=x", "or", 'it\'s \\ "so"']

    def item() -> dict[str, list[str]]:
        of = {kind: chosen.sample(texts, chosen.randrange(3)) for kind in ("types", "tags", "exact")}
        return of if any(of.values()) else {**of, "types": ["A"]}

    queries = [[item() for _ in range(chosen.randrange(1, 4))] for _ in range(200)]
    seen.open("/").locator("h1").wait_for()
    worded: list[Any] = seen.page.evaluate(
        """async (queries) => {
            const query = await import(document.querySelector('script[type=module]').src.replace('app.js', 'query.js'));
            return queries.map((each) => [query.worded(each), query.read(query.worded(each))]);
        }""",
        queries,
    )
    for given, (text, again) in zip(queries, worded, strict=True):
        assert again == given
        expected = [QueryItem(tuple(i["types"]), tuple(i["tags"]), tuple(i["exact"])) for i in given]
        assert parse_query(text) == Query.of(*expected)


def test_nothing_matches_and_the_page_says_which_term_does_not(seen: Seen) -> None:
    page = seen.open("/logs/flights?q=type%3DFlightDeparted%20tag%3Dtail%3AN11")
    page.get_by_text("No event matches").wait_for()
    page.locator(".empty li", has_text="tail:N11").get_by_text("matches nothing by itself").wait_for()
    assert "has 300 events by itself" in page.locator(".empty li", has_text="FlightDeparted").inner_text()


def test_a_click_on_a_tag_adds_it_and_with_alt_opens_its_story(seen: Seen) -> None:
    page = seen.open("/logs/flights")
    row = page.locator(".list .line[data-number='400']")
    row.locator(".tag", has_text="tail:N9").click()
    page.get_by_text("40 events match").wait_for()
    page.locator(".list .line[data-number='400'] .tag", has_text="flight:UA199").click(modifiers=["Alt"])
    page.wait_for_url("**/logs/flights/400?story=flight%3AUA199")
    page.get_by_text("2 events in all").wait_for()


def test_all_events_of_a_log_are_in_reach_and_few_are_in_the_document(seen: Seen, server: RunningServer) -> None:
    with connect(server.url) as client:
        for _ in range(20):
            client.log("empty").append([Event("T", b"{}")] * 1000)
    page = seen.open("/logs/empty")
    page.locator(".list .line[data-number='20000']").wait_for()
    page.locator(".list").evaluate("list => { list.scrollTop = 15000 * 28; }")
    page.locator(".list .line[data-number='5000']").wait_for()
    assert page.locator(".list .line").count() < 120


def test_an_event_in_its_forms_is_what_the_api_has(seen: Seen, server: RunningServer) -> None:
    exact = '{"big": 9223372036854775807, "small": 1.10, "text": "<b>\u00fc</b>", "list": [1, {"a": null}]}'
    with connect(server.url) as client:
        client.log("empty").append([Event("Exact", exact.encode(), ("k:1",)), Event("Bytes", b"\xff\x00\x80")])
    page = seen.open("/logs/empty/1")
    page.get_by_role("tab", name="Data").click()
    shown = page.locator("pre.data").inner_text()
    assert "9223372036854775807" in shown and "1.10" in shown and json.loads(shown) == json.loads(exact)
    page.get_by_role("tab", name="CloudEvent").click()
    page.locator("pre.data", has_text="specversion").wait_for()
    event = json.loads(page.locator("pre.data").inner_text().replace("\u00a0", " "))
    status, text = server.ask(
        "/logs/empty/read",
        b'{"query": "all", "limit": 1}',
        {"accept": "application/cloudevents+json"},
    )
    assert status == 200 and [event] == json.loads(text)
    page = seen.open("/logs/empty/2")
    page.get_by_role("tab", name="Data").click()
    page.get_by_text("3 B that are not UTF-8").wait_for()
    assert "ff 00 80" in page.locator("pre.hex").inner_text()


def test_large_data_are_shown_in_part_and_whole_on_demand(seen: Seen, server: RunningServer) -> None:
    with connect(server.url) as client:
        client.log("empty").append([Event("Large", b'{"text": "' + b"x" * 900_000 + b'"}')])
    page = seen.open("/logs/empty")
    page.locator(".list .line[data-number='1']").click()
    page.get_by_text("262 kB of 900 kB are shown").wait_for()
    page.get_by_role("button", name="Show all of it").click()
    seen.wait("document.querySelector('.inspector pre.data').textContent.length > 900000")


def test_whether_an_append_would_be_refused_is_what_an_append_finds(seen: Seen, server: RunningServer) -> None:
    chosen = random.Random(3)
    page = seen.open("/logs/flights/200")
    query, after = page.get_by_label("Fail if an event matches"), page.get_by_label("After", exact=True)
    seen.page.locator("[data-verdict]").wait_for()
    with connect(server.url) as client:
        for _ in range(15):
            text = f"type={chosen.choice(['FlightDeparted', 'Never'])} tag=tail:N{chosen.randrange(12)}"
            number = chosen.randrange(380, 401)
            with page.expect_response(lambda answer: answer.url.endswith("/read")):
                after.fill("")
                query.fill(text)
                after.fill(str(number))
            expected = any(each.sequence_number > number for each in client.log("flights").read(parse_query(text)))
            wanted = "refused" if expected else "taken"
            shown = f"{text} {number}"
            seen.wait(
                f"document.querySelector('.probe code')?.textContent.includes({json.dumps(f'--after {number} ')})"
                f" && document.querySelector('.probe code').textContent.includes({json.dumps(text.split()[0])})"
                f" && document.querySelector('.probe code').textContent.includes({json.dumps(text.split()[1])})"
                f" && document.querySelector('[data-verdict]').dataset.verdict === '{wanted}'"
            )
            assert page.locator("[data-verdict]").get_attribute("data-verdict") == wanted, shown


def test_go_to_finds_logs_that_are_heard_of_later(seen: Seen) -> None:
    held: list[Route] = []
    seen.page.route("**/management?*", lambda route: held.append(route))
    page = seen.open("/happenings")
    page.locator("h1").wait_for()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Go to").fill("flights")
    page.locator("dialog.jump ul").wait_for(state="attached")
    assert page.locator("dialog.jump li", has_text="flights").count() == 0
    assert held
    page.unroute("**/management?*")  # those that are held go on
    page.locator("dialog.jump li", has_text="flights").first.wait_for()


def test_keys_walk_through_rows_and_open_one(seen: Seen) -> None:
    page = seen.open("/")
    page.locator("h1").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.wait_for_url("**/console/logs")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Go to").fill("flights")
    page.locator("dialog.jump li", has_text="flights").first.wait_for()
    page.keyboard.press("Enter")
    page.locator(".list .line[data-number='400']").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.locator(".line[data-number='399'][aria-selected='true']").wait_for()
    page.keyboard.press("k")
    page.locator(".line[data-number='400'][aria-selected='true']").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/logs/flights/400")
    page.get_by_text("The story of").wait_for()
    page.keyboard.press("[")
    page.wait_for_url("**/logs/flights/3**")


@pytest.mark.parametrize("pixels", [3000, 600])
def test_a_row_that_is_walked_to_is_in_view_where_rows_are_more_than_pixels(seen: Seen, pixels: int) -> None:
    from playwright.sync_api import expect  # not at collection

    def with_few_pixels(route: Route) -> None:
        """As in a log of more than half a million events; with 600 of them, several rows share a place."""
        answer = route.fetch()
        script, few = answer.text(), f"GROUND_MAX = {pixels};"
        assert script.count("GROUND_MAX = 15e6;") == 1
        route.fulfill(response=answer, body=script.replace("GROUND_MAX = 15e6;", few))

    seen.page.route("**/list.js", with_few_pixels)
    page = seen.open("/logs/flights")
    page.locator(".list .line[data-number='400']").wait_for()
    assert page.evaluate("document.querySelector('.list .ground').clientHeight") == pixels
    chosen = page.locator(".list .line[aria-selected='true']")
    for number, key in ((400, "j"), (399, "j"), (398, "j"), (397, "j"), (398, "k")):
        page.evaluate("document.querySelector('.list').scrollTop = 1e6")
        page.locator(".list .line[data-number='1']").wait_for()
        page.keyboard.press(key)
        expect(chosen).to_have_attribute("data-number", str(number), timeout=PATIENCE_MS)
        expect(chosen).to_be_in_viewport(ratio=1, timeout=PATIENCE_MS)
    for number in range(397, 340, -1):
        page.keyboard.press("j")
        expect(chosen).to_have_attribute("data-number", str(number), timeout=PATIENCE_MS)
        expect(chosen).to_be_in_viewport(ratio=1, timeout=PATIENCE_MS)


def test_the_same_over_amqp_and_by_sql_gives_the_same(opening: Opening, tmp_path: Path) -> None:
    flight = ("--flight-enabled", "true", "--flight-port", "0")
    with RunningServer("--data", str(tmp_path / "data"), "--log", "flights", *flight, cwd=tmp_path) as server:
        amqp, grpc = server.further_url("amqp"), server.further_url("grpc")
        with connect(server.url) as client:
            client.log("flights").append(flights())
            query = Query.where(types=["FlightDeparted"], tags=["tail:N1"])
            expected = [event.sequence_number for event in client.log("flights").read(query)]
        seen = opening(server)
        page = seen.open(QUERY)
        page.get_by_text(f"{len(expected)} events match").wait_for()
        copied = {}
        for name in ("AMQP", "SQL"):
            page.locator(".same").get_by_role("button", name=name, exact=True).click()
            copied[name] = page.locator(".same [data-copy]").get_attribute("data-copy") or ""
        seen.close()
        for name, url in (("AMQP", amqp), ("SQL", grpc)):
            assert f'"{url}"' in copied[name]
        assert [int(line) for line in python(copied["AMQP"], tmp_path).splitlines()] == expected
        told = python(copied["SQL"], tmp_path)
        assert "FlightDeparted" in told and f" {len(expected)} " in told and "FlightCancelled" not in told


def test_an_export_and_the_commands_have_just_the_range_that_is_selected(
    seen: Seen, server: RunningServer, tmp_path: Path
) -> None:
    with connect(server.url) as client:
        log = client.log("empty")
        events = list[Any]()
        while len({event.recorded_at for event in events}) < 4:
            log.append([Event("T" if len(events) % 3 else "U", b"{}", ("a b",)) for _ in range(2)])
            events = list(log.read())
    _, first, _, last = sorted({event.recorded_at for event in events})[:4]
    expected = [each.sequence_number for each in events if first <= each.recorded_at < last and each.type == "T"]
    page = seen.open(f"/logs/empty?q=type%3DT&from={first}&before={last}")
    page.get_by_text(f"{len(expected)} event{'s' * (len(expected) > 1)} match").first.wait_for()
    for name, option in (("headwater", " --json"), ("curl", "")):
        page.locator(".same").get_by_role("button", name=name, exact=True).click()
        copied = page.locator(".same [data-copy]").get_attribute("data-copy") or ""
        assert EXPORTED["NDJSON"](run(copied + option, tmp_path)) == expected[::-1], name
    for form, read in EXPORTED.items():
        page.get_by_role("button", name="Export").click()
        dialog = page.get_by_role("dialog", name="Export")
        dialog.get_by_label("Form").select_option(form)
        command = dialog.locator("[data-copy]").get_attribute("data-copy") or ""
        with page.expect_download() as download:
            dialog.get_by_role("button", name="Save a file").click()
        assert read(download.value.path().read_text()) == expected, form
        dialog.wait_for(state="detached")
        if form == "NDJSON":
            run(command, tmp_path)
            assert read((tmp_path / "empty.ndjson").read_text()) == expected


@night
def test_an_export_of_more_than_100_000_events_has_them_all(seen: Seen, server: RunningServer) -> None:
    events = 100_001
    with connect(server.url) as client:
        for begin in range(0, events, 10_000):
            client.log("empty").append([Event("T")] * min(10_000, events - begin))
    seen.open("/logs/empty").get_by_role("button", name="Export").click()
    dialog = seen.page.get_by_role("dialog", name="Export")
    dialog.get_by_label("Form").select_option("CSV")
    with seen.page.expect_download(timeout=200_000) as download:
        dialog.get_by_role("button", name="Save a file").click()
    assert EXPORTED["CSV"](download.value.path().read_text()) == list(range(1, events + 1))


EXPORTED = {
    "NDJSON": lambda text: [json.loads(line)["sequence_number"] for line in text.splitlines()],
    "CloudEvents": lambda text: [int(each["sequence"]) for each in json.loads(text)],
    "CSV": lambda text: [int(line.split(",")[0]) for line in text.splitlines()[1:]],
}
"""How the numbers of the events stand in a file, by its form."""


def python(script: str, cwd: Path) -> str:
    """What a script of Python writes."""
    (cwd / "copied.py").write_text(script)
    found = subprocess.run(
        [sys.executable, str(cwd / "copied.py")],
        env=environment(PYTHONIOENCODING="utf-8"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert found.returncode == 0, (script, found.stderr)
    return found.stdout
