"""Notifications about one connection and its links: opened, attached, and the reason for each end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ...core.access import User
from ...core.errors import LogNotFound
from ...core.limits import show
from ...core.watch.bus import Bus, Value
from ...core.watch.notification_types import NotificationType
from ...management.entities import CONNECTION as _CONNECTION_TYPE
from ...management.entities import LINK as _LINK_TYPE
from ...management.entities import identity_of
from ..protocol.link import Link
from ..protocol.performatives import ErrorCondition, Source, Target
from ..protocol.types import Described
from .addresses import parse_address, shown_address
from .link_end import LinkEnd

PROTOCOL = "amqp"
Fault = ErrorCondition | Described | None


class Peer(Protocol):
    """The data about the other side of a connection that notifications contain."""

    peer: str
    """Its address."""
    port: int | None
    user: User | None
    number: int
    """The server's number for the connection."""

    @property
    def mechanism(self) -> str:
        """The SASL mechanism of its login; empty without SASL."""

    @property
    def tls(self) -> str | None:
        """The TLS version, if TLS is used."""

    def link_name(self, link: Link) -> str | None:
        """The server's name for a link of the connection, as in entities; None if it has no number."""

    @property
    def container_id(self) -> str:
        """Its container id."""


class ConnectionNotifier:
    """Emits the notifications of one connection: each start once, then its end once.

    The connection is passed with each call: a reference held here would keep it alive when it is over.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._attached: dict[Link, LinkEnd] = {}
        self._is_open = False
        self._refusal = ""
        self._fault: Fault = None

    def opened(self, peer: Peer) -> None:
        """The peer has opened the connection."""
        self._is_open = True
        self._bus.emit(NotificationType.CONNECTION_OPENED, **_of_connection(peer))

    def refused(self, reason: str, fault: Fault = None) -> None:
        """Set why the connection will not be opened. The first reason counts, and is emitted when it has ended."""
        if not self._is_open and not self._refusal:
            self._refusal, self._fault = reason, fault

    def failed(self, fault: Fault) -> None:
        """Set the error with which the connection will end. The first one counts."""
        self._fault = self._fault or fault

    def ended(self, peer: Peer) -> None:
        """The connection is over, and so are its links."""
        if self._is_open:
            self._bus.emit(NotificationType.CONNECTION_CLOSED, **_of_connection(peer), **_error(self._fault))
        elif self._refusal:
            self._bus.emit(
                NotificationType.CONNECTION_REFUSED,
                protocol=PROTOCOL,
                peer=peer.peer,
                port=peer.port,
                reason=self._refusal,
                description=_error(self._fault)["description"],
            )

    def adopted(self, peer: Peer, link: Link, end: LinkEnd) -> None:
        """A link now has an end. It is attached, unless it must wait for its turn."""
        if not link.is_waiting:
            self._attached[link] = end
            self._bus.emit_built(NotificationType.LINK_ATTACHED, lambda: _of_link(peer, link, _log(end)))

    def link_refused(self, peer: Peer, link: Link, fault: ErrorCondition) -> None:
        """This side has answered an attach with an error, or ended a link with one."""
        if link in self._attached:
            self.link_ended(peer, link, fault)
        else:
            self._bus.emit_built(
                NotificationType.LINK_REFUSED,
                lambda: {**_of_link(peer, link, _named(_address(link))), **_error(fault)},
            )

    def link_ended(self, peer: Peer, link: Link, fault: Fault = None) -> None:
        """A link is over. Emits nothing if it was never attached, or its end was already emitted."""
        end = self._attached.pop(link, None)
        if end is not None:
            self._bus.emit_built(
                NotificationType.LINK_DETACHED, lambda: {**_of_link(peer, link, _log(end)), **_error(fault)}
            )


def _of_connection(peer: Peer) -> dict[str, Value | None]:
    return {
        "protocol": PROTOCOL,
        "identity": identity_of(_CONNECTION_TYPE.name, str(peer.number)),
        "peer": peer.peer,
        "port": peer.port,
        "container": peer.container_id,
        "user": _user(peer),
        "mechanism": peer.mechanism,
        "tls": peer.tls,
    }


def _of_link(peer: Peer, link: Link, log: str | None) -> dict[str, Value | None]:
    name = peer.link_name(link)
    return {
        "log": log,
        "address": _address(link),
        "link": link.name,
        "role": "receiver" if link.is_sender else "sender",
        "identity": None if name is None else identity_of(_LINK_TYPE.name, name),
        "container": peer.container_id,
        "peer": peer.peer,
        "port": peer.port,
        "user": _user(peer),
        "mechanism": peer.mechanism,
        "tls": peer.tls,
    }


def _user(peer: Peer) -> str | None:
    return (peer.user.name or None) if peer.user is not None else None


def _log(end: LinkEnd) -> str | None:
    return end.log.name if end.log is not None else None


def _address(link: Link) -> str:
    """The address that the peer asked for, without passwords."""
    assert link.remote is not None
    terminus = link.remote.source if link.is_sender else link.remote.target
    return shown_address(terminus.address) if isinstance(terminus, Source | Target) else ""


def _named(address: str) -> str | None:
    """The log that an address names, whether or not it exists."""
    try:
        return parse_address(address).log
    except LogNotFound:
        return None


def _error(fault: Fault) -> Mapping[str, Value | None]:
    if isinstance(fault, ErrorCondition):
        return {"condition": str(fault.condition), "description": fault.description}
    return {"condition": None, "description": None if fault is None else show(fault, 400)}
