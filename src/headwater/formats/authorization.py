"""What an Authorization header of HTTP shows: Basic (RFC 7617, UTF-8) or Bearer (RFC 6750)."""

from __future__ import annotations

import base64
import binascii
import re

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
