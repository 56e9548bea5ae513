"""Queries: the events that a reader or a decision requests (DCB "StreamQuery", today "Query").

A query is a disjunction of items; an item is (types: any of) AND (tags: all of). A query tag without a colon is a key:
it matches every tag with that key and the bare tag itself. In `exact_tags` it matches only that tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from .errors import InvalidQuery
from .event import tag_key
from .limits import QUERY_ITEMS_MAX, QUERY_TERMS_MAX, QUERY_TERMS_TOTAL_MAX, TYPE_CHARS_MAX, check_tag, check_type, show


@dataclass(frozen=True, slots=True)
class QueryItem:
    """(type is one of `types`, or any if empty) AND (has all of `tags` and `exact_tags`). At least one is given."""

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """A tag without a colon is a key: `order` matches `order` and `order:17`."""
    exact_tags: tuple[str, ...] = ()
    """Exact tags: `order` matches only `order`."""

    @property
    def has_tags(self) -> bool:
        """Whether it contains tags, in `tags` or `exact_tags`."""
        return bool(self.tags or self.exact_tags)

    @property
    def count(self) -> int:
        """The number of types and tags in it."""
        return len(self.types) + len(self.tags) + len(self.exact_tags)

    def matches(self, type: str, tags: Iterable[str]) -> bool:
        """Whether an event of that type with those tags matches."""
        if self.types and type not in self.types:
            return False
        present = set(tags)
        if not present.issuperset(self.exact_tags):
            return False
        keys = {tag_key(tag) for tag in present}
        return all(tag in present or (":" not in tag and tag in keys) for tag in self.tags)


@dataclass(frozen=True, slots=True)
class Query:
    """Any of `items`; `items` = None is every event, written explicitly as `Query.all()`."""

    items: tuple[QueryItem, ...] | None

    @staticmethod
    def all() -> Query:
        """The query that matches every event."""
        return ALL

    @staticmethod
    def of(*items: QueryItem) -> Query:
        """The disjunction of `items`, checked.

        Raises InvalidQuery: no item, an item with neither types nor tags, a malformed type or tag, or too many of them.
        """
        if not items:
            raise InvalidQuery("a query needs at least one item; use Query.all() for every event", "items")
        if len(items) > QUERY_ITEMS_MAX:
            raise InvalidQuery(f"{len(items)} items given, at most {QUERY_ITEMS_MAX} are allowed", "items")
        count = _plain_count(items)
        if count == len(items) and not any(map(_exact_tags, items)):  # one type or one tag each: nothing to tidy
            return Query(items)
        if (count or _checked_count(items)) > QUERY_TERMS_TOTAL_MAX:
            raise InvalidQuery(f"all items together have more than {QUERY_TERMS_TOTAL_MAX} types and tags", "items")
        return Query(tuple(map(_tidy, items)))

    @staticmethod
    def where(*, types: Sequence[str] = (), tags: Sequence[str] = (), exact_tags: Sequence[str] = ()) -> Query:
        """A query of one item: `Query.where(types=["OrderPlaced"], tags=["order:17"])`."""
        return Query.of(QueryItem(_terms(types), _terms(tags), _terms(exact_tags)))

    def matches(self, type: str, tags: Iterable[str]) -> bool:
        """Whether an event of that type with those tags matches any item."""
        if self.items is None:
            return True
        present = tuple(tags)
        return any(item.matches(type, present) for item in self.items)


ALL = Query(None)


_exact_tags = attrgetter("exact_tags")


def _plain_count(items: Sequence[QueryItem]) -> int:
    """The number of types and tags of plainly valid items; 0 for any others, which `_check_item` must check.

    A short type is also a valid tag.
    """
    count = 0
    for item in items:
        if item.__class__ is not QueryItem:
            return 0
        types, tags, exact_tags = item.types, item.tags, item.exact_tags
        if not (types.__class__ is tags.__class__ is exact_tags.__class__ is tuple):
            return 0
        terms = types + tags + exact_tags
        if not 0 < len(terms) <= QUERY_TERMS_MAX:
            return 0
        for term in terms:
            if term.__class__ is not str or not 0 < len(term) <= TYPE_CHARS_MAX or not term.isprintable():
                return 0
        count += len(terms)
    return count


def _checked_count(items: Sequence[QueryItem]) -> int:
    """The number of types and tags of the items, each checked, as soon as it is too large."""
    count = 0
    for number, item in enumerate(items):
        count += _plain_count((item,)) or _check_item(item, f"items[{number}]")
        if count > QUERY_TERMS_TOTAL_MAX:
            break
    return count


def _check_item(item: QueryItem, where: str) -> int:
    """Check an item; returns how many types and tags it has."""
    if not isinstance(item, QueryItem):
        raise InvalidQuery(f"expected a QueryItem, got {show(item)}", where)
    for name, terms in (("types", item.types), ("tags", item.tags), ("exact_tags", item.exact_tags)):
        if not isinstance(terms, tuple | list):
            raise InvalidQuery(f"expected a tuple of strings, got {show(terms)}", f"{where}.{name}")
    count = item.count
    if not count:
        raise InvalidQuery("an item needs types or tags; an item without both would match every event", where)
    if count > QUERY_TERMS_MAX:
        raise InvalidQuery(f"{count} types and tags given, at most {QUERY_TERMS_MAX} are allowed", where)
    for number, type in enumerate(item.types):
        if fault := check_type(type):
            raise InvalidQuery(fault, f"{where}.types[{number}]")
    for name, tags in (("tags", item.tags), ("exact_tags", item.exact_tags)):
        for number, tag in enumerate(tags):
            if fault := check_tag(tag):
                raise InvalidQuery(fault, f"{where}.{name}[{number}]")
    return count


def _terms(given: Sequence[str]) -> tuple[str, ...]:
    """The values as a tuple. A single string is not split into characters, so that the check refuses it."""
    return given if isinstance(given, str) else tuple(given)  # type: ignore[return-value]


def _tidy(item: QueryItem) -> QueryItem:
    """The item with sorted, distinct terms.

    Only a bare tag can be requested in two ways: a tag with a colon moves from `exact_tags` to `tags`.
    """
    types, tags, exact = item.types, item.tags, item.exact_tags
    tags = (*tags, *[tag for tag in exact if ":" in tag])
    return QueryItem(_distinct(types), _distinct(tags), _distinct([tag for tag in exact if ":" not in tag]))


def _distinct(terms: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(terms)))
