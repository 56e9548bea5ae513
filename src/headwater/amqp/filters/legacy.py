"""The filters that mimic bindings of older AMQP's exchanges (Apache's registered filters): direct, topic, headers.

The first two look at the subject, the third at application-properties. Like property filters they know no third
value.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.limits import show
from .comparisons import comparison
from .context import Context
from .errors import TEXT_CHARS_MAX
from .fields import APPLICATION_PROPERTIES, PROPERTIES
from .syntax import And, Call, Constant, Exists, Field, Function, IsTrue, Node, Or
from .values import Kind, kind_of

_SUBJECT = Field(PROPERTIES, "subject")
MATCH = "x-match"


def direct_binding(given: object, context: Context) -> Node:
    """The subject is that very text; a message without subject does not match. Raises InvalidFilter."""
    return IsTrue(comparison("=", _SUBJECT, Constant(_text(given, context)), context.latest))


def topic_binding(given: object, context: Context) -> Node:
    """The subject's words, with dots between, fit the pattern: `*` is one word, `#` any number. Raises InvalidFilter.

    A message without subject matches only `#`.
    """
    pattern = _text(given, context)
    context.spend(pattern.count(".") + 1)
    if pattern == "#":
        return Constant(True)
    topic = Topic(pattern)
    return IsTrue(Call(Function("TOPIC", 1, 1, topic.matches), (_SUBJECT,)))


def headers_binding(given: object, context: Context) -> Node:
    """All, or any (`x-match`), of the map's entries are properties: equal, or just there where the map has null.

    Other keys that begin with `x-` are reserved, and not looked at. Raises InvalidFilter.
    """
    if not isinstance(given, Mapping):
        raise context.fault(f"a map is expected, {show(given)} given")
    if len(given) > context.limits.list_items_max:
        raise context.fault(f"{len(given)} entries given, at most {context.limits.list_items_max} are allowed")
    context.spend(len(given))
    mode = given.get(MATCH, "all")
    if mode not in ("all", "any"):
        raise context.fault(f"{MATCH}: `all` and `any` are allowed, {show(mode)} given")
    terms = tuple([_header(key, value, context) for key, value in given.items() if not _is_reserved(key)])
    return And(terms) if mode == "all" else Or(terms)


def _is_reserved(key: object) -> bool:
    return isinstance(key, str) and key.startswith("x-")


def _header(key: object, value: object, context: Context) -> Node:
    if not isinstance(key, str):
        raise context.fault(f"a property is named by a string, {show(key)} given")
    field = context.field(APPLICATION_PROPERTIES, str(key))
    if value is None:
        return Exists(field)
    if kind_of(value) is Kind.OTHER:
        raise context.fault(f"{key}: a simple value is expected, {show(value)} given")
    return IsTrue(comparison("=", field, Constant(value), context.latest))


def _text(given: object, context: Context) -> str:
    if not isinstance(given, str):
        raise context.fault(f"a string is expected, {show(given)} given")
    if len(given) > context.limits.expression_chars_max:
        problem = f"{len(given)} characters given, at most {context.limits.expression_chars_max} are allowed"
        raise context.fault(problem, context.limits.expression_chars_max + 1)
    return str(given)


class Topic:
    """A topic pattern, matched in one step of a bit set for each word of the subject: no pattern makes it slow."""

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
        """Whether a subject fits; one that is no text does not, nor one of more than 16,384 characters."""
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
