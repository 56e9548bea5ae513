"""Messages for the tests of streams, section by section."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from headwater.amqp.protocol.codec import encode
from headwater.amqp.protocol.types import Symbol, Timestamp
from headwater.core import Event, SequencedEvent

PROPERTY_PLACES = {"message_id": 0, "to": 2, "subject": 3, "content_type": 6, "creation_time": 9, "group_id": 10}


def section(code: int, value: object) -> bytes:
    """A section with the descriptor in its usual form."""
    return bytes((0x00, 0x53, code)) + encode(value)


def header(*values: object) -> bytes:
    return section(0x70, list(values))


def delivery_annotations(**values: object) -> bytes:
    return section(0x71, _symbols(values))


def message_annotations(**values: object) -> bytes:
    return section(0x72, _symbols(values))


def properties(**given: object) -> bytes:
    values: list[object] = [None] * (max(PROPERTY_PLACES[name] for name in given) + 1)
    for name, value in given.items():
        values[PROPERTY_PLACES[name]] = value
    return section(0x73, values)


def application_properties(given: dict[str, Any]) -> bytes:
    return section(0x74, given)


def data(content: bytes) -> bytes:
    return section(0x75, content)


def value(content: object) -> bytes:
    return section(0x77, content)


def cloud_event(separator: str = ":", **attributes: object) -> bytes:
    """The application properties of a CloudEvent."""
    given = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"} | attributes
    return application_properties({f"cloudEvents{separator}{name}": value for name, value in given.items()})


def stored(event: Event, number: int = 17, recorded_at: int = 1_700_000_000_123, partition: int = 0) -> SequencedEvent:
    return SequencedEvent(number, recorded_at, partition, *event)


def _symbols(values: dict[str, object]) -> dict[Symbol, object]:
    return {Symbol(name.replace("_", "-")): value for name, value in values.items()}


_texts = st.text(max_size=8) | st.sampled_from(["1.0", "/s", "a:1,b", "2024-01-01T00:00:00Z"])
_values = _texts | st.none() | st.booleans() | st.binary(max_size=3) | st.integers(-(2**63), 2**63 - 1)
_names = st.sampled_from(["specversion", "id", "source", "type", "time", "tags", "partitionkey", "x"])
_bodies = st.binary(max_size=300).map(data) | _texts.map(value) | st.just(b"")
messages = st.builds(
    lambda *parts: b"".join(parts),
    st.just(b"") | st.builds(header, st.none() | st.booleans()),
    st.just(b"") | st.builds(delivery_annotations, event_streams_target_partition=_texts),
    st.just(b"") | st.builds(message_annotations, event_streams_group_key=_texts, x_opt_y=_values),
    st.just(b"")
    | st.builds(properties, subject=_texts, content_type=st.sampled_from([None, Symbol("text/plain")]))
    | st.builds(properties, creation_time=st.integers(-(2**63), 2**63 - 1).map(Timestamp)),
    st.just(b"")
    | st.dictionaries(_texts, _values, max_size=3).map(application_properties)
    | st.dictionaries(_names, _texts, max_size=4).map(lambda given: cloud_event(**given)),
    _bodies,
)
"""Messages of every shape, well-formed but for their CloudEvents attributes and annotations."""
