"""Web pages and a running server: hosts on the wire, refused pages, and what pages of allowed origins get (CORS)."""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import headwater
from headwater.server.front.web_guard import EXPOSED
from headwater.server.users.accounts import hash_password

from .running import SILENCE_S_MAX, RunningServer
from .running import headwater as command

LISTED = "http://app.example.org"
READABLE_BY_ALL = {"cache-control", "content-length", "content-type", "expires", "last-modified", "pragma"}
"""Header fields that every page may read (Fetch, 2.2.2: CORS-safelisted response-header names)."""
OF_CORS = {
    "vary", "access-control-allow-methods", "access-control-max-age", "access-control-allow-headers",
    "access-control-allow-origin", "access-control-expose-headers",
}  # fmt: skip
OF_THE_CONNECTION = {"connection", "x-accel-buffering", "content-encoding"}


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["type"]).rpartition(":")[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """On loopback, without users, with one origin and one name more."""
    settings = ("--storage", "memory", "--http-origins", LISTED, "--http-hosts", "log.example.org")
    with RunningServer(*settings, cwd=tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """With a user, for pages of every origin."""
    directory = tmp_path_factory.mktemp("guarded")
    users = f"[users.alice]\npassword = '{hash_password('correct horse')}'\ngrants = ['all:*']\n"
    (directory / "headwater.toml").write_text(users)
    settings = ("--storage", "memory", "--http-origins", "*")
    with RunningServer(*settings, cwd=directory) as running:
        yield running


def connection_to(server: RunningServer) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", urlsplit(server.url).port or 0, timeout=SILENCE_S_MAX)


def answered(connection: HTTPConnection, method: str, path: str, body: bytes | None, **headers: str) -> HTTPResponse:
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    return connection.getresponse()


def ask(server: RunningServer, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    connection = connection_to(server)
    answer = answered(connection, method, path, body, **headers)
    fields: dict[str, str] = {}
    for name, value in answer.getheaders():
        fields[name.lower()] = f"{fields[name.lower()]}, {value}" if name.lower() in fields else value
    found = Answer(answer.status, fields, answer.read())
    connection.close()
    return found


def status_of(server: RunningServer, head: str) -> int:
    """Of the answer to these bytes."""
    with socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0), SILENCE_S_MAX) as peer:
        peer.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        return int(peer.recv(65_536).split()[1])


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /logs HTTP/1.1\nHost: localhost", 200),
        ("GET /logs HTTP/1.1", 400),
        ("GET /logs HTTP/1.1\nHost: localhost\nHost: localhost", 400),
        ("GET /logs HTTP/1.1\nHost: localhost\nHost: evil.test", 400),
        ("GET /logs HTTP/1.1\nHost: local host", 400),
        ("GET /logs HTTP/1.0", 200),
        ("GET /logs HTTP/1.0\nHost: evil.test", 421),
        ("GET /logs HTTP/1.1\nHost: evil.test", 421),
        ("GET /logs HTTP/1.1\nHost: log.example.org", 200),
        ("GET /health/ready HTTP/1.1\nHost: evil.test", 421),
        ("GET /metrics HTTP/1.1\nHost: evil.test:8080", 421),
        ("GET http://localhost/logs HTTP/1.1\nHost: evil.test", 200),
        ("GET http://evil.test/logs HTTP/1.1\nHost: localhost", 421),
        ("GET http://evil.test HTTP/1.1\nHost: localhost", 421),
        ("GET http://[::1]:8080/logs HTTP/1.1\nHost: localhost", 200),
        ("GET http://localhost/logs HTTP/1.1", 400),
        ("GET http://evil.test/logs HTTP/1.0", 421),
        ("GET http://localhost/logs HTTP/1.0", 200),
        ("OPTIONS * HTTP/1.1\nHost: evil.test", 421),
        ("CONNECT evil.test:443 HTTP/1.1\nHost: evil.test", 400),
    ],
)
def test_the_host_that_is_asked_decides_in_whatever_form(server: RunningServer, head: str, status: int) -> None:
    assert status_of(server, head) == status


