"""What an HTTP connection and a WebSocket have in common: the peer, and whether it takes what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...core.clocks import wall_clock_ms
from ...formats.certificates import common_name
from ...http import Scope
from ...http.certificates import EXTENSION


class PeerConnection(asyncio.Protocol):
    """A connection, with the data that its peer sent and that is not parsed yet."""

    def __init__(self) -> None:
        """On the running loop."""
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.opened_at = 0
        """When it was made, in ms since 1970."""
        self.tls: str | None = None
        """The version of TLS, if it is used."""
        self.client: tuple[str, int] | None = None
        """Address and port of the peer, if they are known."""
        self.scope: Scope = {}
        """The application's: of the last request, or of the WebSocket. Empty before there is one."""
        self.is_full = False
        """Whether the peer does not take what it is sent."""
        self._writable: asyncio.Event | None = None
        """Where something waits until it does."""
        self._unread = b""
        """Received data for later."""
        self._read_to = 0
        """How much of that was looked at."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        tls = transport.get_extra_info("ssl_object")
        self.opened_at, self.tls = wall_clock_ms(), tls.version() if tls is not None else None

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drained(self) -> None:
        """Wait until the peer takes what it is sent, or is gone."""
        while self.is_full:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def _advance(self, size: int) -> None:
        """So much more of what came was looked at."""
        self._read_to += size
        if self._read_to >= len(self._unread):
            self._unread, self._read_to = b"", 0


def peer_of(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """Address and port of the peer; None over a Unix socket, where peers have none, and where it has left already."""
    name = transport.get_extra_info("peername")
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None


def scope_of(transport: asyncio.BaseTransport) -> Scope:
    """What the scopes of all requests of a connection have (ASGI): both its ends, and how it is secured."""
    name = transport.get_extra_info("sockname")
    server = (str(name[0]), int(name[1])) if isinstance(name, tuple) else (name, None) if name else None
    base: Scope = {
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "server": server,
        "client": peer_of(transport),
        "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        "root_path": "",
    }
    if (extensions := extensions_of(transport.get_extra_info("peercert"))) is not None:
        base["extensions"] = extensions
    return base


_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED = ',+"\\<>;'


def extensions_of(certificate: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The extensions for a connection, from what `ssl` says of the peer's certificate; None without a verified one."""
    if not certificate:
        return None
    name = common_name(certificate)
    return {"tls": {"client_cert_name": subject_of(certificate)}, **({} if name is None else {EXTENSION: name})}


def subject_of(certificate: Mapping[str, Any]) -> str:
    """The subject's distinguished name (RFC 4514): `CN=worker-0,O=Example`."""
    parts = certificate.get("subject", ())
    return ",".join("+".join(_attribute(name, value) for name, value in part) for part in reversed(parts))


def _attribute(name: str, value: str) -> str:
    escaped = "".join(f"\\{character}" if character in _ESCAPED else character for character in value)
    if escaped[:1] in (" ", "#"):
        escaped = f"\\{escaped}"
    return f"{_SHORT.get(name, name)}={escaped}"
