"""Places: the networks of peers' addresses, the unit for per-address quotas and penalties."""

from __future__ import annotations

import ipaddress

from .bounded_cache import remembered

PREFIX_BITS = 64
"""Prefix length of an IPv6 address: its holder controls every address that begins with it (RFC 6177, 2; RFC 7421)."""


@remembered(4096)
def place_of(peer: str) -> str:
    """The place of a peer's address: an IPv4 address, or the /64 of an IPv6 address.

    Any other peer name (a proxy may send anything) is a place of its own.
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
