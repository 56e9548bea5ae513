"""Queries: which events a reader or a decision asks about (DCB "StreamQuery", today "Query").

A query is a disjunction of items; an item is (types: any of) AND (tags: all of). A query tag without a colon is a
key: it matches every tag of that key and the bare tag itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import InvalidQuery
from .event import tag_key
from .limits import QUERY_ITEMS_MAX, QUERY_TERMS_MAX, QUERY_TERMS_TOTAL_MAX, check_query_tag, check_type, show


@dataclass(frozen=True, slots=True)
class QueryItem:
    """(type is one of `types`, or any if empty) AND (all of `tags` are there). At least one of the two is given."""

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def matches(self, type: str, tags: Iterable[str]) -> bool:
        """Whether an event of that type with those tags matches."""
        if self.types and type not in self.types:
            return False
        present = set(tags)
        keys = {tag_key(tag) for tag in present}
        return all(tag in present or (":" not in tag and tag in keys) for tag in self.tags)


@dataclass(frozen=True, slots=True)
class Query:
    """Any of `items`; `items` = None is every event, which is said explicitly with `Query.all()`."""

    items: tuple[QueryItem, ...] | None

    @staticmethod
    def all() -> Query:
        """The query that matches every event."""
        return ALL

    @staticmethod
    def of(*items: QueryItem) -> Query:
        """The disjunction of `items`, checked.

        Raises InvalidQuery: no item, an item with neither types nor tags, a malformed type or tag, too many of them.
        """
        if not items:
            raise InvalidQuery("a query needs at least one item; to ask for every event say so explicitly", "items")
        if len(items) > QUERY_ITEMS_MAX:
            raise InvalidQuery(f"{len(items)} items given, at most {QUERY_ITEMS_MAX} are allowed", "items")
        total = 0
        for number, item in enumerate(items):
            total += _check_item(item, f"items[{number}]")
            if total > QUERY_TERMS_TOTAL_MAX:
                problem = f"more than {QUERY_TERMS_TOTAL_MAX} types and tags given in all items together"
                raise InvalidQuery(problem, "items")
        return Query(tuple([_tidy(item) for item in items]))

    @staticmethod
    def where(*, types: Sequence[str] = (), tags: Sequence[str] = ()) -> Query:
        """A query of one item: `Query.where(types=["OrderPlaced"], tags=["order:17"])`."""
        return Query.of(QueryItem(_terms(types), _terms(tags)))

    def matches(self, type: str, tags: Iterable[str]) -> bool:
        """Whether an event of that type with those tags matches any item."""
        if self.items is None:
            return True
        present = tuple(tags)
        return any(item.matches(type, present) for item in self.items)


ALL = Query(None)


def _check_item(item: QueryItem, where: str) -> int:
    """Answers how many types and tags it has."""
    if not isinstance(item, QueryItem):
        raise InvalidQuery(f"a QueryItem is expected, {show(item)} given", where)
    for name, terms in (("types", item.types), ("tags", item.tags)):
        if not isinstance(terms, tuple | list):
            raise InvalidQuery(f"a tuple of strings is expected, {show(terms)} given", f"{where}.{name}")
    if not item.types and not item.tags:
        raise InvalidQuery("an item needs types or tags; one with neither would match every event", where)
    count = len(item.types) + len(item.tags)
    if count > QUERY_TERMS_MAX:
        raise InvalidQuery(f"{count} types and tags given, at most {QUERY_TERMS_MAX} are allowed", where)
    for number, type in enumerate(item.types):
        if fault := check_type(type):
            raise InvalidQuery(fault, f"{where}.types[{number}]")
    for number, tag in enumerate(item.tags):
        if fault := check_query_tag(tag):
            raise InvalidQuery(fault, f"{where}.tags[{number}]")
    return count


def _terms(given: Sequence[str]) -> tuple[str, ...]:
    """As a tuple; but one string is not the sequence of its characters: it is left for the check to refuse."""
    return given if isinstance(given, str) else tuple(given)  # type: ignore[return-value]


def _tidy(item: QueryItem) -> QueryItem:
    """The item with sorted, distinct terms; most items have one term, and are so already."""
    types, tags = item.types, item.tags
    if len(types) < 2 and len(tags) < 2 and types.__class__ is tags.__class__ is tuple:
        return item
    return QueryItem(_distinct(types), _distinct(tags))


def _distinct(terms: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(terms)))
