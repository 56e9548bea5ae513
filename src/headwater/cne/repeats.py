"""CloudEvents whose source and id are already in the log: repeats, events from a producer that restarted its ids, and
mistakes.

A repeat has the content of the stored event and is skipped. A restarted producer reuses its ids for other events, which
have a later `time` of their own. They are stored under an id made of the producer's id and that time, so that their
repeats are found too. Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from ..core.errors import InvalidInput
from ..core.event import Event, SequencedEvent
from ..core.limits import ID_CHARS_MAX, show
from ..core.local import LocalLog
from ..core.query import ALL
from ..formats.tracing import TRACEPARENT, TRACESTATE
from .notifications import timestamps
from .notifications.stored import PRODUCERS_ID, STAMPED, said_in

_NOT_SAID = frozenset({"time", "datacontenttype", TRACEPARENT, TRACESTATE, STAMPED, PRODUCERS_ID})
"""Attributes in which a repeat may differ: the time is compared separately, and each request may have its own trace."""


class IdReused(Exception):
    """The log has another event of the same source and id; nothing was appended."""

    def __init__(self, index: int, event: Event, number: int | None) -> None:
        """`index` is the event's place in the append; `number` is the stored event's, None if that is in the append
        too."""
        self.index = index
        where = "comes before it" if number is None else f"is stored as event {number}"
        super().__init__(
            f"another event with the id {show(event.id)} of source {show(event.source)} {where}, "
            "and the time of this one is not later"
        )


def new_of(log: LocalLog, events: Sequence[Event]) -> list[Event]:
    """The events that are new to the log, with ids that are new to it. Blocks. Raises IdReused."""
    taken: dict[tuple[str, str], Event] = {}
    numbers = log.stored([event.source for event in events], [event.id for event in events])
    for index, (event, number) in enumerate(zip(events, numbers, strict=True)):
        known = taken.get((event.source, event.id)) or _read(log, number)
        if known is not None and is_later(event, known):
            event = renamed(event)
            [number] = log.stored([event.source], [event.id])
            known = taken.get((event.source, event.id)) or _read(log, number)
        if known is None:
            taken[event.source, event.id] = event
        elif not is_same(event, known):
            raise IdReused(index, events[index], number)
    return list(taken.values())


def is_same(event: Event, known: Event | SequencedEvent) -> bool:
    """Whether both have the same content, in any spelling. A time set by this server is ignored."""
    is_stamped = STAMPED in event.attributes
    if (event.type, is_stamped) != (known.type, STAMPED in known.attributes):
        return False
    if not is_stamped and _time_of(event) != _time_of(known):
        return False
    if _said(event.attributes) != _said(known.attributes):
        return False
    return event.data == known.data or _content(event) == _content(known) is not None


def is_later(event: Event, known: Event | SequencedEvent) -> bool:
    """Whether an event's time was set by its producer and is later than the known event's."""
    return STAMPED not in event.attributes and _time_of(event) > _time_of(known)


def renamed(event: Event) -> Event:
    """The event with an id made of its own id and its time. Its own id becomes an attribute."""
    time = event.attributes["time"]
    id = event.id
    if len(id) + len(time) >= ID_CHARS_MAX:
        id = blake2b(id.encode(), digest_size=16).hexdigest()
    return event._replace(id=f"{id}@{time}", attributes={**event.attributes, PRODUCERS_ID: event.id})


def _read(log: LocalLog, number: int | None) -> SequencedEvent | None:
    page = None if number is None else log.read_page(ALL, number - 1, upto=number, limit=1)
    return page.events[0] if page is not None and page.events else None


def _time_of(event: Event | SequencedEvent) -> tuple[str, str]:
    """A key that sorts by time; empty if an event of another protocol has no readable time."""
    try:
        time = timestamps.normalised(event.attributes.get("time", ""), "time")
    except InvalidInput:
        return "", ""
    seconds, _, fraction = time.removesuffix("Z").partition(".")
    return seconds, fraction.rstrip("0")


def _said(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in attributes.items() if name not in _NOT_SAID}


def _content(event: Event | SequencedEvent) -> object:
    try:
        return said_in(event)
    except InvalidInput:
        return None
