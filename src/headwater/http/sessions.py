"""The session of a browser's request: a cookie, which counts only if no other site's page could have sent it.

A browser sends a cookie with every request to a host, whichever page causes the request, and to every port of the host,
whatever program listens there. So the cookie counts only together with a second secret, which the page keeps and sends
in a header field that a page of another origin cannot set without a preflight, on a request that states that it comes
from a page of this origin.
"""

from __future__ import annotations

from .asgi import Message, Scope, Send
from .authentication import BASIC
from .browsers import DEFAULT_PORTS, authority_of, head_of, origin_of, own_origin

FIELD = b"headwater-console"
"""The header field required for a cookie to count. Its value is the second secret of the session; 1 in a login."""
NO_SECRET = b"1"
"""The value of FIELD if a page has no session."""
SECRET_CHARS_MAX = 100
"""The maximum length of each of the two secrets."""
NAME, SECURE_NAME = "headwater", "__Host-headwater"


def cookie_name(scope: Scope) -> str:
    """The cookie's name, with the requested port: servers on other ports of the host have separate cookies.

    Over TLS, it is a name that a browser accepts only from this host (RFC 6265bis, 4.1.3).
    """
    scheme = "https" if scope.get("scheme") == "https" else "http"
    authority = authority_of(head_of(scope["headers"]).get(b"host", b""))
    port = authority.port if authority is not None else None
    return f"{SECURE_NAME if scheme == 'https' else NAME}-{port or DEFAULT_PORTS[scheme]}"


def both_secrets(of_cookie: str, of_field: str) -> str:
    """The two secrets of a session as one: the result of `secret_of`, and the key by which sessions are found."""
    return f"{of_cookie}.{of_field}"


def secret_of(scope: Scope) -> str | None:
    """Both secrets of a request's session, or None if it has none that counts."""
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
    """The value of FIELD in a request, which no page of another origin can set; empty if it is absent."""
    return next((value for field, value in scope["headers"] if field == FIELD), b"")


def unasked(send: Send) -> Send:
    """Omit the challenge for Basic credentials from an answer: a browser would open its own login window."""

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
