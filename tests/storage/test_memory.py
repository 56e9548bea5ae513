"""What a log in memory does not do again for each append, however simple it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core import Event, SequencedEvent
from headwater.core.errors import DuplicateEventId
from headwater.core.settings import LogSettings
from headwater.storage.memory import MemoryStore


class Untouched(list[SequencedEvent]):
    """Events that nobody goes through."""

    def __iter__(self) -> Iterator[SequencedEvent]:
        raise AssertionError("all of them are gone through")


def test_an_append_goes_through_no_events_before_it() -> None:
    log = MemoryStore().create("orders", LogSettings(id_horizon=3))
    log.append([Event("T", b"", id=str(number)) for number in range(5)])
    log._events = Untouched(log._events)
    with pytest.raises(DuplicateEventId):
        log.append([Event("T", b"other", id="3")])
    assert log.append([Event("T", b"other", id="1")]).first == 6  # beyond the horizon
    with pytest.raises(DuplicateEventId):
        log.append([Event("T", b"", id="1")])
    assert log.append([Event("T", b"other", id="1")]).was_stored
