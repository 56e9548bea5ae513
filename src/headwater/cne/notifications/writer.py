"""Writes notifications strictly, in the only form that the consumers of each dialect read.

Members are in the order that deployed consumers expect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...formats.cloudevents import format_sequence
from .notification import (
    DATA_VERSION,
    JSON_TYPE,
    VALUE_MEMBERS,
    Dialect,
    Extension,
    Notification,
    Opaque,
    Value,
    canonical,
)
from .timestamps import now

Header = tuple[str, str]

_CHAR_BYTES_MAX = 6
"""The maximum size of a character in JSON, in bytes: `\u0000`."""
_VALUE_BYTES, _AROUND_BYTES = 100, 400
"""The bytes around the texts of a value, and of the document: member names, quotes, version, time and number."""


def structured(notification: Notification, sequence_number: int | None = None) -> bytes:
    """O-RAN's form: CloudEvents 1.0 in structured mode, with the members of v2."""
    return msgspec.json.encode(_context(notification, sequence_number) | {"data": _data(notification, Dialect.V2)})


def size_at_most(notification: Notification) -> int:
    """An upper bound for the size of `structured`. It is much faster to compute, and often sufficient."""
    texts = [notification.id, notification.source, notification.type, notification.data_schema]
    for name, value in notification.extensions.items():
        texts += name, canonical(value)
    escaped = 0
    for each in notification.values:
        content = each.value
        texts += each.resource, each.data_type, each.value_type
        if isinstance(content, Opaque):
            escaped += len(content.text)
        else:
            texts.append(content)
    chars = sum(map(len, texts))
    members = 5 * len(notification.extensions) + _VALUE_BYTES * len(notification.values)
    return _AROUND_BYTES + members + escaped + _CHAR_BYTES_MAX * chars


def bare(notification: Notification, id: str) -> bytes:
    """The specification's own form, without a CloudEvents wrapper, with the members of v1."""
    document: dict[str, object] = {
        "id": id,
        "type": notification.type,
        "source": notification.source,
        "dataContentType": notification.data_content_type,
        "time": notification.time or now(),
    }
    if notification.data_schema:
        document["dataSchema"] = notification.data_schema
    return msgspec.json.encode(document | {"data": _data(notification, Dialect.V1)})


def wrapped_v1(notification: Notification, address: str, sequence_number: int | None = None) -> bytes:
    """CloudEvents 1.0 with the data of v1. The source is kept; the matching resource address is the subject."""
    context = _context(notification, sequence_number)
    context |= {"datacontenttype": JSON_TYPE, "subject": context.get("subject", address)}
    return msgspec.json.encode(context | {"data": _data(notification, Dialect.V1)})


def binary(
    notification: Notification, dialect: Dialect, sequence_number: int | None = None
) -> tuple[list[Header], bytes]:
    """CloudEvents 1.0 in binary mode: the header fields, and the data as the body."""
    context = _context(notification, sequence_number)
    headers = [(f"ce-{name}", _header_value(canonical(value))) for name, value in context.items()]
    return headers, msgspec.json.encode(_data(notification, dialect))


def _context(notification: Notification, sequence_number: int | None) -> dict[str, Extension]:
    context: dict[str, Extension] = {
        "specversion": "1.0",
        "id": notification.id,
        "source": notification.source,
        "type": notification.type,
        "time": notification.time or now(),
    }
    if notification.data_schema:
        context["dataschema"] = notification.data_schema
    context |= _forwarded(notification.extensions)
    if sequence_number is not None:
        context["sequence"] = format_sequence(sequence_number)
    return context


def _forwarded(extensions: Mapping[str, Extension]) -> dict[str, Extension]:
    return {name: value for name, value in extensions.items() if not name.startswith("cne")}


def _data(notification: Notification, dialect: Dialect) -> dict[str, object]:
    version = notification.version if dialect is Dialect.V1 else DATA_VERSION
    return {"version": version, "values": _values(notification.values, dialect)}


def _values(values: Sequence[Value], dialect: Dialect) -> list[dict[str, object]]:
    names = (*VALUE_MEMBERS[dialect], "value")
    return [
        dict(zip(names, (each.resource, each.data_type, each.value_type, _content(each.value)), strict=True))
        for each in values
    ]


def _content(value: str | Opaque) -> object:
    return msgspec.Raw(value.text) if isinstance(value, Opaque) else value


def _header_value(text: str) -> str:
    """Percent-encode a value as in the HTTP binding of CloudEvents (3.1.3.2)."""
    return "".join(
        character
        if "!" <= character <= "~" and character not in '"%'
        else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in text
    )
