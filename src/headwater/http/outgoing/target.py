"""What is called, read from its URI once (RFC 9110, 4.2): where to connect to, and the beginning of a request's head.

Nothing that a URI or the value of a field has in it can end a line: what could is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple

from yarl import URL

USER_AGENT = "headwater"
_VISIBLE = re.compile(r"[!-~]+")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
"""Tabs, visible characters and spaces, and what is not ASCII (RFC 9110, 5.5)."""


class Origin(NamedTuple):
    """Who is called; connections are kept for each."""

    is_tls: bool
    host: str
    """An address, or a name as it is resolved (IDNA)."""
    port: int
    is_address: bool
    """Whether the host is an address, so that there is nothing to resolve."""


class Target(NamedTuple):
    """What is called."""

    origin: Origin
    start: bytes
    """A request's head from behind the method to its last field that all requests have."""

    def head(self, method: bytes, lines: bytes, length: int | None) -> bytes:
        """A request's head with these fields (`lines_of`), and the length of its body if it has one."""
        if length is None:
            return b"%b%b%b\r\n" % (method, self.start, lines)
        return b"%b%b%bContent-Length: %d\r\n\r\n" % (method, self.start, lines, length)


def target_of(uri: str) -> Target:
    """What that URI names. Raises ValueError, which does not tell the URI: there may be a secret in it."""
    url = URL(uri)
    if url.scheme not in ("http", "https") or not url.host or not url.raw_host or not url.port:
        raise ValueError("an http or https URI with a host is expected")
    if url.user is not None or url.password is not None:
        raise ValueError("a URI with a user or password is not allowed")
    path, authority = url.raw_path_qs, url.host_port_subcomponent or ""
    if not _VISIBLE.fullmatch(path) or not _VISIBLE.fullmatch(authority):
        raise ValueError("a host and a path of visible characters are expected")
    is_address = _is_address(url.host)
    host = url.host if is_address else url.raw_host
    start = f" {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {USER_AGENT}\r\n".encode("ascii")
    return Target(Origin(url.scheme == "https", host, url.port, is_address), start)


def lines_of(fields: Mapping[str, str]) -> bytes:
    """Header fields as they are sent. Raises ValueError for what can be in none."""
    lines = []
    for name, value in fields.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"the header field {name!r} has a character that a field cannot have")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
