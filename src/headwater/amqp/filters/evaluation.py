"""From trees to closures, evaluated once per event for the part of a filter that the log cannot answer.

Every closure takes the Fields of a message and returns a value; a predicate returns True, False, or None for unknown.
Chains of AND, OR and arithmetic are flat, so closures nest no deeper than the filter itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ..protocol.types import Timestamp
from . import syntax
from .fields import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    OFFSET,
    PROPERTIES,
    Fields,
    format_offset,
    other_spelling,
)
from .syntax import Node
from .values import MIRRORED, OPERATORS, Kind, compare, compute, kind_of, signed

Evaluate: TypeAlias = Callable[[Fields], Any]
Clock: TypeAlias = Callable[[], int]
"""Milliseconds since 1970, UTC."""

_SECTIONS: dict[str, Callable[[Fields], Mapping[Any, object]]] = {
    HEADER: lambda fields: fields.header(),
    DELIVERY_ANNOTATIONS: lambda fields: fields.delivery_annotations(),
    MESSAGE_ANNOTATIONS: lambda fields: fields.message_annotations(),
    PROPERTIES: lambda fields: fields.properties(),
    APPLICATION_PROPERTIES: lambda fields: fields.application_properties(),
    FOOTER: lambda fields: fields.footer(),
}


def matcher(predicates: Sequence[Node], now: Clock) -> Callable[[Fields], bool]:
    """Whether all predicates are true of a message: neither false nor unknown."""
    terms = [evaluator(each, now) for each in predicates]

    def matches(fields: Fields) -> bool:
        for term in terms:  # noqa: SIM110 - a generator costs more than the terms do
            if term(fields) is not True:
                return False
        return True

    return matches


def evaluator(node: Node, now: Clock) -> Evaluate:
    """The closure that evaluates a node."""
    compiler: Callable[[Any, Clock], Evaluate] = _COMPILERS[type(node)]
    return compiler(node, now)


def _constant(node: syntax.Constant, now: Clock) -> Evaluate:
    value = node.value
    return lambda fields: value


def _field(node: syntax.Field, now: Clock) -> Evaluate:
    name, other = node.name, other_spelling(node.name)
    if node.section != APPLICATION_PROPERTIES:
        section = _SECTIONS[node.section]
        return lambda fields: section(fields).get(name)
    if other is None:
        return lambda fields: fields.application_properties().get(name)

    def either_spelling(fields: Fields) -> object:
        properties = fields.application_properties()
        value = properties.get(name)
        return properties.get(other) if value is None else value

    return either_spelling


def _exists(node: syntax.Exists, now: Clock) -> Evaluate:
    section, name, other = _SECTIONS[node.field.section], node.field.name, other_spelling(node.field.name)
    if node.field.section != APPLICATION_PROPERTIES or other is None:
        return lambda fields: name in section(fields)
    return lambda fields: name in section(fields) or other in section(fields)


def _call(node: syntax.Call, now: Clock) -> Evaluate:
    apply, arguments = node.function.apply, [evaluator(each, now) for each in node.arguments]
    if len(arguments) == 1:
        argument = arguments[0]
        return lambda fields: apply(argument(fields))
    return lambda fields: apply(*[each(fields) for each in arguments])


def _now(node: syntax.Now, now: Clock) -> Evaluate:
    attached_at = node.attached_at
    return lambda fields: Timestamp(max(now(), attached_at))


def _arithmetic(node: syntax.Arithmetic, now: Clock) -> Evaluate:
    first = evaluator(node.first, now)
    rest = [(operator, evaluator(each, now)) for operator, each in node.rest]

    def evaluate(fields: Fields) -> object:
        value = first(fields)
        for operator, operand in rest:
            value = compute(operator, value, operand(fields))
        return value

    return evaluate


def _sign(node: syntax.Sign, now: Clock) -> Evaluate:
    operator, operand = node.operator, evaluator(node.operand, now)
    return lambda fields: signed(operator, operand(fields))


def _compare(node: syntax.Compare, now: Clock) -> Evaluate:
    operator, left, right = node.operator, node.left, node.right
    if isinstance(left, syntax.Constant):
        operator, left, right = MIRRORED[operator], right, left
    read = evaluator(left, now)
    if isinstance(right, syntax.Constant) and type(right.value) in (str, int, float):
        return _compare_with(operator, read, right.value)
    read_right = evaluator(right, now)
    return lambda fields: compare(operator, read(fields), read_right(fields))


def _compare_with(operator: str, read: Evaluate, constant: object) -> Evaluate:
    """This is by far the most frequent node, so values of the constant's own class take a fast path."""
    test = OPERATORS[operator]
    like = (str,) if isinstance(constant, str) else (int, float)

    def evaluate(fields: Fields) -> bool | None:
        value = read(fields)
        if isinstance(value, like) and value is not True and value is not False:
            return test(value, constant)
        return compare(operator, value, constant)

    return evaluate


