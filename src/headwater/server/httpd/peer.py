"""What a connection knows about its peer: the address and the TLS certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...formats.credentials import common_name
from ...http.certificates import EXTENSION


def peer_of(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """The peer's address and port; None over a Unix socket, where peers have no address, and if the peer has already
    disconnected.
    """
    name = transport.get_extra_info("peername")
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None


def scope_of(transport: asyncio.BaseTransport) -> dict[str, Any]:
    """The scope fields shared by all requests of a connection (ASGI): both of its ends, and its TLS state."""
    name = transport.get_extra_info("sockname")
    server = (str(name[0]), int(name[1])) if isinstance(name, tuple) else (name, None) if name else None
    base: dict[str, Any] = {
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
    """The ASGI extensions for a connection, from the peer certificate of `ssl`; None without a verified one."""
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
