"""Which types of events a filter can let through at all, so that nobody is bothered with the others.

A predicate is evaluated on what is the same for all events of a type: the subject, the attribute `eventType`, and the
attributes that the type does not have, which are null. Where another field counts, every outcome is possible. So the
answer is a superset of the types of which an event can match, and exact for filters that look at types only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields

from ...core.bus import Notification
from ...core.notification_types import NotificationType
from ...management.catalog import CATALOG
from ..filters import syntax
from ..filters.evaluation import evaluator
from ..filters.fields import APPLICATION_PROPERTIES
from ..filters.syntax import Field, Node
from .notifications import NotificationFields

_Outcomes = frozenset[bool | None]
_ALL: _Outcomes = frozenset({True, False, None})
_EVENT_TYPE = "eventType"


def possible_types(predicates: Sequence[Node]) -> frozenset[NotificationType]:
    """The types of which an event can match all predicates."""
    outcomes = [_outcomes(each) for each in predicates]
    return frozenset(type for type in NotificationType if all(True in each(type) for each in outcomes))


def has_field(predicate: Node, attribute: str) -> bool:
    """Whether a predicate looks at that attribute."""
    found = (each for each in _fields(predicate) if isinstance(each, Field))
    return any((each.section, each.name) == (APPLICATION_PROPERTIES, attribute) for each in found)


def _outcomes(node: Node) -> Callable[[NotificationType], _Outcomes]:
    """Every outcome that a predicate may have on an event of a type. What is made of the node is made once."""
    if isinstance(node, syntax.Not | syntax.IsTrue):
        operand, of_one = _outcomes(node.operand), _negated if isinstance(node, syntax.Not) else _is_true
        return lambda type: frozenset(map(of_one, operand(type)))
    if isinstance(node, syntax.And | syntax.Or):
        operands, decisive = [_outcomes(each) for each in node.operands], isinstance(node, syntax.Or)
        return lambda type: _of_junction((each(type) for each in operands), decisive)
    found, value_of = _fields(node), evaluator(node, _no_clock)

    def of_leaf(type: NotificationType) -> _Outcomes:
        if not all(_is_known(each, type) for each in found):
            return _ALL
        value = value_of(NotificationFields(Notification(type, 0, {_EVENT_TYPE: type.value})))
        return frozenset({value if isinstance(value, bool) else None})

    return of_leaf


def _negated(outcome: bool | None) -> bool | None:
    return None if outcome is None else not outcome


def _is_true(outcome: bool | None) -> bool:
    return outcome is True


def _of_junction(terms: Iterable[_Outcomes], decisive: bool) -> _Outcomes:
    found: set[bool | None] = {not decisive}
    for term in terms:
        found = {_joined(left, right, decisive) for left in found for right in term}
    return frozenset(found)


def _joined(left: bool | None, right: bool | None, decisive: bool) -> bool | None:
    if left is decisive or right is decisive:
        return decisive
    return None if left is None or right is None else not decisive


def _is_known(field: object, type: NotificationType) -> bool:
    """Whether a field has the same value in all events of the type. UTC() never has."""
    if not isinstance(field, Field):
        return False
    if field.section != APPLICATION_PROPERTIES:
        return True  # the subject is the name of the type, and there is nothing else
    return field.name == _EVENT_TYPE or field.name not in CATALOG[type].names


def _fields(node: object) -> list[object]:
    """The fields that a node looks at, wherever in it; and UTC(), which is none."""
    if isinstance(node, Field | syntax.Now):
        return [node]
    if isinstance(node, tuple):
        return [found for part in node for found in _fields(part)]
    if isinstance(node, _NODES):
        return [found for part in fields(node) for found in _fields(getattr(node, part.name))]
    return []


_NODES = (
    syntax.Call,
    syntax.Arithmetic,
    syntax.Sign,
    syntax.Compare,
    syntax.Like,
    syntax.In,
    syntax.IsNull,
    syntax.Exists,
    syntax.IsTrue,
    syntax.Not,
    syntax.And,
    syntax.Or,
)


def _no_clock() -> int:
    raise AssertionError("what looks at the clock is not evaluated here")
