"""The site is made without a warning, and a browser reads it from disk and over HTTP without any other host."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_plus, unquote, urlsplit

import pytest

from tests.interop.install import driven_chromium

from .documents import DOCUMENTS, ROOT, check_none
from .site import build

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = {
    "backpressure": "docs/guides/operations.html",
    "CQRS": "docs/concepts.html",
    "disaster recovery": "docs/guides/disaster-recovery.html",
    "downgrade": "docs/guides/upgrading.html",
    "failover": "docs/guides/high-availability.html",
    "getting started": "docs/start.html",
    "high availability": "docs/guides/high-availability.html",
    "log rotation": "docs/guides/production.html",
    "migration": "docs/guides/import.html",
    "mTLS": "docs/security.html",
    "optimistic concurrency": "docs/concepts.html",
    "quickstart": "docs/start.html",
    "quorum": "docs/guides/high-availability.html",
    "rate limit": "docs/reference/limits.html",
    "RBAC": "docs/security.html",
    "reload": "docs/guides/operations.html",
    "rollback": "docs/guides/upgrading.html",
    "rolling upgrade": "docs/guides/upgrading.html",
    "split brain": "docs/guides/high-availability.html",
    "throughput": "docs/benchmarks-amqp.html",
    "troubleshooting": "docs/guides/troubleshooting.html",
    "tutorial": "docs/start.html",
}
"""Words that readers search for, each with the page that answers."""
FIRST = 3
SEARCHED = "/finished|did not match/.test(document.querySelector('.search-summary')?.textContent ?? '')"
LIGHTNESS = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """See BaseHTTPRequestHandler."""


class Links(HTMLParser):
    """What a page links to, and what a browser fetches to show it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser."""
        targets = [value for name, value in attrs if name in ("href", "src") and value]
        (self.links if tag == "a" else self.fetched).extend(targets)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build(target := tmp_path_factory.mktemp("site"))
    return target


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    yield from driven_chromium()


@pytest.fixture(scope="module", params=["disk", "loopback"])
def address(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    """Where the browser finds the site."""
    if request.param == "disk":
        yield f"{site.as_uri()}/"
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    """A page in dark mode that may ask for nothing but the site; an error of its scripts fails the test."""
    with chromium.new_context(color_scheme="dark") as context:
        asked, errors = list[str](), list[str]()
        context.route(re.compile(f"^(?!{re.escape(address)})"), lambda route: route.abort())
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        yield page
        assert [url for url in asked if not url.startswith((address, "data:"))] == []
        assert errors == []


def found(page: Page, address: str, words: str) -> list[str]:
    """The first pages that the search of the site finds."""
    page.goto(f"{address}search.html?q={quote_plus(words)}")
    page.wait_for_function(SEARCHED)
    hrefs = page.locator("ul.search > li > a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    return [href.partition("#")[0].partition("?")[0] for href in hrefs[:FIRST]]


def test_a_word_finds_its_page_among_the_first_results(page: Page, address: str) -> None:
    results = {words: found(page, address, words) for words in PAGES}
    check_none(
        f"{words}: {PAGES[words]} is not in {pages}" for words, pages in results.items() if PAGES[words] not in pages
    )


def test_the_first_page_leads_to_the_navigation_and_is_dark_where_the_reader_prefers_that(
    page: Page, address: str
) -> None:
    page.goto(address if address.startswith("http") else f"{address}index.html")
    page.wait_for_url(f"{address}docs/index.html")
    assert max(page.evaluate(LIGHTNESS)) < 64
    page.locator(".sidebar-tree a", has_text="Architecture").click()
    page.wait_for_url(f"{address}ARCHITECTURE.html")


def test_each_document_is_a_page_and_each_link_leads_into_the_site(site: Path) -> None:
    check_none(
        f"{document} is no page"
        for document in DOCUMENTS
        if not (site / document.relative_to(ROOT)).with_suffix(".html").exists()
    )
    check_none(fault for page in site.rglob("*.html") for fault in dead_links(site, page))


def dead_links(site: Path, page: Path) -> Iterator[str]:
    """The links of a page that lead to no file of the site, and what it would fetch from elsewhere."""
    read = Links(page)
    for link in [*read.links, *read.fetched]:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if link in read.fetched and parts.scheme != "data":
                yield f"{page.relative_to(site)} fetches {link}"
        elif parts.path and not (page.parent / unquote(parts.path)).resolve().is_file():
            yield f"{page.relative_to(site)}: {link} is not there"


def test_a_dead_link_and_a_font_from_elsewhere_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<link href="https://x/font.css"><a href="https://x/y">web</a><a href="#here">here</a>'
        '<a href="gone.html#a">gone</a>'
    )
    assert sorted(dead_links(tmp_path, page)) == [
        "page.html fetches https://x/font.css",
        "page.html: gone.html#a is not there",
    ]
