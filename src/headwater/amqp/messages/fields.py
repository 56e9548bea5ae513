"""An event as source filters see it: the sections of the message that a consumer would get, decoded on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.event import SequencedEvent
from ...core.message.sections import APPLICATION_PROPERTIES, FOOTER, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES
from ...core.message.spans import Spans, any_spans, usual_spans
from ...core.message.validity import HEADER_FIELDS, PROPERTIES_FIELDS
from ..filters.fields import OFFSET, TIMESTAMP, Fields, format_offset
from ..protocol.codec import DecodeError, decode
from ..protocol.types import Symbol, Timestamp
from .cloudevent_binding import envelope_of
from .headers import HEADER_DEFAULTS
from .outbound import SOURCE_PARTITION


class EventFields:
    """The `Fields` of one event. Never raises: an unreadable section is empty, so that filters continue."""

    __slots__ = ("_annotations", "_default_source", "_event", "_maps", "_message", "_named_values", "_spans")

    def __init__(self, event: SequencedEvent, default_source: str) -> None:
        self._event, self._default_source = event, default_source
        self._message = b""
        self._spans: Spans | None = None
        self._annotations: Mapping[object, object] | None = None
        self._named_values: dict[int, Mapping[str, object]] = {}
        self._maps: dict[int, Mapping[object, object]] = {}

    def header(self) -> Mapping[str, object]:
        """By the names of the standard; absent fields have the standard's default."""
        return {**HEADER_DEFAULTS, **self._named(HEADER, HEADER_FIELDS)}

    def properties(self) -> Mapping[str, object]:
        """By the names of the standard (`message-id`); null fields are left out."""
        return self._named(PROPERTIES, PROPERTIES_FIELDS)

    def delivery_annotations(self) -> Mapping[object, object]:
        """The three annotations that every delivery has."""
        if self._annotations is None:
            event = self._event
            self._annotations = {
                Symbol(OFFSET): format_offset(event.sequence_number),
                Symbol(TIMESTAMP): Timestamp(event.recorded_at),
                Symbol(SOURCE_PARTITION): Symbol(event.partition),
            }
        return self._annotations

    def message_annotations(self) -> Mapping[object, object]:
        """As the producer sent them; for an event of another protocol, its group key."""
        return self._map(MESSAGE_ANNOTATIONS)

    def application_properties(self) -> Mapping[object, object]:
        """As the producer sent them; for an event of another protocol, its CloudEvents attributes."""
        return self._map(APPLICATION_PROPERTIES)

    def footer(self) -> Mapping[object, object]:
        """As the producer sent it."""
        return self._map(FOOTER)

    def _named(self, section: int, names: tuple[str, ...]) -> Mapping[str, object]:
        found = self._named_values.get(section)
        if found is None:
            values = self._decoded(section)
            pairs = zip(names, values, strict=False) if isinstance(values, list) else ()
            found = self._named_values[section] = {name: value for name, value in pairs if value is not None}
        return found

    def _map(self, section: int) -> Mapping[object, object]:
        found = self._maps.get(section)
        if found is None:
            entries = self._decoded(section)
            found = self._maps[section] = entries if isinstance(entries, dict) else {}
        return found

    def _decoded(self, section: int) -> object:
        if self._spans is None:
            self._spans = self._find()
        if section not in self._spans:
            return None
        at, stop = self._spans[section]
        try:
            value, _ = decode(self._message, at, stop)
        except DecodeError:
            return None
        return value

    def _find(self) -> Spans:
        event = self._event
        if event.encoding:
            self._message = event.data
        else:
            self._message = event.envelope or envelope_of(event, self._default_source)
            if (spans := usual_spans(self._message)) is not None:
                return spans
            self._message += event.data
        try:
            return any_spans(self._message)
        except DecodeError:
            return {}


if TYPE_CHECKING:
    _: type[Fields] = EventFields
