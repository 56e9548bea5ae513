"""What a server says of connections before they are there: how many more there may be, and what those hear above."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LIMIT, HANDSHAKE = "limit", "handshake"
"""Why a connection is not opened: there are too many, or it took too long to agree on TLS while others waited."""


class Reception:
    """A factory of protocols, as asyncio has them, which the server's event loop also asks for this.

    By itself it has room for everybody.
    """

    def __init__(self, protocols: Callable[[], asyncio.BaseProtocol]) -> None:
        """`protocols` makes the protocol of each connection."""
        self._protocols = protocols

    def __call__(self) -> asyncio.BaseProtocol:
        """The protocol of one connection."""
        return self._protocols()

    @property
    def room(self) -> int:
        """How many more connections there may be: so many may wait to be opened."""
        return 2**31

    def takes(self, place: str, opening: int) -> bool:
        """Whether a connection from that place (`client_subnet`) may be opened, beside the ones being opened."""
        return True

    def refuse(self, place: str, reason: str) -> bytes:
        """Count a connection that was accepted and is not opened; answers its message, if it speaks no TLS."""
        return b""
