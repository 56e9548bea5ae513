"""Narrows a batch read by the filters that Spark passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql import datasource

from ...core.errors import InvalidQuery
from ...core.limits import SEQUENCE_NUMBER_MAX
from ...core.query import Query, QueryItem
from ..columns.schema import COLUMNS
from ..options import ceil_ms, floor_ms


@dataclass(frozen=True)
class Scope:
    """The events to read. Bounds are inclusive, except `before_ms`."""

    query: Query
    partitions: tuple[int, ...] | None = None
    """None: all."""
    logs: frozenset[str] | None = None
    """None: all that the options name."""
    first: int = 0
    last: int = SEQUENCE_NUMBER_MAX
    from_ms: int | None = None
    before_ms: int | None = None
    is_empty: bool = False
    """Whether filters contradict each other, so that nothing remains."""

    def narrowed(self, filter: datasource.Filter) -> tuple[Scope, bool]:
        """The scope with that filter, and whether it covers all of the filter; if not, Spark must apply it as well."""
        path: tuple[str, ...] = getattr(filter, "attribute", ())
        column = path[0] if len(path) == 1 else None
        if column not in COLUMNS:
            return self, False
        if isinstance(filter, datasource.IsNotNull):
            return self, True  # no column is ever null
        narrow = {
            "log": self._of_logs,
            "type": self._of_types,
            "partition": self._of_partitions,
            "sequence_number": self._numbered,
            "recorded_at": self._recorded,
        }.get(column)
        found = narrow(filter) if narrow is not None else None
        if found is not None:
            return found, True
        if column == "sequence_number" and isinstance(filter, datasource.In) and (numbers := _values(filter)):
            return self._between(min(numbers), max(numbers)), False
        return self, False

    def _of_types(self, filter: datasource.Filter) -> Scope | None:
        types = _values(filter)
        if types is None:
            return None
        if not types:
            return replace(self, is_empty=True)
        items = self.query.items or (QueryItem(types),)
        left = [replace(item, types=_both(item.types or types, types)) for item in items]
        left = [item for item in left if item.types]
        try:
            return replace(self, query=Query.of(*left)) if left else replace(self, is_empty=True)
        except InvalidQuery:  # a type that no event can have, or too many of them: left to Spark
            return None

    def _of_partitions(self, filter: datasource.Filter) -> Scope | None:
        values = _values(filter)
        if values is None:
            return None
        left = _both(values if self.partitions is None else self.partitions, values)
        return replace(self, partitions=left) if left else replace(self, is_empty=True)

    def _of_logs(self, filter: datasource.Filter) -> Scope | None:
        values = _values(filter)
        if values is None:
            return None
        return replace(self, logs=frozenset(values) if self.logs is None else self.logs & frozenset(values))

    def _numbered(self, filter: datasource.Filter) -> Scope | None:
        match filter:
            case datasource.EqualTo(value=int(number)) | datasource.EqualNullSafe(value=int(number)):
                return self._between(number, number)
            case datasource.GreaterThan(value=int(number)):
                return self._between(number + 1, self.last)
            case datasource.GreaterThanOrEqual(value=int(number)):
                return self._between(number, self.last)
            case datasource.LessThan(value=int(number)):
                return self._between(self.first, number - 1)
            case datasource.LessThanOrEqual(value=int(number)):
                return self._between(self.first, number)
        return None

    def _recorded(self, filter: datasource.Filter) -> Scope | None:
        """Times are stored in ms and compared in µs: bounds are rounded so that no event is in between."""
        match filter:
            case datasource.EqualTo(value=datetime() as moment) | datasource.EqualNullSafe(value=datetime() as moment):
                return self._during(ceil_ms(moment), floor_ms(moment) + 1)
            case datasource.GreaterThan(value=datetime() as moment):
                return self._during(floor_ms(moment) + 1, None)
            case datasource.GreaterThanOrEqual(value=datetime() as moment):
                return self._during(ceil_ms(moment), None)
            case datasource.LessThan(value=datetime() as moment):
                return self._during(None, ceil_ms(moment))
            case datasource.LessThanOrEqual(value=datetime() as moment):
                return self._during(None, floor_ms(moment) + 1)
        return None

    def _between(self, first: int, last: int) -> Scope:
        first, last = max(first, self.first), min(last, self.last)
        return replace(self, first=first, last=last, is_empty=self.is_empty or first > last)

    def _during(self, from_ms: int | None, before_ms: int | None) -> Scope:
        low = max([ms for ms in (from_ms, self.from_ms) if ms is not None], default=None)
        high = min([ms for ms in (before_ms, self.before_ms) if ms is not None], default=None)
        is_empty = low is not None and high is not None and low >= high
        return replace(self, from_ms=low, before_ms=high, is_empty=self.is_empty or is_empty)


def _values(filter: datasource.Filter) -> tuple[Any, ...] | None:
    """The values that a column must have one of, if the filter says so. Nothing equals null."""
    match filter:
        case datasource.EqualTo(value=value) | datasource.EqualNullSafe(value=value):
            return () if value is None else (value,)
        case datasource.In(value=values):
            return tuple([value for value in values if value is not None])
    return None


def _both(given: Sequence[Any], wanted: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(given) & set(wanted)))
