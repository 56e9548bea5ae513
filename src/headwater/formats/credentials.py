"""Credentials for login: an Authorization header, Basic (RFC 7617, UTF-8) or Bearer (RFC 6750); a certificate."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from ..core.access import Credentials

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Characters that no password contains (RFC 7617, 2); also, scrypt ignores NULs at the end of a password."""
UNREADABLE = Credentials("", "")
"""Credentials that match no user."""


def credentials_of(header: bytes | None) -> Credentials | None:
    """The credentials in the header, None without one; UNREADABLE for another scheme or a malformed header."""
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
        pass  # like every other unusable header
    return UNREADABLE


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The user named by a certificate: the common name in `ssl`'s description of a verified one; None without."""
    names = [value for names in (certificate or {}).get("subject", ()) for key, value in names if key == "commonName"]
    return names[0] if names else None
