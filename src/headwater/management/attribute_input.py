"""Checks and converts the attributes given to CREATE and UPDATE (AMQP Management 3.3.1.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..core.limits import show
from .attributes import Kind
from .entities import Attribute, EntityType, identity_of
from .ports import Attributes
from .statuses import OperationRefused, Status

STRINGS_MAX = 1000
"""Elements in one list."""
MEMBERS_MAX = 1024
"""The maximum number of members in one map: as many as a log may have partitions."""


def initial_attributes(type: EntityType, name: str, body: object) -> dict[str, Any]:
    """The attributes given to CREATE, null values included. Raises OperationRefused if the type does not accept
    them.
    """
    given = _map(body)
    fixed = {"name": name, "identity": identity_of(type.name, name), "type": type.name}
    found: dict[str, Any] = {}
    for key, value in given.items():
        attribute = _known(type, key)
        if key in fixed:
            _check_same(attribute, value, fixed[key])
        elif not attribute.is_initial:
            raise _bad(f"{key}: set by the server; CREATE accepts {_listed(type, 'is_initial')}")
        else:
            found[key] = _value(attribute, value)
    return found


def changed_attributes(type: EntityType, body: object, present: Attributes) -> dict[str, Any]:
    """The attributes that UPDATE changes; None removes a value. Read-only attributes may be sent back unchanged.

    Raises OperationRefused if the type does not allow the change.
    """
    found: dict[str, Any] = {}
    for key, value in _map(body).items():
        attribute = _known(type, key)
        if attribute.is_changeable:
            found[key] = _value(attribute, value)
        elif not attribute.is_fleeting:
            _check_same(attribute, value, present.get(key), f"UPDATE takes {_listed(type, 'is_changeable')}")
    return found


def _map(body: object) -> Mapping[str, object]:
    if body is None:
        return {}
    if not isinstance(body, Mapping):
        raise _bad(f"the body must be a map of attributes, got {show(body)}")
    for key in body:
        if not isinstance(key, str):
            raise _bad(f"the body must be a map with strings as keys, got {show(key)}")
    return body


def _known(type: EntityType, key: str) -> Attribute:
    attribute = type.attribute(key)
    if attribute is None:
        raise _bad(
            f"{show(key)}: {type.name} has no such attribute; its attributes are {', '.join(type.attribute_names)}"
        )
    return attribute


def _check_same(attribute: Attribute, value: object, present: object, allowed: str = "") -> None:
    same = value == present or (isinstance(value, str) and value == str(present))
    if not same:
        problem = f"{attribute.name} is {show(present)} and cannot be changed, got {show(value)}"
        raise _bad(f"{problem}; {allowed or 'leave it out'}")


def _value(attribute: Attribute, value: object) -> object:
    if value is None:
        if not attribute.is_removable:
            raise _bad(f"{attribute.name}: expected a value, got null; omit the attribute to keep its value")
        return None
    if isinstance(value, str) and attribute.kind is not Kind.STRING:
        value = _converted(value)
    if not _fits(attribute.kind, value):
        raise _bad(f"{attribute.name}: expected a {attribute.kind}, got {show(value)}")
    if attribute.kind is Kind.LONG:
        return int(value)  # type: ignore[call-overload]
    if attribute.kind is Kind.STRINGS:
        return [str(each) for each in value]  # type: ignore[attr-defined]
    return str(value) if attribute.kind is Kind.STRING else value


def _converted(text: str) -> object:
    """Parses a string as JSON where another type is expected; other text is left unchanged, and will be refused."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _fits(kind: Kind, value: object) -> bool:
    if kind is Kind.STRING:
        return isinstance(value, str)
    if kind is Kind.BOOLEAN:
        return isinstance(value, bool)
    if kind is Kind.LONG:
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    if kind is Kind.MAP:
        return isinstance(value, Mapping) and len(value) <= MEMBERS_MAX and all(isinstance(key, str) for key in value)
    is_list = isinstance(value, list | tuple) and len(value) <= STRINGS_MAX
    return kind is Kind.STRINGS and is_list and all(isinstance(each, str) for each in value)  # type: ignore[attr-defined]


def _listed(type: EntityType, which: str) -> str:
    return ", ".join(attribute.name for attribute in type.own if getattr(attribute, which)) or "none"


def _bad(description: str) -> OperationRefused:
    return OperationRefused(Status.BAD_REQUEST, description)
