"""The allow-list of webhook hosts, which keeps subscribers from making the server call hosts that only it can reach.

A host given as an address is checked as it is. For a name, either the name is on the list, or every address that it
resolves to is checked at every connection, so an attacker cannot bypass the list by changing the address of a name."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from fnmatch import fnmatchcase

from ..settings import LOOPBACK

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


class AllowedHosts:
    """The parsed allow-list."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """Raises ValueError for an invalid network (`10.0.0.0/33`)."""
        self.networks: list[Network] = []
        self.names: list[str] = []
        self.allows_all = "*" in hosts
        for host in hosts:
            if host == LOOPBACK:
                self.networks += _LOOPBACK
            elif "/" in host or _address(host) is not None:
                self.networks.append(ipaddress.ip_network(host, strict=False))
            else:
                self.names.append(host.lower())

    def permits_name(self, host: str) -> bool:
        """Whether the host is allowed regardless of its address."""
        return self.allows_all or any(fnmatchcase(host.lower().rstrip("."), name) for name in self.names)

    def permits_address(self, text: str) -> bool:
        """Whether the address is allowed."""
        if self.allows_all:
            return True
        address = _address(text)
        return address is not None and any(address in network for network in self.networks)

    def may_permit(self, host: str) -> bool:
        """Whether a connection may be tried. A name that is not on the list is checked when it is resolved."""
        if _address(host) is not None or _looks_like_an_address(host):
            return self.permits_address(host)
        return self.permits_name(host) or bool(self.networks)


class HostNotAllowed(OSError):
    """The host resolves to addresses that are not on the list."""


def _looks_like_an_address(host: str) -> bool:
    """Whether another layer may treat it as an address (`10.1`, `2130706433`) and connect without resolving it."""
    return ":" in host or host.replace(".", "").isdigit()


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
