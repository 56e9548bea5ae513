"""The entries of a filter map: the filter of each, found by its descriptor, and its tree.

AMQP 3.5.8 requires every entry to be described. Some clients send the bare value under a key that names the filter;
that is accepted too, if the key is the descriptor's name or another name that clients are known to use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ...core.errors import InvalidQuery
from ...core.limits import show
from ...formats.querytext import parse_query
from ..protocol.types import Described
from .context import Context
from .fields import APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS, FOOTER, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES
from .parser import parse_event_streams_sql, parse_selector, parse_sql
from .property_filters import (
    delivery_annotations_filter,
    direct_binding,
    headers_binding,
    property_filter,
    topic_binding,
)
from .syntax import And, Constant, IndexQuery, Node, Not, Or

Reader: TypeAlias = Callable[[object, Context], Node]


class Unsupported(Exception):
    """This node does not support a filter, or does not support it within a group."""


def read_entry(key: object, given: object, context: Context) -> Node:
    """The tree of an entry of the map. Raises InvalidFilter, or Unsupported if its kind is unknown."""
    if isinstance(given, Described):
        return _read(given, context)
    reader = _BY_KEY.get(key) if isinstance(key, str) else None
    if reader is None or given is None:
        raise Unsupported
    return reader(given, context)


def _read(given: object, context: Context) -> Node:
    if not isinstance(given, Described):
        raise context.fault(f"expected a described filter, got {show(given)}")
    descriptor: Any = given.descriptor
    is_name = isinstance(descriptor, str | int) and not isinstance(descriptor, bool)
    reader = _READERS.get(descriptor) if is_name else None
    if reader is None:
        raise Unsupported
    return reader(given.value, context)


def _text(given: object, context: Context) -> str:
    if not isinstance(given, str):
        raise context.fault(f"expected a string, got {show(given)}")
    return given


def _sql(given: object, context: Context) -> Node:
    return parse_sql(_text(given, context), context)


def _event_streams_annotations(given: object, context: Context) -> Node:
    context.is_delivery_filter = True
    return delivery_annotations_filter(given, context)


def _event_streams_sql(given: object, context: Context) -> Node:
    context.is_delivery_filter = True
    return parse_event_streams_sql(_text(given, context), context)


def _selector(given: object, context: Context) -> Node:
    return parse_selector(_text(given, context), context)


def _query(given: object, context: Context) -> Node:
    """A DCB query. The index answers it, so it may be nested in conjunctions only."""
    if not context.is_conjunct:
        raise context.fault("a query is answered by the index and cannot be part of an any or not filter")
    if isinstance(given, bytes):
        try:
            given = given.decode()
        except UnicodeDecodeError as error:
            raise context.fault(f"not UTF-8 ({error.reason})", error.start + 1) from None
    text = _text(given, context)
    if len(text) > context.limits.query_chars_max:
        problem = f"{len(text)} characters given, at most {context.limits.query_chars_max} are allowed"
        raise context.fault(problem, context.limits.query_chars_max + 1)
    try:
        return IndexQuery(parse_query(text))
    except InvalidQuery as error:
        raise context.fault(f"{error}") from None


def _members(given: object, context: Context) -> list[object]:
    if not isinstance(given, list | tuple):
        raise context.fault(f"expected a list of filters, got {show(given)}")
    if len(given) > context.limits.list_items_max:
        raise context.fault(f"{len(given)} filters given, at most {context.limits.list_items_max} are allowed")
    context.spend(len(given))
    return list(given)


def _all(given: object, context: Context) -> Node:
    with context.nested():
        return And(tuple([_read(each, context) for each in _members(given, context)]))


def _any(given: object, context: Context) -> Node:
    with context.nested(), context.no_conjunct():
        return Or(tuple([_read(each, context) for each in _members(given, context)]))


def _not(given: object, context: Context) -> Node:
    """The filter itself, or a list of exactly one."""
    members = [given] if isinstance(given, Described) else _members(given, context)
    if len(members) != 1:
        raise context.fault(f"a not filter contains exactly one filter, got {len(members)}")
    with context.nested(), context.no_conjunct():
        return Not(_read(members[0], context))


def descriptor_of(key: object, given: object) -> object:
    """The descriptor of a map entry, or its key; symbolic if it is known."""
    descriptor = given.descriptor if isinstance(given, Described) else key
    return _NAMES.get(descriptor, descriptor) if isinstance(descriptor, str | int) else descriptor


def _properties_of(section: str) -> Reader:
    return lambda given, context: property_filter(section, given, context)


def _always(value: bool) -> Reader:
    return lambda given, context: Constant(value)


QUERY_FILTER = "headwater:query-filter"
_FILTERS: list[tuple[str, int | None, Reader]] = [
    ("amqp:all-filter", 0x100, _all),
    ("amqp:any-filter", 0x101, _any),
    ("amqp:not-filter", 0x102, _not),
    ("amqp:true-filter", 0x110, _always(True)),
    ("amqp:false-filter", 0x111, _always(False)),
    ("amqp:sql-filter", 0x120, _sql),
    ("amqp:header-filter", 0x170, _properties_of(HEADER)),
    ("amqp:delivery-annotations-filter", 0x171, _properties_of(DELIVERY_ANNOTATIONS)),
    ("amqp:message-annotations-filter", 0x172, _properties_of(MESSAGE_ANNOTATIONS)),
    ("amqp:properties-filter", 0x173, _properties_of(PROPERTIES)),
    ("amqp:application-properties-filter", 0x174, _properties_of(APPLICATION_PROPERTIES)),
    ("amqp:footer-filter", 0x178, _properties_of(FOOTER)),
    ("amqp:event-streams-delivery-annotations-filter", 0x200, _event_streams_annotations),
    ("amqp:event-streams-sql-filter", 0x201, _event_streams_sql),
    ("apache.org:legacy-amqp-direct-binding:string", 0x0000_468C_0000_0000, direct_binding),
    ("apache.org:legacy-amqp-topic-binding:string", 0x0000_468C_0000_0001, topic_binding),
    ("apache.org:legacy-amqp-headers-binding:map", 0x0000_468C_0000_0002, headers_binding),
    ("apache.org:selector-filter:string", 0x0000_468C_0000_0004, _selector),
    (QUERY_FILTER, None, _query),
]
FILTERS = {name: code for name, code, _ in _FILTERS}
"""The filters of this node: symbolic descriptor -> numeric one, if it has one."""

_NAMES: dict[object, str] = {code: name for name, code, _ in _FILTERS if code is not None}
_READERS: dict[str | int, Reader] = {}
for _name, _code, _reader in _FILTERS:
    _READERS[_name] = _reader
    if _code is not None:
        _READERS[_code] = _reader

_BY_KEY: dict[str, Reader] = {name: reader for name, _, reader in _FILTERS} | {
    "sql-filter": _sql,
    "event-streams-sql-filter": _event_streams_sql,
    "event-streams-delivery-annotations-filter": _event_streams_annotations,
    "selector-filter": _selector,
    "jms-selector": _selector,
    "legacy-amqp-direct-binding": direct_binding,
    "legacy-amqp-topic-binding": topic_binding,
    "legacy-amqp-headers-binding": headers_binding,
}
