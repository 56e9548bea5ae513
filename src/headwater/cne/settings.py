"""The settings of the notification API: the log, allowed webhook hosts, and retry times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..formats.settings.declaration import (
    KIB,
    MIB,
    boolean,
    byte_count,
    duration_ms,
    hosts,
    log_name,
    name,
    one_of,
    path,
    setting,
    whole_number,
)
from .notifications.addresses import Place

LOOPBACK = "loopback"
"""The word in `hosts` for this machine."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The O-Cloud notification API. Times are in ms, sizes in bytes."""

    log: str = setting("cne", log_name, "log for the events; created on first use")
    """Log that holds the events of the [notification API](notifications.md); created when first needed."""
    cluster: str = setting("", name, "this server's cluster, for `.` in a resource address")
    """Name of the server's own cluster, for `.` in a resource address. If it is not set, `.` matches every name."""
    site: str = setting("", name, "this server's site")
    """Name of the server's own site, likewise."""
    node: str = setting("", name, "this server's node")
    """Name of the server's own node, likewise."""
    strict: bool = setting(False, boolean, "refuse events that deviate from the specification in any way")
    event_bytes_max: int = setting(
        64 * KIB, byte_count(KIB, 16 * MIB), "largest event as delivered; larger ones get 413"
    )
    hosts: tuple[str, ...] = setting(
        (LOOPBACK,), hosts, "allowed hosts of webhooks: loopback, addresses, networks, names with *, or * for any"
    )
    """Allowed hosts of webhooks: `loopback`, addresses, networks (`10.0.0.0/8`), names with `*`, or `*` for all
    hosts.
    """
    delivery_mode: str = setting(
        "structured",
        one_of("structured", "binary", "starlingx"),
        "delivery format of subscriptions that do not choose one: structured, binary, starlingx",
    )
    """Default `DeliveryMode` of subscriptions: `structured`, `binary`, or (v2 only)
    [`starlingx`](notifications.md#starlingx).
    """
    v1_wraps: bool = setting(False, boolean, "send CloudEvents, not bare events, to v1 subscribers")
    v1_unique_ids: bool = setting(False, boolean, "bare events carry their own id, not the subscription's")
    webhook_handshake: bool = setting(False, boolean, "also validate new webhooks with CloudEvents' OPTIONS handshake")
    webhook_ca: Path | None = setting(
        None, path, "file with the CA certificates (PEM) to verify webhooks; default: the system's"
    )
    """File with the authorities (PEM) that sign webhooks' certificates, instead of the system's. It is reloaded
    when it changes, like `cne.webhook_certificate` and `cne.webhook_key`.
    """
    webhook_certificate: Path | None = setting(
        None, path, "file with the client certificate chain (PEM) for webhooks; requires its key"
    )
    """File with the certificate chain (PEM) for webhooks that request a client certificate."""
    webhook_key: Path | None = setting(None, path, "file with the private key (PEM) of cne.webhook_certificate")
    public_reads: bool = setting(False, boolean, "allow reading without credentials even if there are users")
    """Allow everyone to read subscriptions, publishers and current states, even if users are configured."""
    client_certificates: bool = setting(
        False, boolean, "require a verified client certificate for calls that change something"
    )
    """Accept changes only from clients that are authenticated by a certificate of `tls.client_ca`."""
    timeout_ms: int = setting(2000, duration_ms(10, 60_000), "time limit for a webhook's answer")
    queue_events_max: int = setting(
        1000, whole_number(1, 100_000), "events queued in memory per endpoint; further ones are read from the log"
    )
    retry_ms_min: int = setting(200, duration_ms(1, 60_000), "pause after a webhook's first failure")
    retry_ms_max: int = setting(30_000, duration_ms(1, 3_600_000), "longest pause between two attempts")
    suspend_after_ms: int = setting(
        3_600_000, duration_ms(0, 10**12), "how long a webhook may fail before it is suspended"
    )
    """How long a webhook may fail before it is suspended until it is resumed."""
    forget_after_ms: int = setting(
        604_800_000, duration_ms(1, 10**12), "delete the subscriptions of a webhook suspended for this long"
    )
    """How long a webhook may be suspended before its subscriptions are deleted, with the event
    `io.headwater.webhook.forgotten`.
    """
    subscriptions_max: int = setting(
        10_000, whole_number(1, 1_000_000), "maximum number of subscriptions, and of publishers"
    )
    owner_subscriptions_max: int = setting(
        1000,
        whole_number(1, 1_000_000),
        "maximum number of subscriptions, and of publishers, per user or client certificate",
    )
    """The same for one user or client certificate; without either, callers cannot be distinguished."""

    states_max: int = setting(
        20_000, whole_number(1, 1_000_000), "maximum number of resource addresses with a current state"
    )
    """Maximum number of resource addresses with a current state. Events of other addresses are still delivered, but
    `CurrentState` answers 503 for them.
    """

    @property
    def place(self) -> Place:
        """This server's place."""
        return Place(self.cluster, self.site, self.node)
