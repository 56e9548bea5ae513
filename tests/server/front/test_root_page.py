"""`GET /` leads to everything, and HEAD is there where GET is, in every room."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from headwater.cne import server as cne
from headwater.core import OpenGuard
from headwater.dcb import Application
from headwater.server.front.health import HEALTH_PATHS, METRICS
from headwater.server.front.root_page import CONSOLE, LINKS
from headwater.storage.memory import MemoryStore
from tests.every import every

from ..running import RunningServer

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
VARYING = {"date", "content-length", "transfer-encoding"}
"""Fields that need not be equal; the length is looked at by itself."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    fields: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer("--storage", "memory", "--log", "orders", cwd=tmp_path_factory.mktemp("root")) as server:
        yield server


@pytest.fixture
def connection(server: RunningServer) -> Iterator[http.client.HTTPConnection]:
    """One that stays: whatever came after a HEAD would be taken for the next answer."""
    its = urlsplit(server.url)
    connection = http.client.HTTPConnection(its.hostname or "", its.port, timeout=60)
    yield connection
    connection.close()


def ask(connection: http.client.HTTPConnection, method: str, path: str, **fields: str) -> Answer:
    connection.request(method, path, headers=fields)
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    is_stream = found.get("content-type", "").startswith("text/event-stream") and method == "GET"
    body = b"" if is_stream else answer.read()
    if is_stream:
        connection.close()
    return Answer(answer.status, found, body)


def gets() -> list[str]:
    """A path for every GET of every room."""
    data = [path for method, path in Application(MemoryStore(), OpenGuard()).routes.patterns if method == "GET"]
    clouds = [
        f"/ocloudNotifications/{version}/{route.path}"
        for version in ("v1", "v2")
        for route in (*cne.ROUTES, cne._CURRENT_STATE)
        if "GET" in route.handlers
    ]
    others = ["/ocloudNotifications/api_versions", "/health", "/futoin/orders/futoin.evt.gen-1.1-iface.json"]
    paths = ["/", *sorted(HEALTH_PATHS), METRICS, *data, *clouds, *others]
    return [re.sub(r"\{(\w+)\}", "orders", path) for path in paths]


@every("path", gets())
def test_head_is_get_without_its_body(connection: http.client.HTTPConnection, path: str) -> None:
    query = {"/logs/orders/subscribe": "?query=all", "/dcb/orders/read": "?query=all"}.get(path, "")
    got, head = ask(connection, "GET", path + query), ask(connection, "HEAD", path + query)
    assert head.status == got.status and head.body == b"" and got.status in (200, 400, 404), got
    assert {name for name in head.fields if name not in VARYING} == {name for name in got.fields if name not in VARYING}
    assert head.fields.get("content-type") == got.fields.get("content-type")
    if "content-length" in got.fields and path != METRICS:  # which grow with each request
        assert head.fields["content-length"] == got.fields["content-length"] == str(len(got.body))
    assert ask(connection, "GET", "/health/live").status == 200, "the connection goes on"


@every("path", gets())
def test_what_has_get_says_that_it_has_head(connection: http.client.HTTPConnection, path: str) -> None:
    refused = ask(connection, "TRACE", path)
    allowed = set(refused.fields["allow"].split(", "))
    assert refused.status in (405, 400) and {"GET", "HEAD"} <= allowed


def test_where_there_is_no_get_there_is_no_head(connection: http.client.HTTPConnection) -> None:
    refused = ask(connection, "HEAD", "/logs/orders/append")
    assert (refused.status, refused.fields["allow"], refused.body) == (405, "POST", b"")
    called = ask(connection, "HEAD", "/futoin/orders/futoin.evt.gen/1.1/ping?echo=1")
    assert (called.status, called.fields["allow"]) == (400, "GET"), "a call is no resource"


def test_the_root_has_links_and_all_lead_somewhere(connection: http.client.HTTPConnection) -> None:
    answer = ask(connection, "GET", "/")
    assert (answer.status, answer.fields["content-type"], answer.fields["vary"]) == (200, "application/json", "accept")
    links = json.loads(answer.body)["links"]
    assert links == {link.name: link.path for link in (CONSOLE, *LINKS)} and links["openapi"] == "/openapi.yaml"
    for path in links.values():
        assert ask(connection, "GET", path).status == 200, path


def test_a_browser_is_sent_to_the_console(connection: http.client.HTTPConnection) -> None:
    answer = ask(connection, "GET", "/", accept=BROWSER)
    assert (answer.status, answer.fields["location"], answer.fields["vary"]) == (303, "/console/", "accept")


def test_without_a_console_a_browser_gets_links_and_nothing_is_below_it(tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", "--console-enabled", "false", cwd=tmp_path) as bare:
        status, page = bare.ask("/", headers={"accept": BROWSER})
        assert status == 200 and set(re.findall(r'href="([^"]+)"', page)) == {link.path for link in LINKS}
        for path in ("/console/", "/console", "/console/session", "/console/history", "/console/stream"):
            status, problem = bare.ask(path)
            assert status == 404 and "route_not_found" in problem, path
        assert json.loads(bare.ask("/")[1])["links"] == {link.name: link.path for link in LINKS}


def test_the_root_takes_no_parameters_and_nothing_is_below_it(connection: http.client.HTTPConnection) -> None:
    assert ask(connection, "GET", "/?limit=1").status == 400
    assert ask(connection, "GET", "//x").status == 404
    assert ask(connection, "POST", "/").fields["allow"] == "GET, HEAD"


def test_the_web_guard_is_before_the_root(connection: http.client.HTTPConnection) -> None:
    assert ask(connection, "GET", "/", host="stranger.test").status == 421
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
    assert ask(connection, "GET", "/", **foreign).status == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert ask(connection, "GET", "/", accept=BROWSER, **link).status == 303, "a link on another page leads here"
    assert ask(connection, "GET", "/console/", accept=BROWSER, **link).status == 200


def test_the_root_is_shown_without_credentials(tmp_path: Path) -> None:
    from headwater.server.users.accounts import hash_password

    table = f"[users.alice]\npassword = '{hash_password('correct horse')}'\ngrants = ['all:*']\n"
    (tmp_path / "headwater.toml").write_text(table)
    with RunningServer("--storage", "memory", cwd=tmp_path) as secured:
        assert secured.ask("/")[0] == 200
        assert secured.ask("/logs")[0] == 401
