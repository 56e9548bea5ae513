"""The client and the scheme of a proxied request, as trusted proxies report them.

`X-Forwarded-For` names the client and then each proxy, `X-Forwarded-Proto` the scheme that the client used. Any client
can send both, so they count only from a trusted proxy, and the list is read from its end: the first entry that is not a
trusted proxy is the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from ...http import Application, Receive, Scope, Send

EVERYBODY = "*"
PEERS_KEPT = 1024
"""Peers whose trust is cached."""
_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


class TrustedProxies:
    """Addresses, networks (CIDR), or other names that a proxy gives to peers; `*` alone means all."""

    def __init__(self, names: Sequence[str]) -> None:
        self._trusts_all = list(names) == [EVERYBODY]
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: set[str] = set()
        for name in names:
            try:
                self._networks.append(ip_network(name))  # a single address, too
            except ValueError:
                self._names.add(name)
        self._knows = lru_cache(PEERS_KEPT)(self._look)

    def trusts(self, peer: str | None) -> bool:
        """Whether that peer is a trusted proxy. None is a peer on a Unix socket, which has no address."""
        return self._trusts_all or (peer is not None and self._knows(peer))

    def client(self, forwarded_for: str) -> tuple[str, int]:
        """The client's address and port from an `X-Forwarded-For`; the port is 0 if missing.

        If all entries are trusted proxies, it is the first one.
        """
        named = [_host_and_port(entry.strip()) for entry in forwarded_for.split(",")]
        if self._trusts_all:
            return named[0]
        return next((each for each in reversed(named) if not self.trusts(each[0])), named[0])

    def _look(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return peer in self._names
        return any(address in network for network in self._networks)


class Forwarded:
    """ASGI middleware that sets `client` and `scheme` of scopes as a trusted proxy reports them."""

    def __init__(self, application: Application, proxies: TrustedProxies) -> None:
        self._application, self._proxies = application, proxies

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """See ASGI."""
        client = scope.get("client")
        if self._proxies.trusts(client[0] if client else None):
            self._believe(scope)
        return self._application(scope, receive, send)

    def _believe(self, scope: Scope) -> None:
        scheme, entries = "", []
        for name, value in scope["headers"]:
            if name == b"x-forwarded-proto":
                scheme = value.decode("latin-1").strip()
            elif name == b"x-forwarded-for":
                entries.append(value.decode("latin-1"))
        if scheme in _SCHEMES:
            named = _SCHEMES[scheme]
            scope["scheme"] = named.replace("http", "ws") if scope["type"] == "websocket" else named
        if entries and (found := self._proxies.client(", ".join(entries)))[0]:
            scope["client"] = found


def _host_and_port(entry: str) -> tuple[str, int]:
    """Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`; anything else is a name only."""
    host, colon, port = entry.rpartition(":")
    if entry.startswith("["):
        if entry.endswith("]"):
            return entry[1:-1], 0
        if host.endswith("]"):
            return host[1:-1], _port(port)
        return entry, 0
    if colon and ":" not in host and port.isdecimal():
        return host, _port(port)
    return entry, 0


def _port(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else 0
