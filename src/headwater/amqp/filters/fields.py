"""A message as filters see it: its sections, by the names that filters use, and its offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..protocol.types import Symbol

HEADER = "header"
DELIVERY_ANNOTATIONS = "delivery-annotations"
MESSAGE_ANNOTATIONS = "message-annotations"
PROPERTIES = "properties"
APPLICATION_PROPERTIES = "application-properties"
FOOTER = "footer"

OFFSET = "event-streams-offset"
TIMESTAMP = "event-streams-timestamp"

OFFSET_DIGITS = 20
"""An offset is a sequence number as a symbol of this many decimal digits, so that text order is log order."""

WELL_KNOWN = {
    HEADER: frozenset({"durable", "priority", "ttl", "first-acquirer", "delivery-count"}),
    PROPERTIES: frozenset(
        [
            "message-id",
            "user-id",
            "to",
            "subject",
            "reply-to",
            "correlation-id",
            "content-type",
            "content-encoding",
            "absolute-expiry-time",
            "creation-time",
            "group-id",
            "group-sequence",
            "reply-to-group-id",
        ]
    ),
}
"""The fields of the two sections with a fixed set of fields (AMQP 3.2.1, 3.2.4)."""


class Fields(Protocol):
    """One message as filters see it. Implementations decode each section on first use."""

    def header(self) -> Mapping[str, object]:
        """`durable`, `priority`, `ttl`, `first-acquirer`, `delivery-count`; absent fields have their default values."""
        ...

    def properties(self) -> Mapping[str, object]:
        """`message-id` and so on, by their hyphenated names; absent fields are left out."""
        ...

    def delivery_annotations(self) -> Mapping[object, object]:
        """Always contains event-streams-offset (symbol) and event-streams-timestamp."""
        ...

    def message_annotations(self) -> Mapping[object, object]:
        """As received."""
        ...

    def application_properties(self) -> Mapping[object, object]:
        """As received."""
        ...

    def footer(self) -> Mapping[object, object]:
        """As received."""
        ...


def well_known(section: str, name: str) -> str | None:
    """The field's name in the standard's spelling (`_` is accepted for `-`); None if the section has no such field."""
    fields = WELL_KNOWN.get(section)
    if fields is None:
        return name
    spelled = name.replace("_", "-")
    return spelled if spelled in fields else None


def other_spelling(name: str) -> str | None:
    """`cloudEvents_type` for `cloudEvents:type` and vice versa: CloudEvents' AMQP binding has both prefixes.

    Message selectors cannot contain the colon, so an attribute must be found under either spelling.
    """
    if name.startswith("cloudEvents") and name[11:12] in (":", "_"):
        return f"cloudEvents{'_' if name[11] == ':' else ':'}{name[12:]}"
    return None


def format_offset(number: int) -> Symbol:
    """The event-streams-offset of an event: `00000000000000000017`."""
    return Symbol(f"{number:020d}")


def parse_offset(text: str) -> int:
    """The sequence number in an offset. Raises ValueError unless it is 20 decimal digits."""
    if len(text) != OFFSET_DIGITS or not (text.isascii() and text.isdigit()):
        raise ValueError(f"expected an offset of {OFFSET_DIGITS} decimal digits, got {text!r}")
    return int(text)
