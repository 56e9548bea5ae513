"""The filters of a link from `$events`: which notifications a listener wants, their form, and their types.

A predicate is first evaluated on what all events of a type share: the subject, the attribute `eventType`, and the
attributes that the type does not have, which are null. If it depends on another field, every outcome is possible. So
the result includes the types of all events that can match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from ...core.clocks import wall_clock_ms
from ...core.limits import show
from ...core.watch.bus import Notification
from ...core.watch.notification_types import NotificationType
from ...management.notifications.catalog import CATALOG, LOST
from ..filters import syntax
from ..filters.context import DEFAULT_LIMITS, Budget, Context, FilterLimits, InvalidFilter
from ..filters.entries import QUERY_FILTER, Unsupported, descriptor_of, read_entry
from ..filters.evaluation import evaluator, matcher
from ..filters.fields import APPLICATION_PROPERTIES
from ..filters.syntax import And, Field, IndexQuery, Node
from ..protocol.types import Symbol
from .notifications import NotificationFields
from .transformation import TRANSFORMATION, Transformation, read_transformation

_Outcomes = frozenset[bool | None]
_ALL: _Outcomes = frozenset({True, False, None})
_EVENT_TYPE = "eventType"


def possible_types(predicates: Sequence[Node]) -> frozenset[NotificationType]:
    """The types of events that can match all predicates."""
    outcomes = [_outcomes(each) for each in predicates]
    return frozenset(type for type in NotificationType if all(True in each(type) for each in outcomes))


def has_field(predicate: Node, attribute: str) -> bool:
    """Whether a predicate uses that attribute."""
    found = (each for each in _fields(predicate) if isinstance(each, Field))
    return any((each.section, each.name) == (APPLICATION_PROPERTIES, attribute) for each in found)


def _outcomes(node: Node) -> Callable[[NotificationType], _Outcomes]:
    """Every outcome that a predicate may have on an event of a type. The node is analyzed only once."""
    if isinstance(node, syntax.Not | syntax.IsTrue):
        operand, of_one = _outcomes(node.operand), _negated if isinstance(node, syntax.Not) else _is_true
        return lambda type: frozenset(map(of_one, operand(type)))
    if isinstance(node, syntax.And | syntax.Or):
        operands, decisive = [_outcomes(each) for each in node.operands], isinstance(node, syntax.Or)
        return lambda type: _of_junction((each(type) for each in operands), decisive)
    found, value_of = _fields(node), evaluator(node, _no_clock)

    def of_leaf(type: NotificationType) -> _Outcomes:
        if not all(_is_known(each, type) for each in found):
            return _ALL
        value = value_of(NotificationFields(Notification(type, 0, {_EVENT_TYPE: type.value})))
        return frozenset({value if isinstance(value, bool) else None})

    return of_leaf


def _negated(outcome: bool | None) -> bool | None:
    return None if outcome is None else not outcome


def _is_true(outcome: bool | None) -> bool:
    return outcome is True


def _of_junction(terms: Iterable[_Outcomes], decisive: bool) -> _Outcomes:
    found: set[bool | None] = {not decisive}
    for term in terms:
        found = {_joined(left, right, decisive) for left in found for right in term}
    return frozenset(found)


def _joined(left: bool | None, right: bool | None, decisive: bool) -> bool | None:
    if left is decisive or right is decisive:
        return decisive
    return None if left is None or right is None else not decisive


def _is_known(field: object, type: NotificationType) -> bool:
    """Whether a field has the same value in all events of the type. UTC() never does."""
    if not isinstance(field, Field):
        return False
    if field.section != APPLICATION_PROPERTIES:
        return True  # the only property is the subject, which is the name of the type
    return field.name == _EVENT_TYPE or field.name not in CATALOG[type].names


def _fields(node: object) -> list[object]:
    """All fields in a node, at any depth; also UTC(), which is not a field."""
    if isinstance(node, Field | syntax.Now):
        return [node]
    if isinstance(node, tuple):
        return [found for part in node for found in _fields(part)]
    if isinstance(node, _NODES):
        return [found for part in fields(node) for found in _fields(getattr(node, part.name))]
    return []


_NODES = (
    syntax.Call,
    syntax.Arithmetic,
    syntax.Sign,
    syntax.Compare,
    syntax.Like,
    syntax.In,
    syntax.IsNull,
    syntax.Exists,
    syntax.IsTrue,
    syntax.Not,
    syntax.And,
    syntax.Or,
)


def _no_clock() -> int:
    raise AssertionError("functions of the clock are not supported here")


_OF_LOGS = frozenset(
    {
        "amqp:event-streams-delivery-annotations-filter",
        "event-streams-delivery-annotations-filter",
        "amqp:event-streams-sql-filter",
        "event-streams-sql-filter",
        QUERY_FILTER,
    }
)
"""Filters on positions and on the index of a log. Notifications have neither, so these filters are not supported
here.
"""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The parsed filters of a listener."""

    accepted: dict[Symbol, object]
    """The entries in effect, as given, to be echoed; unsupported ones are left out (AMQP 3.5.8)."""
    matches: Callable[[Notification], bool] | None
    """Whether a notification is wanted; None if all are."""
    types: frozenset[NotificationType]
    """Wanted notifications have one of these types."""
    transformation: Transformation | None
    names_lost: bool
    """Whether it uses the number of notifications that were lost. If so, it is evaluated when a notification is
    sent.
    """


def read_event_filter(given: Mapping[object, object] | None, limits: FilterLimits = DEFAULT_LIMITS) -> EventFilter:
    """Parse the filters of a source; a notification must pass them all. Large filters take a while.

    Raises InvalidFilter if one is invalid, or there are more than allowed, or two transformations.
    """
    if given and len(given) > limits.list_items_max:
        problem = f"{len(given)} filters given, at most {limits.list_items_max} are allowed"
        raise InvalidFilter(show(next(iter(given))), problem)
    accepted: dict[Symbol, object] = {}
    predicates: list[Node] = []
    transformation: Transformation | None = None
    budget = Budget()
    for key, value in (given or {}).items():
        descriptor = descriptor_of(key, value)
        if descriptor == TRANSFORMATION:
            if transformation is not None:
                raise InvalidFilter(str(key), "only one transformation is allowed")
            transformation = read_transformation(value)
        elif descriptor in _OF_LOGS:
            continue
        else:
            try:
                predicates.append(_predicate(key, value, Context(str(key), 0, wall_clock_ms(), limits, budget)))
            except Unsupported:
                continue
        accepted[key if isinstance(key, Symbol) else Symbol(str(key))] = value
    names_lost = any(has_field(each, LOST) for each in predicates)
    return EventFilter(accepted, _matcher(predicates), possible_types(predicates), transformation, names_lost)


def _predicate(key: object, value: object, context: Context) -> Node:
    found = read_entry(key, value, context)
    if context.names_position:
        raise context.fault(
            "notifications have neither an offset nor a timestamp; their time is in the attribute `time`"
        )
    if _has_query(found):
        raise Unsupported
    return found


def _has_query(node: Node) -> bool:
    """Only conjunctions can contain one."""
    return isinstance(node, IndexQuery) or (isinstance(node, And) and any(map(_has_query, node.operands)))


def _matcher(predicates: list[Node]) -> Callable[[Notification], bool] | None:
    if not predicates:
        return None
    matches = matcher(predicates, wall_clock_ms)
    return lambda notification: matches(NotificationFields(notification))
