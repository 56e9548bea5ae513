"""Converts queries and append conditions to the core's: in the seed's form and in today's form, in all spellings.

In the seed's form, no criteria match every event, as in its first implementations. In today's form, every event must be
requested explicitly (`{"all": true}` or the word `"all"`), and no items are an error.
"""

from __future__ import annotations

import re

from msgspec import UNSET

from ..core.condition import AppendCondition
from ..core.errors import InvalidInput, InvalidQuery
from ..core.limits import QUERY_ITEMS_MAX, QUERY_TERMS_TOTAL_MAX, SEQUENCE_NUMBER_MAX, show
from ..core.query import ALL, Query, QueryItem
from .wire import ConditionIn, CriterionProperties, ItemIn, QueryIn, TagPair

VERSION = "1.0"
QUERY_VALUES_MAX = QUERY_TERMS_TOTAL_MAX + 8 * QUERY_ITEMS_MAX
"""The maximum number of values of a valid query, or of a document that consists mainly of one: its terms, and the
values around them. See `check_values`."""
_CRITERION_TYPES = {"EventTypes": (True, False), "Tags": (False, True), "EventTypesAndTags": (True, True)}
"""Criterion type -> whether it has event types, whether it has tags."""
_ITEM_PATH = re.compile(r"items(?:\[(?P<item>\d+)\](?:\.(?P<list>types|tags|exact_tags)(?P<rest>\[\d+\])?)?)?")


def query_of(given: QueryIn | str, where: str, *, none_is_all: bool = False) -> Query:
    """The core's query; `where` is its path in the request. Raises InvalidQuery with the path of the invalid part.

    With `all`, empty lists are ignored: some generated clients send every list. `none_is_all` makes `items: []` match
    every event, as the benchmark suite expects.
    """
    if isinstance(given, str):
        if given != "all":
            raise InvalidQuery(f'expected an object or the word "all", got {show(given)}', where)
        return ALL
    name, items = "items", given.items
    if items is UNSET or not given.all is given.criteria is given.criterias is given.version is UNSET:
        chosen = _list_of(given, where, none_is_all=none_is_all)
        if chosen is None:
            return ALL
        name, items = chosen
    if not items and (none_is_all or name != "items"):
        return ALL
    return _checked(items, f"{where}.{name}")


def _list_of(given: QueryIn, where: str, *, none_is_all: bool) -> tuple[str, list[ItemIn]] | None:
    """The name of the list of items, and the items; None if the query matches every event."""
    if given.version not in (UNSET, VERSION):
        raise InvalidQuery(f"expected {VERSION!r}, got {show(given.version)}", f"{where}.version")
    lists = [
        (name, items)
        for name, items in (("items", given.items), ("criteria", given.criteria), ("criterias", given.criterias))
        if items is not UNSET and (items or given.all is UNSET)
    ]
    if len(lists) + (given.all is not UNSET) > 1:
        raise InvalidQuery("expected exactly one of `all`, `items` and `criteria`", where)
    if given.all is not UNSET:
        if not given.all:
            raise InvalidQuery("expected true, got false", f"{where}.all")
        return None
    if not lists:
        if given.version is not UNSET or none_is_all:
            return None
        raise InvalidQuery('expected `items` or `criteria`; {"all": true} selects every event', where)
    return lists[0]


def is_in_seed_form(given: QueryIn | str) -> bool:
    """Whether a query is in the seed's form: with `criteria` or `version`."""
    return not isinstance(given, str) and (
        given.criteria is not UNSET or given.criterias is not UNSET or given.version is not UNSET
    )


def condition_is_in_seed_form(given: ConditionIn) -> bool:
    """Whether a condition is in the seed's form, by its own fields or by its query."""
    match = given.fail_if_events_match or given.fail_if_events_match_camel
    return (
        given.query is not None
        or given.expected_highest_sequence_number is not None
        or given.expected_highest_sequence_number_camel is not None
        or (match is not None and is_in_seed_form(match))
    )


def condition_of(
    given: ConditionIn | None, *, is_strict: bool = False, none_is_all: bool = False
) -> AppendCondition | None:
    """The core's condition; None if there is none.

    Raises InvalidQuery, InvalidInput with the path of the invalid part.
    """
    if given is None:
        return None
    expected, expected_camel = given.expected_highest_sequence_number, given.expected_highest_sequence_number_camel
    expected_name = _spelling(
        expected, expected_camel, "expected_highest_sequence_number", "expectedHighestSequenceNumber"
    )
    expected = expected_camel if expected is None else expected
    match, match_camel = given.fail_if_events_match, given.fail_if_events_match_camel
    match_name = _spelling(match, match_camel, "fail_if_events_match", "failIfEventsMatch")
    match = match_camel if match is None else match
    if given.query is None and expected is None:
        if match is None:
            raise InvalidQuery(
                "expected `failIfEventsMatch`, or `query` and `expected_highest_sequence_number`", "condition"
            )
        query = query_of(match, f"condition.{match_name}", none_is_all=none_is_all)
        return AppendCondition(query, given.after or 0)
    if match is not None or given.after is not None:
        raise InvalidQuery(
            "`failIfEventsMatch` and `after` cannot be combined with `query` and `expected_highest_sequence_number`",
            "condition",
        )
    if given.query is None:
        raise InvalidQuery("the condition needs a `query`", "condition")
    query = query_of(given.query, "condition.query")
    return _expecting(query, expected, f"condition.{expected_name}", is_strict)


