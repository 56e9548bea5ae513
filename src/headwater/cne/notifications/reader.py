"""Reads notifications leniently: every form in use that can be understood without guessing.

The column "lenient in" of docs/conformance/cne.md lists the accepted forms. Refused input raises InvalidInput with the
JSON path of the culprit; no input raises anything else.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence

import msgspec

from ...core.errors import InvalidEvent, InvalidInput
from ...core.limits import ATTRIBUTE_NAME, show
from ...formats import cloudevents, jsontext
from ...formats.budget.values import check_values
from ...formats.embedding import is_embeddable
from . import timestamps
from .document import Members, Number, check_text, decode, encode, kind_of, object_of, text_of
from .notification import (
    DATA_TYPES,
    DATA_VERSION,
    DECIMAL,
    ENUMERATION,
    JSON_TYPE,
    METRIC,
    NOTIFICATION,
    NUMERIC,
    REDFISH,
    Dialect,
    Extension,
    Notification,
    Opaque,
    Value,
)

SPEC_VERSIONS = {
    "1.0": "1.0",
    "v1.0": "1.0",
    "1": "1.0",
    "v1": "1.0",
    "0.3": "0.3",
    "v0.3": "0.3",
}
"""The accepted versions of CloudEvents, as written."""

RESOURCE_NAMES = {
    Dialect.V1: ("resource", "Resource"),
    Dialect.V2: ("ResourceAddress", "resourceAddress", "resourceaddress"),
}
DATA_TYPE_NAMES = {Dialect.V1: ("dataType",), Dialect.V2: ("data_type",)}
VALUE_TYPE_NAMES = {Dialect.V1: ("valueType",), Dialect.V2: ("value_type",)}
BATCH_VALUES_MAX = 2**17
"""The maximum number of values in all documents of a batch."""
_raw_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
OWN_ATTRIBUTES = frozenset(
    {"specversion", "id", "source", "type", "time", "data", "data_base64", "datacontenttype", "dataschema", "tags"}
)
"""Members of a CloudEvent that are not extensions, or not forwarded as such."""
INTEGER_MIN, INTEGER_MAX = -(2**31), 2**31 - 1
"""The Integer range of the specification's Type System."""
_INTEGER = re.compile(r"-?\d{1,10}", re.ASCII)
_RESERVED = ("sequence", "cne")
"""Prefixes of attributes that this server sets itself on every event."""


def members_of(text: bytes) -> Members:
    """The object in a text. Raises InvalidInput."""
    document = decode(text)
    if isinstance(document, list):
        raise InvalidInput(f"got an array; send several events with the media type {cloudevents.BATCH}")
    if not isinstance(document, dict):
        raise InvalidInput(f"expected an object, got {kind_of(document)}")
    return document


def batch_of(text: bytes) -> list[bytes]:
    """The elements of a batch, each as sent. Raises InvalidInput."""
    check_values(text, BATCH_VALUES_MAX)
    jsontext.check_utf8(text)
    return [bytes(raw) for raw in jsontext.decode(_raw_decoder, text)]


def is_wrapped(members: Members) -> bool:
    """Whether it is a CloudEvent rather than a bare Cloud Native Event."""
    return "specversion" in members


def read(members: Members, dialect: Dialect | None = None) -> Notification:
    """The notification of a document, wrapped or bare. `dialect` decides if a value uses both.

    Raises InvalidEvent with the path of the culprit.
    """
    return _wrapped(members, dialect) if is_wrapped(members) else _bare(members, dialect)


