"""Converts notifications to samples: one for every value, with the resource's full address.

An event that is not a notification produces none, because a log may contain any events. No Spark here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from ....cne.notifications.addresses import Address, has_no_data, parse
from ....cne.notifications.notification import ENUMERATION, NUMERIC, Value
from ....cne.notifications.stored import Stored, stored_of
from ....core.event import SequencedEvent
from ....core.limits import APPEND_BYTES_MAX
from ...columns.rows import events_in

COLUMNS = ("sequence_number", "recorded_at", "type", "data", "id", "source", "attributes", "encoding")
"""The fields read from an event."""
YEAR_2000 = 946_684_800_000_000
"""µs. A clock with an earlier time was not set; nor can a time be in the future, because later data would then be too
late. In both cases the recording time is used. """
SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("sequence_number", pa.int64()),
        pa.field("resource", pa.string()),
        pa.field("type", pa.string()),
        pa.field("number", pa.float64()),
        pa.field("state", pa.string()),
    ]
)
SPARK_SCHEMA = "time timestamp, sequence_number long, resource string, type string, number double, state string"


class Sample(NamedTuple):
    """A value of a resource at some time: a number or a state, the other is None."""

    time: int
    """µs since 1970 UTC: the notification's own time, or the recording time if that is impossible."""
    sequence_number: int
    resource: str
    """Its address, including cluster and node if the event has them."""
    type: str
    """The event's type: what was measured."""
    number: float | None
    state: str | None
    """An empty sample: the resource no longer has a state."""


def samples_of(event: SequencedEvent) -> list[Sample]:
    """The samples in an event."""
    stored = stored_of(event, APPEND_BYTES_MAX)
    if stored is None:
        return []
    time, recorded = _microseconds(stored.notification.time), event.recorded_at * 1000
    if not YEAR_2000 <= time <= recorded:
        time = recorded
    found = []
    for value in stored.notification.values:
        number, state = _measured(value)
        if number is not None or state is not None:
            resource = _resource(stored, value)
            found.append(Sample(time, event.sequence_number, resource, stored.notification.type, number, state))
    return found


def samples_in(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The samples in batches of events that have COLUMNS, in SCHEMA."""
    for batch in batches:
        rows = [sample for event in events_in(batch) for sample in samples_of(event)]
        if rows:
            columns = zip(*rows, strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
            yield pa.record_batch(arrays, schema=SCHEMA)


def _measured(value: Value) -> tuple[float | None, str | None]:
    if not isinstance(value.value, str):
        return None, None  # Redfish, and unknown ones
    if value.value_type in NUMERIC:
        return (None if value.is_absent else float(value.value)), None
    if value.value_type == ENUMERATION:
        return None, "" if value.is_absent else value.value
    return None, None


def _resource(stored: Stored, value: Value) -> str:
    """A value often omits its location, which is in the event's other addresses; or only reports that it has no
    data.
    """
    if has_no_data(value.resource):
        return stored.addresses[0].text
    address = parse(value.resource)
    return Address(address.place or stored.addresses[0].place, address.resource).text or value.resource


def _microseconds(time: str) -> int:
    """From a time that `cne.notifications.timestamps` has normalised."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 1_000_000 + int(fraction[:6].ljust(6, "0"))
