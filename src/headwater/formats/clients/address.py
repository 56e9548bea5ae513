"""Checks of a server's address that all clients share: the URL and the user's credentials."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from urllib.parse import SplitResult, urlsplit

from ...core.errors import InvalidInput
from ...core.limits import show

URLS_MAX = 64
_BETWEEN = re.compile(r",(?=\s*[a-z+]+://)", re.IGNORECASE)
"""A comma before another URL; a comma within a path is not a separator."""


def urls_of(url: str | Sequence[str]) -> list[str]:
    """The URLs of one server: from a sequence, or a text separated by commas. Raises InvalidInput."""
    urls = _BETWEEN.split(url) if isinstance(url, str) else list(url)
    urls = [each.strip().rstrip("/") for each in urls]
    if not urls:
        raise InvalidInput("expected at least one URL, got none", "url")
    if len(urls) > URLS_MAX:
        raise InvalidInput(f"expected at most {URLS_MAX} URLs, got {len(urls)}", "url")
    if twice := next((each for each in urls if urls.count(each) > 1), None):
        raise InvalidInput(f"{show(twice)} is given twice", "url")
    return urls


def parts_of(url: str, schemes: Iterable[str], *, may_have_path: bool = False) -> SplitResult:
    """The parts of a server's URL: one of these schemes, a host, an optional port. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InvalidInput(f"{error} in {show(url)}", "url") from None
    is_longer = parts.query or parts.fragment or (parts.path.strip("/") and not may_have_path)
    if parts.scheme not in schemes or not parts.hostname or is_longer:
        expected = " or ".join(f"{scheme}://HOST[:PORT]" for scheme in schemes)
        raise InvalidInput(f"expected {expected}, got {show(url)}", "url")
    if parts.username is not None:
        raise InvalidInput("give user and password separately, not in the URL", "url")
    return parts


def authorization_of(user: str | None, password: str | None, token: str | None) -> str | None:
    """The value of the Authorization header, None without credentials. Raises InvalidInput if they conflict."""
    if token is not None:
        if user is not None or password is not None:
            raise InvalidInput("give a token, or a user and a password, not both", "token")
        if not token.isascii() or not token.isprintable():
            raise InvalidInput("a token must consist of printable ASCII characters", "token")
        return f"Bearer {token}"
    if user is None and password is None:
        return None
    if user is None or password is None:
        raise InvalidInput("give both a user and a password; one of them is missing", "user")
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
