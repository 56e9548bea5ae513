"""All filters of a source together: the part that the log can answer, and the part that is evaluated on each event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from ...core.clocks import wall_clock_ms
from ...core.limits import SEQUENCE_NUMBER_MAX, show
from ...core.query import Query
from ..protocol.types import Symbol
from .context import DEFAULT_LIMITS, Budget, Context, FilterLimits, InvalidFilter
from .entries import Unsupported, read_entry
from .evaluation import Clock, matcher
from .fields import Fields
from .plan import EVERYTHING, NOTHING, Plan, both, plan
from .syntax import And, IndexQuery, Node


@dataclass(frozen=True)
class SourceFilter:
    """The parsed filters of a source. The range and the query together are a superset of the matching events."""

    accepted: dict[Symbol, object]
    """The entries in effect, as given, to be echoed; unsupported ones are left out (AMQP 3.5.8)."""
    selecting: dict[Symbol, object]
    """The entries without a position: which events are wanted, regardless of where a receiver starts."""
    query: Query
    """The query for the index; ALL if nothing is known."""
    after: int
    """Only events with a greater number can match; 0 = from the start."""
    upto: int | None
    """Only events up to this number can match; 0 = no event can match."""
    recorded_from: int | None
    """Only events recorded at this time (ms) or later can match. Not in `matches`: convert it to a number."""
    recorded_upto: int | None
    """Only events recorded at this time (ms) or earlier can match. In `matches` too."""
    names_position: bool
    """The filter contains an offset or a timestamp: start with the earliest event that passes it."""
    is_delivery_filter: bool
    """It contains one of the two filters that the event streams draft defines, which ask for retained events (5.2)."""
    matches: Callable[[Fields], bool] | None
    """The rest to evaluate on each event; None if the above decide it."""


def source_filter(
    given: Mapping[object, object] | None,
    *,
    latest: int,
    limits: FilterLimits = DEFAULT_LIMITS,
    now: Clock = wall_clock_ms,
) -> SourceFilter:
    """Parse the filters of a source; an event must pass them all.

    `latest` is the head at attach: the value of `@latest` for the life of the link. `now` is the clock of UTC(), in ms.
    Raises InvalidFilter: a filter is invalid, or there are more of them than `limits` allow.
    """
    accepted, selecting, predicates, is_delivery_filter = _read_entries(given or {}, latest, now(), limits)
    conjuncts = [part for each in predicates for part in _conjuncts(each)]
    found, left = _planned(conjuncts)
    return SourceFilter(
        accepted,
        selecting,
        found.query,
        min(found.after, SEQUENCE_NUMBER_MAX),
        found.upto,
        found.recorded_from,
        found.recorded_upto,
        len(selecting) < len(accepted),
        is_delivery_filter,
        matcher(left, now) if left else None,
    )


def _read_entries(
    given: Mapping[object, object], latest: int, attached_at: int, limits: FilterLimits
) -> tuple[dict[Symbol, object], dict[Symbol, object], list[Node], bool]:
    if len(given) > limits.list_items_max:
        problem = f"{len(given)} filters given, at most {limits.list_items_max} are allowed"
        raise InvalidFilter(show(next(iter(given))), problem)
    accepted: dict[Symbol, object] = {}
    selecting: dict[Symbol, object] = {}
    predicates = []
    is_delivery_filter = False
    budget = Budget()
    for key, value in given.items():
        context = Context(str(key), latest, attached_at, limits, budget)
        try:
            predicates.append(read_entry(key, value, context))
        except Unsupported:
            continue
        name = key if isinstance(key, Symbol) else Symbol(str(key))
        accepted[name] = value
        if not context.names_position:
            selecting[name] = value
        is_delivery_filter |= context.is_delivery_filter
    return accepted, selecting, predicates, is_delivery_filter


def _conjuncts(node: Node) -> list[Node]:
    return [part for each in node.operands for part in _conjuncts(each)] if isinstance(node, And) else [node]


def _planned(conjuncts: Sequence[Node]) -> tuple[Plan, list[Node]]:
    """The plan for all of them, and the conjuncts that it does not decide. Queries are planned first, because only the
    index can answer them. Anything that exceeds the limit is evaluated instead."""
    found = EVERYTHING
    for each in conjuncts:
        if isinstance(each, IndexQuery):
            joined = both(found, plan(each))
            if not joined.is_exact:
                raise InvalidFilter("headwater:query-filter", "the queries together have too many alternatives")
            found = joined
    others = [each for each in conjuncts if not isinstance(each, IndexQuery)]
    plans = [plan(each) for each in others]
    found = reduce(both, plans, found)
    if found == NOTHING:
        return found, []
    return found, [each for each, planned in zip(others, plans, strict=True) if not planned.is_exact]
