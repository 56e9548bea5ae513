"""A row of the table: a piece of work, and what it should cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..workload import Workload
from .slices import Cost


@dataclass(frozen=True, slots=True)
class Place:
    """What the rows share: a directory on the disk that is measured, and the events."""

    directory: Path
    workload: Workload


@dataclass(frozen=True, slots=True)
class Row:
    """One piece of work."""

    name: str
    what: str
    measure: Callable[[Place], Cost]
    us_max: float | None = None
    """What it should cost at most, in us of CPU."""
    per_second_min: float | None = None
    """How often a second it should be done at least."""

    @property
    def aim(self) -> str:
        """As the table has it."""
        us = [] if self.us_max is None else [f"<= {self.us_max:g} us"]
        return ", ".join([*us, *([] if self.per_second_min is None else [f">= {self.per_second_min:,.0f}/s"])])

    def is_met(self, cost: Cost) -> bool:
        """Whether it is reached."""
        is_cheap = self.us_max is None or cost.least_us <= self.us_max
        return is_cheap and (self.per_second_min is None or cost.per_second >= self.per_second_min)
