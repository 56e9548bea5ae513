"""The AMQP settings: limits on everything a peer controls, and the server's pacing."""

from __future__ import annotations

from dataclasses import dataclass

from ..formats.settings.declaration import KIB, MIB, byte_count, duration_ms, setting, whole_number


@dataclass(frozen=True, slots=True)
class AmqpSettings:
    """AMQP 1.0. Times are in ms, sizes in bytes."""

    port: int = setting(5672, whole_number(0, 65535), "TCP port of AMQP; 0 = any free port")
    read_port: int | None = setting(
        None, whole_number(0, 65535), "TCP port of AMQP for receivers only; also served by replicas"
    )
    """TCP port on which a server of a [shared home](../guides/high-availability.md#reading-over-amqp), including a
    replica, serves AMQP receivers without a group or a durable position. 0 = any free port.
    """
    connections_max: int = setting(
        10_000, whole_number(1, 1_000_000), "maximum number of connections; further ones are refused"
    )
    sessions_max: int = setting(256, whole_number(1, 65_536), "maximum number of sessions per connection")
    links_max: int = setting(256, whole_number(1, 65_536), "maximum number of links per session")
    frame_bytes_max: int = setting(64 * KIB, byte_count(512, 16 * MIB), "largest frame; larger messages are split")
    # Peers are asked to send twice as often.
    idle_ms: int = setting(
        120_000, duration_ms(2000, 86_400_000), "close a connection that has sent nothing for this long"
    )
    login_ms: int = setting(10_000, duration_ms(100, 600_000), "time limit from connect to AMQP open")
    # On the wire, or on their way to the disk.
    credit: int = setting(1000, whole_number(1, 100_000), "maximum number of unconfirmed messages per producer")
    unsettled_max: int = setting(5000, whole_number(1, 1_000_000), "maximum number of unsettled messages per consumer")
    held_bytes_max: int = 16 * MIB
    """Memory for what one connection's producers have in flight; the server stops reading from the connection at this
    limit. It pauses earlier if memory is short."""
    groups_max: int = 1000
    """Consumer groups of one log with a link or a recorded epoch."""
    group_pending_max: int = setting(
        256, whole_number(0, 100_000), "maximum number of receivers waiting for a partition, per consumer group"
    )
    group_pending_ms: int = setting(
        300_000,
        duration_ms(0, 86_400_000),
        "how long an attach with a group property waits for a partition",
    )
    group_drain_ms: int = setting(
        2000, duration_ms(0, 600_000), "time that a receiver has to settle after it loses its partition"
    )
    termini_max: int = setting(
        10_000,
        whole_number(0, 10_000_000),
        "maximum number of durable subscriptions per log, and of consumer group positions",
    )
    """Maximum number of durable subscriptions of one log, and of positions of its consumer groups (one per
    partition).
    """
    abandoned_ms: int | None = setting(
        None,
        duration_ms(1000, 315_360_000_000),
        "delete a durable subscription that has had no receiver for this long; not set: never",
    )
    """Durable subscriptions that have had no receiver for this long are forgotten, whatever their expiry policy.
    The time while the server is down does not count. Not set: never.
    """
    listener_events_max: int = setting(
        10_000,
        whole_number(100, 1_000_000),
        "notifications queued per listener to `$events` before the oldest are dropped",
    )
    info_pause_ms: int = 1000
    """Pause between two messages of `$info` to one receiver."""
