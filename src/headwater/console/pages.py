"""The console's files for the browser: one page for all of its addresses, and the files that this page loads.

Paths come from a fixed table, never from file names. Each file is read and compressed once, at the first request, and
kept. The address of a file contains a version, which is computed from the contents of all files. A browser may
therefore cache files forever, and requests only the page again. The page names the scripts that its address needs, so
that a browser requests all at once instead of one after the other."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from .. import __version__
from ..http import Exchange, Header
from ..http.asgi import Message, Send
from ..http.errors import RouteNotFound

TYPES = {"css": b"text/css", "js": b"text/javascript", "svg": b"image/svg+xml"}
FILES = (
    "style.css",
    "favicon.svg",
    "early.js",
    "app.js",
    "core.js",
    "charts.js",
    "overview.js",
    "telling.js",
    "logs.js",
    "log.js",
    "chips.js",
    "completion.js",
    "histogram.js",
    "rows.js",
    "list.js",
    "unmatched.js",
    "tail.js",
    "inspector.js",
    "export.js",
    "appending.js",
    "columns.js",
    "find.js",
    "pins.js",
    "query.js",
    "forms.js",
    "event.js",
    "stories.js",
    "consumers.js",
    "connections.js",
    "webhooks.js",
    "storage.js",
    "happenings.js",
    "users.js",
)
"""The served files of `static/`; `index.html` is the page."""
PAGES = frozenset(
    {"", "logs", "consumers", "connections", "webhooks", "storage", "happenings", "pipelines", "users", "login"}
)
"""First path segments that the page handles; the page chooses what to show."""
PAGE_DEPTH_MAX = 3
"""The maximum number of segments of such an address: `logs/orders/storage`."""
PAGE_TYPE = b"text/html; charset=utf-8"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_NOT_NEEDED = (
    "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen", "geolocation",
    "gyroscope", "magnetometer", "microphone", "midi", "payment", "picture-in-picture", "publickey-credentials-get",
    "screen-wake-lock", "usb", "xr-spatial-tracking",
)  # fmt: skip
_IMPORTED = re.compile(r'\bfrom "\./([\w-]+\.js)"')
SECURITY: tuple[Header, ...] = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", ", ".join(f"{name}=()" for name in _NOT_NEEDED).encode()),
)
"""Header fields of every response below `/console`."""


def secured(send: Send) -> Send:
    """Add SECURITY to a response."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *SECURITY]}
        await send(message)

    return sending


@dataclass(frozen=True, slots=True)
class Packed:
    """One file as it is sent."""

    media_type: bytes
    plain: bytes
    packed: bytes
    """Compressed by gzip."""
    tag: bytes
    """For If-None-Match; a weak tag, the same for both forms, which differ only in compression."""


@dataclass(frozen=True, slots=True)
class Static:
    """All files."""

    version: str
    page: Packed
    """The plain page, for unknown addresses."""
    by_route: dict[str, Packed]
    """By the routes of `app.js`, in which a segment may be `:name`: the page, with the scripts of that route."""
    by_name: dict[str, Packed]

    def page_at(self, segments: Sequence[str]) -> Packed:
        """The page at an address below `/console/`."""
        for route, found in self.by_route.items():
            wanted = route[1:].split("/")
            if len(wanted) == len(segments) and all(
                each.startswith(":") or each == given for each, given in zip(wanted, segments, strict=True)
            ):
                return found
        return self.page


@cache
def static() -> Static:
    """All files, read and compressed at the first call."""
    folder = files(__package__).joinpath("static")
    contents = {name: folder.joinpath(name).read_bytes() for name in FILES}
    page = folder.joinpath("index.html").read_bytes()
    digest = hashlib.sha256()
    for content in (page, *contents.values()):
        digest.update(b"%d " % len(content) + content)
    version = f"{__version__}-{digest.hexdigest()[:12]}"
    tag = f'W/"{version}"'.encode()
    scripts = {name: content.decode() for name, content in contents.items() if name.endswith(".js")}
    by_module = {
        module: _packed(PAGE_TYPE, _with_scripts(page, version, scripts, module), tag)
        for module in {None, *_routes(scripts["app.js"]).values()}
    }
    by_route = {route: by_module[module] for route, module in _routes(scripts["app.js"]).items()}
    by_name = {
        name: _packed(TYPES[name.rpartition(".")[2]] + b"; charset=utf-8", content, tag)
        for name, content in contents.items()
    }
    return Static(version, by_module[None], by_route, by_name)


