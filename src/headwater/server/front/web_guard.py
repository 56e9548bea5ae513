"""Protects the server from web pages: checks the host that a request names and the page that sent it.

A web page opened by a browser that can reach the server may send it requests, which are executed if no login is needed
(CSRF). A page may also make its own name resolve to the server's address (DNS rebinding) and then read the responses.
So every request is checked here, before any front end:

- `Host`: if the server listens on loopback or has no users, the name must be one that other sites cannot use;
- `Origin` and `Sec-Fetch-Site`: pages must come from this server or from an origin in `http.origins`;
- a body must have a media type that pages may not send without permission;
- requests from the console must be read-only, if so configured: its cookie is valid only with a field checked here.

Programs other than browsers send neither Origin nor Sec-Fetch. `http.browsers` explains the fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...console.settings import ConsoleSettings
from ...http import Scope
from ...http.asgi import Header, Message, Send
from ...http.browsers import HEAD, NULL_ORIGIN, Authority, Head, head_of, origin_of, own_origin
from ...http.errors import ConsoleReadOnly, ForeignPage, HostNotServed, InvalidParameter, UnsupportedMediaType
from ...http.sessions import FIELD, unasked
from ..config.settings import Http
from ..process.sockets import is_loopback

PREFLIGHT_S_MAX = 600
"""How long a browser may cache a permission."""
EXPOSED = (
    "accept-encoding",
    "allow",
    "content-disposition",
    "headwater-ahead",
    "headwater-head",
    "headwater-incarnation",
    "headwater-primary",
    "headwater-problem",
    "location",
    "retry-after",
    "www-authenticate",
)
"""Response header fields that a page may read, in addition to the ones that every page may read (Fetch, 2.2.2)."""

Answering = Callable[[Send], Send]
"""Adds header fields for browsers and caches to a response."""
_VARY: Header = (b"vary", b"origin")


def unchanged(send: Send) -> Send:
    """Leave the answer unchanged."""
    return send


def varied(send: Send) -> Send:
    """Tell caches that the response depends on the page's origin."""
    return _with_fields(send, (_VARY,))


def crossing(origin: bytes) -> Answering:
    """Let a page of that origin read the response.

    Users authenticate by Authorization, never by a cookie: credentials that browsers add automatically are not allowed.
    """
    exposed = ", ".join(EXPOSED).encode()
    fields = ((b"access-control-allow-origin", origin), (b"access-control-expose-headers", exposed), _VARY)
    return lambda send: _with_fields(send, fields)


def preflight(origin: bytes, fields: bytes) -> Answering:
    """Tell a browser what a page of that origin may send (Fetch, 3.3.2); `fields` are the requested header fields.

    The room handles the OPTIONS request. The methods that it lists in `Allow` become the permission. Header fields are
    not restricted, since each room reads only those that it knows.
    """
    allow_page = crossing(origin)
    return lambda send: _granting(allow_page(send), fields)


def _with_fields(send: Send, fields: tuple[Header, ...]) -> Send:
    async def send_with_fields(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *fields]}
        await send(message)

    return send_with_fields


def _granting(send: Send, fields: bytes) -> Send:
    is_granted = False

    async def send_granted(message: Message) -> None:
        nonlocal is_granted
        if message["type"] == "http.response.start":
            methods = dict(message.get("headers", ())).get(b"allow")
            is_granted = methods is not None
            if methods is not None:
                message = {**message, "status": 204, "headers": _granted(methods, fields)}
        if is_granted and "body" in message:
            message = {**message, "body": b""}
        await send(message)

    return send_granted


def _granted(methods: bytes, fields: bytes) -> list[Header]:
    granted = [
        (b"access-control-allow-methods", methods),
        (b"access-control-max-age", b"%d" % PREFLIGHT_S_MAX),
        (b"vary", b"access-control-request-headers"),
    ]
    return [*granted, (b"access-control-allow-headers", fields)] if fields else granted


TYPED_ROOMS = frozenset({"logs", "management", "console"})
"""First path segments where a body without a media type is refused even from programs. Clients of other standards may
omit it. """
TYPES = ("application/json, or another type that the route accepts",)
ROOMS_CHANGED_BY_GET = frozenset({"futoin"})
"""Paths where a GET may have side effects, because a standard requires it (FTN5, 3)."""
CONSOLE = "console"
LOOKS_BY_POST = re.compile(r"/logs/[^/]+/(read|count|(event-)?histogram)|/management/org\.amqp\.management/self/[^/]+")
"""Paths where a POST has no side effects."""
SESSION_PATH = "/console/session"

ANY_ORIGIN = "*"


