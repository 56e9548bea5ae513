"""A server's address and the client's credentials: URL, credentials and TLS context of a connection."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import unquote

from ...core.errors import InvalidInput
from ...core.limits import show
from ...formats.clients.address import authorization_of, parts_of

DEFAULT_PORTS = {"http": 80, "https": 443}
UNIX_SCHEME = "http+unix"


@dataclass(frozen=True, slots=True)
class Address:
    """The checked parts of a server URL."""

    url: str
    """As given, for messages."""
    host: str
    port: int
    path: str
    """The path before `/logs`, without a trailing slash; usually empty."""
    host_header: str
    tls: ssl.SSLContext | None
    authorization: str | None
    """The value of the Authorization header, or None."""
    unix_path: str | None = None
    """The server's Unix socket, instead of a host and a port."""


def address_of(
    url: str,
    user: str | None,
    password: str | None,
    token: str | None,
    ca_file: str | None,
    is_verified: bool,
) -> Address:
    """The address for a URL and its options. Raises InvalidInput with the problem."""
    if url.partition("://")[0] == UNIX_SCHEME:
        return _unix_address(url, authorization_of(user, password, token))
    parts = parts_of(url, DEFAULT_PORTS, may_have_path=True)
    assert parts.hostname is not None
    return Address(
        url=url.rstrip("/"),
        host=parts.hostname,
        port=parts.port or DEFAULT_PORTS[parts.scheme],
        path=parts.path.rstrip("/"),
        host_header=parts.netloc,
        tls=_tls_context(ca_file, is_verified) if parts.scheme == "https" else None,
        authorization=authorization_of(user, password, token),
    )


def _unix_address(url: str, authorization: str | None) -> Address:
    """`http+unix:///run/headwater.sock`, or the form with the path as the host, as in requests-unixsocket
    (`%2Frun%2F...`).
    """
    path = unquote(url.partition("://")[2])
    if not path.startswith("/") or path.endswith("/") or "\0" in path or {"?", "#"} & set(url):
        raise InvalidInput(f"expected {UNIX_SCHEME}:///PATH/OF/SOCKET, got {show(url)}", "url")
    return Address(
        url=url,
        host="localhost",
        port=0,
        path="",
        host_header="localhost",
        tls=None,
        authorization=authorization,
        unix_path=path,
    )


def _tls_context(ca_file: str | None, is_verified: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"{show(ca_file)} cannot be read as certificates: {error}", "ca_file") from None
    if not is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
