"""The common tree of all filters: SQL, selectors, property filters, groups, queries.

One tree, so that one planner (`plan`) and one compiler (`evaluation`) serve them all. A predicate node's value is true,
false or unknown (None); any other's is a value of the message or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ...core.query import Query
from .values import Pattern


class Function(NamedTuple):
    """A function of the SQL filter, or a conversion behind a selector's identifier."""

    name: str
    arguments_min: int
    arguments_max: int
    apply: Callable[..., object]
    terms: int = 0
    """The number of additional tokens that it counts as, because it scans a whole text, which may be long."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A value; None is unknown."""

    value: object


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a section; None if it is absent."""

    section: str
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function of values."""

    function: Function
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Now:
    """The time of evaluation: UTC(). Never before `attached_at`, the time at attach (ms)."""

    attached_at: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`first`, followed by each operator in turn, from the left."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Sign:
    """`-operand`, or `+operand`, which only requires a number."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Compare:
    """`operator` is one of = <> < <= > >=."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The event's number is greater than `after`, and not greater than `upto`. Never unknown."""

    after: int
    upto: int | None


@dataclass(frozen=True, slots=True)
class Like:
    """The text matches the pattern."""

    operand: Node
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class In:
    """The value is one of `items`."""

    operand: Node
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The value is null. Never unknown."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Exists:
    """The field is present, even if null. Never unknown."""

    field: Field


@dataclass(frozen=True, slots=True)
class IsTrue:
    """The operand is true, not false nor unknown: property filters have no unknown."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Not:
    """Unknown stays unknown."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """False if any is false; otherwise unknown if any is unknown."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if any is true; otherwise unknown if any is unknown."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A DCB query. Only the index answers it, never an evaluation, so it may occur in conjunctions only."""

    query: Query


Node: TypeAlias = (
    Constant | Field | Call | Now | Arithmetic | Sign | Compare | OffsetRange | Like | In | IsNull | Exists | IsTrue
    | Not | And | Or | IndexQuery
)  # fmt: skip
