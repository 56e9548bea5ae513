"""Paths of this machine. A URL is refused, so that no directory is created with a URL as its name."""

from __future__ import annotations

import re

from ...core.errors import InvalidInput
from ...core.limits import show

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)", re.ASCII)


def scheme_of(given: str) -> str | None:
    """The scheme of a URL; None for a path. `C:\\data` and `a:b` are paths."""
    found = _SCHEME.match(given)
    return None if found is None else found[0]


def check_local(given: str, where: str, what: str = "a path") -> None:
    """Raises InvalidInput for a value that cannot be a path of this machine; `what` is expected."""
    if given and scheme_of(given) is None:
        return
    hint = f"; {scheme_of(given)}:// is not supported" if given else ""
    raise InvalidInput(f"expected {what} on this machine, got {show(given)}{hint}", where)
