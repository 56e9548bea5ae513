"""Answers to web pages of other origins that are allowed: what lets a browser hand them over (CORS: Fetch, 3.3).

Each is a change of the answer that a room gives, whatever it is: an error, a stream, or how a route is asked for its
methods. Who is allowed is decided by who calls this.
"""

from __future__ import annotations

from collections.abc import Callable

from .asgi import Header, Message, Send

PREFLIGHT_S_MAX = 600
"""How long a browser may remember what it was allowed."""
EXPOSED = (
    "accept-encoding",
    "allow",
    "content-disposition",
    "headwater-head",
    "headwater-incarnation",
    "headwater-primary",
    "headwater-problem",
    "location",
    "retry-after",
    "www-authenticate",
)
"""Header fields of answers that a page may read besides those that every page may (Fetch, 2.2.2)."""

Answering = Callable[[Send], Send]
"""Puts on an answer what a browser, or a cache, must know of it."""
_VARY: Header = (b"vary", b"origin")


def unchanged(send: Send) -> Send:
    """Leave the answer as it is."""
    return send


def varied(send: Send) -> Send:
    """Tell caches that the answer is another one for a page of another origin."""
    return _with_fields(send, (_VARY,))


def crossing(origin: bytes) -> Answering:
    """Let a page of that origin read the answer.

    Users show who they are by Authorization, never by a cookie: so what a browser adds by itself is not allowed.
    """
    exposed = ", ".join(EXPOSED).encode()
    fields = ((b"access-control-allow-origin", origin), (b"access-control-expose-headers", exposed), _VARY)
    return lambda send: _with_fields(send, fields)


def preflight(origin: bytes, fields: bytes) -> Answering:
    """Tell a browser what a page of that origin may ask (Fetch, 3.3.2); `fields` are those that it wants to send.

    The room is asked as by any OPTIONS. It says which methods its route has (`Allow`), and that becomes the answer.
    Which header fields there may be is not restricted: each room looks at those that it knows.
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
        elif is_granted:
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
