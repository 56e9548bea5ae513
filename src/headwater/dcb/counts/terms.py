"""The terms of a log, for queries: event types, tags and tag keys, with their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing

from ...core.access import Right
from ...core.counting import KEYS_MAX, TermKind
from ...core.limits import TAG_BYTES_MAX, show
from ...http import Exchange
from ...http.errors import InvalidParameter
from ...http.exchange import as_json, whole_number
from ..host import Host
from ..wire import TermOut, TermsOut
from .work_budget import Work

LIMIT, LIMIT_MAX = 100, 1000


async def list_terms(host: Host, exchange: Exchange) -> None:
    """GET /logs/{log}/terms"""
    opened = await host.log(exchange, Right.READ)
    parameters = exchange.parameters("kind", "prefix", "after", "limit")
    kind, limit = _kind(parameters), _limit(parameters)
    prefix = _text(parameters, "prefix")
    first = First(limit, _text(parameters, "after"))
    log = opened.log
    head = log.head()
    async with Work(host, exchange) as work:
        async with aclosing(work.steps(log.terms(kind, prefix))) as batches:
            async for batch in batches:
                first.add(batch)
        is_complete = not work.is_over
        terms = first.terms()
        events: Counter[str] = Counter()
        for at in range(0, len(terms), KEYS_MAX):
            if work.is_over and at:  # terms that were not counted are left to the next page
                terms = terms[:at]
                first.has_more = True
                break
            async with aclosing(
                work.steps(log.events_with(kind, terms[at : at + KEYS_MAX]), is_bounded=False)
            ) as steps:
                async for step in steps:
                    events.update(step)
    found = [TermOut(term, events[term]) for term in terms if events[term]]
    after = terms[-1] if first.has_more else None
    await exchange.answer(200, as_json(TermsOut(found, is_complete, head, opened.view.incarnation, after)))


class First:
    """The first terms after a given one, in character order; never keeps more than twice as many."""

    def __init__(self, limit: int, after: str) -> None:
        self._limit, self._after = limit, after
        self._found: set[str] = set()
        self._last: str | None = None
        """Terms after this one are no longer needed."""
        self.has_more = False
        """Whether there are more terms than requested."""

    def add(self, terms: Iterable[str]) -> None:
        """Add terms, in any order; repeats are allowed."""
        for term in terms:
            if term <= self._after:
                continue
            if self._last is not None and term > self._last:
                self.has_more = True
                continue
            self._found.add(term)
            if len(self._found) > 2 * self._limit:
                self._cut()

    def terms(self) -> list[str]:
        """The terms, in order."""
        self._cut()
        return sorted(self._found)

    def _cut(self) -> None:
        if len(self._found) > self._limit:
            kept = sorted(self._found)[: self._limit]
            self._found, self._last, self.has_more = set(kept), kept[-1], True


def _kind(parameters: dict[str, str]) -> TermKind:
    text = parameters.get("kind", "")
    try:
        return TermKind(text)
    except ValueError:
        raise InvalidParameter("kind", f"got {show(text)}, expected one of {', '.join(TermKind)}") from None


def _limit(parameters: dict[str, str]) -> int:
    limit = whole_number(parameters, "limit")
    if limit is not None and not 1 <= limit <= LIMIT_MAX:
        raise InvalidParameter("limit", f"expected 1 to {LIMIT_MAX}, got {limit}")
    return LIMIT if limit is None else limit


def _text(parameters: dict[str, str], name: str) -> str:
    """A term or a prefix. Raises InvalidParameter if it is longer than any term."""
    text = parameters.get(name, "")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidParameter(name, "is not UTF-8") from None
    if size > TAG_BYTES_MAX:
        raise InvalidParameter(name, f"expected at most {TAG_BYTES_MAX} bytes, got {size}")
    return text
