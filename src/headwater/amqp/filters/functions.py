"""The functions of the SQL filter, and the identifiers of message selectors with JMS's conversions of their values.

A function returns null for null, or for an argument that it cannot handle. UTC() is not here: it has no arguments and
needs a clock (`syntax.Now`).

Selectors (JMS 3.8.1.1; AMQP JMS mapping; the Apache selector filter): a bare identifier is an application property.
`amqp.` and a field's name with `_` for `-` is that field of the header or the properties. JMS's own names are accepted
too, because JMS clients send selectors unchanged."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from uuid import UUID

from ..protocol.types import Timestamp
from .context import CASE_TERMS, Context
from .fields import APPLICATION_PROPERTIES, HEADER, PROPERTIES, WELL_KNOWN
from .syntax import Call, Function, Node
from .values import TEXT_CHARS_MAX, Kind, kind_of

UNICODE_CHARS_MAX = 4096
"""The longest non-ASCII text that LOWER and UPPER process. Its letters take up to 60 ns each; ASCII letters take 1
ns.
"""


def _lower(text: object) -> object:
    return text.lower() if _has_case(text) else None  # type: ignore[attr-defined]


def _upper(text: object) -> object:
    return text.upper() if _has_case(text) else None  # type: ignore[attr-defined]


def _has_case(text: object) -> bool:
    return isinstance(text, str) and len(text) <= (TEXT_CHARS_MAX if text.isascii() else UNICODE_CHARS_MAX)


def _left(text: object, count: object) -> object:
    """The first characters."""
    chars = _whole(count)
    return text[: max(chars, 0)] if isinstance(text, str) and chars is not None else None


def _right(text: object, count: object) -> object:
    """The last characters."""
    chars = _whole(count)
    return text[max(len(text) - max(chars, 0), 0) :] if isinstance(text, str) and chars is not None else None


def _substring(text: object, start: object, count: object = math.inf) -> object:
    """`count` characters from `start` (the first is 1), or all of them; positions before the first are empty."""
    first = _whole(start)
    if not isinstance(text, str) or first is None:
        return None
    if count == math.inf:
        return text[max(first - 1, 0) :]
    chars = _whole(count)
    return None if chars is None else text[max(first - 1, 0) : max(first - 1 + max(chars, 0), 0)]


def _date(value: object) -> object:
    """A timestamp from an ISO 8601 text (UTC without a zone), a number of milliseconds, or a timestamp."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
        return Timestamp((since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)
    ms = _whole(value)
    return None if ms is None else Timestamp(ms)


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


FUNCTIONS = {
    function.name: function
    for function in (
        Function("LOWER", 1, 1, _lower, CASE_TERMS),
        Function("UPPER", 1, 1, _upper, CASE_TERMS),
        Function("LEFT", 2, 2, _left),
        Function("RIGHT", 2, 2, _right),
        Function("SUBSTRING", 2, 3, _substring),
        Function("DATE", 1, 1, _date),
    )
}


def _jms_id(value: object) -> str | None:
    """A correlation-id as JMS shows it (AMQP JMS mapping, 3.2.1.1): text unchanged, other types named in a prefix."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    return f"ID:AMQP_ULONG:{value}" if kind_of(value) is Kind.NUMBER else None


def _jms_message_id(value: object) -> str | None:
    """A message-id as JMS shows it: like a correlation-id, but always with the prefix `ID:`."""
    if isinstance(value, str) and not value.startswith("ID:"):
        return f"ID:AMQP_NO_PREFIX:{value}"
    return _jms_id(value)


def _jms_delivery_mode(durable: object) -> str:
    return "PERSISTENT" if durable is True else "NON_PERSISTENT"


def _jms_user_id(value: object) -> str | None:
    """The binary user-id as text, as in JMS; null if it is not text."""
    try:
        return value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError:
        return None


def _jms_delivery_count(value: object) -> int:
    """JMS counts all deliveries; AMQP counts only the earlier, unsuccessful ones."""
    return value + 1 if isinstance(value, int) else 1


_JMS: dict[str, tuple[str, str, Function | None]] = {
    "JMSMessageID": (PROPERTIES, "message-id", Function("JMSMessageID", 1, 1, _jms_message_id)),
    "JMSCorrelationID": (PROPERTIES, "correlation-id", Function("JMSCorrelationID", 1, 1, _jms_id)),
    "JMSType": (PROPERTIES, "subject", None),
    "JMSTimestamp": (PROPERTIES, "creation-time", None),
    "JMSPriority": (HEADER, "priority", None),
    "JMSDeliveryMode": (HEADER, "durable", Function("JMSDeliveryMode", 1, 1, _jms_delivery_mode)),
    "JMSXGroupID": (PROPERTIES, "group-id", None),
    "JMSXGroupSeq": (PROPERTIES, "group-sequence", None),
    "JMSXUserID": (PROPERTIES, "user-id", Function("JMSXUserID", 1, 1, _jms_user_id)),
    "JMSXDeliveryCount": (HEADER, "delivery-count", Function("JMSXDeliveryCount", 1, 1, _jms_delivery_count)),
}
_JMS_REFUSED = frozenset({"JMSDestination", "JMSReplyTo", "JMSExpiration", "JMSRedelivered", "JMSDeliveryTime"})
"""Header fields that JMS does not allow in selectors (3.8.1.1)."""
_AMQP = {f"amqp.{name.replace('-', '_')}": (section, name) for section, names in WELL_KNOWN.items() for name in names}


def selector_field(identifier: str, context: Context) -> Node:
    """The field for an identifier. Raises ValueError if a selector may not use it."""
    if identifier.startswith("amqp."):
        if identifier not in _AMQP:
            raise ValueError(f"{identifier} is not a field; the fields are {', '.join(sorted(_AMQP))}")
        return context.field(*_AMQP[identifier])
    if identifier in _JMS_REFUSED:
        raise ValueError(f"a selector cannot use {identifier}; it can use {', '.join(_JMS)}")
    if identifier not in _JMS:
        return context.field(APPLICATION_PROPERTIES, identifier)
    section, name, conversion = _JMS[identifier]
    field = context.field(section, name)
    return field if conversion is None else Call(conversion, (field,))
