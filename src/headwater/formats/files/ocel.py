"""Object-centric event logs (OCEL 1.0 and 2.0, in JSON) as events; the objects of an event become its tags.

OCEL 1.0: ocel-standard.org, "ocel:events" by id. OCEL 2.0: a list of events with qualified relationships. Attributes of
objects and relationships between objects are not events, and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ...core.attribute_rules import time_order
from ...core.errors import InvalidInput
from ...core.event import Event
from ..foreign import fit_tag, rfc3339


class _Event1(msgspec.Struct, rename=lambda name: f"ocel:{name}"):
    activity: str
    timestamp: str
    omap: list[str] = []
    vmap: dict[str, Any] = {}


class _Object1(msgspec.Struct, rename=lambda name: f"ocel:{name}"):
    type: str


class _Log1(msgspec.Struct, rename=lambda name: f"ocel:{name}"):
    events: dict[str, msgspec.Raw]
    objects: dict[str, _Object1] = {}


class _Relationship(msgspec.Struct, rename="camel"):
    object_id: str
    qualifier: str = ""


class _Attribute(msgspec.Struct):
    name: str
    value: Any = None


class _Event2(msgspec.Struct):
    id: str
    type: str
    time: str
    attributes: list[_Attribute] = []
    relationships: list[_Relationship] = []


class _Object2(msgspec.Struct):
    id: str
    type: str


class _Log2(msgspec.Struct):
    events: list[msgspec.Raw]
    objects: list[_Object2] = []


class RefusedElement(NamedTuple):
    """An element of a document that is not a valid event."""

    position: int
    """Its position in the document, from 1."""
    text: bytes
    problem: str


_event1 = msgspec.json.Decoder(_Event1)
_event2 = msgspec.json.Decoder(_Event2)


def ocel_events_and_refused(document: bytes, source: str) -> tuple[list[Event], list[RefusedElement]]:
    """The events of an OCEL document in order of time (in document order for equal times), and the invalid elements.

    An event keeps its own id, its time, and as data `{"attributes": {...}, "objects": [{"id", "type", "qualifier"}]}`;
    its tags are `type:id` of its objects, made valid by `foreign.fit_tag`. Raises InvalidInput for an invalid document.
    """
    try:
        if b'"ocel:events"' in document:
            log1 = msgspec.json.decode(document, type=_Log1)
            found = _events_1(log1, source)
        else:
            log2 = msgspec.json.decode(document, type=_Log2)
            found = _events_2(log2, source)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"not an OCEL JSON document: {error}") from None
    events: list[Event] = []
    refused: list[RefusedElement] = []
    for position, (raw, make) in enumerate(found, 1):
        try:
            events.append(make())
        except InvalidInput as error:
            refused.append(RefusedElement(position, bytes(raw), str(error)))
        except msgspec.MsgspecError as error:
            place = f"`$.events[{position - 1}]"
            refused.append(RefusedElement(position, bytes(raw), f"not an OCEL event: {error}".replace("`$", place)))
    return sorted(events, key=_moment), refused


_Found = Iterable[tuple[msgspec.Raw, Callable[[], Event]]]


def _events_1(log: _Log1, source: str) -> _Found:
    types = {id: each.type for id, each in log.objects.items()}

    def made(id: str, raw: msgspec.Raw) -> Event:
        event = _event1.decode(raw)
        related = [(object, "") for object in event.omap]
        return _event(source, id, event.activity, event.timestamp, event.vmap, related, types)

    return [(raw, partial(made, id, raw)) for id, raw in log.events.items()]


def _events_2(log: _Log2, source: str) -> _Found:
    types = {each.id: each.type for each in log.objects}

    def made(raw: msgspec.Raw) -> Event:
        event = _event2.decode(raw)
        values = {attribute.name: attribute.value for attribute in event.attributes}
        related = [(each.object_id, each.qualifier) for each in event.relationships]
        return _event(source, event.id, event.type, event.time, values, related, types)

    return [(raw, partial(made, raw)) for raw in log.events]


def _event(
    source: str,
    id: str,
    type: str,
    time: str,
    values: Mapping[str, Any],
    related: Iterable[tuple[str, str]],
    object_types: Mapping[str, str],
) -> Event:
    objects = []
    tags = set()
    where = f"event {id!r}"
    for object_id, qualifier in related:
        if object_id not in object_types:
            raise InvalidInput(f"it refers to object {object_id!r}, which is not in the document", where)
        object_type = object_types[object_id]
        tags.add(fit_tag(object_type, object_id))
        described = {"id": object_id, "type": object_type}
        objects.append({**described, "qualifier": qualifier} if qualifier else described)
    try:
        moment = rfc3339(time)
    except InvalidInput as error:
        raise InvalidInput(error.problem, where) from None
    return Event(
        type=type,
        data=msgspec.json.encode({"attributes": values, "objects": objects}),
        tags=tuple(sorted(tags)),
        id=id,
        source=source,
        attributes={"time": moment, "datacontenttype": "application/json"},
    )


def _moment(event: Event) -> tuple[int, str]:
    return time_order(event.attributes["time"])
