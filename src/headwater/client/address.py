"""Where a server is and how to show who asks: the URL, the credentials and the TLS context of a connection."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..core.errors import InvalidInput
from ..core.limits import show

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """The checked parts of a server's URL."""

    url: str
    """As it was given, for messages."""
    host: str
    port: int
    path: str
    """What comes before `/logs`, without a slash at its end; most often empty."""
    host_header: str
    tls: ssl.SSLContext | None
    authorization: str
    """The value of the Authorization header, or empty."""


def address_of(
    url: str,
    user: str | None,
    password: str | None,
    token: str | None,
    ca_file: str | None,
    is_verified: bool,
) -> Address:
    """The address that a URL and its options stand for. Raises InvalidInput with what is wrong about them."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"{error} in {show(url)}", "url") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(f"http://HOST[:PORT] or https://HOST[:PORT] is expected, {show(url)} given", "url")
    if parts.username is not None:
        raise InvalidInput("user and password are given apart from the URL, not in it", "url")
    return Address(
        url=url.rstrip("/"),
        host=parts.hostname,
        port=port or DEFAULT_PORTS[parts.scheme],
        path=parts.path.rstrip("/"),
        host_header=parts.netloc,
        tls=_tls_context(ca_file, is_verified) if parts.scheme == "https" else None,
        authorization=_authorization(user, password, token),
    )


def _authorization(user: str | None, password: str | None, token: str | None) -> str:
    if token is not None:
        if user is not None or password is not None:
            raise InvalidInput("give a token, or a user and a password, not both", "token")
        if not token.isascii() or not token.isprintable():
            raise InvalidInput("a token has printable ASCII characters only", "token")
        return f"Bearer {token}"
    if user is None and password is None:
        return ""
    if user is None or password is None:
        raise InvalidInput("a user and a password go together; one of them is missing", "user")
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _tls_context(ca_file: str | None, is_verified: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"{show(ca_file)} cannot be read as certificates: {error}", "ca_file") from None
    if not is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
