"""The only place that divides `memory.peers` among the parts of the server."""

from __future__ import annotations

from dataclasses import dataclass

from ...formats.settings.declaration import MIB
from ..process.available_memory import available_memory
from .settings import Memory

PEERS_MIN = 64 * MIB
"""The smallest default budget."""
PEERS_PART = 4
"""The default budget is the available memory divided by this."""


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """The budget `memory.peers` and its parts."""

    peers: int
    """The whole budget."""
    loop: int
    """Counted on the event loop, without a lock: bodies, messages and responses (`core.loop.memory`)."""
    threads: int
    """Held by threads: waiting appends of all logs, staged commits, and frames for replicas."""
    flight: int
    """Held by the Arrow Flight process."""

    @classmethod
    def of(cls, settings: Memory) -> MemoryShares:
        """The parts of the configured budget, or of a quarter of the available memory if none is configured."""
        peers = settings.peers
        if peers is None:
            peers = max(available_memory() // PEERS_PART // MIB * MIB, PEERS_MIN)
        return cls(peers, peers * 5 // 8, peers // 4, peers // 8)
