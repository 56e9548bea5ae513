"""The client's certificate, where TLS asked for one and verified it: its names, as extensions of ASGI have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..formats.certificates import common_name
from ..http.certificates import EXTENSION

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
