"""Notifications in the log: storing one as an event, and reading any event of the log as one.

The event's data is what the producer sent, byte for byte. Type, id, source, time and extensions are its CloudEvents
attributes, so that every other protocol can read them; attributes named `cne...` contain data that only this package
needs. Events written by other protocols (AMQP, DCB, Spark) are read whether their data is a whole notification or only
its data."""

from __future__ import annotations

import time
from collections.abc import Mapping

from msgspec.structs import replace

from ...core.bounded_cache import remembered
from ...core.errors import InvalidInput
from ...core.event import Encoding, Event, SequencedEvent
from ...core.identifier import uuid7s
from ...formats import cloudevents
from ...formats.foreign import fit_tag
from . import envelope, reader, timestamps, writer
from .addresses import Address, Place, addresses_of, tags_of
from .document import decode
from .notification import JSON_TYPE, Extension, Notification, Value, canonical

PUBLISHER, ADDRESS, STAMPED, PRODUCERS_ID = "cnepublisher", "cneaddress", "cnestamped", "cneid"
"""Attributes of an event: its publisher's id and resource address; a flag that its time is ours; and the producer's id,
if it is stored under another one (`repeats`)."""
OBJECT_BYTES, DATA_FACTOR_HALVES = 1024, 9
"""The memory of a notification is this number plus 4.5 times its data, for the bytes, the parsed objects, and the
rendering. Measured: 2.6 to 4.5 times for 1 to 300 values.
"""
TAGS_MAX = 100
IDS_AT_ONCE = 64
_OURS = frozenset({"time", "datacontenttype", "dataschema"})


class Stored:
    """One notification in the log: its content, its number, and its renderings. Each is made once for all
    subscribers.
    """

    __slots__ = ("_structured", "addresses", "bytes", "event", "notification", "queues", "sequence_number")

    def __init__(self, event: SequencedEvent, notification: Notification, addresses: tuple[Address, ...]) -> None:
        self.event, self.notification, self.addresses = event, notification, addresses
        self.sequence_number = event.sequence_number
        """The number in the log."""
        self.bytes = bytes_of(event.data)
        """The approximate memory use."""
        self.queues = 0
        """The number of queues in which it waits; see `delivery.queue`."""
        self._structured = b""

    @property
    def structured(self) -> bytes:
        """The form for O-RAN's consumers."""
        if not self._structured:
            self._structured = writer.structured(self.notification, self.sequence_number)
        return self._structured


def bytes_of(data: bytes) -> int:
    """The approximate memory use of a notification with that data."""
    return OBJECT_BYTES + len(data) * DATA_FACTOR_HALVES // 2


def event_of(
    notification: Notification,
    original: bytes,
    *,
    own: Place,
    publisher: str = "",
    address: str = "",
    tags: tuple[str, ...] = (),
    content_type: str = JSON_TYPE,
    is_stamped: bool = False,
) -> Event:
    """The event to append for a notification, whose id must be the one it is delivered under.

    `address` is the publisher's resource address; `is_stamped`: this server set the time. The log checks its limits
    on append.
    """
    attributes = {name: canonical(value) for name, value in notification.extensions.items() if name not in _OURS}
    attributes |= {"time": notification.time, "datacontenttype": content_type}
    if notification.data_schema:
        attributes["dataschema"] = notification.data_schema
    if publisher:
        attributes[PUBLISHER] = publisher
    if is_stamped:
        attributes[STAMPED] = "true"
    if address or notification.address:
        attributes[ADDRESS] = address or notification.address
    found = dict.fromkeys((*tags, *_tags(_addresses(notification, address), own)))
    return Event(
        type=notification.type,
        data=original,
        tags=tuple(found)[:TAGS_MAX],
        id=notification.id,
        source=notification.source,
        attributes=attributes,
        group_key=attributes.pop("partitionkey", ""),
    )


def prepared(notification: Notification, *, publisher: str = "", address: str = "") -> tuple[Notification, bool]:
    """The notification as it will be delivered, with its own id, a source, and a time; and whether the time is ours.

    A publisher's events all have the publisher's id, which therefore identifies no event.
    """
    is_stamped = not notification.time
    if not (publisher or address or is_stamped) and notification.source:
        return notification, False
    return (
        replace(
            notification,
            id=_ids.next() if publisher else notification.id,
            source=notification.source or address,
            time=notification.time or timestamps.now(),
            address=address or notification.address,
        ),
        is_stamped,
    )


class _Ids:
    """Generates UUIDv7 a few at a time: a system call for each one costs a thread switch under load."""

    def __init__(self) -> None:
        self._ready: list[str] = []
        self._made_at = 0.0

    def next(self) -> str:
        """The next UUID, with a time accurate to about a second."""
        now = time.monotonic()
        if not self._ready or now - self._made_at > 1.0:
            self._ready, self._made_at = uuid7s(IDS_AT_ONCE)[::-1], now
        return self._ready.pop()


_ids = _Ids()


def stored_of(event: SequencedEvent, data_bytes_max: int, known: Notification | None = None) -> Stored | None:
    """The notification in an event of the log, or None if the event is not a notification (or is larger than
    `data_bytes_max`). `known` is the notification if it has already been parsed."""
    if event.encoding is not Encoding.DATA or len(event.data) > data_bytes_max:
        return None
    try:
        notification = known or _notification_of(event)
    except InvalidInput:
        return None  # the log may contain any kind of event
    if notification is None or not notification.values:
        return None
    addresses = _addresses(notification, event.attributes.get(ADDRESS, ""))
    return Stored(event, notification, addresses) if addresses else None


def _notification_of(event: SequencedEvent) -> Notification | None:
    found = said_in(event)
    if found is None:
        return None
    version, values, content_type, typed = found
    attributes = event.attributes
    return Notification(
        id=event.id,
        type=event.type,
        source=event.source or attributes.get(ADDRESS, "") or (values[0].resource if values else ""),
        time=_time(event),
        version=version,
        values=values,
        data_content_type=content_type,
        data_schema=attributes.get("dataschema", ""),
        extensions={
            name: typed[name] if name in typed and canonical(typed[name]) == text else text
            for name, text in attributes.items()
            if name not in _OURS
        },
        address=attributes.get(ADDRESS, ""),
    )


def said_in(
    event: Event | SequencedEvent,
) -> tuple[str, tuple[Value, ...], str, Mapping[str, Extension]] | None:
    """The version, values, content type and extensions in an event's data, if it is a notification.

    Raises InvalidInput.
    """
    document = decode(event.data)
    if not isinstance(document, dict):
        return None
    document = envelope.sole_event(document)
    if "data" not in document and "data_base64" not in document:
        if "values" not in document:
            return None
        return *reader.read_data(document), event.attributes.get("datacontenttype", JSON_TYPE), {}
    whole = reader.read(document)
    return whole.version, whole.values, whole.data_content_type, whole.extensions


def _time(event: SequencedEvent) -> str:
    try:
        return timestamps.normalised(event.attributes.get("time", ""), "time")
    except InvalidInput:
        return cloudevents.format_time(event.recorded_at)


@remembered(1024)
def _tags(addresses: tuple[Address, ...], own: Place) -> tuple[str, ...]:
    return tuple(fit_tag(key, value) for address in addresses for key, value in tags_of(address, own))


def _addresses(notification: Notification, address: str) -> tuple[Address, ...]:
    """The publisher's address first, because it is complete; then those of the values, and the source if it is a
    path."""
    source = notification.source if notification.source.startswith("/") else ""
    return addresses_of((address, notification.address, *(value.resource for value in notification.values), source))
