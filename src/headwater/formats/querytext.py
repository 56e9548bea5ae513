"""Queries as people type them: `type=OrderPlaced tag=order:17 or tag=customer:5`.

    query = "all" | item ("or" item)*
    item  = term ("and"? term)*
    term  = "type=" TYPE | "tag=" TAG

Several types in an item: any of them. Several tags: all of them. A term with spaces is quoted as in a shell. The JSON
of `/logs` is taken as well: `{"items": [{"types": ["OrderPlaced"], "tags": ["order:17"]}]}`.
"""

from __future__ import annotations

import shlex

import msgspec

from ..core.errors import InvalidQuery
from ..core.limits import show
from ..core.query import ALL, Query, QueryItem


def parse_query(text: str) -> Query:
    """The query that a text says. Raises InvalidQuery, with the word that does not fit."""
    if text.lstrip().startswith("{"):
        return _from_json(text)
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


def _from_json(text: str) -> Query:
    try:
        said = msgspec.json.decode(text, type=_QueryJson)
    except msgspec.MsgspecError as error:
        raise InvalidQuery(f"{error}", "query") from None
    if said.all is True and said.items is None:
        return ALL
    if said.all is not None or said.items is None:
        raise InvalidQuery('{"items": [...]} or {"all": true} is expected', "query")
    return Query.of(*(QueryItem(item.types, item.tags) for item in said.items))


class _ItemJson(msgspec.Struct, forbid_unknown_fields=True):
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


class _QueryJson(msgspec.Struct, forbid_unknown_fields=True):
    items: list[_ItemJson] | None = None
    all: bool | None = None
