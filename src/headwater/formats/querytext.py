"""Queries as typed by people: `type=OrderPlaced tag=order:17 or tag=customer:5`.

    query = "all" | item ("or" item)*
    item  = term ("and"? term)*
    term  = "type=" TYPE | "tag=" TAG | "exact_tag=" TAG

Several types in an item: any of them. Several tags: all of them. `tag=order` also matches `order:17`; `exact_tag=order`
does not. A term with spaces, quotes or backslashes is quoted as in a shell. The JSON of `/logs` is also accepted:
`{"items": [{"types": ["OrderPlaced"], "tags": ["order:17"]}]}`.
"""

from __future__ import annotations

import shlex

import msgspec

from ..core.errors import InvalidQuery
from ..core.limits import show
from ..core.query import ALL, Query, QueryItem

_KINDS = ("type", "tag", "exact_tag")
"""The kinds of terms, in the order of the fields of QueryItem."""


def parse_query(text: str) -> Query:
    """Parse a query. Raises InvalidQuery, with the invalid word."""
    if text.lstrip().startswith("{"):
        return _from_json(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidQuery(f"{error} in {show(text)}", "query") from None
    if [word.lower() for word in words] == ["all"]:
        return ALL
    items: list[dict[str, list[str]]] = [{kind: [] for kind in _KINDS}]
    for word in words:
        kind, equals, value = word.partition("=")
        if equals and kind.lower() in _KINDS:
            items[-1][kind.lower()].append(value)
        elif word.lower() == "or":
            items.append({kind: [] for kind in _KINDS})
        elif word.lower() != "and":
            allowed = "type=TYPE, tag=TAG, exact_tag=TAG, or, all"
            raise InvalidQuery(f"expected {allowed}, got {show(word)}", "query")
    return Query.of(*[QueryItem(*map(tuple, item.values())) for item in items])


def _from_json(text: str) -> Query:
    try:
        said = _query.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidQuery(f"{error}", "query") from None
    if said.all is True and said.items is None:
        return ALL
    if said.all is not None or said.items is None:
        raise InvalidQuery('expected {"items": [...]} or {"all": true}', "query")
    return Query.of(*(QueryItem(item.types, item.tags, item.exact_tags) for item in said.items))


class _ItemJson(msgspec.Struct, forbid_unknown_fields=True):
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    exact_tags: tuple[str, ...] = ()


class _QueryJson(msgspec.Struct, forbid_unknown_fields=True):
    items: list[_ItemJson] | None = None
    all: bool | None = None


_query = msgspec.json.Decoder(_QueryJson)
