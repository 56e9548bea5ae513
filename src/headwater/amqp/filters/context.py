"""What reading one source's filters needs to know, and what it finds out on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import FilterLimits, InvalidFilter
from .fields import DELIVERY_ANNOTATIONS, OFFSET, TIMESTAMP
from .syntax import Field


@dataclass
class Budget:
    """What the filters of a source have used of the limits that hold for all of them together."""

    terms: int = 0
    searches: int = 0


@dataclass
class Context:
    """State of reading one entry of a filter map."""

    filter_name: str
    latest: int
    """The head when the link attached: what @latest means."""
    attached_at: int
    """The time when the link attached (ms)."""
    limits: FilterLimits
    budget: Budget
    names_position: bool = False
    """Whether an offset or a timestamp was named."""
    is_conjunct: bool = True
    """Whether what is read now must be true for the whole to be true; else the index cannot answer it alone."""
    depth: int = 0

    def fault(self, problem: str, position: int | None = None) -> InvalidFilter:
        """The error that says so of this entry."""
        return InvalidFilter(self.filter_name, problem, position)

    def spend(self, terms: int, position: int | None = None) -> None:
        """So many terms more. Raises InvalidFilter where that is too many."""
        self.budget.terms += terms
        if self.budget.terms > self.limits.terms_max:
            raise self.fault(f"more than {self.limits.terms_max} words, signs and members in all filters", position)

    def spend_search(self, position: int) -> None:
        """One searching pattern more. Raises InvalidFilter where that is too many."""
        self.budget.searches += 1
        if self.budget.searches > self.limits.searches_max:
            problem = f"more than {self.limits.searches_max} patterns of LIKE with _ between two % in all filters"
            raise self.fault(problem, position)

    @contextmanager
    def nested(self, position: int | None = None) -> Iterator[None]:
        """One level deeper. Raises InvalidFilter where that is too deep."""
        self.depth += 1
        if self.depth > self.limits.depth_max:
            raise self.fault(f"nested more than {self.limits.depth_max} levels deep", position)
        yield
        self.depth -= 1

    @contextmanager
    def no_conjunct(self) -> Iterator[None]:
        """What is read within need not be true for the whole to be true."""
        before, self.is_conjunct = self.is_conjunct, False
        yield
        self.is_conjunct = before

    def field(self, section: str, name: str) -> Field:
        """The node of a field, remembered where it is a position."""
        if section == DELIVERY_ANNOTATIONS and name in (OFFSET, TIMESTAMP):
            self.names_position = True
        return Field(section, name)
