"""Where a peer comes from: what counts as one place for all that is dealt, or held against somebody, by address."""

from __future__ import annotations

import ipaddress

from .bounded_cache import remembered

PREFIX_BITS = 64
"""Of an IPv6 address: whoever has one has all that begin so (RFC 6177, 2; RFC 7421)."""


@remembered(4096)
def place_of(peer: str) -> str:
    """What counts as one place of a peer's address: an IPv4 address, the /64 of an IPv6 address.

    Whatever else the peer is called (a proxy may say anything) is a place by its name.
    """
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, PREFIX_BITS), strict=False))
    return str(address)
