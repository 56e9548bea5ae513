"""A server's policy for connections before they are opened: how many are accepted, and what refused ones receive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

LIMIT, HANDSHAKE = "limit", "handshake"
"""Why a connection is not opened: there are too many connections, or its TLS handshake took too long while others
waited."""


def _nothing() -> None:
    pass


class Welcome(NamedTuple):
    """How an accepted connection is opened."""

    protocols: Callable[[], asyncio.BaseProtocol]
    """Creates its protocol; called once, if the connection opens."""
    ends_tls: bool = True
    """Whether this server terminates the listener's TLS, if any; False: the bytes are passed on unchanged."""
    unopened: Callable[[], None] = _nothing
    """Called instead of `protocols` if the connection does not open."""


class Reception:
    """A factory of protocols, as in asyncio, that also gives the server's event loop its connection limits.

    By default it accepts all connections.
    """

    def __init__(self, protocols: Callable[[], asyncio.BaseProtocol]) -> None:
        """`protocols` creates the protocol of each connection."""
        self._protocols = protocols

    def __call__(self) -> asyncio.BaseProtocol:
        """The protocol of one connection."""
        return self._protocols()

    async def meet(self, connection: Any) -> Welcome | None:
        """How to open that non-blocking socket; None if it is closed.

        It may wait for the first bytes and consume some of them.
        """
        return Welcome(self)

    @property
    def room(self) -> int:
        """The number of further connections that are accepted and may wait to be opened."""
        return 2**31

    def takes(self, place: str, opening: int) -> bool:
        """Whether a connection from that place (`client_subnet`) may be opened, in addition to those being opened."""
        return True

    def refuse(self, place: str, reason: str) -> bytes:
        """Count a connection that was accepted but not opened; returns the message to send if it does not use TLS."""
        return b""
