"""What the AMQP server allows and how it paces: every limit of what a peer controls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AmqpSettings:
    """Times are in milliseconds, sizes in bytes."""

    connections_max: int = 10_000
    sessions_max: int = 256
    """Per connection."""
    links_max: int = 256
    """Per session."""
    frame_bytes_max: int = 65_536
    idle_ms: int = 120_000
    """A connection from which nothing comes for so long is closed; peers are asked to speak twice as often."""
    login_ms: int = 10_000
    """How long a peer may take from connecting to its open."""
    credit: int = 1000
    """Deliveries of one producer that may be under way, on the wire or on their way to the disk."""
    unsettled_max: int = 5000
    """Deliveries to one consumer that may wait for their outcome; no more are sent meanwhile."""
    held_bytes_max: int = 8 * 2**20
    """What one connection's producers may have under way; no more is read from it meanwhile."""
    group_pending_max: int = 256
    """Attaches that may wait for a partition, per consumer group."""
    group_pending_ms: int = 300_000
    """How long an attach may wait for a partition."""
    group_drain_ms: int = 2000
    """How long a member that must give up its partition may take to settle what it has."""
    termini_max: int = 10_000
    """Durable subscriptions that one log remembers."""
    info_pause_ms: int = 1000
    """Between two messages of `$info` to one receiver."""
