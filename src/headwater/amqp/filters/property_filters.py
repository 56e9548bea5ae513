"""Filters with references for fields: property filters, the event streams annotations filter, bindings.

A null reference in a property filter (FILTEX 4) matches anything. Any other matches an equal value: numbers of any
width, text as symbol or string. An absent field is null, or has its default (header). Text that begins with `&p:` or
`&s:` is a prefix or a suffix; `&&` stands for one `&`.

Three filters mimic bindings of older AMQP's exchanges (Apache's registered filters): direct and topic use the subject,
headers the application-properties. They have no unknown result: anything that does not match is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.limits import show
from .comparisons import comparison
from .context import Context
from .fields import APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS, OFFSET, PROPERTIES, TIMESTAMP, WELL_KNOWN, well_known
from .syntax import And, Call, Constant, Exists, Field, Function, IsTrue, Like, Node, Or
from .values import TEXT_CHARS_MAX, Kind, Pattern, kind_of

_REFERENCE_CHARS_MAX = 4096
_SUBJECT = Field(PROPERTIES, "subject")
MATCH = "x-match"


def property_filter(section: str, given: object, context: Context) -> Node:
    """The predicate that every field of the map matches in that section. Raises InvalidFilter."""
    fields = []
    for key, reference in _references(given, context).items():
        name = well_known(section, key)
        if name is None:
            known = ", ".join(sorted(WELL_KNOWN[section]))
            raise context.fault(f"{section} has no field {show(key)}; its fields are {known}")
        fields.append(_matches(section, name, reference, context))
    return And(tuple(fields))


def delivery_annotations_filter(given: object, context: Context) -> Node:
    """The event streams filter (5.2.1): every annotation of the map is greater than its reference."""
    fields = []
    for key, reference in _references(given, context).items():
        if key == OFFSET:
            if not isinstance(reference, str):
                raise context.fault(f"{OFFSET}: expected a symbol, got {show(reference)}")
        elif key == TIMESTAMP:
            if not isinstance(reference, int) or isinstance(reference, bool):
                raise context.fault(f"{TIMESTAMP}: expected a timestamp (ms), got {show(reference)}")
        else:
            raise context.fault(f"expected {OFFSET} or {TIMESTAMP}, got {show(key)}")
        field = context.field(DELIVERY_ANNOTATIONS, key)
        fields.append(comparison(">", field, Constant(reference), context.latest))
    return And(tuple(fields))


def _references(given: object, context: Context) -> Mapping[str, object]:
    fields = _map(given, "fields", context)
    for key in fields:
        if not isinstance(key, str):
            raise context.fault(f"expected a symbol or a string as a field name, got {show(key)}")
    return fields


def _map(given: object, what: str, context: Context) -> Mapping[Any, object]:
    if not isinstance(given, Mapping):
        raise context.fault(f"expected a map, got {show(given)}")
    if len(given) > context.limits.list_items_max:
        raise context.fault(f"{len(given)} {what} given, at most {context.limits.list_items_max} are allowed")
    context.spend(len(given))
    return given


def _matches(section: str, name: str, reference: object, context: Context) -> Node:
    field = context.field(section, name)
    if reference is None:
        return Constant(True)
    if isinstance(reference, str):
        if len(reference) > _REFERENCE_CHARS_MAX:
            problem = f"{len(reference)} characters given, at most {_REFERENCE_CHARS_MAX} are allowed"
            raise context.fault(f"{name}: {problem}")
        marker, rest = reference[:3], reference[3:]
        if marker == "&p:":
            return IsTrue(Like(field, Pattern.prefix(rest)))
        if marker == "&s:":
            return IsTrue(Like(field, Pattern.suffix(rest)))
        if reference.startswith("&&"):
            reference = reference[1:]
        elif reference.startswith("&"):
            raise context.fault(f"{name}: expected &p:, &s: or &&, got {show(reference)}")
    elif kind_of(reference) is Kind.OTHER:
        raise context.fault(f"{name}: expected a simple value, got {show(reference)}")
    return IsTrue(comparison("=", field, Constant(reference), context.latest))


def direct_binding(given: object, context: Context) -> Node:
    """The subject equals the text; a message without a subject does not match. Raises InvalidFilter."""
    return IsTrue(comparison("=", _SUBJECT, Constant(_text(given, context)), context.latest))


def topic_binding(given: object, context: Context) -> Node:
    """The subject's words, separated by dots, match the pattern: `*` is one word, `#` any number. Raises InvalidFilter.

    A message without a subject matches only `#`.
    """
    pattern = _text(given, context)
    context.spend(pattern.count(".") + 1)
    if pattern == "#":
        return Constant(True)
    topic = Topic(pattern)
    return IsTrue(Call(Function("TOPIC", 1, 1, topic.matches), (_SUBJECT,)))


def headers_binding(given: object, context: Context) -> Node:
    """All, or any (`x-match`), of the map's entries are properties of the message: with an equal value, or merely
    present if the map has null. Other keys that begin with `x-` are reserved, and ignored. Raises InvalidFilter.
    """
    entries = _map(given, "entries", context)
    mode = entries.get(MATCH, "all")
    if mode not in ("all", "any"):
        raise context.fault(f"{MATCH}: expected `all` or `any`, got {show(mode)}")
    terms = tuple([_header(key, value, context) for key, value in entries.items() if not _is_reserved(key)])
    return And(terms) if mode == "all" else Or(terms)


def _is_reserved(key: object) -> bool:
    return isinstance(key, str) and key.startswith("x-")


def _header(key: object, value: object, context: Context) -> Node:
    if not isinstance(key, str):
        raise context.fault(f"expected a string as a property name, got {show(key)}")
    field = context.field(APPLICATION_PROPERTIES, str(key))
    if value is None:
        return Exists(field)
    if kind_of(value) is Kind.OTHER:
        raise context.fault(f"{key}: expected a simple value, got {show(value)}")
    return IsTrue(comparison("=", field, Constant(value), context.latest))


def _text(given: object, context: Context) -> str:
    if not isinstance(given, str):
        raise context.fault(f"expected a string, got {show(given)}")
    if len(given) > context.limits.expression_chars_max:
        problem = f"{len(given)} characters given, at most {context.limits.expression_chars_max} are allowed"
        raise context.fault(problem, context.limits.expression_chars_max + 1)
    return str(given)


class Topic:
    """A topic pattern, matched in one bit set step per word of the subject, so that no pattern is slow."""

    def __init__(self, pattern: str) -> None:
        words: list[str] = []
        for word in pattern.split("."):
            if word != "#" or words[-1:] != ["#"]:
                words.append(word)
        self._final = 1 << len(words)
        self._any = sum([1 << at for at, word in enumerate(words) if word == "*"])
        self._many = sum([1 << at for at, word in enumerate(words) if word == "#"])
        self._literal: dict[str, int] = {}
        for at, word in enumerate(words):
            if word not in ("*", "#"):
                self._literal[word] = self._literal.get(word, 0) | 1 << at

    def matches(self, subject: object) -> bool:
        """Whether a subject matches; false if it is not text, or has more than 16,384 characters."""
        if not isinstance(subject, str) or len(subject) > TEXT_CHARS_MAX:
            return False
        many = self._many
        places = 1 | (1 & many) << 1
        for word in subject.split("."):
            fitting = places & (self._literal.get(word, 0) | self._any)
            places = fitting << 1 | places & many
            places |= (places & many) << 1
            if not places:
                return False
        return bool(places & self._final)
