"""The one place that divides `memory.peers`: which part belongs to what peers make the server hold where."""

from __future__ import annotations

from dataclasses import dataclass

from ...formats.settings.declaration import MIB
from ..process.available_memory import available_memory
from .settings import Memory

PEERS_MIN = 64 * MIB
"""The least budget where none is configured."""
PEERS_PART = 4
"""Where none is configured, the budget is one part in so many of the memory there is."""


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """The budget `memory.peers` and its parts."""

    peers: int
    """All of it."""
    loop: int
    """Counted on the event loop, without a lock: bodies, messages, answers (`core.loop.memory`)."""
    threads: int
    """What threads hold: waiting appends of all logs, staged commits, frames for replicas."""
    flight: int
    """What the process of Arrow Flight holds."""

    @classmethod
    def of(cls, settings: Memory) -> MemoryShares:
        """The parts of the budget that is configured, else of a quarter of the memory there is."""
        peers = settings.peers
        if peers is None:
            peers = max(available_memory() // PEERS_PART // MIB * MIB, PEERS_MIN)
        return cls(peers, peers * 5 // 8, peers // 4, peers // 8)
