"""What a client logs in with: an Authorization header, Basic (RFC 7617, UTF-8) or Bearer (RFC 6750); a certificate."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from ..core.access import Credentials

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""What no password holds (RFC 7617, 2); scrypt, moreover, takes one with NULs at its end for the one without."""
UNREADABLE = Credentials("", "")
"""What nobody has."""


def credentials_of(header: bytes | None) -> Credentials | None:
    """What the header shows, None where there is none; UNREADABLE for one of another scheme, or not well-formed."""
    if header is None:
        return None
    scheme, _, value = header.partition(b" ")
    try:
        if scheme.lower() == b"bearer":
            return Credentials("", value.strip().decode("ascii"))
        if scheme.lower() == b"basic":
            name, colon, secret = base64.b64decode(value.strip(), validate=True).decode().partition(":")
            if colon and not CONTROL.search(secret):
                return Credentials(name, secret)
    except (binascii.Error, UnicodeDecodeError):
        pass  # as every other header that cannot be used
    return UNREADABLE


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The user whom a certificate names: the common name in what `ssl` says of a peer's verified one; None without."""
    names = [value for names in (certificate or {}).get("subject", ()) for key, value in names if key == "commonName"]
    return names[0] if names else None
