"""Enforces the specification to the letter, on request. `strict` refuses more than `reader`.

Each rule names its section of the Cloud Native Events specification 0.1.0. The specification's own examples break some
of them; the conformance page lists these. Events in binary mode or in an envelope must follow the rules too."""

from __future__ import annotations

import re

from ...core.attribute_rules import check_time
from ...core.errors import InvalidEvent
from .document import Members, Number, kind_of, object_of
from .notification import DATA_TYPES, DATA_VERSION, DECIMAL, ENUMERATION, REDFISH, VALUE_MEMBERS, Dialect
from .reader import INTEGER_MAX, INTEGER_MIN, OWN_ATTRIBUTES, SPEC_VERSIONS, integer_of, is_wrapped

VALUE_TYPES = (ENUMERATION, DECIMAL, REDFISH)
_DECIMAL64_3 = re.compile(r"-?\d+(\.\d{1,3})?", re.ASCII)


def check(members: Members, dialect: Dialect) -> None:
    """Raises InvalidEvent with the JSON path of the first violation."""
    for name in ("id", "type", "source"):  # REQUIRED Attributes
        _text(members, name, "")
    if is_wrapped(members):
        if members["specversion"] not in SPEC_VERSIONS.values():
            raise InvalidEvent('expected "1.0" or "0.3"', "specversion")
        _check_extensions(members)
    else:
        _text(members, "dataContentType", "")
    if (time := members.get("time")) is not None and (not isinstance(time, str) or check_time(time)):
        raise InvalidEvent("expected an RFC 3339 time", "time")
    data = object_of(members.get("data"), "data")
    if _text(data, "version", "data.") != DATA_VERSION:
        raise InvalidEvent(f'expected "{DATA_VERSION}", got {kind_of(data["version"])}', "data.version")
    values = data.get("values")
    if not isinstance(values, list) or not values:
        raise InvalidEvent("expected an array of at least one value", "data.values")
    for index, value in enumerate(values):
        _check_value(value, f"data.values[{index}]", dialect)


def _check_extensions(members: Members) -> None:
    """Attributes must have a type of the Type System: strings, booleans, and 32-bit integers."""
    for name, value in members.items():
        if name in OWN_ATTRIBUTES or value is None or isinstance(value, str | bool):
            continue
        if not isinstance(value, Number) or integer_of(value.text) is None:
            allowed = f"expected a string, true, false, or an integer from {INTEGER_MIN} to {INTEGER_MAX}"
            raise InvalidEvent(f"{allowed}, got {kind_of(value)}", name)


def _check_value(given: object, where: str, dialect: Dialect) -> None:
    value = object_of(given, where)
    resource, data_type, value_type = VALUE_MEMBERS[dialect]
    _text(value, resource, f"{where}.")
    _one_of(value, data_type, DATA_TYPES, where)
    _one_of(value, value_type, VALUE_TYPES, where)
    content, path = value.get("value"), f"{where}.value"
    if value[value_type] == ENUMERATION and not (isinstance(content, str) and content):
        raise InvalidEvent(f"expected a non-empty string, got {kind_of(content)}", path)
    if value[value_type] == REDFISH:
        _check_redfish(content, path)
    if value[value_type] == DECIMAL:
        text = content.text if isinstance(content, Number) else content
        if not isinstance(text, str) or not _DECIMAL64_3.fullmatch(text):
            raise InvalidEvent("expected a decimal with at most three fraction digits", path)


def _check_redfish(given: object, where: str) -> None:
    """The members in the specification's examples of Redfish events. EventType, for example, is not among them."""
    content = object_of(given, where)
    for name in ("@odata.type", "Id", "Name"):
        _text(content, name, f"{where}.")
    events = content.get("Events")
    if not isinstance(events, list) or not events:
        raise InvalidEvent("expected an array of at least one event", f"{where}.Events")
    for index, each in enumerate(events):
        event = object_of(each, f"{where}.Events[{index}]")
        for name in ("MemberId", "MessageId"):
            _text(event, name, f"{where}.Events[{index}].")


def _text(members: Members, name: str, prefix: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidEvent(f"expected a non-empty string, got {kind_of(value)}", f"{prefix}{name}")
    return value


def _one_of(members: Members, name: str, allowed: tuple[str, ...], where: str) -> None:
    if (value := members.get(name)) not in allowed:
        raise InvalidEvent(f"expected one of {', '.join(allowed)}, got {kind_of(value)}", f"{where}.{name}")
