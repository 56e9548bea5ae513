"""The events of a connection, returned in order by `Connection.receive_data` and `Connection.tick`.

Deliveries have no events of their own: a link collects them, and one `MessagesReceived` per read reports them, so that
deliveries that arrive together can be handled together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .performatives import DeliveryState, ErrorCondition, Open
from .types import Described

if TYPE_CHECKING:
    from .link import Link, Receiver, Sender
    from .session import Session
    from .settlement import Settlement


@dataclass(slots=True)
class Event:
    """Base of all events that a connection reports to its owner."""


@dataclass(slots=True)
class MechanismsOffered(Event):
    """The server's SASL mechanisms (client only). Answer with `Connection.sasl_init`."""

    mechanisms: tuple[str, ...]


@dataclass(slots=True)
class MechanismChosen(Event):
    """The client's SASL init (server only). Answer with `sasl_challenge` or `sasl_outcome`."""

    mechanism: str
    response: bytes | None
    hostname: str | None


@dataclass(slots=True)
class SaslResponded(Event):
    """The client's answer to a challenge (server only). Answer with `sasl_challenge` or `sasl_outcome`."""

    response: bytes


@dataclass(slots=True)
class SaslEnded(Event):
    """The server's verdict (client only); unless the code is 0, the connection is over."""

    code: int


@dataclass(slots=True)
class ConnectionOpened(Event):
    """The peer's open. If `Connection.open` has not been called, call it now (or `close`)."""

    open: Open


@dataclass(slots=True)
class ConnectionClosed(Event):
    """The connection is over: the peer closed, or broke the protocol (then `is_fault`; it was notified, if possible).

    Send the remaining output of `data_to_send`, and close the transport.
    """

    error: ErrorCondition | Described | None
    is_fault: bool = False


@dataclass(slots=True)
class SessionBegun(Event):
    """A session that the peer began, or whose begin the peer answered. The peer's begin is already answered."""

    session: Session


@dataclass(slots=True)
class SessionEnded(Event):
    """A session that the peer ended or that broke the protocol, with all its links."""

    session: Session
    error: ErrorCondition | Described | None
    links: tuple[Link, ...]


@dataclass(slots=True)
class LinkAttached(Event):
    """The peer's attach (`link.remote`). If the link is not attached on this side, answer with `accept` or `refuse`.

    The answer may be given at any later time.
    """

    link: Link


@dataclass(slots=True)
class LinkDetached(Event):
    """The peer's detach, or the end of a link that broke the protocol or was stolen. It is already answered."""

    link: Link
    is_closed: bool
    error: ErrorCondition | Described | None
    is_by_peer: bool = True


@dataclass(slots=True)
class CreditChanged(Event):
    """The peer's flow on a link on which this side sends: `link.credit`, `link.is_draining`."""

    link: Sender
    properties: Mapping[Any, Any] | None


@dataclass(slots=True)
class WindowOpened(Event):
    """Transfers may be sent again on a session whose window was used up."""

    session: Session


@dataclass(slots=True)
class FlowReceived(Event):
    """The peer's flow on a link on which this side receives: how much is available, or that a drain has ended."""

    link: Receiver
    available: int | None
    is_drained: bool
    properties: Mapping[Any, Any] | None


@dataclass(slots=True)
class MessagesReceived(Event):
    """Deliveries have arrived: `link.take()` returns them all, or none if one was aborted, which used up credit."""

    link: Receiver


@dataclass(slots=True)
class OutcomesReceived(Event):
    """The receiver's outcome for deliveries that this side sent: their contexts, in the order of sending.

    `state` is terminal, or None (settled without a state). The deliveries are already settled on both sides, unless
    there is a settlement: then the owner of the link settles them through it.
    """

    link: Sender
    contexts: list[Any]
    state: DeliveryState | Described | None
    settlement: Settlement | None = None


@dataclass(slots=True)
class DeliveriesSettled(Event):
    """The sender settled deliveries that already had an outcome from this side (rcv-settle-mode second): their tags."""

    link: Receiver
    tags: list[bytes]
