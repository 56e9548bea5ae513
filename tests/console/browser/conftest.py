"""A browser for all tests, a server for all that change nothing of it and one for each other test; and a page that
fails the test where it does what it must not.

That is an error on the console, a broken policy, or a request to anywhere else.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from headwater.client import connect
from headwater.core import Event
from tests.interop.install import driven_chromium
from tests.server.running import RunningServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


PATIENCE_MS = 20_000
WATCH = "addEventListener('securitypolicyviolation', (event) => console.error('policy', event.violatedDirective))"
"""Run before anything of the page: what the policy forbids is an error."""

BOXES = """([selector, text]) => [...document.querySelectorAll(selector)]
    .filter((node) => node.textContent.includes(text) && node.checkVisibility())
    .map((node) => node.getBoundingClientRect().toJSON())"""


class Seen:
    """A page, with what it must not have done, and shortcuts to what is often looked at."""

    def __init__(self, context: BrowserContext, server: RunningServer) -> None:
        self.server = server
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.expected: list[str] = []
        """Regular expressions of errors that the test brings about."""
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.add_init_script(WATCH)
        self.page.on("console", lambda message: self._tell(message.type, message.text))
        self.page.on("pageerror", lambda error: self.errors.append(f"{error}\n{error.stack}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _tell(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    def open(self, path: str = "/") -> Page:
        """Show an address below /console."""
        self.page.goto(f"{self.server.url}/console{path}")
        return self.page

    def text(self, selector: str) -> str:
        """The text of the first such node, when it is there."""
        return self.page.locator(selector).first.inner_text()

    def wait(self, expression: str) -> None:
        """Until an expression of JavaScript is true."""
        self.until(  # wait_for_function would need eval, which the policy forbids
            lambda: self.page.evaluate(expression),
            lambda: f"{expression} did not come true: {self.page.inner_text('body')[:2000]}",
        )

    def until(self, is_so: Callable[[], object], otherwise: Callable[[], object]) -> None:
        """Until it is so, while what the page does is handled here; `otherwise` says what is there instead."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not is_so():
            assert time.monotonic() < deadline, otherwise()
            self.page.wait_for_timeout(20)

    def box(self, selector: str, text: str = "") -> dict[str, float]:
        """Where the first such node is that has that text: `x`, `y`, `width` and `height`, as soon as there is one.

        It is found and measured in one step of the page: between two, a redraw may replace it.
        """
        found = list[dict[str, float]]()
        self.until(
            lambda: found.extend(self.page.evaluate(BOXES, [selector, text])) or found,
            lambda: f"no {selector} with {text!r} is shown",
        )
        return found[0]

    def toast(self, text: str) -> None:
        """Until the console says so."""
        self.page.locator("#toast", has_text=text).wait_for()

    def close(self) -> None:
        """Before the server ends: what breaks off then is nobody's error."""
        self.page.context.close()

    def check(self) -> None:
        """What every test asks for in the end."""
        told = [error for error in self.errors if not any(re.search(each, error) for each in self.expected)]
        assert told == []
        own = urlsplit(self.server.url).netloc
        assert {urlsplit(url).netloc for url in self.requests if not url.startswith("blob:")} <= {own}


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    yield from driven_chromium()


Opening = Callable[..., Seen]


@pytest.fixture
def opening(chromium: Browser) -> Iterator[Opening]:
    """Opens pages, each in a context of its own: `opening(server, viewport=...)`."""
    opened: list[tuple[BrowserContext, Seen]] = []

    def one(server: RunningServer, **how: Any) -> Seen:
        context = chromium.new_context(**{"viewport": {"width": 1440, "height": 900}, **how})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        seen = Seen(context, server)
        opened.append((context, seen))
        return seen

    yield one
    for context, _ in opened:
        context.close()
    for _, seen in opened:
        seen.check()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """Without users, in memory, with the logs `flights` of some events, and `empty`."""
    with serving(tmp_path) as running:
        yield running


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The same, one for all tests that look and change nothing; `billing / invoicer` is registered."""
    with serving(tmp_path_factory.mktemp("shared")) as running:
        put(running, "/logs/flights/consumers/billing/invoicer", b'{"after": 11}')
        yield running


@contextmanager
def serving(directory: Path) -> Iterator[RunningServer]:
    with RunningServer("--storage", "memory", "--log", "flights", "--log", "empty", cwd=directory) as running:
        with connect(running.url) as client:
            client.log("flights").append(flights())
        yield running


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> Seen:
    """A page of the test's own server, if it has one; else of the one that all share, which it must not change."""
    server = request.getfixturevalue("server" if "server" in request.fixturenames else "shared")
    opening: Opening = request.getfixturevalue("opening")  # after the server: it ends before that does
    return opening(server)


def flights() -> list[Event]:
    """300 departures, 100 cancellations, of ten planes; some of them from EWR."""
    return [
        Event(
            "FlightCancelled" if number % 4 == 3 else "FlightDeparted",
            b'{"delay_min": %d, "scheduled": "2013-01-01T10:00:00Z"}' % (number % 60),
            (f"tail:N{number % 10}", f"flight:UA{number // 2}", "origin:EWR" if number % 3 else "origin:JFK"),
            attributes={"time": f"2013-01-{1 + number // 16:02d}T{number % 16 + 5:02d}:15:00Z"},
        )
        for number in range(400)
    ]


def put(server: RunningServer, path: str, body: bytes) -> None:
    """PUT some JSON."""
    request = urllib.request.Request(f"{server.url}{path}", body, {"content-type": "application/json"}, method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status in (200, 201)
