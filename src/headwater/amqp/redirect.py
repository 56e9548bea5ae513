"""What a server that is not the primary serves over AMQP, and where it redirects the rest (part 2, 2.8.16, 2.8.18).

Its read-only port serves receivers without state beyond the connection, so no server has to coordinate them. It answers
everything else with the primary's address: `amqp:link:redirect` at this port, `amqp:connection:redirect` at the
primary's AMQP port, if this server does not forward connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from ..core.access import Right
from ..core.errors import LogNotFound
from ..core.limits import show
from .attach import attach_reader, check_is_served
from .connections.addresses import parse_address, server_node
from .connections.transport import Transport
from .container import Container
from .positions.stored import Expiry
from .protocol import conditions
from .protocol.conditions import ConnectionFault, LinkFault
from .protocol.link import Link, Sender
from .protocol.performatives import Source
from .protocol.types import Int, Symbol
from .streams.link_properties import binding_of

PORTS = {"amqp": 5672, "amqps": 5671}
"""Default ports by URL scheme."""
HOSTNAME, NETWORK_HOST, PORT, ADDRESS = (Symbol(name) for name in ("hostname", "network-host", "port", "address"))


class Elsewhere(NamedTuple):
    """What a server knows about the primary and about itself."""

    primary: Callable[[], str | None]
    """The URL of the primary's AMQP port. None if there is no primary, or it advertises no URL."""
    stale: Callable[[str | None], str | None]
    """Why this server currently cannot serve reads, or reads of that log; None if it can."""


async def attach_reading(container: Container, elsewhere: Elsewhere, transport: Transport, link: Link) -> None:
    """Answer a peer's attach at the read-only port. Raises AmqpError or EventLogError if it is refused."""
    assert link.remote is not None
    if container.is_stopping:
        raise LinkFault(conditions.LINK_DETACH_FORCED, "the server is stopping")
    check_is_served(link)
    source = link.remote.source
    asked = address_asked(link)
    if (stale := elsewhere.stale(None)) is not None:
        raise link_redirect(elsewhere, stale, asked)
    if not isinstance(link, Sender):
        raise link_redirect(elsewhere, "this port does not accept messages", asked)
    if source is None:
        raise link_redirect(elsewhere, "this port does not remember sources; specify one", asked)
    if not isinstance(source, Source):
        raise LinkFault(conditions.INVALID_FIELD, "a source is required")
    if source.dynamic or (node := server_node(source.address)) is not None:
        named = "nodes on demand are" if source.dynamic else f"{show(node)} is"
        raise link_redirect(elsewhere, f"{named} not supported on this port", asked)
    if binding_of(link.remote.properties).group is not None:
        raise link_redirect(elsewhere, "consumer groups are not supported on this port", asked)
    if source.durable or source.timeout or Expiry.of(source.expiry_policy) > Expiry.SESSION_END:
        raise link_redirect(elsewhere, "this port does not store positions", asked)
    address = parse_address(source.address or "")
    if address.group is not None:
        raise link_redirect(elsewhere, "consumer groups are not supported on this port", asked)
    log = address.log
    assert transport.user is not None
    container.shared.guard.authorize(transport.user, Right.READ, log)
    if (stale := elsewhere.stale(log)) is not None:
        raise link_redirect(elsewhere, stale, asked)
    try:
        await attach_reader(container, transport, link, source)
    except LogNotFound:
        raise link_redirect(elsewhere, f"there is no log {show(log)} here", asked) from None


def address_asked(link: Link) -> str | None:
    """The address that an attach names, if any."""
    assert link.remote is not None
    asked = link.remote.source if isinstance(link, Sender) else link.remote.target
    found = getattr(asked, "address", None)
    return found if isinstance(found, str) else None


def link_redirect(elsewhere: Elsewhere, why: str, asked: str | None) -> LinkFault:
    """The fault that redirects a link. If the target is unknown, it only gives the reason for the refusal."""
    url = elsewhere.primary()
    if url is None:
        return LinkFault(conditions.NOT_ALLOWED, f"{why}; {unknown()}")
    info = {**redirect_info(url), **({} if asked is None else {ADDRESS: asked})}
    return LinkFault(conditions.LINK_REDIRECT, f"{why}: attach it at the primary, {url}", info)


def connection_redirect(url: str | None) -> ConnectionFault:
    """The fault that redirects a connection to a server other than this replica."""
    why = "this server is a replica, not the primary"
    if url is None:
        return ConnectionFault(conditions.CONNECTION_FORCED, f"{why}; {unknown()}")
    return ConnectionFault(conditions.CONNECTION_REDIRECT, f"{why}: connect to {url}", redirect_info(url))


def unknown() -> str:
    """The error text for peers if the primary's address is unknown."""
    return "there is currently no primary, or it does not advertise an AMQP address (advertise: amqp=URL)"


def redirect_info(url: str) -> dict[Symbol, object]:
    """The `info` of a redirect error: the container to connect to."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return {HOSTNAME: host, NETWORK_HOST: host, PORT: Int(parts.port or PORTS.get(parts.scheme, PORTS["amqp"]))}
