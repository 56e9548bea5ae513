"""The session that a request of a browser shows: a cookie, which counts only where no other site's page can send it.

A cookie goes with every request that a browser makes to a host, whoever's page causes it, and to every port of the
host, whoever listens there. So it counts only together with a second secret, which the page keeps and sends in a header
field that no page of another origin can set without asking first, on a request that says that it comes from this
origin's own page.
"""

from __future__ import annotations

from .asgi import Message, Scope, Send
from .authentication import BASIC
from .browsers import DEFAULT_PORTS, authority_of, head_of, origin_of, own_origin

FIELD = b"headwater-console"
"""The header field without which no cookie counts. Its value is the second secret of the session; 1 in a login."""
NO_SECRET = b"1"
"""The value of FIELD where a page has no session."""
SECRET_CHARS_MAX = 100
"""Of each of the two."""
NAME, SECURE_NAME = "headwater", "__Host-headwater"


def cookie_name(scope: Scope) -> str:
    """Of the cookie, with the port that was asked for: servers on other ports of the host have cookies of their own.

    Over TLS it is one that a browser takes from this very host alone (RFC 6265bis, 4.1.3).
    """
    scheme = "https" if scope.get("scheme") == "https" else "http"
    authority = authority_of(head_of(scope["headers"]).get(b"host", b""))
    port = authority.port if authority is not None else None
    return f"{SECURE_NAME if scheme == 'https' else NAME}-{port or DEFAULT_PORTS[scheme]}"


def both_secrets(of_cookie: str, of_field: str) -> str:
    """The two secrets of a session as one: what `secret_of` answers, and the sessions find it by."""
    return f"{of_cookie}.{of_field}"


def secret_of(scope: Scope) -> str | None:
    """Both secrets of the session that a request shows, or None where it shows none that counts."""
    own = field_of(scope)
    if not 0 < len(own) <= SECRET_CHARS_MAX or not is_of_own_page(scope):
        return None
    wanted = cookie_name(scope)
    for field, value in scope["headers"]:
        if field == b"cookie":
            for pair in value.split(b";"):
                name, _, secret = pair.strip().partition(b"=")
                if name == wanted.encode() and 0 < len(secret) <= SECRET_CHARS_MAX:
                    return both_secrets(str(secret, "latin-1"), str(own, "latin-1"))
    return None


def field_of(scope: Scope) -> bytes:
    """The value of FIELD in a request, which no page of another origin can set; empty where there is none."""
    return next((value for field, value in scope["headers"] if field == FIELD), b"")


def unasked(send: Send) -> Send:
    """Ask for no Basic credentials in an answer: a browser would ask its user by a window of its own."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 401:
            message = {**message, "headers": [each for each in message["headers"] if each != BASIC]}
        await send(message)

    return sending


def is_of_own_page(scope: Scope) -> bool:
    """Whether a browser says that a page of this origin sent the request."""
    head = head_of(scope["headers"])
    if b"sec-fetch-site" in head:
        return head[b"sec-fetch-site"] == b"same-origin"
    authority = authority_of(head.get(b"host", b""))
    if b"origin" not in head or authority is None:
        return False
    return origin_of(head[b"origin"]) == own_origin(scope.get("scheme", "http"), authority)
