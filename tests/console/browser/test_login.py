"""Who may look and act: login over the page, rights that are taken away, a console that may only look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.client import connect
from headwater.server.users.accounts import hash_password
from tests.server.running import RunningServer, headwater
from tests.server.starting import PROGRAM

from .conftest import Opening, Seen, flights

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the server with users, and of its data."""
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def guarded(home: Path) -> Iterator[RunningServer]:
    """With alice, who may do everything, bob, who may read flights, and carol, who may append to it."""
    table = "".join(
        f"[users.{name}]\npassword = '{hash_password(PASSWORD)}'\ngrants = ['{grant}']\n"
        for name, grant in (("alice", "all:*"), ("bob", "read:flights"), ("carol", "append:flights"))
    )
    (home / "headwater.toml").write_text(table)
    with RunningServer("--data", "data", "--log", "flights", "--log", "secret", cwd=home, program=PROGRAM) as running:
        with connect(running.url, user="alice", password=PASSWORD) as client:
            client.log("flights").append(flights())
        yield running


def log_in(seen: Seen, name: str, path: str = "/", password: str = PASSWORD) -> None:
    page = seen.open(path)
    seen.expected.append("401")
    dialog = page.get_by_role("dialog", name="Log in")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Password or token").fill(password)
    dialog.get_by_role("button", name="Log in").click()


def test_who_logs_in_sees_what_was_asked_for_and_nothing_is_kept_by_the_page(
    guarded: RunningServer, opening: Opening
) -> None:
    seen = opening(guarded)
    log_in(seen, "alice", "/logs/flights?q=tag%3Dtail%3AN1", "wrong one")
    seen.page.get_by_text("is wrong").wait_for()
    assert "no login required" not in (seen.page.text_content("#rail") or "")
    seen.page.get_by_label("Password or token").fill(PASSWORD)
    seen.page.get_by_role("dialog").get_by_role("button", name="Log in").click()
    seen.page.get_by_text("40 events match").wait_for()
    cookies = seen.page.context.cookies()
    own = (f"headwater-{urlsplit(guarded.url).port}", True, "Strict")
    assert [(each["name"], each["httpOnly"], each["sameSite"]) for each in cookies] == [own]
    secret = cookies[0]["value"]
    stored = seen.page.evaluate(
        "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, location.href])"
    )
    assert PASSWORD not in stored and secret not in stored
    assert not [url for url in seen.requests if secret in url or PASSWORD in url]
    second = seen.page.evaluate("localStorage.getItem('headwater.session')")
    assert len(second) == 43 and not [url for url in seen.requests if second in url]
    seen.page.reload()
    seen.page.get_by_text("40 events match").wait_for()
    log_out(seen)
    assert seen.page.context.cookies() == []
    assert second not in seen.page.evaluate("JSON.stringify({...localStorage})")


def log_out(seen: Seen) -> None:
    """By what the window has for it, whatever its size."""
    seen.page.locator("[title='Log out']:visible, #menu:visible").click()
    dialog = seen.page.get_by_role("dialog", name="Menu")
    dialog.get_by_text("Logged in as alice").wait_for()
    dialog.get_by_role("button", name="Log out").click()
    seen.page.get_by_role("dialog", name="Log in").wait_for()


@pytest.mark.parametrize("width", [1000, 320])
def test_a_user_logs_out_and_gets_to_every_page_at_any_width(
    guarded: RunningServer, opening: Opening, width: int
) -> None:
    """As at any zoom: 200 % of 1,440 pixels are 720."""
    seen = opening(guarded, viewport={"width": width, "height": 600})
    log_in(seen, "alice", "/logs")
    seen.page.locator("td a", has_text="flights").wait_for()
    if width < 720:
        seen.page.get_by_role("button", name="Menu").click()
        seen.page.get_by_role("dialog", name="Menu").get_by_role("link", name="Users and rights").click()
        seen.page.wait_for_url("**/console/users")
        seen.page.get_by_role("dialog", name="Menu").wait_for(state="detached")
    log_out(seen)


def test_a_second_server_on_the_host_has_a_login_of_its_own(
    guarded: RunningServer, opening: Opening, home: Path, tmp_path: Path
) -> None:
    config = (home / "headwater.toml").read_text()
    (tmp_path / "headwater.toml").write_text(config)
    with RunningServer("--storage", "memory", "--log", "other", cwd=tmp_path) as second:
        seen = opening(guarded)
        log_in(seen, "alice", "/logs/flights")
        seen.page.locator(".list .line[data-number='400']").wait_for()
        seen.page.goto(f"{second.url}/console/logs")
        dialog = seen.page.get_by_role("dialog", name="Log in")
        dialog.get_by_label("Name").fill("alice")
        dialog.get_by_label("Password or token").fill(PASSWORD)
        dialog.get_by_role("button", name="Log in").click()
        seen.page.locator("td a", has_text="other").wait_for()
        seen.open("/logs/flights").locator(".list .line[data-number='400']").wait_for()
        seen.requests = [url for url in seen.requests if not url.startswith(second.url)]
        seen.page.context.close()


