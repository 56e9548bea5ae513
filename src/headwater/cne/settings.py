"""What this room can be told; the server's configuration fills it from its section `cne`."""

from __future__ import annotations

from dataclasses import dataclass

from .addresses import Place

LOOPBACK = "loopback"
"""The word in `hosts` for this machine itself."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one front end."""

    log: str = "cne"
    """The log that the events are in; it is created with the first publisher, subscription or event."""
    cluster: str = ""
    site: str = ""
    node: str = ""
    """Names of this server's own place, for which `.` stands in a resource address."""
    strict: bool = False
    """Whether an event must keep the specification to the letter."""
    event_bytes_max: int = 64 * 1024
    """The largest event, measured as it is delivered: in its CloudEvent."""
    hosts: tuple[str, ...] = (LOOPBACK,)
    """Where webhooks may be: `loopback`, an address or network, a name (with `*`), or `*` for everywhere."""
    v1_wraps: bool = False
    """Whether subscribers of v1 get CloudEvents, as is specified, and not bare events, as they are used to."""
    v1_unique_ids: bool = False
    """Whether bare events carry their own id, and not that of the subscription."""
    webhook_handshake: bool = False
    """Whether a webhook must allow itself to be called by CloudEvents' OPTIONS handshake as well."""
    public_reads: bool = False
    """Whether reading needs no credentials where there are users."""
    client_certificates: bool = False
    """Whether calls that change something must come with a client certificate that TLS has verified."""
    timeout_ms: int = 2000
    """How long a webhook may take to answer."""
    queue_events_max: int = 1000
    """How many events wait in memory for one endpoint; those beyond it are read from the log again."""
    retry_ms_min: int = 200
    retry_ms_max: int = 30_000
    """The pause after the first failure, and the longest one."""
    suspend_after_ms: int = 3_600_000
    """How long an endpoint may fail before nothing is sent to it until it is resumed."""
    subscriptions_max: int = 10_000
    """How many subscriptions, and how many publishers, there may be."""
    owner_subscriptions_max: int = 1000
    """How many of each one user may have, or one client certificate."""

    @property
    def place(self) -> Place:
        """This server's own place."""
        return Place(self.cluster, self.site, self.node)
