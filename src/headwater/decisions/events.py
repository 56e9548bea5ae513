"""Event classes: how their instances are stored and read back, including under old shapes and old names.

An event class is a frozen dataclass (`@event` makes one) or a frozen msgspec Struct. Its name is the event's type, its
fields are the data, and fields annotated with `Tag` are also the event's tags.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, dataclass_transform, get_origin, get_type_hints, overload

import msgspec

from ..core.errors import InvalidEvent
from ..core.event import NO_ATTRIBUTES, Event, SequencedEvent
from ..core.limits import check_type, show
from ..core.query import Query, QueryItem
from ..formats.decoders import json_decoder, msgpack_decoder
from .errors import InvalidDefinition, UnknownEvent, UnreadableEvent, UnwritableEvent
from .tags import tag_keys, tags_of

E = TypeVar("E")


class Codec(Protocol):
    """Turns an event into bytes and back. Each method raises ValueError or TypeError for a value it cannot convert."""

    def encode(self, event: object) -> bytes:
        """The data of an event."""

    def decoder(self, kind: type[E]) -> Callable[[bytes], E]:
        """A function that builds an event of that class from its data. It is requested once."""

    def fields(self, data: bytes) -> dict[str, Any]:
        """The fields of data of an old shape, as upcasters receive them."""

    def build(self, fields: dict[str, Any], kind: type[E]) -> E:
        """The event of that class, built from upcast fields."""


class _ByMsgspec(Codec):
    """Shared by both codecs: msgspec checks the types of all fields when it decodes."""

    def build(self, fields: dict[str, Any], kind: type[E]) -> E:
        """See Codec. Dates, UUIDs and bytes may still be the text that JSON uses for them."""
        return msgspec.convert(fields, kind)


class JsonCodec(_ByMsgspec):
    """JSON, which readers of other protocols can also read. The default codec of an event class."""

    def encode(self, event: object) -> bytes:
        return msgspec.json.encode(event)

    def decoder(self, kind: type[E]) -> Callable[[bytes], E]:
        return json_decoder(kind).decode

    def fields(self, data: bytes) -> dict[str, Any]:
        return json_decoder(dict[str, Any]).decode(data)


class MsgpackCodec(_ByMsgspec):
    """MessagePack: smaller, and bytes stay bytes."""

    def encode(self, event: object) -> bytes:
        return msgspec.msgpack.encode(event)

    def decoder(self, kind: type[E]) -> Callable[[bytes], E]:
        return msgpack_decoder(kind).decode

    def fields(self, data: bytes) -> dict[str, Any]:
        return msgpack_decoder(dict[str, Any]).decode(data)


JSON = JsonCodec()
MSGPACK = MsgpackCodec()


Upcaster = Callable[[dict[str, Any], SequencedEvent], dict[str, Any]]
"""Turns the fields of one version into the fields of the next. It gets the fields, and the event as stored."""

VERSION = "dataversion"
"""The attribute that contains the version of the data; version 1 has none."""


class EventType(Generic[E]):
    """The description of one event class: its names in the log, its tags, its versions."""

    def __init__(
        self,
        kind: type[E],
        name: str,
        version: int,
        formerly: Sequence[str],
        upcasters: Mapping[int, Upcaster],
        codec: Codec,
    ) -> None:
        """Raises InvalidDefinition."""
        self.kind, self.name, self.version = kind, name, version
        self.names = (name, *formerly)
        """All types under which such events are stored; the first is the current one."""
        _check(self, upcasters)
        self._upcasters, self._codec = dict(upcasters), codec
        keys = tag_keys(_hints(kind).items(), kind.__name__)
        self.tag_keys = frozenset(key for _, key in keys)
        """The keys of the tags that its fields produce."""
        self._tags = [(field, key, f"{key}:", f"{name}.{field}") for field, key in keys]
        self._attributes = NO_ATTRIBUTES if version == 1 else {VERSION: str(version)}
        self._stored_version = None if version == 1 else str(version)
        self._encode, self._decode = codec.encode, codec.decoder(kind)
        self.decode = self._decode if version == 1 else None
        """Reads the data of an event that has no attributes, if its data has the current version."""

    def write(self, event: E) -> Event:
        """The event in the form that the log accepts.

        Raises UnwritableEvent if its data could not be read back, and InvalidEvent for a value that cannot be a tag.
        """
        try:
            data = self._encode(event)
            self._decode(data)
        except Exception as error:
            raise UnwritableEvent(self.name, str(error)) from error
        tags: list[str] = []
        for name, key, prefix, where in self._tags:
            value = getattr(event, name)
            if value.__class__ is str:
                tags.append(prefix + value)
            else:
                tags += tags_of(key, value, where)
        return Event(self.name, data, tuple(tags), attributes=self._attributes)

    def read(self, stored: SequencedEvent) -> E:
        """The stored event as an instance. Raises UnreadableEvent."""
        try:
            if stored.attributes.get(VERSION) == self._stored_version and stored.data:
                return self._decode(stored.data)
            return self._codec.build(self._lifted(stored), self.kind)
        except Exception as error:
            raise UnreadableEvent(stored.type, stored.sequence_number, str(error)) from error

    def _lifted(self, stored: SequencedEvent) -> dict[str, Any]:
        """The fields of an event of any version, converted to the current version."""
        version = int(stored.attributes.get(VERSION, 1))
        if not 1 <= version <= self.version:
            raise ValueError(f"its version is {version}, but the known versions are 1 to {self.version}")
        fields = self._codec.fields(stored.data) if stored.data else {}
        for each in range(version, self.version):
            if each in self._upcasters:
                fields = self._upcasters[each](fields, stored)
        return fields


described: dict[type, EventType[Any]] = {}
"""The description of each event class."""


def _hints(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise InvalidDefinition(
            f"{kind.__qualname__}: {error}; its annotations may only use names of its module"
        ) from error


def _check(type: EventType[Any], upcasters: Mapping[int, Upcaster]) -> None:
    name, version = type.kind.__name__, type.version
    for each in type.names:
        if fault := check_type(each):
            raise InvalidDefinition(f"{name}: {fault}")
    if version < 1:
        raise InvalidDefinition(f"{name}: expected a version of 1 or more, got {version}")
    if unfit := [each for each in upcasters if not 1 <= each < version]:
        raise InvalidDefinition(
            f"{name}: expected an upcaster from version 1 to {version - 1}, got one from {unfit[0]}"
        )
    config = getattr(type.kind, "__struct_config__", None) or getattr(type.kind, "__dataclass_params__", None)
    if config is None or not config.frozen:
        raise InvalidDefinition(
            f"{name} is not an event class: expected a frozen dataclass (@event) or a frozen Struct"
        )
    is_struct = issubclass(type.kind, msgspec.Struct)
    if not is_struct and not _is_itself_a_dataclass(type.kind) and (own := _annotated(type.kind)):
        problem = f"has only the fields of its base event class, not its own: {', '.join(own)}"
        raise InvalidDefinition(f"{name} {problem}; decorate it with @event as well")


def _annotated(kind: type) -> list[str]:
    """The names that the class itself annotates and that would become fields."""
    if not (own := inspect.get_annotations(kind)):
        return []
    hints = _hints(kind)
    return [name for name in own if hints[name] is not ClassVar and get_origin(hints[name]) is not ClassVar]


def _is_itself_a_dataclass(kind: type) -> bool:
    """Whether the class itself is a dataclass: a subclass of one inherits the marks, but adds no fields of its own."""
    return "__dataclass_fields__" in kind.__dict__


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, dataclasses.Field))
def event(kind: type[E], /) -> type[E]: ...


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, dataclasses.Field))
def event(
    *,
    type: str = ...,
    version: int = ...,
    formerly: Sequence[str] = ...,
    upcasters: Mapping[int, Upcaster] = ...,
    codec: Codec = ...,
) -> Callable[[type[E]], type[E]]: ...


def event(
    kind: type[Any] | None = None,
    /,
    *,
    type: str = "",
    version: int = 1,
    formerly: Sequence[str] = (),
    upcasters: Mapping[int, Upcaster] = {},
    codec: Codec = JSON,
) -> Any:
    """Makes a class an event class: `@event`, or `@event(type="course-defined", version=2, ...)`.

    A plain class becomes a frozen dataclass with slots; the fields of a base event class, if any, come before its own.
    A frozen dataclass or Struct is not changed, and needs this decorator only for one of these options:

    - `type`: its type in the log, by default the name of the class;
    - `formerly`: other types under which such events were stored; they are also queried and read;
    - `version`: of the shape of its data, stored with each event. An event without one is of version 1;
    - `upcasters`: by version, the function that turns its fields into those of the next. A version without one needs no
      change;
    - `codec`: how it is converted to bytes.

    Raises InvalidDefinition.
    """

    def make(given: Any) -> Any:
        if not (_is_itself_a_dataclass(given) or issubclass(given, msgspec.Struct)):
            try:
                given = dataclasses.dataclass(frozen=True, slots=True)(given)
            except (
                TypeError
            ) as error:  # a field without a default after a base's field with one, or a base that is not frozen
                raise InvalidDefinition(f"{given.__qualname__}: {error}") from error
        described[given] = EventType(given, type or given.__name__, version, formerly, upcasters, codec)
        return given

    return make if kind is None else make(kind)


def event_type(kind: type[E]) -> EventType[E]:
    """The description of an event class. Raises InvalidDefinition for any other class."""
    known: EventType[E] | None = described.get(kind)
    if known is None:
        known = described[kind] = EventType(kind, kind.__name__, 1, (), {}, JSON)
    return known


class EventTypes:
    """Several event classes, by their types in the log: for reading events of any of them."""

    def __init__(self, *kinds: type, passes_unknown: bool = False) -> None:
        """`passes_unknown`: an event of another type is passed on as stored, instead of raising an error.

        Raises InvalidDefinition for two classes of one type, and for anything other than an event class.
        """
        self._passes_unknown = passes_unknown
        self._of: dict[str, EventType[Any]] = {}
        for kind in kinds:
            known: EventType[Any] = event_type(kind)
            for name in known.names:
                if self._of.setdefault(name, known) is not known:
                    raise InvalidDefinition(
                        f"{kind.__qualname__} and {self._of[name].kind.__qualname__} are both stored as {show(name)}"
                    )

    def read(self, stored: SequencedEvent) -> object:
        """The stored event as an instance.

        Raises UnknownEvent (unless unknown events are passed on) and UnreadableEvent.
        """
        known = self._of.get(stored.type)
        if known is not None:
            return known.read(stored)
        if self._passes_unknown:
            return stored
        raise UnknownEvent(stored.type, stored.sequence_number)

    def read_all(self, events: Iterable[SequencedEvent]) -> Iterator[object]:
        """The stored events as instances, one by one."""
        return map(self.read, events)

    def query(self, *tags: str) -> Query:
        """All events of these classes, or only those with all of these tags."""
        return Query.of(QueryItem(tuple(self._of), tags))


def write(event: object) -> Event:
    """An event in the form that the log accepts, to append it without a decision.

    Raises the same errors as `EventType.write`.
    """
    if isinstance(event, type):
        raise InvalidEvent(f"expected an event, got the class {event.__name__}", "events")
    return event_type(type(event)).write(event)
