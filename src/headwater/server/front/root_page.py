"""`GET /`: links to the parts of a server, as JSON. Browsers are redirected to the console or get an HTML page.

No credentials are needed.
"""

from __future__ import annotations

import logging
from html import escape
from typing import Any, NamedTuple

from ...core.access import Guard
from ...http import Exchange, FrontEnd, Header, Host, Routes
from ...http.exchange import as_json, preferred
from .health import LIVE, METRICS, READY

_JSON, _HTML = "application/json", "text/html"
_OFFERED = {media_type: media_type for media_type in (_JSON, _HTML)}
_VARY: Header = (b"vary", b"accept")


class Link(NamedTuple):
    """A part of the server to link to."""

    name: str
    path: str
    about: str


LINKS = (
    Link("openapi", "/openapi.yaml", "the HTTP API for logs and events, as an OpenAPI document"),
    Link("notifications", "/ocloudNotifications/v2/openapi.json", "the notification API, as an OpenAPI document"),
    Link("schemas", "/ocloudNotifications/v2/schemas", "the JSON Schemas of notifications"),
    Link("logs", "/logs", "the names of the logs that you can read"),
    Link("management", "/management", "the types of managed entities: connections, links, users, logs"),
    Link("live", LIVE, "liveness: whether the server is running"),
    Link("ready", READY, "readiness: whether it can serve requests"),
    Link("metrics", METRICS, "metrics in Prometheus text format"),
)
"""In the order in which they are shown."""
CONSOLE = Link("console", "/console/", "the console: view and manage logs, consumers and connections")


class RootPage(FrontEnd[Host, Exchange]):
    """The front end of the path `/`."""

    def __init__(self, guard: Guard, *, has_console: bool = False) -> None:
        routes = Routes[Any]()
        routes.add("GET", "/", lead if has_console else show)
        super().__init__(Host(guard), routes.find, logging.getLogger("headwater.server"), Exchange)


async def lead(host: Host, exchange: Exchange) -> None:
    """GET / with a console."""
    if preferred(exchange.header(b"accept"), _OFFERED, _JSON) == _HTML:
        await exchange.answer_empty(303, ((b"location", CONSOLE.path.encode()), _VARY))
    else:
        await exchange.answer(200, as_json(_document((CONSOLE, *LINKS))), headers=(_VARY,))


async def show(host: Host, exchange: Exchange) -> None:
    """GET / without a console."""
    if preferred(exchange.header(b"accept"), _OFFERED, _JSON) == _HTML:
        await exchange.answer(200, _PAGE, b"text/html; charset=utf-8", (_VARY,))
    else:
        await exchange.answer(200, as_json(_document(LINKS)), headers=(_VARY,))


def _document(links: tuple[Link, ...]) -> dict[str, object]:
    return {"name": "headwater", "links": {link.name: link.path for link in links}}


def _page() -> bytes:
    items = [f'<li><a href="{escape(link.path)}">{escape(link.path)}</a>: {escape(link.about)}</li>' for link in LINKS]
    parts = [
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Headwater</title></head>\n<body>',
        "<h1>Headwater</h1>",
        "<p>A durable event log. This server offers:</p>",
        "<ul>",
        *items,
        "</ul>",
        "<p>Guides and reference are in the <code>docs</code> folder of the Headwater source.</p>",
        "</body>\n</html>\n",
    ]
    return "\n".join(parts).encode()


_PAGE = _page()
