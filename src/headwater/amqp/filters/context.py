"""State while the filters of one source are parsed: limits, errors, and findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .fields import DELIVERY_ANNOTATIONS, OFFSET, TIMESTAMP
from .syntax import Field
from .values import SEARCH_CHARS_MAX, TEXT_CHARS_MAX, Pattern


class InvalidFilter(ValueError):
    """A source filter has a syntax error, or exceeds a limit; on the wire `amqp:invalid-field`.

    `filter_name` is its key in the filter map, `position` the character (from 1) where its text is invalid, or None if
    the filter is not a text.
    """

    def __init__(self, filter_name: str, problem: str, position: int | None = None) -> None:
        self.filter_name = filter_name
        self.problem = problem
        self.position = position
        where = "" if position is None else f", character {position}"
        super().__init__(f"filter {filter_name!r}{where}: {problem}")


@dataclass(frozen=True, slots=True)
class FilterLimits:
    """Limits on the filters of a source (FILTEX 7): all input from a peer is bounded."""

    expression_chars_max: int = 4096
    terms_max: int = 1000
    """The total of tokens in expressions, fields in property filters, and members of groups, over all filters. A
    function that scans whole texts counts as several (`Function.terms`).
    """
    searches_max: int = 16
    """LIKE patterns, in all filters together, that search for a `_` between two `%`: the most expensive operation."""
    depth_max: int = 32
    """The nesting of parentheses, NOT, signs, function calls and groups, all together."""
    list_items_max: int = 256
    """The maximum number of members of an IN list or a group, fields in a property filter, and entries in the filter
    map.
    """
    query_chars_max: int = 65_536
    """Characters of a DCB query."""


CASE_TERMS = 25
"""The number of tokens that LOWER and UPPER count as. This limits all filters of a source to a few ms per event."""
DEFAULT_LIMITS = FilterLimits()


@dataclass
class Budget:
    """The part of the common limits that the filters of a source have used so far."""

    terms: int = 0
    searches: list[Pattern] = field(default_factory=list)
    """The patterns that search."""


@dataclass
class Context:
    """State while one entry of a filter map is parsed."""

    filter_name: str
    latest: int
    """The head when the link attached: the value of @latest."""
    attached_at: int
    """The time when the link attached (ms)."""
    limits: FilterLimits
    budget: Budget
    names_position: bool = False
    """Whether the filters contain an offset or a timestamp."""
    is_delivery_filter: bool = False
    """Whether it is, or contains, one of the two delivery filters that the event streams draft defines (5.2)."""
    is_conjunct: bool = True
    """Whether the current part must be true for the whole to be true; otherwise the index alone cannot answer it."""
    depth: int = 0

    def fault(self, problem: str, position: int | None = None) -> InvalidFilter:
        """The error for a problem in this entry."""
        return InvalidFilter(self.filter_name, problem, position)

    def spend(self, terms: int, position: int | None = None) -> None:
        """Count terms. Raises InvalidFilter if there are too many."""
        self.budget.terms += terms
        if self.budget.terms > self.limits.terms_max:
            counted = f"more than {self.limits.terms_max} words, operators and members in all filters"
            raise self.fault(f"{counted} (each LOWER and UPPER counts as {CASE_TERMS} more)", position)

    def spend_search(self, pattern: Pattern, position: int) -> None:
        """Count a searching pattern. Raises InvalidFilter if there are too many.

        The patterns share one search limit, so that the filters of a source take at most a few ms per event.
        """
        searches = self.budget.searches
        searches.append(pattern)
        for each in searches:
            each.chars_max = min(TEXT_CHARS_MAX, SEARCH_CHARS_MAX // len(searches))
        if len(searches) > self.limits.searches_max:
            problem = f"more than {self.limits.searches_max} LIKE patterns with _ between two % in all filters"
            raise self.fault(problem, position)

    @contextmanager
    def nested(self, position: int | None = None) -> Iterator[None]:
        """Enter a nesting level. Raises InvalidFilter if it is too deep."""
        self.depth += 1
        if self.depth > self.limits.depth_max:
            raise self.fault(f"nested more than {self.limits.depth_max} levels deep", position)
        yield
        self.depth -= 1

    @contextmanager
    def no_conjunct(self) -> Iterator[None]:
        """A scope whose content need not be true for the whole to be true."""
        before, self.is_conjunct = self.is_conjunct, False
        yield
        self.is_conjunct = before

    def field(self, section: str, name: str) -> Field:
        """The node for a field. Records whether the field is a position."""
        if section == DELIVERY_ANNOTATIONS and name in (OFFSET, TIMESTAMP):
            self.names_position = True
        return Field(section, name)
