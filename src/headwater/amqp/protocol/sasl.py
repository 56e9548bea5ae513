"""SASL frames (part 5, section 5.3), and the message of the PLAIN mechanism (RFC 4616)."""

import struct
from typing import Annotated, Final

from .codec import DecodeError
from .composite import Composite, Group, composite, read_fields, write_composite
from .fields import BINARY, STRING, SYMBOL, SYMBOLS, UBYTE

OK: Final = 0
"""Authenticated."""
AUTH: Final = 1
"""Failed: the credentials are wrong."""
SYS: Final = 2
"""Failed: a system error."""
SYS_PERM: Final = 3
"""The login failed because of a system error that persists until it is fixed."""
SYS_TEMP: Final = 4
"""The login failed because of a system error that may be temporary."""


@composite("sasl-mechanisms", 0x40)
class SaslMechanisms(Composite):
    """The server's mechanisms (5.3.3.1); sent as an array, even if there is only one."""

    sasl_server_mechanisms: Annotated[tuple[str, ...], SYMBOLS]


@composite("sasl-init", 0x41)
class SaslInit(Composite):
    """The client's choice (5.3.3.2)."""

    mechanism: Annotated[str, SYMBOL]
    initial_response: Annotated[bytes | None, BINARY] = None
    hostname: Annotated[str | None, STRING] = None

    def __repr__(self) -> str:
        """Omits the response, which may be a password."""
        return f"SaslInit(mechanism={self.mechanism!r}, hostname={self.hostname!r})"


@composite("sasl-challenge", 0x42)
class SaslChallenge(Composite):
    """The server's challenge (5.3.3.3)."""

    challenge: Annotated[bytes, BINARY]


@composite("sasl-response", 0x43)
class SaslResponse(Composite):
    """The client's response (5.3.3.4)."""

    response: Annotated[bytes, BINARY]

    def __repr__(self) -> str:
        """Omits the response, which may be a password."""
        return "SaslResponse()"


@composite("sasl-outcome", 0x44)
class SaslOutcome(Composite):
    """The outcome (5.3.3.5): `code` is OK, AUTH, SYS, SYS_PERM or SYS_TEMP."""

    code: Annotated[int, UBYTE]
    additional_data: Annotated[bytes | None, BINARY] = None


SaslFrame = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome

_FRAMES: Final = Group("SASL frame", [SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome])


def decode_sasl(buffer: bytes, at: int, end: int) -> SaslFrame:
    """The body of a SASL frame, from `at` to `end`. Raises DecodeError, like `decode_performative`."""
    try:
        layout, body = _FRAMES.find(buffer, at)
        if layout is None:
            raise DecodeError("expected a SASL frame, got another described value", at)
        sasl, after = read_fields(layout, buffer, body)
    except (IndexError, struct.error):
        raise DecodeError("the SASL frame is cut short", at) from None
    if after != end:
        raise DecodeError(f"{layout.name} does not end at the end of its frame", after)
    return sasl  # type: ignore[no-any-return]


def encode_sasl(sasl: SaslFrame) -> bytearray:
    """The body of a SASL frame. Raises EncodeError, which names the frame and the field."""
    out = bytearray()
    write_composite(out, sasl)
    return out


def parse_plain(response: bytes) -> tuple[str, str, str]:
    """Authorization identity (mostly empty), name and password. Raises DecodeError, without revealing the input."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise DecodeError(f"expected identity, name and password in a PLAIN response, got {len(parts)} part(s)", 0)
    try:
        identity, name, password = parts[0].decode(), parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        raise DecodeError("a PLAIN response is not UTF-8", 0) from None
    if not name or not password:
        raise DecodeError(f"a PLAIN response has an empty {'password' if name else 'name'}", 0)
    return identity, name, password


def parse_bearer(response: bytes) -> tuple[str, str]:
    """User (may be empty) and token of OAUTHBEARER (RFC 7628, 3.1), or of XOAUTH2, whose first part differs.

    Raises DecodeError, without revealing the input.
    """
    first, *pairs = response.split(b"\x01")
    fields = dict(pair.partition(b"=")[::2] for pair in pairs if pair)
    if first.startswith((b"n,", b"y,", b"p=")):
        identity = next((part[2:] for part in first.split(b",") if part.startswith(b"a=")), b"")
    else:
        identity = first.removeprefix(b"user=")
    scheme, _, token = fields.get(b"auth", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token.strip():
        raise DecodeError("an OAUTHBEARER or XOAUTH2 response must contain auth=Bearer TOKEN", 0)
    try:
        name = identity.decode().replace("=2C", ",").replace("=3D", "=")  # RFC 5801, 4
        return name, token.strip().decode("ascii")
    except UnicodeDecodeError:
        raise DecodeError("an OAUTHBEARER or XOAUTH2 response is not UTF-8", 0) from None


def plain(name: str, password: str) -> bytes:
    """The response of a client that authenticates as `name`. Raises ValueError if a value is empty or contains a
    NUL.
    """
    for what, text in (("name", name), ("password", password)):
        if not text or "\0" in text:
            raise ValueError(f"a {what} for PLAIN must not be empty or contain NUL")
    return b"\0" + name.encode() + b"\0" + password.encode()
