"""Reads and subscriptions of a local log: loops over `read_page`, and `watch` where they wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from .event import SequencedEvent
from .log import PAGE_EVENTS, Page, Selection
from .query import Query
from .subscription import Subscription

if TYPE_CHECKING:
    from .local import LocalLog


class PagedReading:
    """A read of a local log, page by page, so that a slow consumer holds one page at most."""

    def __init__(self, log: LocalLog, query: Query, selection: Selection) -> None:
        self.head = selection.head
        self._events = chain.from_iterable(page.events for page in read_pages(log, query, selection))

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self._events

    def __next__(self) -> SequencedEvent:
        return next(self._events)


def read_pages(log: LocalLog, query: Query, selection: Selection) -> Iterator[Page]:
    """The pages of a read, bounded by the head at its begin and by its limit."""
    cursor, left = selection.after, selection.limit
    upto = None if selection.backwards else selection.head
    while left is None or left > 0:
        page = log.read_page(
            query,
            cursor,
            upto=upto,
            backwards=selection.backwards,
            partition=selection.partition,
            limit=PAGE_EVENTS if left is None else min(left, PAGE_EVENTS),
        )
        cursor = page.cursor
        left = None if left is None else left - len(page.events)
        yield page
        if page.is_last:
            return


class LocalSubscription(Subscription):
    """One loop of bounded reads at a cursor, up to the durable head; between them it sleeps until a commit."""

    def __init__(self, log: LocalLog, query: Query, selection: Selection) -> None:
        super().__init__(selection.after)
        self._log, self._query, self._partition = log, query, selection.partition
        self._woken = threading.Event()
        self._stop = log.watch(self._woken.set)

    def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_closed:
            self._woken.clear()
            page = self._log.read_page(self._query, self.cursor, partition=self._partition)
            self.cursor = max(self.cursor, page.cursor)
            if page.events:
                return page.events
            if not page.is_last:
                continue
            if self._log.is_closed:
                return None
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return ()
            self._woken.wait(left)
        return None

    def close(self) -> None:
        """End it: a waiting iteration stops."""
        super().close()
        self._stop()
        self._woken.set()
