"""Reading the notifications that most producers send, in a fraction of the time: one pass, into a form that is known.

What is read here says to the letter what `reading` would read in it. Whatever is not plain is nothing here, for
`reading` to take or to refuse: other members, numbers, escapes, letters beyond ASCII, empty texts, members given twice.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ..core.errors import InvalidInput
from . import timestamps
from .notification import ENUMERATION, JSON_TYPE, NUMERIC, REDFISH, Notification, Value
from .reading import is_decimal

TEXT_BYTES_MAX = 16 * 1024
"""Of one that is looked at here: so short, it holds fewer values than any limit."""
_TEXTS = 9
"""Names of members, and texts, of every event: `id`, `type`, `source`, `time` with what they say, and `data`."""
_TEXTS_OF_DATA = 3
"""`version` with what it says, and `values`."""
_TEXTS_OF_VALUE = 8
"""Four members, whose values are texts."""


class _Value(Struct):
    value: str
    ResourceAddress: str = ""
    resource: str = ""
    data_type: str = ""
    dataType: str = ""
    value_type: str = ""
    valueType: str = ""


class _Data(Struct):
    version: str
    values: list[_Value]


class _Event(Struct):
    id: str
    type: str
    source: str
    time: str
    data: _Data
    specversion: str = ""
    datacontenttype: str = ""
    dataContentType: str = ""


_decode = msgspec.json.Decoder(_Event).decode


def read(text: bytes) -> Notification | None:
    """The notification in that document, wrapped or bare, if it is a plain one; None says nothing.

    Every text in it is quoted. So there are as many quotes as the members that are known here have if, and only if,
    there is no other member, and none twice.
    """
    if len(text) > TEXT_BYTES_MAX or b"\\" in text or b"\x7f" in text or not text.isascii():
        return None
    try:
        given = _decode(text)
        values = tuple(map(_value, given.data.values))
        time = timestamps.normalised(given.time, "time")
    except (msgspec.DecodeError, RecursionError, InvalidInput, _NotPlain):
        return None
    version, content_type = given.specversion, given.datacontenttype or given.dataContentType
    if version not in ("", "1.0") or (version and given.dataContentType):
        return None
    texts = _TEXTS + _TEXTS_OF_DATA + _TEXTS_OF_VALUE * len(values) + 2 * (bool(version) + bool(content_type))
    if text.count(b'"') != 2 * texts or not (given.id and given.type and given.source and given.data.version):
        return None
    return Notification(
        id=given.id,
        type=given.type,
        source=given.source,
        time=time,
        version=given.data.version,
        values=values,
        data_content_type=content_type or JSON_TYPE,
        extensions={},
        is_wrapped=bool(version),
    )


class _NotPlain(Exception):
    """A value is to be looked at more closely."""


def _value(given: _Value) -> Value:
    resource = given.ResourceAddress or given.resource
    data_type, value_type = given.data_type or given.dataType, given.value_type or given.valueType
    if not (resource and data_type and value_type) or value_type == REDFISH:
        raise _NotPlain
    if value_type != ENUMERATION and value_type in NUMERIC and not is_decimal(given.value):
        raise _NotPlain
    return Value(resource, data_type, value_type, given.value)
