"""The login that a client's certificate is. From a browser it counts where the console's cookie does.

A browser shows a certificate unasked, whoever's page sends the request. So a request of a browser needs what a cookie
needs (`sessions`): the header field, and a page of this origin. Programs send nothing that tells a browser.
"""

from __future__ import annotations

from .asgi import Scope
from .browsers import head_of
from .sessions import NO_SECRET, field_of, is_of_own_page

EXTENSION = "headwater.certificate"
"""In `extensions` of the scope: the common name in the certificate that TLS has verified."""


def certified(scope: Scope) -> str | None:
    """The name of the user whom the client's certificate logs in, where it counts; else None."""
    name: str | None = (scope.get("extensions") or {}).get(EXTENSION)
    if name is None:
        return None
    head = head_of(scope["headers"])
    if head.is_of_browser or head.is_silent_browser:
        return name if field_of(scope) == NO_SECRET and is_of_own_page(scope) else None
    return name
