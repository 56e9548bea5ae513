"""The console's page and its files: what is served, how it is kept, and what a browser is told of it."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from importlib.resources import files
from urllib.parse import urlsplit

import pytest

from headwater.console import pages
from headwater.console.server import Application
from headwater.console.settings import ConsoleSettings
from headwater.core import OpenGuard
from headwater.storage.memory import MemoryStore
from tests.dcb.conftest import Client
from tests.every import every

from .hosting import console_host

STATIC = files("headwater.console").joinpath("static")
GZIP = {"accept-encoding": "gzip, br"}


@pytest.fixture
def client() -> Iterator[Client]:
    found = Client(Application(console_host(MemoryStore(), OpenGuard())))  # type: ignore[arg-type]
    yield found
    found.close()


def of_version(name: str) -> str:
    return f"/console/static/{pages.static().version}/{name}"


def test_the_table_of_files_is_what_is_there() -> None:
    assert {each.name for each in STATIC.iterdir()} == {*pages.FILES, "index.html"}


@pytest.mark.parametrize("path", ["/console/", "/console/logs/orders", "/console/users", "/console/login"])
def test_every_address_of_the_page_is_the_same_page(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert b"<script" in answer.body and b"{version}" not in answer.body


@pytest.mark.parametrize(
    "path",
    [
        "/console/nowhere",
        "/console/logs/a/b/c",
        "/console/static/old/app.js",
        "/console/%2e%2e/server.py",
        "/console/static/{version}/..%2fserver.py",
        "/console/static/{version}/index.html",
    ],
)
def test_nothing_else_is_there(client: Client, path: str) -> None:
    assert client.get(path.format(version=pages.static().version)).status == 404


def test_without_a_slash_it_leads_to_the_page(client: Client) -> None:
    answer = client.get("/console")
    assert (answer.status, answer.headers["location"]) == (303, "/console/")


def test_all_that_the_page_names_is_served_and_kept_for_ever(client: Client) -> None:
    named = re.findall(r'(?:href|src)="(/[^"]+)"', client.get("/console/").body.decode())
    assert {urlsplit(each).path.rpartition("/")[2] for each in named} >= {"app.js", "core.js", "style.css"}
    for path in named:
        answer = client.get(path)
        assert answer.status == 200 and "immutable" in answer.headers["cache-control"]


def test_the_page_names_every_script_that_its_address_needs(client: Client) -> None:
    found = {path: named_scripts(client, path) for path in ("", "logs/orders/7", "connections/http", "logs")}
    assert set(found[""]) == {"app.js", "core.js", "overview.js", "charts.js", "telling.js"}
    assert {"app.js", "core.js", "event.js", "forms.js"} <= set(found["logs/orders/7"])
    assert "connections.js" in found["connections/http"] and "overview.js" not in found["connections/http"]
    assert all(len(set(names)) == len(names) for names in found.values())
    app = STATIC.joinpath("app.js").read_text(encoding="utf-8")
    assert len(pages.static().by_route) == app.count("module: ") == app.count("tag: "), "each address of app.js is read"


def named_scripts(client: Client, path: str) -> list[str]:
    page = client.get(f"/console/{path}").body.decode()
    return re.findall(r'<link rel="modulepreload" href="/console/static/[^/]+/([^"]+)">', page)


@every("name", pages.FILES)
def test_a_file_is_packed_for_who_takes_that_and_plain_for_who_does_not(client: Client, name: str) -> None:
    packed, plain = client.get(of_version(name), headers=GZIP), client.get(of_version(name))
    refused = client.get(of_version(name), headers={"accept-encoding": "gzip;q=0"})
    content = STATIC.joinpath(name).read_bytes()
    assert plain.body == refused.body == gzip.decompress(packed.body) == content
    assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"


def test_who_has_it_already_is_sent_nothing(client: Client) -> None:
    tag = client.get("/console/").headers["etag"]
    for given in (tag, tag.removeprefix("W/"), f'"other", {tag}'):
        again = client.get("/console/", headers={"if-none-match": given})
        assert (again.status, again.body) == (304, b"") and again.headers["etag"] == tag
        assert "content-length" not in again.headers
    assert client.get("/console/", headers={"if-none-match": '"another"'}).status == 200


@pytest.mark.parametrize("path", ["/console/", "/console/nowhere", "/console/session", "file"])
def test_every_answer_says_what_a_browser_may_do_with_it(client: Client, path: str) -> None:
    answer = client.get(of_version("app.js") if path == "file" else path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    for name, value in pages.SECURITY:
        assert answer.headers[name.decode()] == value.decode()


def test_the_policy_is_not_broken_by_what_is_served() -> None:
    page = STATIC.joinpath("index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|<style|https?://(?!www\.w3\.org)", page)
    for name in pages.FILES:
        text = STATIC.joinpath(name).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
        assert not re.search(r"https?://(?!www\.w3\.org)|@import|url\((?!#)", text), name


def test_all_of_it_is_small() -> None:
    found = pages.static()
    scripts = [name for name in pages.FILES if name.endswith(".js")]
    code = [re.sub(r"/\*.*?\*/", "", STATIC.joinpath(name).read_text(encoding="utf-8"), flags=re.S) for name in scripts]
    assert sum(len("".join(text.split())) for text in code) <= 232_000, (
        "characters of code, without blanks and comments"
    )
    assert sum(len(each.packed) for each in (found.page, *found.by_name.values())) <= 130_000
    first = ("style.css", "early.js", "core.js", "app.js", "charts.js", "telling.js", "overview.js")
    assert len(found.page.packed) + sum(len(found.by_name[name].packed) for name in first) <= 60_000


@every("name", [name for name in pages.FILES if name.endswith(".js")])
def test_a_person_can_read_its_lines(name: str) -> None:
    lines = STATIC.joinpath(name).read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > 120 or "\t" in line] == []


def test_the_page_is_told_what_the_server_wants_of_it() -> None:
    host = console_host(MemoryStore(), OpenGuard())
    host.wants, host.lag_events = ConsoleSettings(read_only=True), 7
    client = Client(Application(host))  # type: ignore[arg-type]
    assert client.get("/console/session").json["console"] == {
        "read_only": True,
        "lag_events": 7,
        "lag_ms": 0,
        "ports": {},
    }
    client.close()
