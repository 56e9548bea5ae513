"""A notification: what every form of a Cloud Native Event says, whatever dialect it was written in.

Pure values. `reader` makes them of bytes, `writer` makes bytes of them, `rules` is the specification to the letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from ...core.event import NO_ATTRIBUTES
from .addresses import NO_DATA, has_no_data

NOTIFICATION, METRIC = "notification", "metric"
ENUMERATION, DECIMAL, REDFISH = "enumeration", "decimal64.3", "redfish-event"
STARLINGX_METRIC = "metric"
"""StarlingX writes this as the type of a number."""
NUMERIC = (DECIMAL, STARLINGX_METRIC)
DATA_TYPES = (NOTIFICATION, METRIC)
DATA_VERSION = "1.0"
JSON_TYPE = "application/json"


Extension = str | int | bool
"""The value of a CloudEvents attribute: a String, or what stands for one, an Integer, or a Boolean."""


def canonical(value: Extension) -> str:
    """The string encoding of the specification's Type System."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Dialect(StrEnum):
    """The two ways in which the members of a value are named."""

    V1 = "v1"
    """`resource`, `dataType`, `valueType`: the specification's own, release 4.15 and older of OpenShift."""
    V2 = "v2"
    """`ResourceAddress`, `data_type`, `value_type`: O-RAN's."""


VALUE_MEMBERS = {
    Dialect.V1: ("resource", "dataType", "valueType"),
    Dialect.V2: ("ResourceAddress", "data_type", "value_type"),
}
"""What the members of a value are named, but for `value`: the resource, the type of data, the type of the value."""


class Opaque(Struct, frozen=True):
    """The JSON of a value that is carried through as it is: a Redfish event, or a type that is not known here."""

    text: bytes


class Value(Struct, frozen=True):
    """One element of `data.values`."""

    resource: str
    data_type: str
    value_type: str
    value: str | Opaque
    """Decimals are text, exactly as they were written."""

    @property
    def is_absent(self) -> bool:
        """Whether it says that there is no data: in its address, beside a value that means nothing, or in its value."""
        return has_no_data(self.resource) or (isinstance(self.value, str) and self.value.endswith(NO_DATA))


class Notification(Struct, frozen=True):
    """One Cloud Native Event, out of its wrapping."""

    id: str
    type: str
    source: str
    """Empty where the producer gave none; then its publisher's resource address stands in."""
    time: str
    """RFC 3339, UTC; empty where the producer gave none."""
    version: str
    """Of the data, as it was given."""
    values: tuple[Value, ...]
    data_content_type: str = JSON_TYPE
    data_schema: str = ""
    extensions: Mapping[str, Extension] = field(default_factory=lambda: NO_ATTRIBUTES)
    """The other CloudEvents attributes of a wrapped one, with the type that they were given; they are forwarded."""
    address: str = ""
    """The resource address in the wrapping of CloudEvents 0.3: its `source`; `subject` is the source there."""
    is_wrapped: bool = False
    """Whether it came as a CloudEvent, whose id its producer made unique, and not as a bare event."""

    @property
    def is_absent(self) -> bool:
        """Whether it says that there is no data, so that subscribers can be greeted: in all values, or in the address
        of the first, where cloud-event-proxy looks.
        """
        values = self.values
        return bool(values) and (has_no_data(values[0].resource) or all(value.is_absent for value in values))