UPGRADE = (
    "upgrade: websocket\nconnection: Upgrade\nsec-websocket-version: 13\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /futoin/default HTTP/1.1\nhost: localhost", 101),
        ("GET /futoin/default HTTP/1.1\nhost: localhost\norigin: http://localhost", 101),
        (f"GET /futoin/default HTTP/1.1\nhost: localhost\norigin: {LISTED}", 101),
        ("GET /futoin/default HTTP/1.1\nhost: localhost\norigin: http://evil.test", 403),
        ("GET /futoin/default HTTP/1.1\nhost: localhost\norigin: null", 403),
        ("GET /futoin/default HTTP/1.1\nhost: localhost\nsec-fetch-site: cross-site", 403),
        ("GET /futoin/default HTTP/1.1\nhost: evil.test", 421),
        ("GET /futoin/default HTTP/1.1\nhost: evil.test\norigin: http://evil.test", 421),
        ("GET /futoin/default HTTP/1.1", 400),
        ("GET /futoin/default HTTP/1.1\nhost: localhost\nhost: localhost", 400),
        ("GET http://evil.test/futoin/default HTTP/1.1\nhost: localhost", 421),
        ("GET http://localhost/futoin/default HTTP/1.1\nhost: evil.test", 101),
    ],
)
def test_a_websocket_is_as_any_request_before_it_is_accepted(server: RunningServer, head: str, status: int) -> None:
    assert status_of(server, f"{head}\n{UPGRADE}") == status


def test_a_refused_websocket_is_told_why(server: RunningServer) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{server.url.replace('http', 'ws')}/futoin/default", origin="http://evil.test")  # type: ignore[arg-type]
    response = refused.value.response
    assert response.headers["content-type"] == "application/problem+json"
    assert "http.origins" in json.loads(response.body)["detail"]
    assert ask(server, "GET", "/logs").status == 200
    assert "level=error" not in server.errors, "else any page could fill the log"


def test_a_name_that_is_not_served_is_told_with_the_setting(server: RunningServer) -> None:
    answer = ask(server, "GET", "/logs", host="evil.test")
    assert (answer.status, answer.code) == (421, "host_not_served")
    told = json.loads(answer.body)
    assert (told["host"], told["setting"]) == ("evil.test", "http.hosts")
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_page_that_is_refused_is_told_why_gets_no_leave_to_read_it_and_is_counted(server: RunningServer) -> None:
    for method, path in (("GET", "/logs"), ("OPTIONS", "/logs/x/append"), ("GET", "/health/live"), ("GET", "/nowhere")):
        asking = {"origin": "http://evil.test", "access_control_request_method": "POST"}
        answer = ask(server, method, path, **asking)
        assert (answer.status, answer.code) == (403, "foreign_page")
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert answer.headers["vary"] == "origin, sec-fetch-site, sec-fetch-mode, sec-fetch-dest"
        assert answer.headers["cache-control"] == "no-store"
    metrics = ask(server, "GET", "/metrics").body.decode()
    assert re.search(r'headwater_http_requests_total{.*status="403"} [0-9.]+', metrics)


def test_a_page_of_a_listed_origin_reads_answers_and_errors(server: RunningServer) -> None:
    json_body = {"content_type": "application/json", "origin": LISTED}
    answers = {
        200: ask(server, "POST", "/logs/default/append", b'{"events":[{"type":"T"}]}', **json_body),
        400: ask(server, "POST", "/logs/default/append", b"{", **json_body),
        404: ask(server, "GET", "/logs/none", origin=LISTED),
        405: ask(server, "PUT", "/logs", origin=LISTED),
    }
    for status, answer in answers.items():
        assert answer.status == status, answer
        assert answer.headers["access-control-allow-origin"] == LISTED
        assert answer.headers["vary"] == "origin"
        assert answer.headers["access-control-expose-headers"] == ", ".join(EXPOSED)
        assert "access-control-allow-credentials" not in answer.headers


def test_a_page_of_a_listed_origin_reads_health_futoin_and_notifications(server: RunningServer) -> None:
    for path in (
        "/health/ready",
        "/metrics",
        "/futoin/default/futoin.ping/1.0/ping",
        "/ocloudNotifications/v2/publishers",
    ):
        assert ask(server, "GET", path, origin=LISTED).headers["access-control-allow-origin"] == LISTED


def test_a_page_of_a_listed_origin_subscribes(server: RunningServer) -> None:
    connection = connection_to(server)
    fields = {"origin": LISTED, "accept": "text/event-stream"}
    answer = answered(connection, "GET", "/logs/default/subscribe?query=all", None, **fields)
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    assert answer.getheader("access-control-allow-origin") == LISTED
    connection.close()


