"""The event behind the context attributes of a CloudEvent (CloudEvents 1.0.2), whichever binding carries them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from .attribute_rules import RULES, TAGS_MAX
from .errors import InvalidEvent
from .event import Event
from .quoting import show

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
SPECVERSION = "1.0"
_WHITE_SPACE = " \t\r\n"


def event_from_attributes(attributes: Mapping[str, str], data: bytes) -> Event:
    """The event from context attributes in their canonical string form, and its payload.

    Raises InvalidEvent with the attribute's name if one is missing or breaks the specification. This is checked before
    the gate, which does not see the `datacontenttype` inside a structured document. The gate checks the log's own
    limits.
    """
    rest = dict(attributes)
    version = rest.pop("specversion", "")
    if version != SPECVERSION:
        raise InvalidEvent(f"expected {SPECVERSION}, got {show(version)}", "specversion")
    for name in ("id", "source", "type"):
        if name not in rest:
            raise InvalidEvent("a CloudEvent must have this attribute", name)
        if not rest[name]:
            raise InvalidEvent("this attribute must not be empty", name)
    for name, rule in RULES.items():
        if name in rest and (fault := rule(rest[name])):
            raise InvalidEvent(fault, name)
    return Event(
        id=rest.pop("id"),
        source=rest.pop("source"),
        type=rest.pop("type"),
        tags=decode_tags(rest.pop("tags", "")),
        group_key=rest.pop("partitionkey", ""),
        attributes=rest,
        data=data,
    )


def decode_tags(text: str) -> tuple[str, ...]:
    """The tags in the extension attribute `tags`; ASCII white space after a comma is ignored.

    Raises InvalidEvent if there are more than 128 (before any is decoded), or if the percent-encoded bytes of one are
    not UTF-8.
    """
    if not text:
        return ()
    if (count := text.count(",") + 1) > TAGS_MAX:
        raise InvalidEvent(f"{count} tags given, at most {TAGS_MAX} are allowed", "tags")
    tags = [tag.lstrip(_WHITE_SPACE) for tag in text.split(",")]
    return tuple(tags) if "%" not in text else tuple([percent_decoded(tag, "tags") for tag in tags])


def percent_decoded(text: str, where: str) -> str:
    """The decoded percent-encoded UTF-8. Raises InvalidEvent, naming that attribute, if it is not UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidEvent(f"{show(text)} does not percent-decode to UTF-8", where) from None
