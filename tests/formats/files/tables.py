"""The events of a table, as a program wants them that takes all of its rows or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.core import Event
from headwater.core.errors import InvalidInput
from headwater.formats.files.tabular import TableMapping, table_rows


def table_events(lines: Iterable[str], mapping: TableMapping) -> Iterator[Event]:
    """The events of its rows. Raises InvalidInput, with the line, for the first one that is none."""
    for line, _, found in table_rows(lines, mapping):
        if isinstance(found, InvalidInput):
            raise InvalidInput(found.problem, f"line {line}")
        yield found
