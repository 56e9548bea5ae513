"""The origin of a request according to its head: the host name it was sent to, and the web page that sent it.

A page in a browser may send requests to any address that the browser reaches, without a preflight, as long as they are
*simple* (Fetch, 2.2.2 and 3.3): GET, or POST with one of three media types or without one. It cannot read the answer,
but the request takes effect. Such a request differs from a program's by fields that no page can change: `Host`,
`Origin` (RFC 6454), and `Sec-Fetch-*` (Fetch Metadata). Programs send only `Host`. All functions here are pure; the
caller decides which requests are allowed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import NamedTuple

from .asgi import Header

SIMPLE_TYPES = frozenset({b"", b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"})
"""Media types that a page may send to another origin without a preflight; empty: none is given."""
LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})
"""Names that every system resolves to loopback or not at all; also all names below `localhost` (RFC 6761, 6.3)."""
NAME_BYTES_MAX = 300
"""Longest Host or Origin field that is parsed: a DNS name has at most 253 bytes."""
DEFAULT_PORTS = {"http": 80, "https": 443}
NULL_ORIGIN = "null"
"""The browser's value for a page without an origin: a file, a sandboxed frame, a cross-origin redirect."""

# An address's zone matters only to the client, so it should not be sent; some do send it, as `%eth0` or as `%25eth0`.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~-]+)?\]|[A-Za-z0-9._~%!$&'()*+;=-]*)(?::([0-9]{0,5}))?")
_ORIGIN = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#@,\s]+)")


HEAD = "headwater.head"
"""Scope key of the request's Head, if the server has made one."""


class Authority(NamedTuple):
    """A host as named by a request."""

    name: str
    """In lower case, without a trailing dot; an IPv6 address without brackets."""
    port: int | None
    is_local: bool
    """Whether it is a loopback name or an IP address, which a foreign DNS server cannot redirect."""


class Origin(NamedTuple):
    """The origin of a page; the port defaults to the scheme's own."""

    scheme: str
    name: str
    port: int | None


class Head(dict[bytes, bytes]):
    """The header fields that distinguish a page from a program; repeated fields are joined by commas.

    Do not change it: its answers are cached, because clients send the same head repeatedly.
    """

    allowed_by: object = None
    """The guard that has allowed the request with this head, and always will."""

    @cached_property
    def authority(self) -> Authority | None:
        """The requested host, or None if the Host field is missing or malformed (RFC 9112, 3.2)."""
        return authority_of(self.get(b"host", b"")) if b"host" in self else None

    @property
    def is_of_browser(self) -> bool:
        """Whether a browser says so; old browsers, and browsers that use plain HTTP on a network, do not."""
        return not self.keys().isdisjoint(_OF_BROWSERS)

    @cached_property
    def is_silent_browser(self) -> bool:
        """Whether a page may have sent it, in a browser that does not say so.

        This covers GETs of images and frames, Safari before 16.4, and any browser over plain HTTP on a network. All
        browsers begin User-Agent like this, and no page can prevent it.
        """
        is_telling = b"origin" in self or b"sec-fetch-site" in self
        return not is_telling and self.get(b"user-agent", b"")[:8].lower() == b"mozilla/"

    @cached_property
    def is_of_other_site(self) -> bool:
        """Whether a browser says that a page of another origin caused it, including another port of this host."""
        return self.get(b"sec-fetch-site") in (b"cross-site", b"same-site")

    @property
    def is_navigation(self) -> bool:
        """Whether the answer opens in a separate window, where the page that led there cannot read it."""
        return self.get(b"sec-fetch-mode") == b"navigate" and self.get(b"sec-fetch-dest") == b"document"

    @property
    def has_body(self) -> bool:
        """Whether a body is announced (RFC 9112, 6.3)."""
        return b"transfer-encoding" in self or self.get(b"content-length", b"0") not in (b"", b"0")

    @property
    def media_type(self) -> bytes:
        """The body's media type, without parameters, in lower case; empty if none is given."""
        return self.get(b"content-type", b"").partition(b";")[0].strip().lower()

    @cached_property
    def has_simple_type(self) -> bool:
        """Whether a page may send a body of this type without a preflight.

        Never with `ce-` header fields (CloudEvents in binary mode), whatever the type: they require a preflight.
        """
        return self.media_type in SIMPLE_TYPES and b"ce-specversion" not in self


_OF_BROWSERS = frozenset(
    {b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"sec-fetch-user", b"sec-fetch-storage-access"}
)
_FIELDS = _OF_BROWSERS | {
    b"host",
    b"user-agent",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
    b"ce-specversion",
    b"headwater-console",
    b"headwater-at-least",
    b"access-control-request-method",
    b"access-control-request-headers",
}


def head_of(headers: Iterable[Header]) -> Head:
    """The parsed header fields of a request; names are in lower case, as in ASGI."""
    head = Head()
    for name, value in headers:
        if name in _FIELDS:
            head[name] = value if name not in head else head[name] + b", " + value
    return head


def authority_of(host: bytes) -> Authority | None:
    """The host in a Host field, or None if the field is malformed (RFC 9112, 3.2)."""
    return _authority_of(host) if len(host) <= NAME_BYTES_MAX else None


def origin_of(text: bytes) -> Origin | None:
    """The origin in an Origin field, or None for `null` and for anything that is not an origin."""
    return _origin_of(text) if len(text) <= NAME_BYTES_MAX else None


def own_origin(scheme: str, authority: Authority) -> Origin:
    """The origin of the pages served at the address that a request was sent to."""
    return _origin({"ws": "http", "wss": "https"}.get(scheme, scheme), authority)


@lru_cache(1024)
def _authority_of(host: bytes) -> Authority | None:
    found = _HOST.fullmatch(host)
    if found is None:
        return None
    name = found[1].decode().lower()
    is_literal = name.startswith("[")
    name = name.strip("[]") if is_literal else name.removesuffix(".")
    if is_literal and not _is_address(name.partition("%")[0]):
        return None
    is_local = is_literal or name in LOOPBACK_NAMES or name.endswith(".localhost") or _is_address(name)
    return Authority(name, int(found[2]) if found[2] else None, is_local)


@lru_cache(1024)
def _origin_of(text: bytes) -> Origin | None:
    found = _ORIGIN.fullmatch(text)
    authority = _authority_of(found[2]) if found else None
    return _origin(found[1].decode().lower(), authority) if found and authority and authority.name else None


def _origin(scheme: str, authority: Authority) -> Origin:
    return Origin(scheme, authority.name, authority.port or DEFAULT_PORTS.get(scheme))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
