"""The filter of a QUERY: selects entities by attribute values.

The syntax is that of Kubernetes field selectors: comma-separated terms, all of which must hold, such as
`log=orders,isAttached!=false`. A backslash escapes a comma, an equals sign or a backslash in a value.

A value is compared with the attribute as JSON shows it, strings without quotes: `4711`, `true`, `null`. A list
attribute equals each of its elements. If the entity's type lacks the attribute, its value is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.limits import show
from .attributes import Kind
from .entities import EntityType
from .statuses import OperationRefused, Status

TERMS_MAX = 32
CHARS_MAX = 4096
"""Characters in a whole filter."""
_TERM = re.compile(r"(?P<name>[A-Za-z]+)(?P<operator>==|!=|=)(?P<value>(?:[^\\,=]|\\[\\,=])*+)(?P<end>,|\Z)")
_ESCAPED = re.compile(r"\\(.)")


class _Term(NamedTuple):
    name: str
    value: str
    is_equal: bool


class Selection:
    """The terms of a filter."""

    def __init__(self, terms: Sequence[_Term]) -> None:
        self._terms = terms
        self.names = frozenset(term.name for term in terms)
        """The attributes that it examines."""

    def takes(self, type: EntityType, shown: Mapping[str, Any]) -> bool:
        """Whether an entity passes."""
        return all((term.value in _texts(shown.get(term.name))) is term.is_equal for term in self._terms)


def selection(text: str | None, types: Sequence[EntityType]) -> Selection | None:
    """The parsed filter for entities of these types; None for no filter. Raises OperationRefused."""
    if text is None:
        return None
    if len(text) > CHARS_MAX:
        raise _bad(f"expected at most {CHARS_MAX} characters, got {len(text)}")
    terms = _terms(text)
    for term in terms:
        found = [attribute for type in types if (attribute := type.attribute(term.name)) is not None]
        if not any(not attribute.is_secret for attribute in found):
            names = ", ".join(dict.fromkeys(name for type in types for name in type.attribute_names))
            raise _bad(f"{show(term.name)} is not an attribute of these entities; their attributes are {names}")
        if any(attribute.kind is Kind.MAP for attribute in found):
            raise _bad(f"{term.name} is a map, which cannot be compared")
    return Selection(terms)


def _terms(text: str) -> list[_Term]:
    terms, at, has_more = list[_Term](), 0, True
    while has_more:
        found = _TERM.match(text, at)
        if found is None:
            raise _bad(f"expected NAME=VALUE or NAME!=VALUE, separated by commas, got {show(text[at:])}")
        terms.append(_Term(found["name"], _ESCAPED.sub(r"\1", found["value"]), found["operator"] != "!="))
        if len(terms) > TERMS_MAX:
            raise _bad(f"expected at most {TERMS_MAX} terms, got more")
        at, has_more = found.end(), found["end"] == ","
    return terms


def _texts(value: object) -> tuple[str, ...]:
    """The texts that a value equals."""
    if value is None:
        return ("null",)
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, list | tuple):
        return tuple(map(str, value))
    return (str(value),)


def _bad(problem: str) -> OperationRefused:
    return OperationRefused(Status.BAD_REQUEST, f"filter: {problem}")
