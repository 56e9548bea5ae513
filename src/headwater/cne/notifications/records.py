"""Subscriptions and publishers: as requested, as stored, and as shown in each dialect."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ...core.errors import InvalidInput
from ...core.limits import show
from .document import Members, text_of
from .notification import Dialect
from .reader import RESOURCE_NAMES

RESOURCE_CHARS_MAX = 1024
ENDPOINT_NAMES = ("EndpointUri", "endpointUri", "endpointuri", "EndpointURI")
MODE_NAMES = ("DeliveryMode", "deliveryMode")
STRUCTURED, BINARY, STARLINGX = "structured", "binary", "starlingx"
MODES = {Dialect.V1: (STRUCTURED, BINARY), Dialect.V2: (STRUCTURED, BINARY, STARLINGX)}
"""The delivery modes; `starlingx` is structured mode in StarlingX's envelope."""
_INFO = {
    Dialect.V1: ("id", "endpointUri", "uriLocation", "resource"),
    Dialect.V2: ("SubscriptionId", "EndpointUri", "UriLocation", "ResourceAddress"),
}


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The common fields of subscriptions and publishers."""

    id: str
    resource: str
    """The resource address, as given."""
    endpoint: str = ""
    """The webhook's URI; empty if none was given."""
    dialect: Dialect
    """The dialect of the route by which it was registered."""
    owner: str = ""
    """The owner who registered it."""
    location: str
    """The URI of the record, for reading it."""
    created_at: int
    """ms since 1970 UTC."""

    def info(self, dialect: Dialect) -> dict[str, str]:
        """The SubscriptionInfo of that dialect."""
        return dict(zip(_INFO[dialect], (self.id, self.endpoint, self.location, self.resource), strict=True))


class Subscription(Record, frozen=True, kw_only=True):
    """One subscription."""

    start: int
    """It gets the events after this number."""
    mode: str = STRUCTURED


class Publisher(Record, frozen=True, kw_only=True):
    """One publisher."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to register a subscription or a publisher."""

    resource: str
    endpoint: str
    mode: str
    """Empty if none was requested."""


def request_of(members: Members, dialect: Dialect, *, needs_endpoint: bool) -> Request:
    """The request in a body; ids and locations in it are ignored. Raises InvalidInput with the path."""
    other = Dialect.V1 if dialect is Dialect.V2 else Dialect.V2
    resource = _text(members, (*RESOURCE_NAMES[dialect], *RESOURCE_NAMES[other]))
    endpoint = _text(members, ENDPOINT_NAMES)
    mode = _text(members, MODE_NAMES)
    if not resource:
        raise InvalidInput("a resource address is required", RESOURCE_NAMES[dialect][0])
    if len(resource) > RESOURCE_CHARS_MAX:
        problem = f"{len(resource)} characters given, at most {RESOURCE_CHARS_MAX} are allowed"
        raise InvalidInput(problem, RESOURCE_NAMES[dialect][0])
    if needs_endpoint and not endpoint:
        raise InvalidInput("the webhook's URI is required", ENDPOINT_NAMES[0])
    if mode and mode not in MODES[dialect]:
        allowed = ", ".join(MODES[dialect])
        raise InvalidInput(f"expected one of {allowed} in {dialect}, got {show(mode)}", MODE_NAMES[0])
    return Request(resource, endpoint, mode)


def _text(members: Members, names: tuple[str, ...]) -> str:
    for name in names:
        if (value := members.get(name)) is not None:
            return text_of(value, name)
    return ""
