"""A stored event as a row of a CSV file, both ways: written by `headwater export`, read back by `headwater import`.

Data that is UTF-8 is written unchanged, other data as base64 in a separate column; attributes except `time` are JSON.
No part of an event is lost.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence

import msgspec

from ...core.errors import InvalidInput
from ...core.event import NO_ATTRIBUTES, Event, SequencedEvent
from .. import cloudevents
from ..envelope import EventJson, producer_event

COLUMNS = ("sequence_number", "recorded_at", "partition", "type", "tags", "id", "source", "time", "data",
           "data_base64", "attributes", "group_key", "envelope_base64", "encoding")  # fmt: skip
COLUMNS_BEFORE = COLUMNS[:10]
"""The columns of 0.1.0, which omitted the others."""

_attributes = msgspec.json.Decoder(dict[str, str])


def is_exported(header: Sequence[str]) -> bool:
    """Whether the rows below such a header line are stored events."""
    return tuple(header) in (COLUMNS, COLUMNS_BEFORE)


def row_of(event: SequencedEvent) -> tuple[object, ...]:
    """The event as a row of COLUMNS."""
    try:
        text, encoded = event.data.decode(), ""
    except UnicodeDecodeError:
        text, encoded = "", _base64(event.data)
    attributes = dict(event.attributes)
    time = attributes.pop("time") if attributes.get("time") else ""
    return (
        event.sequence_number,
        cloudevents.format_time(event.recorded_at),
        event.partition,
        event.type,
        cloudevents.encode_tags(event.tags),
        event.id,
        event.source,
        time,
        text,
        encoded,
        msgspec.json.encode(attributes).decode() if attributes else "",
        event.group_key,
        _base64(event.envelope),
        event.encoding.name.lower(),
    )


def exported_reader(header: Sequence[str]) -> Callable[[Sequence[str], int], Event]:
    """Returns a function that makes an event from a row, like `tabular.row_reader`; the header `is_exported`."""

    def event_of(row: Sequence[str], position: int) -> Event:
        if len(row) != len(header):
            raise InvalidInput(f"expected {len(header)} cells, got {len(row)}")
        cells = dict(zip(header, row, strict=True))
        data, encoded = cells["data"].encode(), _bytes(cells, "data_base64")
        if data and encoded:
            raise InvalidInput("give `data` or `data_base64`, not both")
        attributes = _attributes_of(cells)
        described = EventJson(
            type=cells["type"],
            data_base64=encoded or data,
            tags=cloudevents.decode_tags(cells["tags"]),
            id=cells["id"],
            source=cells["source"],
            attributes=attributes or dict(NO_ATTRIBUTES),
            group_key=cells.get("group_key", ""),
            envelope_base64=_bytes(cells, "envelope_base64"),
            encoding=cells.get("encoding") or "data",
        )
        return producer_event(described)

    return event_of


def _attributes_of(cells: dict[str, str]) -> dict[str, str]:
    try:
        attributes = _attributes.decode(cells.get("attributes") or "{}")
    except msgspec.MsgspecError as error:
        raise InvalidInput(str(error), "attributes") from None
    return attributes | ({"time": cells["time"]} if cells["time"] else {})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(cells: dict[str, str], column: str) -> bytes:
    try:
        return base64.b64decode(cells.get(column, ""), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("expected base64", column) from None
