"""The seed specification's rules for events, enforced in strict mode, and ids in the seed's form.

The expressions are the seed's own; `\\w` is ASCII in them, as in the original implementation.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from ..core.errors import InvalidEvent
from ..core.event import Event
from ..core.limits import show

EVENT_ID = re.compile(r"[\w\-]{1,100}", re.ASCII)
EVENT_TYPE = re.compile(r"[\w.:\-]{1,200}", re.ASCII)
TAG = re.compile(r"[a-zA-Z0-9\-_]{1,50}(:[a-zA-Z0-9\-_]{1,50})?", re.ASCII)


def check_events(events: Sequence[Event]) -> None:
    """Raises InvalidEvent, with its path, for the first violation of a rule of the seed.

    A missing id is not a violation: the log assigns a valid one. Nor are repeated tags (SHOULD NOT): the log drops
    them.
    """
    for index, event in enumerate(events):
        check_event(event.id, event.type, event.tags, index)


def check_event(id: str, type: str, tags: Sequence[str], index: int) -> None:
    """As above, for the event at that index."""
    if id and not EVENT_ID.fullmatch(id):
        raise _breach(id, EVENT_ID, f"events[{index}].id")
    if not EVENT_TYPE.fullmatch(type):
        raise _breach(type, EVENT_TYPE, f"events[{index}].type")
    if not tags:
        raise InvalidEvent("strict: an event needs at least one tag", f"events[{index}].tags")
    for number, tag in enumerate(tags):
        if not TAG.fullmatch(tag):
            raise _breach(tag, TAG, f"events[{index}].tags[{number}]")


def shown_id(id: str, source: str) -> str:
    """The id itself if it is a valid EventId of the seed; otherwise the UUIDv5 of source and id, which is stable."""
    if EVENT_ID.fullmatch(id):
        return id
    return str(uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, source), id))


def _breach(given: str, expression: re.Pattern[str], where: str) -> InvalidEvent:
    return InvalidEvent(f"strict: expected ^{expression.pattern}$, got {show(given)}", where)
