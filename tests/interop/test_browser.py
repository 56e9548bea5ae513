"""A real browser, headless Chromium: what pages of other origins try with a server without users, and what they get.

The pages are `chromium/page.js`. What protects the server is tested
header by header in `tests/server/front/test_web_guard.py`.
"""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from headwater.client import connect
from headwater.core import Event
from tests.server.running import RunningServer

from .install import unavailable
from .runtimes import Chromium

PATIENCE_S = 60
SCRIPT = Path(__file__).parent / "chromium" / "page.js"
PAGE = b"<!doctype html><meta charset=utf-8><title>A page</title><body><script src=/page.js></script>"
EVENTS = 5


class Site:
    """A web site of somebody else: it serves the page, and is told what came of its attempts."""

    def __init__(self) -> None:
        self.reports: queue.Queue[dict[str, str]] = queue.Queue()
        self.is_rebound = threading.Event()
        """Set when the page has asked for its name to lead elsewhere."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            """Closes each connection after its answer, so that the next request looks the name up again."""

            def do_GET(self) -> None:
                is_script = self.path == "/page.js"
                self._answer(
                    SCRIPT.read_bytes() if is_script else PAGE, "text/javascript" if is_script else "text/html"
                )

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                if self.path == "/rebind":
                    site.is_rebound.set()
                else:
                    site.reports.put(json.loads(body))
                self._answer(b"", "text/plain")

            def _answer(self, body: bytes, media_type: str) -> None:
                self.send_response(200)
                self.send_header("content-type", media_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class ReboundName:
    """One port that leads to the site, and from when the page asks for it to the server: as a name does whose address
    changes, so that to the browser both are one origin."""

    def __init__(self, site: Site, server_port: int) -> None:
        self._site, self._server_port = site, server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=self._join, args=(self._listener.accept()[0],), daemon=True).start()

    def _join(self, browser: socket.socket) -> None:
        with suppress(OSError), browser:
            first = browser.recv(65_536)
            port = self._server_port if self._site.is_rebound.is_set() else self._site.port
            with socket.create_connection(("127.0.0.1", port)) as upstream:
                upstream.sendall(first)
                threading.Thread(target=_copy, args=(browser, upstream), daemon=True).start()
                _copy(upstream, browser)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


class Browser:
    """Opens pages, one browser each."""

    def __init__(self, directory: Path, site: Site) -> None:
        self._directory, self._site = directory, site
        runtime = Chromium()
        if reason := runtime.missing():
            unavailable(reason)
        self._command = runtime.command()

    def report(self, what: str, page: str, target: str) -> dict[str, str]:
        """What comes of opening the page of that origin, which does all that is in `page.js` with the target."""
        given = json.dumps({"what": what, "target": target, "site": f"http://127.0.0.1:{self._site.port}"})
        profile = f"--user-data-dir={self._directory / what}-{urlsplit(page).hostname}"
        with open(self._directory / "stderr.txt", "w+b") as errors:
            running = subprocess.Popen(
                [*self._command, profile, f"{page}/page#{quote(given)}"], stdout=errors, stderr=errors
            )
            try:
                return self._site.reports.get(timeout=PATIENCE_S)
            except queue.Empty:
                errors.seek(0)
                raise AssertionError(f"the page told nothing; the browser: {errors.read()[-4000:]!r}") from None
            finally:
                running.terminate()
                running.wait(PATIENCE_S)


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()
    yield found
    found.close()


@pytest.fixture
def server(tmp_path: Path, site: Site) -> Iterator[RunningServer]:
    """Without users, with one log of some events, for pages of one other origin."""
    allowed = f"http://allowed.test:{site.port}"
    with RunningServer("--storage", "memory", "--http-origins", allowed, cwd=tmp_path) as running:
        with connect(running.url) as client:
            client.log("default").append([Event("First")] * EVENTS)
        yield running


@pytest.fixture
def browser(tmp_path: Path, site: Site) -> Browser:
    return Browser(tmp_path, site)


def kept(server: RunningServer) -> tuple[list[str], int, int, str]:
    """What pages must not change: the logs, how far one goes, and its consumers."""
    with connect(server.url) as client:
        info = client.log("default").info()
    return (
        json.loads(server.ask("/logs")[1])["logs"],
        info.head,
        info.first_retained,
        server.ask("/logs/default/consumers")[1],
    )


HARMLESS = {"refused", "sent", "shown", "loaded", "true", "answered 421"}
"""What a page may learn: that something came back, which it cannot look into; or that it asked for a name that is not
served."""


@pytest.mark.parametrize("name", ["evil.test", "127.0.0.1", "localhost"])
def test_a_page_of_another_origin_changes_and_reads_nothing(
    browser: Browser, server: RunningServer, site: Site, name: str
) -> None:
    before = kept(server)
    found = browser.report("attack", f"http://{name}:{site.port}", server.url)
    assert len(found) > 20 and set(found.values()) <= HARMLESS, found
    assert {found[each] for each in ("read", "metrics", "health", "appendJson", "websocket", "stream")} == {"refused"}
    assert kept(server) == before


def test_a_page_whose_name_is_rebound_changes_and_reads_nothing(
    browser: Browser, server: RunningServer, site: Site
) -> None:
    rebound = ReboundName(site, urlsplit(server.url).port or 0)
    before = kept(server)
    page = f"http://evil.test:{rebound.port}"
    found = browser.report("rebound", page, page)
    rebound.close()
    assert site.is_rebound.is_set()
    assert len(found) > 20 and set(found.values()) <= HARMLESS, found
    assert {found[each] for each in ("read", "metrics", "health", "delete", "create")} == {"answered 421"}
    assert {found[each] for each in ("websocket", "stream")} == {"refused"}
    assert kept(server) == before


def test_a_page_of_an_allowed_origin_reads_subscribes_and_appends(
    browser: Browser, server: RunningServer, site: Site
) -> None:
    found = browser.report("use", f"http://allowed.test:{site.port}", server.url)
    assert found == {
        "read": "read",
        "head": f"at {EVENTS}",
        "append": "read",
        "error": "urn:headwater:problem:log_not_found",
        "credentials": "read",
        "futoin": "read",
        "websocket": "opened",
        "stream": "read First",
    }
    assert kept(server)[1] == EVENTS + 2
