"""Login by client certificate. For a browser's request, the same conditions apply as for the console's cookie.

A browser sends a certificate automatically, whichever page makes the request. So a browser's request must meet the
conditions of a cookie (`sessions`): the header field, and a page of this origin. Programs send no fields that identify
a browser.
"""

from __future__ import annotations

from .asgi import Scope
from .browsers import head_of
from .sessions import NO_SECRET, field_of, is_of_own_page

EXTENSION = "headwater.certificate"
"""Key in the scope's `extensions`: the common name in the certificate that TLS has verified."""


def certified(scope: Scope) -> str | None:
    """The name of the user whom the client's certificate logs in, if it may be used; otherwise None."""
    name: str | None = (scope.get("extensions") or {}).get(EXTENSION)
    if name is None:
        return None
    head = head_of(scope["headers"])
    if head.is_of_browser or head.is_silent_browser:
        return name if field_of(scope) == NO_SECRET and is_of_own_page(scope) else None
    return name
