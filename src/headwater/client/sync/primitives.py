"""What a thread waits with, under the names of `aio.primitives`: the modules made from those of `aio` use them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext as Places
from itertools import chain
from threading import Event
from time import sleep
from typing import ParamSpec, TypeVar

from ...core.closing import Closing
from ...core.event import SequencedEvent
from ...core.log import Subscription

__all__ = ["Closing", "Event", "Pages", "Places", "Subscription", "in_worker", "sleep", "wait"]

P = ParamSpec("P")
T = TypeVar("T")


def in_worker(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it here: nothing else waits for this thread."""
    return call(*args, **kwargs)


def wait(event: Event, timeout_s: float) -> None:
    """Wait until the event is set, for so long at most."""
    event.wait(timeout_s)


class Pages(Iterator[SequencedEvent]):
    """The events of pages that come one after the other."""

    _page: Iterator[SequencedEvent] = iter(())

    @abstractmethod
    def next_page(self) -> Sequence[SequencedEvent]:
        """The events that came next, as many as came at once; empty at the end."""

    def __iter__(self) -> Iterator[SequencedEvent]:
        return chain.from_iterable(self._pages())  # no Python between two events of a page

    def __next__(self) -> SequencedEvent:
        for event in self._page:
            return event
        self._page = iter(self.next_page())
        return next(self._page)

    def _pages(self) -> Iterator[Iterator[SequencedEvent]]:
        while True:
            yield self._page
            if not (events := self.next_page()):
                return
            self._page = iter(events)
