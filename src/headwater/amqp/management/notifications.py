"""Notifications as messages, and as filters see them (event notification 0.2, the notification model)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.watch.bus import Notification
from ...core.watch.notification_types import NotificationType
from ...management.attributes import Kind
from ...management.notifications.catalog import CATALOG, LOST
from ..filters.fields import Fields
from ..protocol.message import VALUE, Message, Properties, encode_message
from ..protocol.types import Symbol, Timestamp, ULong
from .messages import amqp_number
from .transformation import Transformation

LOST_ANNOTATION = Symbol("x-opt-headwater-lost")
"""The delivery annotation with the number of notifications that the listener has lost before this one."""
ENCODED_MAX = 1024
"""The number of cached encoded messages, for listeners that get the same message."""
_NOTHING: Mapping[object, object] = {}
_TIMES: Mapping[NotificationType, frozenset[str]] = {
    entry.type: frozenset(each.name for each in entry.attributes if each.kind is Kind.TIMESTAMP)
    for entry in CATALOG.values()
}


class NotificationMessages:
    """Encodes messages. The full form of a notification is encoded only once, for all listeners."""

    def __init__(self) -> None:
        self._encoded: OrderedDict[int, tuple[Mapping[str, object], bytes]] = OrderedDict()
        """By the id() of the attributes. They are kept here, so that no other object gets that id."""

    def message(self, notification: Notification, wanted: Transformation | None) -> bytes:
        """The message for a listener."""
        if wanted is not None:
            return encode_message(_message(notification, wanted))
        attributes = notification.attributes
        found = self._encoded.get(id(attributes))
        if found is None:
            found = attributes, encode_message(_message(notification, None))
            self._encoded[id(attributes)] = found
            if len(self._encoded) > ENCODED_MAX:
                self._encoded.popitem(last=False)
        return found[1]


class NotificationFields:
    """The `Fields` of a notification: the virtual message with the subject and all attributes."""

    __slots__ = ("_notification",)

    def __init__(self, notification: Notification) -> None:
        self._notification = notification

    def header(self) -> Mapping[str, object]:
        """The standard's defaults."""
        return _HEADER

    def properties(self) -> Mapping[str, object]:
        """The subject: the name of the type."""
        return {"subject": self._notification.type.value}

    def delivery_annotations(self) -> Mapping[object, object]:
        """None."""
        return _NOTHING

    def message_annotations(self) -> Mapping[object, object]:
        """None."""
        return _NOTHING

    def application_properties(self) -> Mapping[object, object]:
        """All attributes."""
        return self._notification.attributes  # type: ignore[return-value]

    def footer(self) -> Mapping[object, object]:
        """None."""
        return _NOTHING


_HEADER: Mapping[str, object] = {"durable": False, "priority": 4, "first-acquirer": False, "delivery-count": 0}

if TYPE_CHECKING:
    _: type[Fields] = NotificationFields


def _message(notification: Notification, wanted: Transformation | None) -> Message:
    """The message with the wanted attributes; None requests all of them."""
    values = _values(notification)
    if wanted is not None and wanted.is_compact:
        compact = [values.get(name) for name in wanted.attributes]
        return Message(compact, VALUE, delivery_annotations=_lost(notification))
    if wanted is not None:
        values = {name: values[name] for name in wanted.attributes if name in values}
    return Message(
        None,
        VALUE,
        delivery_annotations=_lost(notification),
        properties=Properties(subject=notification.type.value),
        application_properties=values,
    )


def _values(notification: Notification) -> dict[str, object]:
    times = _TIMES[notification.type]
    return {
        name: Timestamp(value) if name in times else amqp_number(value)
        for name, value in notification.attributes.items()
    }


def _lost(notification: Notification) -> dict[Symbol, object] | None:
    lost = notification.attributes.get(LOST)
    return {LOST_ANNOTATION: ULong(lost)} if isinstance(lost, int) else None
