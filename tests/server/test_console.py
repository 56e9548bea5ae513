"""The console's calls on a running server: a login that opens the rest of it, and a stream that nobody reads."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.console.series import SCRUB_FACTS
from headwater.core.watch.notification_types import NotificationType
from headwater.server.users.accounts import hash_password

from .running import SILENCE_S_MAX, RunningServer

PASSWORD = "correct horse"
OWN = {"Headwater-Console": "1", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory: Path = tmp_path_factory.mktemp("console")
    users = f"[users.alice]\npassword = '{hash_password(PASSWORD)}'\ngrants = ['all:*']\n"
    (directory / "config.toml").write_text(users)
    with RunningServer("--config", "config.toml", "--data", "data", "--log", "orders", cwd=directory) as running:
        yield running


class Browser:
    """A page of the server: it keeps the cookie that it was given, and the secret beside it."""

    def __init__(self, server: RunningServer) -> None:
        self.host = urlsplit(server.url).netloc
        self.cookie, self.secret = "", "1"

    def ask(self, method: str, path: str, body: object = None, **fields: str):
        connection = HTTPConnection(self.host, timeout=SILENCE_S_MAX)
        given = {**OWN, "Headwater-Console": self.secret, **fields, **({"Cookie": self.cookie} if self.cookie else {})}
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {**given, **({"Content-Type": "application/json"} if data else {})})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if (cookie := answer.headers["Set-Cookie"]) is not None:
            self.cookie = cookie.partition(";")[0]
        return answer.status, json.loads(text) if text and answer.status < 400 else text

    def log_in(self) -> None:
        status, who = self.ask("POST", "/console/session", {"name": "alice", "password": PASSWORD})
        assert status == 200 and who["user"] == "alice"
        self.secret = who["session"]["secret"]


def test_a_session_opens_every_room_but_only_to_a_page_of_the_server(server: RunningServer) -> None:
    browser = Browser(server)
    paths = ("/logs", "/management/log", "/ocloudNotifications/v2/subscriptions", "/console/history")
    for path in paths:
        assert browser.ask("GET", path)[0] == 401, path
    browser.log_in()
    append = {"events": [{"type": "T", "data": "x" * 1000}]}
    assert browser.ask("POST", "/logs/orders/append", append)[0] == 200
    for path in paths:
        assert browser.ask("GET", path)[0] == 200, path
    for other in ("1", "2", "x" * 43):  # of a page on another port of the host, which gets the cookie, too
        assert browser.ask("GET", "/logs", **{"Headwater-Console": other})[0] == 401
    assert browser.ask("GET", "/logs", **{"Sec-Fetch-Site": "none"})[0] == 401
    assert browser.ask("POST", "/logs/orders/append", append, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    cookie = browser.cookie
    assert browser.ask("DELETE", "/console/session")[0] == 204
    browser.cookie = cookie
    assert browser.ask("GET", "/logs")[0] == 401


def test_a_stream_tells_what_goes_on_and_history_what_went_on(server: RunningServer) -> None:
    browser = Browser(server)
    browser.log_in()
    with socket.create_connection(tuple(browser.host.rsplit(":", 1)), timeout=SILENCE_S_MAX) as stream:
        own = {**OWN, "Headwater-Console": browser.secret, "Cookie": browser.cookie}
        fields = "\r\n".join(f"{name}: {value}" for name, value in own.items())
        stream.sendall(f"GET /console/stream?log=orders HTTP/1.1\r\nHost: {browser.host}\r\n{fields}\r\n\r\n".encode())
        seen = b""
        while b"event: stats" not in seen:
            seen += stream.recv(65536)
        browser.ask("POST", "/logs/orders/append", {"events": [{"type": "Told", "data": "{}"}]})
        browser.ask("PATCH", "/logs/orders", {"event_bytes_max": 5000})
        changed = NotificationType.LOG_CHANGED.value.encode()
        while b"event: tail" not in seen or changed not in seen:
            seen += stream.recv(65536)
    assert b'"type":"Told"' in seen
    assert all(f'"{name}":'.encode() in seen for name in SCRUB_FACTS)
    status, names = browser.ask("GET", "/console/history")
    assert status == 200 and "requests" in names["series"]
