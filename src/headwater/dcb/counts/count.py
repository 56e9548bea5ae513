"""Counts from the index: how many events match a query, by type on request. No event is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing

import msgspec

from ...core.access import Right
from ...core.errors import InvalidPosition
from ...core.limits import SEQUENCE_NUMBER_MAX, show
from ...core.log import Selection
from ...core.query import Query
from ...formats import jsontext
from ...formats.budget.values import check_values
from ...http import Exchange
from ...http.exchange import as_json
from ..host import Host, Opened
from ..queries import QUERY_VALUES_MAX, query_of
from ..wire import CountIn, CountOut
from .work_budget import Work

TYPES_SHOWN = 1000
"""The maximum number of types in one answer: those with most events."""
TYPES_KEPT = 16_384
"""The maximum number of types that one request counts separately."""

_decoder = msgspec.json.Decoder(CountIn)


async def count(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/count"""
    opened = await host.log(exchange, Right.READ)
    body = await exchange.json_body()
    check_values(body, QUERY_VALUES_MAX, "query")
    given = jsontext.decode(_decoder, body)
    query = query_of(given.query, "query")
    selection = opened.log.selection(given.from_, given.after, False, None, given.partition)
    upto = _upto(given.upto, selection.head)
    tally = Tally(by_type=bool(given.by_type))
    async with Work(host, exchange) as work:
        await tally.add(opened, query, selection, upto, work)
    types, others = tally.shown(TYPES_SHOWN)
    answer = CountOut(
        tally.events,
        tally.upto,
        tally.upto >= upto,
        selection.head,
        opened.view.incarnation,
        types if given.by_type else msgspec.UNSET,
        others if given.by_type else msgspec.UNSET,
    )
    await exchange.answer(200, as_json(answer), headers=opened.view.headers(selection.head))


class Tally:
    """The number of matching events, and the number up to which they are counted."""

    def __init__(self, *, by_type: bool, types_max: int = TYPES_KEPT) -> None:
        """`types_max`: the maximum number of types to count separately."""
        self._by_type, self._types_max = by_type, types_max
        self.events = self.upto = 0
        self.types: Counter[str] = Counter()
        """Counts of some types; the other `events` are of other types."""

    async def add(self, opened: Opened, query: Query, selection: Selection, upto: int, work: Work) -> None:
        """Count from the start of the selection up to that number, or until the budget is spent."""
        self.upto = min(selection.after, upto)
        found = opened.log.count_steps(
            query, selection.after, upto, partition=selection.partition, by_type=self._by_type
        )
        async with aclosing(work.steps(found)) as steps:
            async for step in steps:
                self.events += step.events
                self.upto = max(self.upto, step.upto)
                self._add_types(step.types.items())
        if not work.is_over:
            self.upto = max(self.upto, upto)

    def include(self, other: Tally) -> None:
        """Add another tally's counts."""
        self.events += other.events
        self._add_types(other.types.items())

    def shown(self, most: int) -> tuple[dict[str, int], int]:
        """The largest counts by type, in descending order, and the number of events of all other types."""
        shown = dict(sorted(self.types.items(), key=lambda each: (-each[1], each[0]))[:most])
        return shown, self.events - sum(shown.values())

    def _add_types(self, types: Iterable[tuple[str, int]]) -> None:
        for name, events in types:
            if name in self.types or len(self.types) < self._types_max:
                self.types[name] += events


def _upto(given: int | None, head: int) -> int:
    """The last number to count. Raises InvalidPosition."""
    if given is None:
        return head
    check_upto(given)
    return min(given, head)


def check_upto(given: int) -> None:
    """Raises InvalidPosition for a number below 0, or above the number of any possible event."""
    if not 0 <= given <= SEQUENCE_NUMBER_MAX:
        raise InvalidPosition(f"expected 0 to {SEQUENCE_NUMBER_MAX}, got {show(given)}", "upto")
