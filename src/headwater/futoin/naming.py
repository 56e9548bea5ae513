"""Maps event types to FutoIn's (1 to 16 capitals or underscores): the type itself, an alias, or `OTHER`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..core.errors import InvalidInput
from ..core.limits import QUERY_TERMS_MAX, check_type, show
from ..core.query import ALL, Query

EVENT_TYPE = re.compile(r"[A-Z_]{1,16}", re.ASCII)
OTHER = "OTHER"
"""The type of events whose own type is not a valid FutoIn type and has no alias; their data is {"type": ..., "data":
...}.
"""
_KNOWN_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Alias:
    """The name of an event type in logs whose names match a shell pattern."""

    logs: str
    type: str
    alias: str

    def __str__(self) -> str:
        """In the form that `read_alias` parses."""
        return f"{self.logs}:{self.type}={self.alias}"


def read_alias(text: str) -> Alias:
    """Parse `LOGS:TYPE=ALIAS` (`orders:OrderPlaced=ORDER_PLACED`, `*:seat.booked=SEAT_BOOKED`).

    Raises InvalidInput.
    """
    logs, colon, rest = text.partition(":")
    type, equals, alias = rest.rpartition("=")
    if not (colon and logs and equals and type):
        raise InvalidInput(f"expected LOGS:TYPE=ALIAS such as orders:OrderPlaced=ORDER_PLACED, got {show(text)}")
    if fault := check_type(type):
        raise InvalidInput(f"{show(text)}: {fault}")
    if EVENT_TYPE.fullmatch(type):
        raise InvalidInput(f"{show(text)}: {type} is already a valid FutoIn event type and needs no alias")
    if not EVENT_TYPE.fullmatch(alias):
        raise InvalidInput(f"{show(text)}: an alias must match ^{EVENT_TYPE.pattern}$")
    return Alias(logs, type, alias)


class Selected(NamedTuple):
    """The events that a call selects."""

    query: Query
    accepts: Callable[[str], bool] | None
    """A further check of the type of events that match the query; None = all of them are wanted."""
    is_nothing: bool = False
    """Whether no event is wanted."""


class Naming:
    """The names of event types in one log."""

    def __init__(self, aliases: Mapping[str, str], *, leaves_out_other: bool) -> None:
        self._aliases = aliases
        self._leaves_out_other = leaves_out_other
        self._known: dict[str, str] = {}

    @staticmethod
    def of_log(log: str, aliases: Iterable[Alias], without_other: Iterable[str]) -> Naming:
        """The names in that log; a later alias for the same type wins."""
        fitting = {alias.type: alias.alias for alias in aliases if fnmatchcase(log, alias.logs)}
        return Naming(fitting, leaves_out_other=any(fnmatchcase(log, pattern) for pattern in without_other))

    def name(self, type: str) -> str:
        """The name of the type; OTHER if it has none."""
        known = self._known.get(type)
        if known is None:
            known = type if EVENT_TYPE.fullmatch(type) else self._aliases.get(type, OTHER)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[type] = known
        return known

    def is_other(self, type: str) -> bool:
        """Whether the type has no name in FutoIn."""
        return type not in self._aliases and not EVENT_TYPE.fullmatch(type)

    def select(self, want: Sequence[str] | None) -> Selected:
        """Select the events of these types (None = all)."""
        if want is None:
            return Selected(ALL, self._has_name if self._leaves_out_other else None)
        if not want:
            return Selected(ALL, None, is_nothing=True)
        wanted = set(want)
        if OTHER in wanted and not self._leaves_out_other:
            return Selected(ALL, lambda type: self.name(type) in wanted)
        types = wanted | {type for type, alias in self._aliases.items() if alias in wanted}
        if len(types) > QUERY_TERMS_MAX:
            return Selected(ALL, types.__contains__)
        return Selected(Query.where(types=sorted(types)), None)

    def _has_name(self, type: str) -> bool:
        return not self.is_other(type)
