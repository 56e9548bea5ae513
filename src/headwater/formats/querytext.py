"""Queries as people type them: `type=OrderPlaced tag=order:17 or tag=customer:5`.

    query = "all" | item ("or" item)*
    item  = term ("and"? term)*
    term  = "type=" TYPE | "tag=" TAG

Several types in an item: any of them. Several tags: all of them. A term with spaces is quoted as in a shell.
"""

from __future__ import annotations

import shlex

from ..core.errors import InvalidQuery
from ..core.limits import show
from ..core.query import ALL, Query, QueryItem


def parse_query(text: str) -> Query:
    """The query that a text says. Raises InvalidQuery, with the word that does not fit."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidQuery(f"{error} in {show(text)}", "query") from None
    if [word.lower() for word in words] == ["all"]:
        return ALL
    items: list[tuple[list[str], list[str]]] = [([], [])]
    for word in words:
        types, tags = items[-1]
        kind, equals, value = word.partition("=")
        if kind.lower() == "type" and equals:
            types.append(value)
        elif kind.lower() == "tag" and equals:
            tags.append(value)
        elif word.lower() == "or":
            items.append(([], []))
        elif word.lower() != "and":
            raise InvalidQuery(f"type=TYPE, tag=TAG, or, all are expected, {show(word)} given", "query")
    return Query.of(*(QueryItem(tuple(types), tuple(tags)) for types, tags in items))


def format_query(query: Query) -> str:
    """The text that says a query: `parse_query` gives it back."""
    if query.items is None:
        return "all"
    return " or ".join(" ".join(map(shlex.quote, _terms(item))) for item in query.items)


def _terms(item: QueryItem) -> list[str]:
    return [f"type={type}" for type in item.types] + [f"tag={tag}" for tag in item.tags]
