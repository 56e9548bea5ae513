"""The settings of the notification API: where events are, where webhooks may be, and how long they are tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..formats.values import (
    KIB,
    MIB,
    Described,
    boolean,
    byte_count,
    duration_ms,
    hosts,
    log_name,
    name,
    whole_number,
)
from .addresses import Place

LOOPBACK = "loopback"
"""The word in `hosts` for this machine itself."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The O-Cloud notification API. Times are in ms, sizes in bytes."""

    log: Annotated[str, Described(log_name, "log that holds the events; made when it is first needed")] = "cne"
    """Log that holds the events of the [notification API](notifications.md); made when it is first needed."""
    cluster: Annotated[str, Described(name, "this server's own cluster, for `.` in a resource address")] = ""
    """Name of the server's own cluster, for `.` in a resource address. Where it is not set, `.` stands for every
    name."""
    site: Annotated[str, Described(name, "this server's own site")] = ""
    """Name of the server's own site, likewise."""
    node: Annotated[str, Described(name, "this server's own node")] = ""
    """Name of the server's own node, likewise."""
    strict: Annotated[bool, Described(boolean, "refuse events that break the specification in anything")] = False
    event_bytes_max: Annotated[
        int, Described(byte_count(KIB, 16 * MIB), "largest event, as it is delivered; a larger one is answered 413")
    ] = 64 * KIB
    hosts: Annotated[
        tuple[str, ...],
        Described(hosts, "where webhooks may be: loopback, addresses, networks, names with *, or * for everywhere"),
    ] = (LOOPBACK,)
    """Where webhooks may be: `loopback`, addresses, networks (`10.0.0.0/8`), names with `*`, or `*` for everywhere. A
    list."""
    v1_wraps: Annotated[bool, Described(boolean, "send CloudEvents to subscribers of v1, and not bare events")] = False
    v1_unique_ids: Annotated[bool, Described(boolean, "bare events carry their own id, and not the subscription's")] = (
        False
    )
    webhook_handshake: Annotated[
        bool, Described(boolean, "ask a new webhook by CloudEvents' OPTIONS handshake, too")
    ] = False
    public_reads: Annotated[bool, Described(boolean, "where there are users, let everybody read all the same")] = False
    """Where there are users, let everybody read subscriptions, publishers and current states all the same."""
    client_certificates: Annotated[
        bool, Described(boolean, "take calls that change something only with a verified client certificate")
    ] = False
    """Take calls that change something only with a certificate that `tls.client_ca` vouches for."""
    timeout_ms: Annotated[int, Described(duration_ms(10, 60_000), "how long a webhook may take to answer")] = 2000
    queue_events_max: Annotated[
        int, Described(whole_number(1, 100_000), "events that wait in memory for one endpoint; more wait in the log")
    ] = 1000
    retry_ms_min: Annotated[int, Described(duration_ms(1, 60_000), "pause after a webhook's first failure")] = 200
    retry_ms_max: Annotated[int, Described(duration_ms(1, 3_600_000), "longest pause between two tries")] = 30_000
    suspend_after_ms: Annotated[
        int, Described(duration_ms(0, 10**12), "how long a webhook may fail before it is suspended until resumed")
    ] = 3_600_000
    """How long a webhook may fail before it is suspended until it is resumed."""
    subscriptions_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "how many subscriptions, and how many publishers, there may be")
    ] = 10_000
    owner_subscriptions_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "how many of each one user, or client certificate, may have")
    ] = 1000
    """How many of each one user may have, or one client certificate; where there are neither, nobody is known to be
    one."""

    @property
    def place(self) -> Place:
        """This server's own place."""
        return Place(self.cluster, self.site, self.node)
