"""An append checked in parts, because checking all of it at once would block the event loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..errors import InvalidEvent, InvalidInput, TooLarge
from ..event import Event
from ..limits import APPEND_BYTES_MAX, APPEND_EVENTS_MAX, EventColumns, check_append
from .slices import Slices

PART_EVENTS = 512
"""This many events are checked within about 1 ms."""
PART_MESSAGE_BYTES = 16 * 1024
"""The maximum number of bytes of AMQP messages in one part, not counting data sections."""
_INDEX = re.compile(r"events\[(\d+)\]")


class AppendBuilder:
    """Events that arrive in parts, for one append: the limits apply to the whole."""

    def __init__(
        self, event_bytes_max: int, completed: Callable[[Sequence[Event]], Sequence[Event]] | None = None
    ) -> None:
        """`event_bytes_max` is the log's setting; `completed` adds the fields that depend on the whole append."""
        self._completed = completed
        self.event_bytes_max = event_bytes_max
        self._parts: list[EventColumns] = []
        self.count = 0
        """The number of events so far."""
        self._bytes = 0

    def add(self, events: Sequence[Event]) -> None:
        """Add the next events. Raises InvalidEvent or TooLarge, with the path in the whole append."""
        if self.count + len(events) > APPEND_EVENTS_MAX:
            raise TooLarge(self.count + len(events), APPEND_EVENTS_MAX, "events", "events")
        if not events:
            return
        if self._completed is not None:
            events = self._completed(events)
        try:
            part = check_append(events, self.event_bytes_max)
        except InvalidInput as error:
            error.move(moved(error.where, self.count))
            raise
        self._bytes += part.bytes
        if self._bytes > APPEND_BYTES_MAX:
            raise TooLarge(self._bytes, APPEND_BYTES_MAX, "bytes", "events")
        self._parts.append(part)
        self.count += part.count

    async def add_all(self, events: Sequence[Event], slices: Slices) -> None:
        """Add the next events, however many there are; other tasks run in between. Raises the same errors as `add`."""
        start = 0
        while start < len(events):
            stop = _part_stop(events, start)
            self.add(events[start:stop])
            start = stop
            await slices.pause()

    async def let_go(self) -> None:
        """Release the events in parts, because freeing millions of objects at once takes long.

        Call it when nothing else refers to them, or soon nothing will.
        """
        slices = Slices()
        while self._parts:
            self._parts.pop()
            await slices.pause()

    def columns(self) -> EventColumns:
        """All events as columns. Raises InvalidEvent if there is none."""
        if not self._parts:
            raise InvalidEvent("an append needs at least one event", "events")
        return EventColumns.join(self._parts)


def _part_stop(events: Sequence[Event], start: int) -> int:
    """The end of the part that begins at that index.

    A part has fewer AMQP messages, because they are checked in full.
    """
    stop = min(start + PART_EVENTS, len(events))
    size = 0
    for index in range(start, stop):
        size += len(events[index].envelope) + (len(events[index].data) if events[index].encoding else 0)
        if size > PART_MESSAGE_BYTES:
            return index + 1
    return stop


def moved(where: str, by: int) -> str:
    """Converts a path within a part of the events to the path within all of them."""
    return _INDEX.sub(lambda found: f"events[{int(found[1]) + by}]", where, count=1)
