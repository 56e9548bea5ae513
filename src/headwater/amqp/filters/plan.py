"""Finds the part of a filter that a log's index and positions can answer, so that little remains to be evaluated.

A plan is a superset of the events for which a predicate is true (or false, under a NOT); an exact plan contains no
others. Plans are sound, because an event's type is its property `cloudEvents:type`, if it has one, and its tags are
the value of `cloudEvents:tags`; not exact, because an event may have a type without that property (an AMQP subject).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any

from ...core.errors import InvalidEvent
from ...core.limits import QUERY_ITEMS_MAX, QUERY_TERMS_MAX, check_tag, check_type
from ...core.query import ALL, Query, QueryItem
from ...formats.cloudevents import decode_tags
from . import syntax
from .fields import APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS, TIMESTAMP
from .syntax import Constant, Field, Node
from .values import MIRRORED, NEGATED, compute

_TYPE = tuple(Field(APPLICATION_PROPERTIES, f"cloudEvents{mark}type") for mark in ":_")
_TAGS = tuple(Field(APPLICATION_PROPERTIES, f"cloudEvents{mark}tags") for mark in ":_")
_TIMESTAMP = Field(DELIVERY_ANNOTATIONS, TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Plan:
    """Events that match `query`, numbered above `after` and up to `upto`, recorded from and up to these ms."""

    query: Query = ALL
    after: int = 0
    upto: int | None = None
    recorded_from: int | None = None
    recorded_upto: int | None = None
    is_exact: bool = True


EVERYTHING = Plan()
NOTHING = Plan(upto=0)
ANYTHING = Plan(is_exact=False)
"""All events may match; which ones do is unknown."""


def plan(node: Node, wanted: bool = True) -> Plan:
    """The plan for the events for which a predicate is `wanted`. An unknown predicate is neither true nor false."""
    planner: Callable[[Any, bool], Plan] | None = _PLANNERS.get(type(node))
    return ANYTHING if planner is None else planner(node, wanted)


def both(left: Plan, right: Plan) -> Plan:
    """The events of both plans."""
    query = _query_of_both(left.query, right.query)
    found = Plan(
        left.query if query is None else query,
        max(left.after, right.after),
        _inner(min, left.upto, right.upto),
        _inner(max, left.recorded_from, right.recorded_from),
        _inner(min, left.recorded_upto, right.recorded_upto),
        left.is_exact and right.is_exact and query is not None,
    )
    return NOTHING if _is_empty(found) else found


def either(left: Plan, right: Plan) -> Plan:
    """The events of either plan, and possibly others."""
    if _is_empty(left) or _is_empty(right):
        return right if _is_empty(left) else left
    query = _query_of_either(left.query, right.query)
    found = Plan(
        ALL if query is None else query,
        min(left.after, right.after),
        _outer(max, left.upto, right.upto),
        _outer(min, left.recorded_from, right.recorded_from),
        _outer(max, left.recorded_upto, right.recorded_upto),
    )
    return found if EVERYTHING in (left, right) else replace(found, is_exact=_is_exact_union(left, right))


def _is_exact_union(left: Plan, right: Plan) -> bool:
    """Whether the hull of two exact plans contains nothing else: only their numbers differ, and overlap or touch."""
    if not (left.is_exact and right.is_exact) or replace(left, after=right.after, upto=right.upto) != right:
        return False
    return all(one.upto is None or other.after <= one.upto for one, other in ((left, right), (right, left)))


def _is_empty(given: Plan) -> bool:
    if given.upto is not None and given.after >= given.upto:
        return True
    first, last = given.recorded_from, given.recorded_upto
    return (first is not None and last is not None and first > last) or given.query.items == ()


def _constant(node: Constant, wanted: bool) -> Plan:
    return EVERYTHING if node.value is wanted else NOTHING


def _and(node: syntax.And, wanted: bool) -> Plan:
    parts = [plan(each, wanted) for each in node.operands]
    return reduce(both, parts, EVERYTHING) if wanted else reduce(either, parts, NOTHING)


def _or(node: syntax.Or, wanted: bool) -> Plan:
    parts = [plan(each, wanted) for each in node.operands]
    return reduce(either, parts, NOTHING) if wanted else reduce(both, parts, EVERYTHING)


def _not(node: syntax.Not, wanted: bool) -> Plan:
    return plan(node.operand, not wanted)


def _is_true(node: syntax.IsTrue, wanted: bool) -> Plan:
    """Not true means false or unknown; but ranges and constants other than null are never unknown."""
    operand = node.operand
    if wanted or isinstance(operand, syntax.OffsetRange):
        return plan(operand, wanted)
    return _constant(Constant(operand.value is True), False) if isinstance(operand, Constant) else ANYTHING


def _offset_range(node: syntax.OffsetRange, wanted: bool) -> Plan:
    if wanted:
        return Plan(after=node.after, upto=node.upto)
    below = Plan(upto=node.after)
    return below if node.upto is None else either(below, Plan(after=node.upto))


def _index_query(node: syntax.IndexQuery, wanted: bool) -> Plan:
    return Plan(node.query) if wanted else ANYTHING


def _compare(node: syntax.Compare, wanted: bool) -> Plan:
    operator, left, right = node.operator, node.left, node.right
    if isinstance(left, Constant) or right == _TIMESTAMP:
        operator, left, right = MIRRORED[operator], right, left
    operator = operator if wanted else NEGATED[operator]
    if left == _TIMESTAMP:
        if isinstance(right, Constant):
            return _recorded(operator, right.value)
        earliest = _earliest(right)
        return replace(_recorded(operator, earliest), is_exact=False) if operator in (">", ">=") else ANYTHING
    if operator != "=" or not isinstance(right, Constant) or not isinstance(right.value, str):
        return ANYTHING
    if left in _TYPE:
        return _of_types([right.value])
    return _of_tags(right.value) if left in _TAGS else ANYTHING


def _in(node: syntax.In, wanted: bool) -> Plan:
    if not wanted or node.operand not in _TYPE:
        return ANYTHING
    types = []
    for item in node.items:
        if not isinstance(item, Constant):
            return ANYTHING
        if isinstance(item.value, str):
            types.append(item.value)
    return _of_types(types)


def _of_types(types: list[str]) -> Plan:
    if not types or len(types) > QUERY_TERMS_MAX or any(check_type(each) for each in types):
        return ANYTHING
    return Plan(Query.where(types=types), is_exact=False)


def _of_tags(text: str) -> Plan:
    try:
        tags = [tag for tag in decode_tags(text) if not check_tag(tag)]
    except InvalidEvent:  # tags are never written in this form by the log
        return ANYTHING
    return Plan(Query.where(exact_tags=tags[:QUERY_TERMS_MAX]), is_exact=False) if tags else ANYTHING


def _recorded(operator: str, ms: object) -> Plan:
    if isinstance(ms, bool) or not isinstance(ms, int | float) or not math.isfinite(ms):
        return ANYTHING
    if operator in (">", ">="):
        return Plan(recorded_from=math.floor(ms) + 1 if operator == ">" else math.ceil(ms))
    if operator in ("<", "<="):
        return Plan(recorded_upto=math.ceil(ms) - 1 if operator == "<" else math.floor(ms), is_exact=False)
    if operator == "=":
        return both(_recorded(">=", ms), _recorded("<=", ms))
    return ANYTHING


def _earliest(node: Node) -> int | float | None:
    """The minimum of UTC(), or of UTC() plus and minus constants: its value at attach."""
    if isinstance(node, syntax.Now):
        return node.attached_at
    if not isinstance(node, syntax.Arithmetic) or not isinstance(node.first, syntax.Now):
        return None
    value: object = node.first.attached_at
    for operator, operand in node.rest:
        if operator not in "+-" or not isinstance(operand, Constant):
            return None
        value = compute(operator, value, operand.value)
    return value if isinstance(value, int | float) else None


def _query_of_both(left: Query, right: Query) -> Query | None:
    """Pairwise combinations of alternatives; None if they exceed the limit of a query."""
    if left.items is None or right.items is None or left == right:
        return right if left.items is None else left
    if len(left.items) * len(right.items) > QUERY_ITEMS_MAX:
        return None
    pairs = [_item_of_both(one, other) for one, other in product(left.items, right.items)]
    items = tuple(dict.fromkeys([item for item in pairs if item is not None]))
    fits = all(item.count <= QUERY_TERMS_MAX for item in items)
    return Query(items) if fits else None


def _item_of_both(left: QueryItem, right: QueryItem) -> QueryItem | None:
    types = left.types or right.types
    if left.types and right.types:
        types = tuple(sorted(set(left.types) & set(right.types)))
        if not types:
            return None
    tags, exact_tags = {*left.tags, *right.tags}, {*left.exact_tags, *right.exact_tags}
    return QueryItem(types, tuple(sorted(tags)), tuple(sorted(exact_tags)))


def _query_of_either(left: Query, right: Query) -> Query | None:
    """All alternatives; alternatives with only types are merged. None if they exceed the limit of a query."""
    if left.items is None or right.items is None:
        return ALL
    items = dict.fromkeys([*left.items, *right.items])
    types = sorted({type for item in items if not item.has_tags for type in item.types})
    merged = [QueryItem(tuple(types))] if types else []
    merged += [item for item in items if item.has_tags]
    return Query(tuple(merged)) if len(merged) <= QUERY_ITEMS_MAX and len(types) <= QUERY_TERMS_MAX else None


def _inner(closer: Callable[[int, int], int], left: int | None, right: int | None) -> int | None:
    """The combined bound; None if neither has one."""
    if left is None or right is None:
        return right if left is None else left
    return closer(left, right)


def _outer(farther: Callable[[int, int], int], left: int | None, right: int | None) -> int | None:
    """A bound that contains both; None if one of them has none."""
    return None if left is None or right is None else farther(left, right)


_PLANNERS: dict[type, Callable[[Any, bool], Plan]] = {
    Constant: _constant,
    syntax.And: _and,
    syntax.Or: _or,
    syntax.Not: _not,
    syntax.IsTrue: _is_true,
    syntax.OffsetRange: _offset_range,
    syntax.IndexQuery: _index_query,
    syntax.Compare: _compare,
    syntax.In: _in,
}
