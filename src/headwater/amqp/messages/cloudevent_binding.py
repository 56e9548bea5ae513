"""Represents events that did not arrive as AMQP messages as messages: the AMQP binding of CloudEvents 1.0.2, binary
mode.

Every attribute is an application property `cloudEvents:NAME`, in its canonical string form: the binding allows it
(3.1.3.2), and it keeps a time as its producer wrote it; an AMQP timestamp would lose digits and offset.
`datacontenttype` is the property content-type (3.1.1). For readers without CloudEvents support, message-id is the
event's id, subject is its type (as the type of a plain message is its subject), and the message annotation
event-streams-group-key is its group key.
"""

from __future__ import annotations

from ...core.event import SequencedEvent
from ...core.message.own_event import PREFIX
from ...formats.cloudevents import attributes_from_event

_CONTENT_TYPE_CHARS_MAX = 255
_NAMES_MAX = 1024
_SPECVERSION = b"\xa1\x17cloudEvents:specversion\xa1\x031.0"
_GROUP_KEY = b"\xa3\x17event-streams-group-key"

_names: dict[str, bytes] = {}
"""Encoded property names by attribute name."""


def envelope_of(event: SequencedEvent, default_source: str, data_bytes: int | None = None) -> bytes:
    """The message up to the payload; `default_source` is the source of events without one.

    `data_bytes` is the payload size of an event without its payload.
    """
    attributes = attributes_from_event(event, default_source)
    del attributes["specversion"]
    media_type = attributes.get("datacontenttype", "")
    content_type = b"\x40"
    if media_type and len(media_type) <= _CONTENT_TYPE_CHARS_MAX and media_type.isascii():
        content_type = b"\xa3%c%b" % (len(media_type), media_type.encode())
        del attributes["datacontenttype"]
    properties = b"".join((_text(event.id), b"\x40\x40", _text(event.type), b"\x40\x40", content_type))
    application = [_SPECVERSION]
    for name, value in attributes.items():
        key = _names.get(name)
        if key is None:
            key = _name(name)
        text = value.encode()
        size = len(text)
        application.append(b"%b\xa1%c%b" % (key, size, text) if size < 256 else key + _long_text(text))
    size = len(event.data) if data_bytes is None else data_bytes
    return b"".join((
        _map(b"\x00\x53\x72", _GROUP_KEY + _text(event.group_key), 2) if event.group_key else b"",
        _compound(b"\x00\x53\x73\xc0", b"\x00\x53\x73\xd0", properties, 7),
        _map(b"\x00\x53\x74", b"".join(application), 2 * len(application)),
        b"\x00\x53\x75\xa0%c" % size if size < 256 else b"\x00\x53\x75\xb0" + size.to_bytes(4),
    ))  # fmt: skip


def _text(value: str) -> bytes:
    text = value.encode()
    size = len(text)
    return b"\xa1%c%b" % (size, text) if size < 256 else _long_text(text)


def _long_text(text: bytes) -> bytes:
    return b"\xb1%b%b" % (len(text).to_bytes(4), text)


def _name(name: str) -> bytes:
    if len(_names) >= _NAMES_MAX:
        _names.clear()
    return _names.setdefault(name, _text(PREFIX + name))


def _map(section: bytes, entries: bytes, count: int) -> bytes:
    return _compound(section + b"\xc1", section + b"\xd1", entries, count)


def _compound(short: bytes, long: bytes, elements: bytes, count: int) -> bytes:
    """A section of a list or map, in its shortest form (AMQP part 1, 1.2.3)."""
    size = len(elements)
    if size < 255 and count < 256:
        return b"%b%c%c%b" % (short, size + 1, count, elements)
    return b"%b%b%b%b" % (long, (size + 4).to_bytes(4), count.to_bytes(4), elements)
