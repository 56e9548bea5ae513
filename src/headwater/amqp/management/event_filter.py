"""The filters of a link from `$events`: which notifications a listener wants, and in which form."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...core.bus import Notification
from ...core.limits import show
from ...core.notification_types import NotificationType
from ...management.catalog import LOST
from ..filters.context import DEFAULT_LIMITS, Budget, Context, FilterLimits, InvalidFilter
from ..filters.entries import QUERY_FILTER, Unsupported, descriptor_of, read_entry
from ..filters.evaluation import matcher
from ..filters.syntax import And, IndexQuery, Node
from ..protocol.types import Symbol
from .narrowing import has_field, possible_types
from .notifications import NotificationFields
from .transformation import TRANSFORMATION, Transformation, read_transformation

_OF_LOGS = frozenset(
    {
        "amqp:event-streams-delivery-annotations-filter",
        "event-streams-delivery-annotations-filter",
        "amqp:event-streams-sql-filter",
        "event-streams-sql-filter",
        QUERY_FILTER,
    }
)
"""Filters on positions and by the index of a log, of which notifications have neither: not supported here."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What a listener asks for."""

    accepted: dict[Symbol, object]
    """The entries in effect, as given, to be echoed; an unsupported one is left out (AMQP 3.5.8)."""
    matches: Callable[[Notification], bool] | None
    """Whether it is wanted; None where all are."""
    types: frozenset[NotificationType]
    """Only of these can it be wanted."""
    transformation: Transformation | None
    names_lost: bool
    """Whether it asks how many notifications were lost before: then it is decided when one is sent."""


def read_event_filter(given: Mapping[object, object] | None, limits: FilterLimits = DEFAULT_LIMITS) -> EventFilter:
    """What the filters of a source ask for, all of which must be true; takes a while for large ones.

    Raises InvalidFilter: one is invalid, or there are more than is allowed, or two transformations.
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
                raise InvalidFilter(str(key), "there is another transformation")
            transformation = read_transformation(value)
        elif descriptor in _OF_LOGS:
            continue
        else:
            try:
                predicates.append(_predicate(key, value, Context(str(key), 0, _now(), limits, budget)))
            except Unsupported:
                continue
        accepted[key if isinstance(key, Symbol) else Symbol(str(key))] = value
    names_lost = any(has_field(each, LOST) for each in predicates)
    return EventFilter(accepted, _matcher(predicates), possible_types(predicates), transformation, names_lost)


def _predicate(key: object, value: object, context: Context) -> Node:
    found = read_entry(key, value, context)
    if context.names_position:
        raise context.fault("a notification has neither offset nor timestamp; its attribute `time` is when it happened")
    if _has_query(found):
        raise Unsupported
    return found


def _has_query(node: Node) -> bool:
    """Only conjunctions can hold one."""
    return isinstance(node, IndexQuery) or (isinstance(node, And) and any(map(_has_query, node.operands)))


def _matcher(predicates: list[Node]) -> Callable[[Notification], bool] | None:
    if not predicates:
        return None
    matches = matcher(predicates, _now)
    return lambda notification: matches(NotificationFields(notification))


def _now() -> int:
    return time.time_ns() // 1_000_000