class WebGuard:
    """Checks every request and WebSocket."""

    def __init__(
        self, http: Http | None = None, host: str = "127.0.0.1", console: ConsoleSettings | None = None
    ) -> None:
        """`host` is the address that the server listens on. Raises CannotListen if it is not an address of this
        machine.
        """
        http = http or Http()
        self._console_looks = (console or ConsoleSettings()).read_only
        self._host = host.strip("[]").lower()
        self._names = frozenset({self._host, *http.hosts})
        self._is_loopback = is_loopback(host)
        self._takes_any_origin = ANY_ORIGIN in http.origins
        self._takes_null = NULL_ORIGIN in http.origins
        found = (origin_of(text.encode()) for text in http.origins)
        self._origins = frozenset(origin for origin in found if origin is not None)
        self.ordinary: Answering = varied if http.origins else unchanged
        """The changes to the response to a request that no other site's page sent."""
        self.has_users: Callable[[], bool] | None = None
        """Whether a login is needed. None while the server starts and answers health checks only."""

    def judge(self, scope: Scope) -> Answering:
        """The header fields to add to the response of an allowed request. Raises InvalidParameter (400), HostNotServed
        (421), ForeignPage and ConsoleReadOnly (403), UnsupportedMediaType (415).
        """
        head: Head = scope.get(HEAD) or head_of(scope["headers"])
        authority = self._authority(scope, head)
        is_other = b"origin" in head and self._is_of_other_origin(scope, head, authority)
        if head.is_of_other_site and b"origin" not in head and not _leads_to_console(scope, head):
            raise ForeignPage(f"a page of another origin (Sec-Fetch-Site: {head[b'sec-fetch-site'].decode()})")
        if scope["type"] == "websocket":
            return unchanged
        if is_other and scope["method"] == "OPTIONS" and b"access-control-request-method" in head:
            return preflight(head[b"origin"], head.get(b"access-control-request-headers", b""))
        if scope["method"] in ("GET", "HEAD"):
            if head.is_silent_browser and _room_of(scope) in ROOMS_CHANGED_BY_GET:
                raise ForeignPage(
                    "a browser that sends neither Origin nor Sec-Fetch-Site", "a GET that can change something"
                )
        elif head.has_simple_type and _must_say_type(scope, head):
            raise UnsupportedMediaType(head.media_type.decode("latin-1"), TYPES)
        if is_other:
            return crossing(head[b"origin"])
        if FIELD in head:
            return self._of_console(scope)
        if authority is not None and self._is_own(authority) and b"origin" not in head:  # nothing checked can change
            head.allowed_by = self
        return self.ordinary

    def _of_console(self, scope: Scope) -> Answering:
        """Check a request from the console. Raises ConsoleReadOnly."""
        if self._console_looks and not looks(scope):
            raise ConsoleReadOnly(scope["method"], scope["path"])
        ordinary = self.ordinary
        return lambda send: unasked(ordinary(send))

    def _authority(self, scope: Scope, head: Head) -> Authority | None:
        """The requested host; None if an HTTP/1.0 request names none. Raises InvalidParameter, HostNotServed."""
        if b"host" not in head:
            if scope.get("http_version") == "1.0":
                return None
            raise InvalidParameter("Host", "the header field is missing")
        authority = head.authority
        if authority is None:
            given = head[b"host"]
            raise InvalidParameter("Host", f"expected one host name or address, got {given[:80].decode('latin-1')!r}")
        if not self._is_own(authority) and not self._serves_any_host():
            raise HostNotServed(authority.name, self._host)
        return authority

    def _is_own(self, authority: Authority) -> bool:
        """Whether it is a name or an address that other sites cannot use."""
        return authority.is_local or authority.name in self._names

    def _serves_any_host(self) -> bool:
        return not self._is_loopback and (self.has_users is None or self.has_users())

    def _is_of_other_origin(self, scope: Scope, head: Head, authority: Authority | None) -> bool:
        """Whether the page that the request names has another origin. Raises ForeignPage if that page is not
        allowed.
        """
        given = head[b"origin"]
        origin = origin_of(given)
        own = own_origin(scope.get("scheme", "http"), authority) if authority is not None else None
        if origin is not None and origin == own:
            return False
        if not self._is_allowed(given, origin in self._origins, origin is not None):
            raise ForeignPage(f"a page of {given[:80].decode('latin-1')!r}")
        return True

    def _is_allowed(self, given: bytes, is_listed: bool, is_origin: bool) -> bool:
        if given == NULL_ORIGIN.encode():
            return self._takes_null
        return is_listed or (is_origin and self._takes_any_origin and self.has_users is not None and self.has_users())


def _room_of(scope: Scope) -> str:
    room: str = scope["path"][1:].partition("/")[0]
    return room


def _must_say_type(scope: Scope, head: Head) -> bool:
    if head.has_body and head.is_of_browser:
        return True
    return (head.has_body or scope["method"] == "POST") and _room_of(scope) in TYPED_ROOMS


def looks(scope: Scope) -> bool:
    """Whether a request has no side effects except a login."""
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return _room_of(scope) not in ROOMS_CHANGED_BY_GET
    is_post = scope["method"] == "POST"
    return scope["path"] == SESSION_PATH or (is_post and LOOKS_BY_POST.fullmatch(scope["path"]) is not None)


def _leads_to_console(scope: Scope, head: Head) -> bool:
    """Whether it follows a link to the server's own pages. Any page may link to them: they have no side effects."""
    is_page = scope["path"] == "/" or _room_of(scope) == CONSOLE
    return is_page and scope["type"] == "http" and scope["method"] == "GET" and head.is_navigation
