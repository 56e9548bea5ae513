"""The settings of AMQP: every limit of what a peer controls, and how the server paces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..formats.values import KIB, MIB, Described, byte_count, duration_ms, whole_number


@dataclass(frozen=True, slots=True)
class AmqpSettings:
    """AMQP 1.0. Times are in ms, sizes in bytes."""

    port: Annotated[int, Described(whole_number(0, 65535), "TCP port of AMQP; 0 takes any free one")] = 5672
    connections_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "connections at the same time; more are refused")
    ] = 10_000
    sessions_max: Annotated[int, Described(whole_number(1, 65_536), "sessions of one connection")] = 256
    links_max: Annotated[int, Described(whole_number(1, 65_536), "links of one session")] = 256
    frame_bytes_max: Annotated[
        int, Described(byte_count(512, 16 * MIB), "largest frame; a larger message comes in several")
    ] = 64 * KIB
    # Peers are asked to speak twice as often.
    idle_ms: Annotated[
        int, Described(duration_ms(2000, 86_400_000), "a connection from which nothing comes for so long is closed")
    ] = 120_000
    login_ms: Annotated[
        int, Described(duration_ms(100, 600_000), "how long a peer may take from connecting to its open")
    ] = 10_000
    # On the wire, or on their way to the disk.
    credit: Annotated[int, Described(whole_number(1, 100_000), "messages that one producer may have under way")] = 1000
    unsettled_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "messages to one consumer that may wait for their outcome")
    ] = 5000
    held_bytes_max: int = 8 * MIB
    """What one connection's producers may have under way; no more is read from it meanwhile."""
    groups_max: int = 1000
    """Consumer groups of one log with a link or a recorded epoch."""
    group_pending_max: Annotated[
        int, Described(whole_number(0, 100_000), "receivers that may wait for a partition, per consumer group")
    ] = 256
    group_pending_ms: Annotated[
        int, Described(duration_ms(0, 86_400_000), "how long a receiver may wait for a partition")
    ] = 300_000
    group_drain_ms: Annotated[
        int, Described(duration_ms(0, 600_000), "how long a receiver that loses its partition may take to settle")
    ] = 2000
    termini_max: Annotated[
        int,
        Described(
            whole_number(0, 10_000_000),
            "durable subscriptions that one log remembers, and as many positions of consumer groups",
        ),
    ] = 10_000
    """Durable subscriptions that one log remembers, and as many positions of consumer groups (one for each
    partition)."""
    info_pause_ms: int = 1000
    """Between two messages of `$info` to one receiver."""
