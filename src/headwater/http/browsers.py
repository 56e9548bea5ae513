"""What the head of a request says of where it comes from: the name it was sent to, and the web page that sent it.

A page in somebody's browser may send requests to any address that this browser reaches, without asking anybody, as
long as they are *simple* (Fetch, 2.2.2 and 3.3): GET, or POST with one of three media types or none. It cannot read the
answer, but what the request does is done. What tells such a request from a program's are fields that no page can
change: `Host`, `Origin` (RFC 6454), and `Sec-Fetch-*` (Fetch Metadata). Programs send only the first. All here is pure;
what is allowed is decided by who calls it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from .asgi import Header

SIMPLE_TYPES = frozenset({b"", b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"})
"""Media types of bodies that a page may send to another origin without asking first; empty: none is said."""
LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})
"""Names that every system takes for loopback, or for nothing; with all below `localhost` (RFC 6761, 6.3)."""
NAME_BYTES_MAX = 300
"""Of a Host or Origin field that is looked into: a name of the DNS has 253."""
DEFAULT_PORTS = {"http": 80, "https": 443}
NULL_ORIGIN = "null"
"""What a browser says for a page without an origin: a file, a sandboxed frame, what was redirected across origins."""

# The zone of an address is of the client alone, so that it should say none; some do, as `%eth0` or as `%25eth0`.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~-]+)?\]|[A-Za-z0-9._~%!$&'()*+;=-]*)(?::([0-9]{0,5}))?")
_ORIGIN = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#@,\s]+)")


class Authority(NamedTuple):
    """A host as a request names it."""

    name: str
    """In lower case, without a dot at the end; an IPv6 address without brackets."""
    port: int | None
    is_local: bool
    """Whether it is a loopback name or an IP address, which no DNS server of a stranger can lead elsewhere."""


class Origin(NamedTuple):
    """Where a page comes from; its port is the scheme's own where none is said."""

    scheme: str
    name: str
    port: int | None


class Head(dict[bytes, bytes]):
    """The fields of a request that tell a page from a program; of several of one name, the values joined by commas."""

    __slots__ = ()

    @property
    def is_of_browser(self) -> bool:
        """Whether a browser says so; old ones, and those that ask over plain HTTP on a network, say nothing."""
        return not self.keys().isdisjoint(_OF_BROWSERS)

    @property
    def is_silent_browser(self) -> bool:
        """Whether it may be of a page of a browser that does not say which.

        That is so for GETs of images and frames, of Safari before 16.4, and of any browser over plain HTTP on a
        network. All browsers begin User-Agent like this, and no page keeps them from it.
        """
        is_telling = b"origin" in self or b"sec-fetch-site" in self
        return not is_telling and self.get(b"user-agent", b"")[:8].lower() == b"mozilla/"

    @property
    def is_of_other_site(self) -> bool:
        """Whether a browser says that a page of another origin caused it: also one on another port of this host."""
        return self.get(b"sec-fetch-site") in (b"cross-site", b"same-site")

    @property
    def is_navigation(self) -> bool:
        """Whether the answer is shown in a window of its own, where the page that led there cannot look into it."""
        return self.get(b"sec-fetch-mode") == b"navigate" and self.get(b"sec-fetch-dest") == b"document"

    @property
    def has_body(self) -> bool:
        """Whether a body is announced (RFC 9112, 6.3)."""
        return b"transfer-encoding" in self or self.get(b"content-length", b"0") not in (b"", b"0")

    @property
    def media_type(self) -> bytes:
        """Of the body, without parameters, in lower case; empty if nothing is said."""
        return self.get(b"content-type", b"").partition(b";")[0].strip().lower()

    @property
    def has_simple_type(self) -> bool:
        """Whether a page may send a body of this type unasked.

        Not so with `ce-` header fields (CloudEvents in binary mode), whatever the type: a page must ask for those.
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
    b"access-control-request-method",
    b"access-control-request-headers",
}


def head_of(headers: Iterable[Header]) -> Head:
    """What the header fields of a request say; names are in lower case, as ASGI has them."""
    head = Head()
    for name, value in headers:
        if name in _FIELDS:
            head[name] = value if name not in head else head[name] + b", " + value
    return head


def authority_of(host: bytes) -> Authority | None:
    """The host that a Host field names, or None where it is not well-formed (RFC 9112, 3.2)."""
    return _authority_of(host) if len(host) <= NAME_BYTES_MAX else None


def origin_of(text: bytes) -> Origin | None:
    """The origin that an Origin field names, or None for `null`, and for what is no origin."""
    return _origin_of(text) if len(text) <= NAME_BYTES_MAX else None


def own_origin(scheme: str, authority: Authority) -> Origin:
    """The origin of the pages that are served where a request went to."""
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