def _expecting(query: Query, expected: int | str | None, where: str, is_strict: bool) -> AppendCondition | None:
    """The seed's ExpectedHighestSequenceNumber: a number that must be reached, NONE, or ANY."""
    if expected == "ANY":
        return None
    if expected == "NONE" or (expected == 0 and not is_strict):
        return AppendCondition(query)
    lowest = 1 if is_strict else 0
    if isinstance(expected, int) and lowest <= expected <= SEQUENCE_NUMBER_MAX:
        return AppendCondition(query, expected, requires_match=True)
    allowed = f'expected a number from {lowest} to {SEQUENCE_NUMBER_MAX}, "NONE" or "ANY"'
    problem = f"it is required: {allowed}" if expected is None else f"got {show(expected)}; {allowed}"
    raise InvalidInput(problem, where)


def _spelling(in_snake: object, in_camel: object, snake: str, camel: str) -> str:
    """The spelling in which a field was given."""
    if in_snake is not None and in_camel is not None:
        raise InvalidQuery(f"`{snake}` and `{camel}` are two names of one field; use one", "condition")
    return snake if in_camel is None else camel


def _item_of(given: ItemIn) -> QueryItem:
    """The core's item, not yet checked. Raises InvalidQuery, InvalidInput with the path within the item."""
    terms: CriterionProperties = given
    inside = ""
    if given.properties is not None:
        if given.tags is not None or given.exact_tags is not None or _types_of(given, "")[1]:
            raise InvalidQuery("put types and tags inside `properties` or next to it, not both")
        terms, inside = given.properties, "properties."
    types, tags, exact_tags = terms.types, terms.tags, terms.exact_tags
    if terms.event_types is not None or terms.event_types_camel is not None:
        types = _types_of(terms, inside)[1]
    if tags and TagPair in map(type, tags):
        tags = _texts(tags, f"{inside}tags")
    if exact_tags and TagPair in map(type, exact_tags):
        exact_tags = _texts(exact_tags, f"{inside}exact_tags")
    item = QueryItem(tuple(types or ()), tuple(tags or ()), tuple(exact_tags or ()))  # type: ignore[arg-type]
    if given.type is not None:
        _check_criterion(given.type, bool(types), item.has_tags)
    return item


def _texts(tags: list[str | TagPair], where: str) -> list[str | TagPair]:
    return [tag_text(tag, f"{where}[{index}]") for index, tag in enumerate(tags)]


def _types_of(terms: CriterionProperties, inside: str) -> tuple[str, list[str]]:
    """The types, and the name under which they were given."""
    found = [
        (name, types)
        for name, types in (
            ("types", terms.types),
            ("event_types", terms.event_types),
            ("eventTypes", terms.event_types_camel),
        )
        if types is not None
    ]
    if len(found) > 1:
        raise InvalidQuery(
            f"`{found[0][0]}` and `{found[1][0]}` are two names of one field; use one", inside.rstrip(".")
        )
    return found[0] if found else ("types", [])


def _check_criterion(type: str, has_types: bool, has_tags: bool) -> None:
    if type not in _CRITERION_TYPES:
        raise InvalidQuery(f"got {show(type)}, expected one of {', '.join(_CRITERION_TYPES)}", "type")
    for name, wanted, given in zip(("event types", "tags"), _CRITERION_TYPES[type], (has_types, has_tags), strict=True):
        if wanted != given:
            raise InvalidQuery(f"a criterion {type} {'needs' if wanted else 'must not have'} {name}")


def tag_text(tag: str | TagPair, where: str) -> str:
    """A tag as text. Raises InvalidInput for a key with a colon, which would become another tag."""
    if isinstance(tag, str):
        return tag
    if ":" in tag.key:
        raise InvalidInput(f"a tag's key must not contain a colon, got {show(tag.key)}", f"{where}.key")
    return tag.key if tag.value is None else f"{tag.key}:{tag.value}"


def _checked(given: list[ItemIn], where: str) -> Query:
    """The query of these items, checked by the core, with error paths translated into paths in the request."""
    items: list[QueryItem] = []
    try:
        for item in given:
            items.append(_item_of(item))
    except InvalidInput as error:
        inside = f".{error.where}" if error.where else ""
        error.move(f"{where}[{len(items)}]{inside}")
        raise
    try:
        return Query.of(*items)
    except InvalidQuery as error:
        error.move(where + _path_of(error.where, given))
        raise


def _path_of(where: str, given: list[ItemIn]) -> str:
    """The path below the list of items, of what the core calls `where`."""
    found = _ITEM_PATH.fullmatch(where)
    if found is None or found["item"] is None:
        return ""
    item, name = given[int(found["item"])], found["list"]
    if name is None:
        return f"[{found['item']}]"
    terms, inside = (item, "") if item.properties is None else (item.properties, "properties.")
    if name == "types":
        name, _ = _types_of(terms, inside)
    return f"[{found['item']}].{inside}{name}{found['rest'] or ''}"
