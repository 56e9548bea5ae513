"""The header with which a replica forwards a client's connection, and how the primary verifies it.

It is one of the PROXY protocol, version 2 (HAProxy's specification, 2.2), over TCP, with one TLV of the custom range:

| bytes | |
| --- | --- |
| 16 | signature, version and command, family, length of the rest |
| 12 or 36 | addresses and ports: the client's, and the replica's that it connected to |
| 3 | type 0xE0, length 56 |
| 8, 16 | the home's time in ms since 1970, and a random nonce |
| 32 | HMAC-SHA-256 of all bytes before it, by a key made of the home's secret |

*The secret itself is not sent.* The header precedes TLS, so an eavesdropper between two servers can read it. With the
secret they could claim any address and listen to the home. The proof contains an address, a time and a nonce.
A copied header is useless: the primary refuses a nonce that it has seen, a time more than `TIME_OFF_MS_MAX` off, and a
time before it began to listen, so that it need not remember earlier runs. The time is the home's, which servers
learn from each renewal of the lease. An attacker who can modify packets could put other bytes after a genuine header,
as with any connection. TLS and logins protect against that; an address does not.

*Everything else is refused:* other TLVs, other families, and the LOCAL command of health checks. All clients of a proxy
without a proof are refused, so its health checks fail, too.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from collections.abc import Callable

from ...amqp.connections.transport import Origin
from ...homes.home_secret import HomeSecret

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
"""Neither AMQP nor TLS begins with its first byte."""
FIXED = struct.Struct(">12sBBH")
"""Signature, version and command, family and protocol, length of the rest."""
PROXY = 0x21
"""Version 2, and the PROXY command."""
TCP = {0x11: socket.AF_INET, 0x21: socket.AF_INET6}
"""Family and protocol of the addresses."""
_ADDRESS_BYTES = {0x11: 4, 0x21: 16}
PROOF = 0xE0
"""The type of the TLV, in the range for applications."""
_PROOF = struct.Struct(">BHQ16s")
_PORTS = struct.Struct(">HH")
NONCE_BYTES, MAC_BYTES = 16, 32
_PROOF_BYTES = 8 + NONCE_BYTES + MAC_BYTES
_PURPOSE = b"headwater: origin of an AMQP connection"
TIME_OFF_MS_MAX = 30_000
"""How much a header's time may differ from the home's time as known to the primary."""
SEEN_MAX = 65_536
"""The number of remembered nonces: enough for 1,000 connections a second. With more, old headers are refused sooner."""


class OriginRefused(Exception):
    """A header that does not prove that a server of the same home sent it; the message says why."""


def origin_header(secret: bytes, origin: Origin, replica: Origin, now_ms: int, nonce: bytes | None = None) -> bytes:
    """The header for a client at `origin` that connected to the address `replica`.

    `now_ms` is the home's time. A new nonce is drawn unless one is given.
    """
    code = 0x21 if ":" in origin[0] else 0x11
    addresses = b"".join(_packed(code, host) for host, _ in (origin, replica)) + _PORTS.pack(origin[1], replica[1])
    fixed = FIXED.pack(SIGNATURE, PROXY, code, len(addresses) + _PROOF.size + MAC_BYTES)
    proven = fixed + addresses + _PROOF.pack(PROOF, _PROOF_BYTES, now_ms, nonce or secrets.token_bytes(NONCE_BYTES))
    return proven + _mac(secret, proven)


def bytes_after(fixed: bytes) -> int:
    """The number of bytes after the first `FIXED.size`. Raises OriginRefused before any of them is read."""
    signature, command, code, length = FIXED.unpack(fixed)
    if signature != SIGNATURE:
        raise OriginRefused("expected a PROXY header, got another signature")
    if command != PROXY or code not in TCP:
        raise OriginRefused(f"unsigned PROXY header with command {command:#04x} and family {code:#04x}")
    if length != 2 * _ADDRESS_BYTES[code] + _PORTS.size + _PROOF.size + MAC_BYTES:
        raise OriginRefused(f"unsigned PROXY header of {length} bytes")
    return int(length)


class Origins:
    """Verifies headers of other servers of the home, on one event loop."""

    def __init__(self, secret: HomeSecret, home_time_ms: Callable[[], int]) -> None:
        """`secret` and `home_time_ms`: the home's secret and time of day, as known to this server."""
        self._secret, self._home_time_ms = secret, home_time_ms
        self._seen: dict[bytes, int] = {}
        """Nonces, and the times of their headers."""
        self._after_ms = home_time_ms() - 1
        """Headers of this time or earlier are refused because it is unknown whether they were seen."""

    def believe(self, header: bytes) -> Origin:
        """Verify a header, once, and return the client's address. See `bytes_after`. Raises OriginRefused."""
        proven, mac = header[:-MAC_BYTES], header[-MAC_BYTES:]
        kind, length, sent_ms, nonce = _PROOF.unpack(proven[-_PROOF.size :])
        if (kind, length) != (PROOF, _PROOF_BYTES):
            raise OriginRefused("unsigned PROXY header")
        if not any([hmac.compare_digest(mac, _mac(key, proven)) for key in self._secret.known]):
            raise OriginRefused("PROXY header signed with a secret other than the home's")
        self._use(nonce, sent_ms)
        return _origin(proven)

    def _use(self, nonce: bytes, sent_ms: int) -> None:
        now_ms = self._home_time_ms()
        if abs(now_ms - sent_ms) > TIME_OFF_MS_MAX:
            raise OriginRefused(f"PROXY header with a time that is {sent_ms - now_ms:+d} ms off the home's")
        if sent_ms <= self._after_ms or nonce in self._seen:
            raise OriginRefused("PROXY header that was repeated, or was sent before this server started to listen")
        self._seen[nonce] = sent_ms
        while (oldest_ms := self._seen[oldest := next(iter(self._seen))]) < now_ms - TIME_OFF_MS_MAX:
            del self._seen[oldest]
        if len(self._seen) > SEEN_MAX:
            del self._seen[oldest]
            self._after_ms = max(self._after_ms, oldest_ms)


def _origin(header: bytes) -> Origin:
    code = FIXED.unpack_from(header)[2]
    size = _ADDRESS_BYTES[code]
    host = socket.inet_ntop(TCP[code], header[FIXED.size : FIXED.size + size])
    return host, int(_PORTS.unpack_from(header, FIXED.size + 2 * size)[0])


def _packed(code: int, host: str) -> bytes:
    return socket.inet_pton(TCP[code], host.partition("%")[0])


def _mac(secret: bytes, proven: bytes) -> bytes:
    return hmac.digest(hmac.digest(secret, _PURPOSE, "sha256"), proven, "sha256")