@pytest.mark.parametrize(
    ("path", "method", "methods"),
    [
        ("/logs/default/append", "POST", "POST"),
        ("/logs/default", "DELETE", "DELETE, GET, HEAD, PATCH, PUT"),
        ("/logs/default/subscribe", "GET", "GET, HEAD"),
        ("/management/log/default", "PATCH", "DELETE, GET, HEAD, PATCH, PUT"),
        ("/futoin/default", "POST", "POST"),
        ("/futoin/default/futoin.evt.gen/1.1/addEvent", "GET", "GET"),
        ("/ocloudNotifications/v2/subscriptions", "POST", "DELETE, GET, HEAD, POST"),
        ("/health/ready", "GET", "GET, HEAD"),
        ("/metrics", "GET", "GET, HEAD"),
    ],
)
def test_a_browser_is_told_what_a_page_of_a_listed_origin_may_ask(
    server: RunningServer, path: str, method: str, methods: str
) -> None:
    asking = {"access_control_request_method": method, "access_control_request_headers": "authorization,content-type"}
    answer = ask(server, "OPTIONS", path, origin=LISTED, **asking)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-methods"] == methods
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    assert answer.headers["access-control-allow-origin"] == LISTED
    assert answer.headers["access-control-max-age"] == "600"
    assert answer.headers["vary"] == "access-control-request-headers, origin"


def test_where_nothing_is_a_preflight_gets_the_error(server: RunningServer) -> None:
    answer = ask(server, "OPTIONS", "/nowhere", origin=LISTED, access_control_request_method="GET")
    assert (answer.status, answer.code) == (404, "route_not_found")


def test_caches_are_told_that_answers_differ_by_origin_where_one_is_listed(server: RunningServer) -> None:
    assert ask(server, "GET", "/logs").headers["vary"] == "origin"
    assert ask(server, "GET", "/logs", origin=server.url).headers["vary"] == "origin"
    assert "access-control-allow-origin" not in ask(server, "GET", "/logs", origin=server.url).headers


def test_where_there_are_users_a_star_lets_any_page_ask_that_shows_who_it_is(guarded: RunningServer) -> None:
    page = {"origin": "https://page.test"}
    refused = ask(guarded, "GET", "/logs", **page)
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == "https://page.test"
    assert "www-authenticate" in refused.headers["access-control-expose-headers"]
    shown = {"authorization": f"Basic {base64.b64encode(b'alice:correct horse').decode()}"}
    assert ask(guarded, "GET", "/logs", **page, **shown).status == 200
    assert ask(guarded, "GET", "/logs", origin="null", **shown).status == 403


def test_a_star_without_users_is_refused_at_the_start(tmp_path: Path) -> None:
    given = ("serve", "--storage", "memory", "--http-port", "0", "--amqp-port", "0", "--http-origins", "*")
    refused = command(*given, cwd=tmp_path)
    assert refused.returncode != 0
    assert "http.origins" in refused.stderr and "headwater user add" in refused.stderr


@pytest.mark.parametrize(
    ("flag", "value", "allowed"),
    [
        ("--http-hosts", "log.example.org:8080", "without scheme or port"),
        ("--http-hosts", "http://log.example.org", "without scheme or port"),
        ("--http-hosts", "*", "without scheme or port"),
        ("--http-origins", "app.example.org", "https://app.example.org:8443"),
        ("--http-origins", "https://app.example.org/", "without a path"),
        ("--http-origins", "https://*.example.org", "null or *"),
    ],
)
def test_names_and_origins_are_checked_when_they_are_read(tmp_path: Path, flag: str, value: str, allowed: str) -> None:
    refused = command("serve", "--http-port", "0", "--amqp-port", "0", "--storage", "memory", flag, value, cwd=tmp_path)
    assert refused.returncode != 0
    assert allowed in refused.stderr and repr(value) in refused.stderr


def test_pages_of_allowed_origins_may_read_every_header_field_that_an_answer_has() -> None:
    source = Path(headwater.__file__).parent
    rooms = ("http", "dcb", "cne", "futoin", "management", "server")
    texts = [path.read_text() for room in rooms for path in (source / room).rglob("*.py")]
    found = {name for text in texts for name in re.findall(r'(?<!get)\(b"([a-z][a-z-]+)", ', text)}
    found -= READABLE_BY_ALL | OF_THE_CONNECTION | OF_CORS | {"host", "cross-site", "ce-specversion"}  # of requests
    found -= {"date", "upgrade"}  # of a WebSocket that was opened
    found -= {"content-security-policy", "x-content-type-options"}  # for the browser itself
    assert found == set(EXPOSED)