def members_of_headers(headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Members:
    """Convert a binary-mode CloudEvent (`ce-` header fields, the data as the body) to the object of structured mode.

    It may have any version accepted in structured mode. Raises InvalidEvent, InvalidInput.
    """
    fields = [(name, value) for name, value in headers if name != b"ce-specversion"]
    version = next(value.decode("latin-1").strip() for name, value in headers if name == b"ce-specversion")
    accepted = cloudevents.SPECVERSION if version in SPEC_VERSIONS else version
    event = cloudevents.event_from_headers([*fields, (b"ce-specversion", accepted.encode("latin-1"))], b"")
    members: Members = {"specversion": version, "id": event.id, "source": event.source, "type": event.type}
    members |= event.attributes
    members.pop("datacontenttype", None)
    if event.tags:
        members["tags"] = cloudevents.encode_tags(event.tags)
    if event.group_key:
        members["partitionkey"] = event.group_key
    return members | {"data": decode(body)}


def read_data(members: Members, dialect: Dialect | None = None) -> tuple[str, tuple[Value, ...]]:
    """The version and values of a separate `data` object. Raises InvalidEvent."""
    return _version(members.get("version"), "version"), _values(members.get("values"), "values", dialect)


def _bare(members: Members, dialect: Dialect | None) -> Notification:
    version, values = _data(members, dialect)
    folded = {name.lower(): name for name in members}
    return Notification(
        id=_required(members, "id"),
        type=_required(members, "type"),
        source=_optional(members, "source"),
        time=_time(members),
        version=version,
        values=values,
        data_content_type=_optional(members, folded.get("datacontenttype", "dataContentType")) or JSON_TYPE,
        data_schema=_optional(members, folded.get("dataschema", "dataSchema")),
    )


def _wrapped(members: Members, dialect: Dialect | None) -> Notification:
    version_given = members["specversion"]
    text = version_given.text if isinstance(version_given, Number) else version_given
    if not isinstance(text, str) or text not in SPEC_VERSIONS:
        raise InvalidEvent(f"expected 1.0 or 0.3, got {kind_of(version_given)}", "specversion")
    version, values = _data(members, dialect)
    source, address = _required(members, "source"), ""
    if SPEC_VERSIONS[text] == "0.3" and (subject := _optional(members, "subject")):
        source, address = subject, source
    extensions = _extensions(members)
    if address:
        extensions.pop("subject", None)
    return Notification(
        id=_required(members, "id"),
        type=_required(members, "type"),
        source=source,
        time=_time(members),
        version=version,
        values=values,
        data_content_type=_optional(members, "datacontenttype") or JSON_TYPE,
        data_schema=_optional(members, "dataschema"),
        extensions=extensions,
        address=address,
        is_wrapped=True,
    )


def _data(members: Members, dialect: Dialect | None) -> tuple[str, tuple[Value, ...]]:
    data, where = members.get("data"), "data"
    if data is None and members.get("data_base64") is not None:
        data, where = _from_base64(members["data_base64"]), "data_base64"
    if isinstance(data, str):  # encoded twice: accepted once
        try:
            data = decode(data.encode("utf-8", "surrogatepass"))
        except InvalidInput as error:
            raise InvalidEvent(f"expected a JSON object: {error}", where) from None
    data = object_of(data, where)
    if "values" not in data and isinstance(data.get("data"), dict):  # a whole bare event inside a CloudEvent
        data, where = data["data"], f"{where}.data"
    version = _version(data.get("version"), f"{where}.version")
    return version, _values(data.get("values"), f"{where}.values", dialect)


def _from_base64(value: object) -> object:
    try:
        if isinstance(value, str):
            return decode(base64.b64decode(value, validate=True))
    except (ValueError, binascii.Error):
        pass  # handled like any other invalid base64
    raise InvalidEvent("expected base64 text", "data_base64")


def _version(given: object, where: str) -> str:
    if given is None or given == "":
        return DATA_VERSION
    return given.text if isinstance(given, Number) else text_of(given, where)


def _values(given: object, where: str, dialect: Dialect | None) -> tuple[Value, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise InvalidEvent(f"expected an array, got {kind_of(given)}", where)
    return tuple([_value(element, f"{where}[{index}]", dialect) for index, element in enumerate(given)])


def _value(element: object, where: str, dialect: Dialect | None) -> Value:
    given = object_of(element, where)
    resource = _named(given, RESOURCE_NAMES, where, dialect)
    if not resource:
        raise InvalidEvent("a resource address is required", f"{where}.{RESOURCE_NAMES[dialect or Dialect.V2][0]}")
    if given.get("value") is None:
        raise InvalidEvent("a value is required", f"{where}.value")
    value = given["value"]
    value_type = _named(given, VALUE_TYPE_NAMES, where, dialect) or _inferred(value)
    data_type = _named(given, DATA_TYPE_NAMES, where, dialect)
    if not data_type and given.get("type") in DATA_TYPES:  # as in an example of the specification
        data_type = given["type"]
    if not data_type:
        data_type = METRIC if value_type in NUMERIC else NOTIFICATION
    return Value(resource, data_type, value_type, _content(value, value_type, f"{where}.value"))


def _named(given: Members, names: Mapping[Dialect, tuple[str, ...]], where: str, dialect: Dialect | None) -> str:
    """The member under any of its names. The names of the route's dialect are tried first, then O-RAN's."""
    for each in _V1_FIRST if dialect is Dialect.V1 else _V2_FIRST:
        for name in names[each]:
            if (found := given.get(name)) is not None:
                return text_of(found, f"{where}.{name}")
    return ""


_V1_FIRST, _V2_FIRST = (Dialect.V1, Dialect.V2), (Dialect.V2, Dialect.V1)


def _inferred(value: object) -> str:
    if isinstance(value, Number):
        return DECIMAL
    return REDFISH if isinstance(value, dict) else ENUMERATION


def _content(value: object, value_type: str, where: str) -> str | Opaque:
    if value_type in NUMERIC:
        text = value.text if isinstance(value, Number) else value
        if not isinstance(text, str) or not is_decimal(text):
            raise InvalidEvent(f"expected a decimal, got {kind_of(value)}", where)
        return text
    if value_type == ENUMERATION:
        return text_of(value, where)
    if value_type == REDFISH:
        return _opaque(object_of(value, where), where)
    return check_text(value, where) if isinstance(value, str) else _opaque(value, where)


def _opaque(value: object, where: str) -> Opaque:
    text = encode(value, where)
    if not is_embeddable(text):  # it is embedded unchanged in subscribers' documents
        raise InvalidEvent("a number is out of range for a double", where)
    return Opaque(text)


def is_decimal(text: str) -> bool:
    """Whether a text is a decimal in any notation."""
    return _DECIMAL.fullmatch(text) is not None


def _required(members: Members, name: str) -> str:
    text = _optional(members, name)
    if not text:
        raise InvalidEvent("expected a non-empty string", name)
    return text


def _optional(members: Members, name: str) -> str:
    value = members.get(name)
    return "" if value is None else text_of(value, name)


def _time(members: Members) -> str:
    text = _optional(members, "time")
    return timestamps.normalised(text, "time") if text else ""


def integer_of(text: str) -> int | None:
    """A JSON number as an Integer of the specification's Type System, or None."""
    number = int(text) if _INTEGER.fullmatch(text) else INTEGER_MAX + 1
    return number if INTEGER_MIN <= number <= INTEGER_MAX else None


def _extensions(members: Members) -> dict[str, Extension]:
    """The forwarded attributes; members that are not attributes stay only in the stored original."""
    found: dict[str, Extension] = {}
    for name, value in members.items():
        if name in OWN_ATTRIBUTES or not ATTRIBUTE_NAME.fullmatch(name) or name.startswith(_RESERVED):
            continue
        if isinstance(value, str):
            if value:
                found[name] = check_text(value, name)
        elif isinstance(value, bool):
            found[name] = value
        elif isinstance(value, Number):
            integer = integer_of(value.text)
            found[name] = value.text if integer is None else integer
    return found


def tags_of(members: Members) -> tuple[str, ...]:
    """The tags in a CloudEvent's extension attribute `tags`. Raises InvalidEvent."""
    given = members.get("tags")
    if given is None or not is_wrapped(members):
        return ()
    if not isinstance(given, str):
        raise InvalidEvent(f"expected a string, got {show(given)}", "tags")
    return cloudevents.decode_tags(check_text(given, "tags"))