def _routes(app: str) -> dict[str, str]:
    """The module that shows each route of `app.js`, in its order."""
    return dict(re.findall(r'\bpath: "(/[^"]*)"[^}]*?\bmodule: "\./([\w-]+\.js)"', app))


def _with_scripts(page: bytes, version: str, scripts: Mapping[str, str], module: str | None) -> bytes:
    """The page with preloads of all that `app.js` and a module import."""
    wanted, found = [module] if module else [], ["app.js"]
    wanted += _IMPORTED.findall(scripts["app.js"])
    while wanted:
        if (name := wanted.pop(0)) not in found:
            found.append(name)
            wanted += _IMPORTED.findall(scripts[name])
    line = '<link rel="modulepreload" href="/console/static/{version}/%s">'
    links = "\n".join(line % name for name in found)
    return page.replace(b"{scripts}", links.encode()).replace(b"{version}", version.encode())


async def page(host: object, exchange: Exchange) -> None:
    """GET /console/...: any address of the page. Raises RouteNotFound."""
    segments = exchange.scope["path"].removeprefix("/console/").split("/")
    if segments[0] not in PAGES or len(segments) > PAGE_DEPTH_MAX:
        raise RouteNotFound(exchange.scope["path"])
    await _answer(exchange, (await _packed_once()).page_at(segments), b"no-cache")


async def lead(host: object, exchange: Exchange) -> None:
    """GET /console without a slash: redirects to the address with it, which the page needs to find its files."""
    await exchange.answer_empty(303, ((b"location", b"/console/"),))


async def file(host: object, exchange: Exchange) -> None:
    """GET /console/static/{version}/{name}. Raises RouteNotFound, also for the files of another version."""
    version, name = exchange.arguments
    served = await _packed_once()
    found = served.by_name.get(name) if version == served.version else None
    if found is None:
        raise RouteNotFound(exchange.scope["path"])
    await _answer(exchange, found, b"public, max-age=31536000, immutable")


async def _packed_once() -> Static:
    """All files. The first request compresses them in a thread, because that takes a long time."""
    return static() if static.cache_info().currsize else await asyncio.to_thread(static)


async def _answer(exchange: Exchange, found: Packed, kept: bytes) -> None:
    fields: list[Header] = [(b"etag", found.tag), (b"cache-control", kept), (b"vary", b"accept-encoding")]
    if found.tag in _tags(exchange.header(b"if-none-match") or b""):
        await exchange.answer_empty(304, fields)
        return
    if _takes_gzip(exchange.header(b"accept-encoding") or b""):
        await exchange.answer(200, found.packed, found.media_type, [*fields, (b"content-encoding", b"gzip")])
    else:
        await exchange.answer(200, found.plain, found.media_type, fields)


def _packed(media_type: bytes, content: bytes, tag: bytes) -> Packed:
    return Packed(media_type, content, gzip.compress(content, 9, mtime=0), tag)


def _tags(given: bytes) -> Iterator[bytes]:
    """Tags of a browser's cache, compared weakly (RFC 9110, 13.1.2)."""
    for each in given[:1000].split(b","):
        tag = each.strip()
        yield tag if tag.startswith(b"W/") else b"W/" + tag


def _takes_gzip(given: bytes) -> bool:
    """Whether a response may be compressed (RFC 9110, 12.5.3)."""
    for each in given[:1000].lower().split(b","):
        coding, _, weight = each.partition(b";")
        if coding.strip() == b"gzip":
            return weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
