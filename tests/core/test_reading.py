"""A read of a log in this process: after an error it is never taken for finished."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.core import ALL, Event
from headwater.core.errors import StorageCorrupted
from headwater.core.event import SequencedEvent
from headwater.core.log import Page, Selection
from headwater.core.reading import PagedLog, PagedReading


class _Damaged(PagedLog):
    """Its first page is there, and no other."""

    is_closed = False

    def read_page(self, query: Any, after: int, **bounds: Any) -> Page:
        if after:
            raise StorageCorrupted("file", "a frame is damaged", "")
        return Page([SequencedEvent(1, 0, 0, *Event("A"))], 1, 9, False)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        return wake


def test_an_iteration_over_damage_raises_each_time_that_it_is_asked() -> None:
    reading = PagedReading(_Damaged(), ALL, Selection(0, 9, False, None, None))
    iteration = iter(reading)
    assert next(iteration).sequence_number == 1
    for each in (iteration, iteration, reading):
        with pytest.raises(StorageCorrupted):
            next(each)
    with pytest.raises(StorageCorrupted):
        list(reading)
