"""What the AMQP server counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AmqpStatistics:
    """Counters since the server started. Live, not to be changed by who reads them."""

    connections: int = 0
    """Taken; those that are open are the container's `connections`."""
    connections_refused: int = 0
    """Because there were too many, or the server was stopping."""
    faults: int = 0
    """Connections that ended because the peer broke the protocol."""
    links: int = 0
    """Attaches that were answered with a link."""
    links_refused: int = 0
    messages_received: int = 0
    messages_rejected: int = 0
    messages_appended: int = 0
    """Of those that were received: events of a log now, and not recognised as appended before."""
    messages_sent: int = 0
    messages_sent_again: int = 0
    """Of those that were sent: given back by their receiver before."""
    notifications_skipped: int = 0
    """Because a filter failed on one, or it has no encoding: the server's fault, whose log says more."""
