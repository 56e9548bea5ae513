"""Reads a log in this process, page by page, with loops that wait for new commits by `watch`."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from .event import SequencedEvent
from .log import PAGE_BYTES, PAGE_EVENTS, Page, Selection, Subscription
from .query import ALL, Query


class PagedLog(ABC):
    """The interface of a log in this process that reading needs. Call it from any thread; nothing blocks."""

    @abstractmethod
    def read_page(
        self,
        query: Query,
        after: int,
        *,
        upto: int | None = None,
        backwards: bool = False,
        partition: int | None = None,
        limit: int = PAGE_EVENTS,
        bytes_max: int = PAGE_BYTES,
        packs: bool = False,
        is_bounded: bool = False,
    ) -> Page:
        """At most `limit` matching events and about `bytes_max` payload bytes after `after`, up to `upto`.

        `upto` (inclusive) defaults to the durable head. Backwards, events numbered below `after` come in descending
        order, down to `upto` (default: the first retained). A position below the first retained event is moved up to it
        silently: use `check_position` for a position that a caller passed. The query must be checked. With `packs` the
        events may come as MessagePack (`formats.packed.PackedEvents`), for callers that only send them.

        A page that `is_bounded` has at most `bytes_max` bytes, counting everything in its events and `EVENT_BYTES` for
        each. A larger event comes alone (`Page.large`), and its data is not copied.
        """

    @abstractmethod
    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each commit and on close, from the log's thread; it must not block.

        Returns a callable that stops it.
        """

    is_closed: bool
    """Whether the log is closed: it accepts no appends and serves no reads."""


class PagedReading:
    """A read of a local log, page by page, so that a slow consumer holds at most one page."""

    def __init__(self, log: PagedLog, query: Query, selection: Selection) -> None:
        self.head = selection.head
        self._events = chain.from_iterable(_lasting(page.events for page in read_pages(log, query, selection)))

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self._events

    def __next__(self) -> SequencedEvent:
        return next(self._events)


def _lasting(pages: Iterator[Sequence[SequencedEvent]]) -> Iterator[Iterable[SequencedEvent]]:
    """The pages. If one cannot be read, raises that error on every call, so that it never looks like the end."""
    try:
        yield from pages
    except Exception as error:
        yield iter(partial(_fail, error), None)


def _fail(error: Exception) -> None:
    raise error


def read_pages(
    log: PagedLog,
    query: Query,
    selection: Selection,
    *,
    packs: bool = False,
    page_bytes: Callable[[], int] | None = None,
) -> Iterator[Page]:
    """The pages of a read, bounded by the head at its start, by its limit and by its last number.

    `packs`: see `PagedLog.read_page`. With `page_bytes`, pages are bounded, each by its return value at the time. A
    page is released here once it is returned.
    """
    cursor, left, upto = selection.after, selection.limit, selection.upto
    if not selection.backwards:
        upto = selection.head if upto is None else min(upto, selection.head)
    while left is None or left > 0:
        page = log.read_page(
            query,
            cursor,
            upto=upto,
            backwards=selection.backwards,
            partition=selection.partition,
            limit=PAGE_EVENTS if left is None else min(left, PAGE_EVENTS),
            packs=packs,
            bytes_max=PAGE_BYTES if page_bytes is None else page_bytes(),
            is_bounded=page_bytes is not None,
        )
        cursor, is_last = page.cursor, page.is_last
        if left is not None:
            left -= len(page.events) + (page.large is not None)
        given = [page]
        del page
        yield given.pop()
        if is_last:
            return


def next_event(
    log: PagedLog, after: int, *, backwards: bool = False, partition: int | None = None
) -> SequencedEvent | None:
    """The first event after that number (backwards: before it), if any. Its data is left out and not read.

    Raises StorageCorrupted, Closed.
    """
    while True:
        page = log.read_page(
            ALL, after, backwards=backwards, partition=partition, limit=1, bytes_max=1, is_bounded=True
        )
        if page.large is not None:
            return page.large.event
        if page.is_last:
            return None
        after = page.cursor


class LocalSubscription(Subscription):
    """A loop of bounded reads at a cursor, up to the durable head; between them it sleeps until a commit."""

    def __init__(self, log: PagedLog, query: Query, selection: Selection) -> None:
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