def test_who_may_only_read_sees_no_act_and_no_other_log(guarded: RunningServer, opening: Opening) -> None:
    seen = opening(guarded)
    log_in(seen, "bob", "/logs")
    seen.wait("performance.getEntriesByType('resource').some((each) => each.name.endsWith('/event.js'))")  # ahead
    page = seen.page
    page.locator("td", has_text="flights").wait_for()
    assert "secret" not in page.inner_text("body")
    names = page.locator("#rail nav").inner_text()
    assert "Users" not in names and "Connections" not in names and "Storage" not in names
    assert page.get_by_role("button", name="New log").count() == 0
    page.get_by_role("link", name="flights").first.click()
    page.locator(".list .line[data-number='400']").wait_for()
    assert page.get_by_role("button", name="Append").count() == 0
    page.get_by_role("link", name="Storage").click()
    page.get_by_text("requires manage on flights").wait_for()
    page = seen.open("/users")
    page.get_by_text("Users are shown to users with manage").wait_for()
    seen.expected.append("403")
    page = seen.open("/logs/secret")
    page.get_by_text("It requires read on secret").wait_for()


def test_who_may_only_append_is_told_that_there_is_no_log_to_read(guarded: RunningServer, opening: Opening) -> None:
    seen = opening(guarded)
    log_in(seen, "carol")
    page = seen.page
    page.get_by_text("no log that you can read").wait_for()
    seen.wait("!document.querySelector('.skeleton')")
    assert "There is no log." not in page.inner_text("main")
    widths = page.evaluate("[...document.querySelectorAll('.cards.over, .cards.over .card')].map((e) => e.clientWidth)")
    assert len(widths) == 2 and widths[1] > widths[0] - 10
    seen.open("/logs").get_by_text("no log that you can read").wait_for()


def test_a_user_that_is_removed_must_log_in_again_and_what_was_typed_stays(
    guarded: RunningServer, opening: Opening, home: Path
) -> None:
    def user(*arguments: str, given: str = "") -> None:
        headwater("user", *arguments, "--data", str(home / "data"), cwd=home, stdin=given).check_returncode()

    user("add", "eve", "--grant", "read,append:flights", "--password-stdin", given=PASSWORD)
    seen = opening(guarded)
    log_in(seen, "eve", "/logs/flights")
    page = seen.page
    page.locator(".list .line[data-number='400']").wait_for()
    page.get_by_role("button", name="Append").click()
    page.get_by_role("dialog", name="Append to flights").get_by_label("Type").fill("Typed")
    user("add", "eve", "--replace", "--grant", "read:flights", "--password-stdin", given="another password")
    dialog = page.get_by_role("dialog", name="Log in")
    dialog.wait_for()
    dialog.get_by_label("Name").fill("eve")
    dialog.get_by_label("Password or token").fill("another password")
    dialog.get_by_role("button", name="Log in").click()
    dialog.wait_for(state="detached")
    appending = page.get_by_role("dialog", name="Append to flights")
    assert appending.get_by_label("Type").input_value() == "Typed"
    seen.expected.append("403")
    appending.get_by_role("button", name="Append").click()
    appending.get_by_text("has no right to append").wait_for()


def test_a_console_that_may_only_look_shows_no_act_and_the_server_refuses_them(
    opening: Opening, tmp_path: Path
) -> None:
    with RunningServer("--storage", "memory", "--log", "flights", "--console-read-only", cwd=tmp_path) as server:
        with connect(server.url) as client:
            client.log("flights").append(flights())
        seen = opening(server)
        page = seen.open("/logs/flights")
        page.locator(".list .line[data-number='400']").wait_for()
        assert page.get_by_role("button", name="Append").count() == 0
        page.locator(".tabs").get_by_role("link", name="Storage").click()
        page.get_by_text("a console that is not read-only").wait_for()
        seen.expected.append("403")
        status = page.evaluate(
            """() => fetch('/logs/flights', {method: 'DELETE', headers: {'Headwater-Console': '1'}})
                .then((answer) => answer.json()).then((problem) => problem.type)"""
        )
        assert status == "urn:headwater:problem:console_read_only"
        assert server.ask("/logs/flights")[0] == 200
        seen.close()
