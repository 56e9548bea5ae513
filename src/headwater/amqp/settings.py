"""The AMQP settings: limits on everything a peer controls, and the server's pacing."""

from __future__ import annotations

from dataclasses import dataclass

from ..formats.settings.declaration import KIB, MIB, byte_count, duration_ms, setting, whole_number


@dataclass(frozen=True, slots=True)
class AmqpSettings:
    """AMQP 1.0. Times are in ms, sizes in bytes."""

    port: int = setting(5672, whole_number(0, 65535), "TCP port of AMQP; 0 takes any free one")
    read_port: int | None = setting(
        None, whole_number(0, 65535), "TCP port of AMQP for receivers alone, also at a replica of a shared home"
    )
    """TCP port where a server of a [shared home](../guides/high-availability.md#reading-over-amqp) serves AMQP
    receivers without a group or a durable position, also while it is a replica. Not set: none; 0 takes any free port.
    """
    connections_max: int = setting(10_000, whole_number(1, 1_000_000), "connections at the same time; more are refused")
    sessions_max: int = setting(256, whole_number(1, 65_536), "sessions of one connection")
    links_max: int = setting(256, whole_number(1, 65_536), "links of one session")
    frame_bytes_max: int = setting(
        64 * KIB, byte_count(512, 16 * MIB), "largest frame; a larger message comes in several"
    )
    # Peers are asked to send twice as often.
    idle_ms: int = setting(
        120_000, duration_ms(2000, 86_400_000), "a connection from which nothing comes for so long is closed"
    )
    login_ms: int = setting(10_000, duration_ms(100, 600_000), "how long a peer may take from connecting to its open")
    # On the wire, or on their way to the disk.
    credit: int = setting(1000, whole_number(1, 100_000), "messages that one producer may have under way")
    unsettled_max: int = setting(
        5000, whole_number(1, 1_000_000), "messages to one consumer that may wait for their outcome"
    )
    held_bytes_max: int = 16 * MIB
    """Memory for what one connection's producers have in flight; the server stops reading from the connection at this
    limit. It pauses earlier if memory is short."""
    groups_max: int = 1000
    """Consumer groups of one log with a link or a recorded epoch."""
    group_pending_max: int = setting(
        256, whole_number(0, 100_000), "receivers without a partition that may wait for one, per consumer group"
    )
    group_pending_ms: int = setting(
        300_000,
        duration_ms(0, 86_400_000),
        "how long an attach that names its group by a property may wait for a partition",
    )
    group_drain_ms: int = setting(
        2000, duration_ms(0, 600_000), "how long a receiver that loses its partition may take to settle"
    )
    termini_max: int = setting(
        10_000,
        whole_number(0, 10_000_000),
        "durable subscriptions that one log remembers, and as many positions of consumer groups",
    )
    """Durable subscriptions that one log remembers; also the limit for positions of consumer groups (one per
    partition)."""
    abandoned_ms: int | None = setting(
        None,
        duration_ms(1000, 315_360_000_000),
        "a durable subscription without a receiver for so long is forgotten; not set: never",
    )
    """A durable subscription without a receiver for this long is forgotten, whatever its expiry policy. Time while the
    server is down does not count. Not set: never."""
    listener_events_max: int = setting(
        10_000,
        whole_number(100, 1_000_000),
        "notifications that may wait for a listener to `$events`, before the oldest are lost",
    )
    info_pause_ms: int = 1000
    """Pause between two messages of `$info` to one receiver."""
