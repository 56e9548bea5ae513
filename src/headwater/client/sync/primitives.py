"""Waiting primitives of threads, under the names of `aio.primitives`: modules generated from `aio` use them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from threading import Event, Semaphore
from time import sleep
from typing import ParamSpec, TypeVar

from ...core.closing import Closing
from ...core.event import SequencedEvent
from ...core.log import Subscription

__all__ = ["Closing", "Event", "Pages", "Subscription", "in_worker", "places", "sleep", "wait"]

P = ParamSpec("P")
T = TypeVar("T")


def in_worker(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it here: nothing else waits for this thread."""
    return call(*args, **kwargs)


def places() -> Semaphore | None:
    """No limit: a thread has one request under way, and each waits for itself."""
    return None


def wait(event: Event, timeout_s: float) -> None:
    """Wait at most `timeout_s` for the event to be set."""
    event.wait(timeout_s)


class Pages(Iterator[SequencedEvent]):
    """The events of consecutive pages."""

    _page: Iterator[SequencedEvent] = iter(())
    _events: Sequence[SequencedEvent] = ()
    _is_over = False
    """Whether no page follows the current one."""

    @abstractmethod
    def next_page(self) -> Sequence[SequencedEvent]:
        """The next events, as many as arrived at once; empty at the end."""

    def __iter__(self) -> Iterator[SequencedEvent]:
        if self._page is Pages._page:
            self._page = iter(self.next_page())
        return self._page if self._is_over else chain.from_iterable(self._pages())  # no Python between two events

    def __next__(self) -> SequencedEvent:
        for event in self._page:
            return event
        self._page = iter(self.next_page())
        return next(self._page)

    def _pages(self) -> Iterator[Iterator[SequencedEvent]]:
        yield self._page
        while True:
            yield iter(self._turn, None)  # not a generator: an error would end it, and the read would look complete
            if not self._events:
                return
            self._page = iter(self._events)
            yield self._page

    def _turn(self) -> None:
        self._events = self.next_page()
