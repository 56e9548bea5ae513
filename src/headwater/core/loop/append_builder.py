"""An append that is checked in parts, because all of it at once would hold an event loop up."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..errors import InvalidEvent, InvalidInput, TooLarge
from ..event import Event
from ..limits import APPEND_BYTES_MAX, APPEND_EVENTS_MAX, EventColumns, check_append
from .slices import Slices

PART_EVENTS = 512
"""So many events are checked within about 1 ms."""
PART_MESSAGE_BYTES = 16 * 1024
"""So much of messages of AMQP, data sections aside."""
_INDEX = re.compile(r"events\[(\d+)\]")


class AppendBuilder:
    """Events that come in parts, for one append: the limits are those of the whole."""

    def __init__(
        self, event_bytes_max: int, completed: Callable[[Sequence[Event]], Sequence[Event]] | None = None
    ) -> None:
        """`event_bytes_max` is the setting of the log; `completed` adds to events what is known of the whole."""
        self._completed = completed
        self.event_bytes_max = event_bytes_max
        self._parts: list[EventColumns] = []
        self.count = 0
        """Events so far."""
        self._bytes = 0

    def add(self, events: Sequence[Event]) -> None:
        """The next events. Raises InvalidEvent or TooLarge, with the culprit's path in the whole."""
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
        """The next events, however many: others have their turn between some and the next. Raises as `add`."""
        start = 0
        while start < len(events):
            stop = _part_stop(events, start)
            self.add(events[start:stop])
            start = stop
            await slices.pause()

    async def let_go(self) -> None:
        """Forget the events, some at a time: memory in a few million pieces takes long to give back in one step.

        To be called when nobody else has them any more, or soon will not.
        """
        slices = Slices()
        while self._parts:
            self._parts.pop()
            await slices.pause()

    def columns(self) -> EventColumns:
        """All of them. Raises InvalidEvent if there is none."""
        if not self._parts:
            raise InvalidEvent("an append needs at least one event", "events")
        return EventColumns.join(self._parts)


def _part_stop(events: Sequence[Event], start: int) -> int:
    """Where the part that begins there ends. A part has fewer messages of AMQP, because they are looked through."""
    stop = min(start + PART_EVENTS, len(events))
    size = 0
    for index in range(start, stop):
        size += len(events[index].envelope) + (len(events[index].data) if events[index].encoding else 0)
        if size > PART_MESSAGE_BYTES:
            return index + 1
    return stop


def moved(where: str, by: int) -> str:
    """The path of something in a part of the events as its path in all of them."""
    return _INDEX.sub(lambda found: f"events[{int(found[1]) + by}]", where, count=1)
