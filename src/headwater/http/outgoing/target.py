"""The target of a call, parsed once from its URI (RFC 9110, 4.2): where to connect, and the start of a request's head.

Nothing in a URI or a field value can end a line: such characters are refused.
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
"""Tabs, visible characters, spaces and non-ASCII characters (RFC 9110, 5.5)."""


class Origin(NamedTuple):
    """The server to call; connections are kept per origin."""

    is_tls: bool
    host: str
    """An address, or a name ready for resolution (IDNA)."""
    port: int
    is_address: bool
    """Whether the host is an address, which needs no resolution."""


class Target(NamedTuple):
    """The target of a call."""

    origin: Origin
    start: bytes
    """A request's head, from the end of the method to the last field that is common to all requests."""

    def head(self, method: bytes, lines: bytes, length: int | None) -> bytes:
        """A request's head with these fields (`lines_of`), and the length of its body if it has one."""
        if length is None:
            return b"%b%b%b\r\n" % (method, self.start, lines)
        return b"%b%b%bContent-Length: %d\r\n\r\n" % (method, self.start, lines, length)


def target_of(uri: str) -> Target:
    """The target of that URI. Raises ValueError, which does not contain the URI because it may include a secret."""
    url = URL(uri)
    if url.scheme not in ("http", "https") or not url.host or not url.raw_host or not url.port:
        raise ValueError("expected an http or https URI with a host")
    if url.user is not None or url.password is not None:
        raise ValueError("a URI with a user or password is not allowed")
    path, authority = url.raw_path_qs, url.host_port_subcomponent or ""
    if not _VISIBLE.fullmatch(path) or not _VISIBLE.fullmatch(authority):
        raise ValueError("expected a host and a path of visible characters")
    is_address = _is_address(url.host)
    host = url.host if is_address else url.raw_host
    start = f" {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {USER_AGENT}\r\n".encode("ascii")
    return Target(Origin(url.scheme == "https", host, url.port, is_address), start)


def lines_of(fields: Mapping[str, str]) -> bytes:
    """Header fields in the form in which they are sent. Raises ValueError for characters that no field may contain."""
    lines = []
    for name, value in fields.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"the header field {name!r} contains an invalid character")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
