"""What is known of a connection of HTTP or a WebSocket from its beginning."""

from __future__ import annotations

import asyncio
import time

from ..http import Scope
from .client_certificates import extensions_of


def opened_now(transport: asyncio.BaseTransport) -> tuple[int, str | None]:
    """When it was made (now, in ms since 1970), and the version of TLS, if that is used."""
    tls = transport.get_extra_info("ssl_object")
    return time.time_ns() // 1_000_000, tls.version() if tls is not None else None


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
