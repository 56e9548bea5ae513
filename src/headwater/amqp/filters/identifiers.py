"""Identifiers of message selectors (JMS 3.8.1.1; AMQP JMS mapping; the Apache selector filter).

A bare identifier is an application property. `amqp.` and a field's name with `_` for `-` is that field of the header
or the properties. JMS's own names reach us too, because its clients send a selector as it was written.
"""

from __future__ import annotations

from .context import Context
from .fields import APPLICATION_PROPERTIES, HEADER, PROPERTIES, WELL_KNOWN
from .functions import JMS_DELIVERY_COUNT, JMS_DELIVERY_MODE, JMS_ID, JMS_MESSAGE_ID, JMS_USER_ID
from .syntax import Call, Function, Node

_JMS: dict[str, tuple[str, str, Function | None]] = {
    "JMSMessageID": (PROPERTIES, "message-id", JMS_MESSAGE_ID),
    "JMSCorrelationID": (PROPERTIES, "correlation-id", JMS_ID),
    "JMSType": (PROPERTIES, "subject", None),
    "JMSTimestamp": (PROPERTIES, "creation-time", None),
    "JMSPriority": (HEADER, "priority", None),
    "JMSDeliveryMode": (HEADER, "durable", JMS_DELIVERY_MODE),
    "JMSXGroupID": (PROPERTIES, "group-id", None),
    "JMSXGroupSeq": (PROPERTIES, "group-sequence", None),
    "JMSXUserID": (PROPERTIES, "user-id", JMS_USER_ID),
    "JMSXDeliveryCount": (HEADER, "delivery-count", JMS_DELIVERY_COUNT),
}
_JMS_REFUSED = frozenset({"JMSDestination", "JMSReplyTo", "JMSExpiration", "JMSRedelivered", "JMSDeliveryTime"})
"""Header fields that JMS lets no selector name (3.8.1.1)."""
_AMQP = {f"amqp.{name.replace('-', '_')}": (section, name) for section, names in WELL_KNOWN.items() for name in names}


def selector_field(identifier: str, context: Context) -> Node:
    """What an identifier names. Raises ValueError where it names nothing that a selector may."""
    if identifier.startswith("amqp."):
        if identifier not in _AMQP:
            raise ValueError(f"{identifier} is no field; there are {', '.join(sorted(_AMQP))}")
        return context.field(*_AMQP[identifier])
    if identifier in _JMS_REFUSED:
        raise ValueError(f"a selector may not name {identifier}; it may name {', '.join(_JMS)}")
    if identifier not in _JMS:
        return context.field(APPLICATION_PROPERTIES, identifier)
    section, name, conversion = _JMS[identifier]
    field = context.field(section, name)
    return field if conversion is None else Call(conversion, (field,))
