"""Events of the wire as the core's, and stored events as the bytes of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from ..core.errors import InvalidEvent
from ..core.event import NO_ATTRIBUTES, Encoding, Event, SequencedEvent
from ..formats import cloudevents
from . import seed
from .queries import tag_text
from .wire import EnvelopeOut, EventIn, EventOut, SuiteEventOut

_ENCODINGS = {None: Encoding.DATA, "data": Encoding.DATA, "amqp": Encoding.AMQP}
_encoder = msgspec.json.Encoder()


def events_of(given: Sequence[EventIn]) -> list[Event]:
    """The events to append. Raises InvalidEvent with the culprit's path; the log checks the rest."""
    return [_event_of(event, index) for index, event in enumerate(given)]


def _event_of(given: EventIn, index: int) -> Event:
    data = given.data_base64
    if data is None:
        data = b"" if given.data is None else given.data.encode()
    elif given.data is not None:
        raise InvalidEvent("give `data` or `data_base64`, not both", f"events[{index}].data_base64")
    if given.id == "":
        raise InvalidEvent("an id is not empty; leave it out to be given one", f"events[{index}].id")
    if given.encoding not in _ENCODINGS:
        raise InvalidEvent(f'{given.encoding!r} given, "data" and "amqp" are allowed', f"events[{index}].encoding")
    return Event(
        given.type,
        data,
        tuple([tag if type(tag) is str else tag_text(tag, f"events[{index}].tags[{number}]")
               for number, tag in enumerate(given.tags)]),
        given.id or "",
        given.source or "",
        given.attributes or NO_ATTRIBUTES,
        given.group_key or "",
        given.envelope_base64 or b"",
        _ENCODINGS[given.encoding],
    )  # fmt: skip


class Rendering(NamedTuple):
    """One form of a streamed answer: opening, pages joined by the separator, closing."""

    media_type: bytes
    opening: bytes
    separator: bytes
    closing: bytes
    page: Callable[[Sequence[SequencedEvent]], bytes]
    """The bytes of a page that is not empty."""


def ndjson(*, has_partitions: bool, in_seed_form: bool) -> Rendering:
    """One envelope per line."""

    def page(events: Sequence[SequencedEvent]) -> bytes:
        return _encoder.encode_lines([envelope(event, has_partitions, in_seed_form) for event in events])

    return Rendering(b"application/x-ndjson", b"", b"", b"", page)


def json_array(*, has_partitions: bool, in_seed_form: bool) -> Rendering:
    """A JSON array of envelopes."""

    def page(events: Sequence[SequencedEvent]) -> bytes:
        return _encoder.encode([envelope(event, has_partitions, in_seed_form) for event in events])[1:-1]

    return Rendering(b"application/json", b"[", b",", b"]", page)


def cloudevents_batch(default_source: str) -> Rendering:
    """A batch in the CloudEvents JSON format."""

    def page(events: Sequence[SequencedEvent]) -> bytes:
        return b",".join([cloudevents.event_to_json(event, default_source) for event in events])

    return Rendering(cloudevents.BATCH.encode(), b"[", b",", b"]", page)


def suite_array() -> Rendering:
    """What the benchmark suite of dcb.events reads."""

    def page(events: Sequence[SequencedEvent]) -> bytes:
        return _encoder.encode([_suite_event(event) for event in events])[1:-1]

    return Rendering(b"application/json", b"[", b",", b"]", page)


def envelope(event: SequencedEvent, has_partitions: bool, in_seed_form: bool) -> EnvelopeOut:
    """The seed's EventEnvelope of a stored event."""
    text, data = _text_or_bytes(event.data)
    return EnvelopeOut(
        EventOut(
            seed.shown_id(event.id, event.source) if in_seed_form else event.id,
            event.type,
            text,
            event.tags,
            data,
            event.source,
            dict(event.attributes) if event.attributes else UNSET,
            event.group_key,
            event.envelope or UNSET,
            "amqp" if event.encoding else "data",
        ),
        event.sequence_number,
        event.recorded_at,
        event.partition if has_partitions else UNSET,
    )


def envelope_json(event: SequencedEvent, has_partitions: bool, in_seed_form: bool) -> bytes:
    """The envelope as one line of JSON."""
    return _encoder.encode(envelope(event, has_partitions, in_seed_form))


def _suite_event(event: SequencedEvent) -> SuiteEventOut:
    text, data = _text_or_bytes(event.data)
    return SuiteEventOut(event.type, event.tags, text, event.sequence_number, data)


def _text_or_bytes(data: bytes) -> tuple[str | UnsetType, bytes | UnsetType]:
    """A payload as text, or as bytes if it is not UTF-8."""
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, data