def _offset_range(node: syntax.OffsetRange, now: Clock) -> Evaluate:
    above, upto = format_offset(node.after), None if node.upto is None else format_offset(node.upto)
    if upto is None:
        return lambda fields: fields.delivery_annotations()[OFFSET] > above  # type: ignore[operator]
    return lambda fields: above < fields.delivery_annotations()[OFFSET] <= upto  # type: ignore[operator]


def _like(node: syntax.Like, now: Clock) -> Evaluate:
    operand, matches = evaluator(node.operand, now), node.pattern.matches

    def evaluate(fields: Fields) -> bool | None:
        value = operand(fields)
        return matches(value) if isinstance(value, str) else None

    return evaluate


def _in(node: syntax.In, now: Clock) -> Evaluate:
    operand = evaluator(node.operand, now)
    texts: set[str] = set()
    rest: list[Evaluate] = []
    for item in node.items:
        if isinstance(item, syntax.Constant) and isinstance(item.value, str):
            texts.add(item.value)
        else:
            rest.append(evaluator(item, now))

    def evaluate(fields: Fields) -> bool | None:
        value = operand(fields)
        if value is None or kind_of(value) is Kind.OTHER:
            return None
        if isinstance(value, str | UUID) and str(value) in texts:
            return True
        found: bool | None = False
        for each in rest:
            equal = compare("=", value, each(fields))
            if equal:
                return True
            if equal is None:
                found = None
        return found

    return evaluate


def _is_null(node: syntax.IsNull, now: Clock) -> Evaluate:
    operand = evaluator(node.operand, now)
    return lambda fields: operand(fields) is None


def _is_true(node: syntax.IsTrue, now: Clock) -> Evaluate:
    operand = evaluator(node.operand, now)
    return lambda fields: operand(fields) is True


def _not(node: syntax.Not, now: Clock) -> Evaluate:
    operand = evaluator(node.operand, now)

    def evaluate(fields: Fields) -> bool | None:
        value = operand(fields)
        if value is True:
            return False
        return True if value is False else None

    return evaluate


def _and(node: syntax.And, now: Clock) -> Evaluate:
    return _junction([evaluator(each, now) for each in node.operands], False)


def _or(node: syntax.Or, now: Clock) -> Evaluate:
    return _junction([evaluator(each, now) for each in node.operands], True)


def _junction(terms: list[Evaluate], decisive: bool) -> Evaluate:
    """AND and OR in three-valued logic. One decisive term decides; otherwise any unknown term makes the result
    unknown.
    """
    neutral = not decisive

    def evaluate(fields: Fields) -> bool | None:
        result: bool | None = neutral
        for term in terms:
            value = term(fields)
            if value is decisive:
                return not neutral
            if value is not neutral:
                result = None
        return result

    return evaluate


_COMPILERS: dict[type, Callable[[Any, Clock], Evaluate]] = {
    syntax.Constant: _constant,
    syntax.Field: _field,
    syntax.Exists: _exists,
    syntax.Call: _call,
    syntax.Now: _now,
    syntax.Arithmetic: _arithmetic,
    syntax.Sign: _sign,
    syntax.Compare: _compare,
    syntax.OffsetRange: _offset_range,
    syntax.Like: _like,
    syntax.In: _in,
    syntax.IsNull: _is_null,
    syntax.IsTrue: _is_true,
    syntax.Not: _not,
    syntax.And: _and,
    syntax.Or: _or,
}
