"""A notification: the content of a Cloud Native Event, independent of form and dialect.

Pure values. `reader` parses them, `writer` renders them, `rules` enforces the specification to the letter.
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
"""The value of a CloudEvents attribute: a String (or a type encoded as one), an Integer, or a Boolean."""


def canonical(value: Extension) -> str:
    """The string encoding of the specification's Type System."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Dialect(StrEnum):
    """The two naming schemes for the members of a value."""

    V1 = "v1"
    """`resource`, `dataType`, `valueType`: the specification's own; OpenShift 4.15 and older."""
    V2 = "v2"
    """`ResourceAddress`, `data_type`, `value_type`: O-RAN's."""


VALUE_MEMBERS = {
    Dialect.V1: ("resource", "dataType", "valueType"),
    Dialect.V2: ("ResourceAddress", "data_type", "value_type"),
}
"""The member names of a value, except `value`: the resource, the data type, the value type."""


class Opaque(Struct, frozen=True):
    """The JSON of a value that is passed through unchanged: a Redfish event, or an unknown type."""

    text: bytes


class Value(Struct, frozen=True):
    """One element of `data.values`."""

    resource: str
    data_type: str
    value_type: str
    value: str | Opaque
    """Decimals are text, exactly as written."""

    @property
    def is_absent(self) -> bool:
        """Whether it reports that there is no data: in its address, with a meaningless value, or in its value."""
        return has_no_data(self.resource) or (isinstance(self.value, str) and self.value.endswith(NO_DATA))


class Notification(Struct, frozen=True):
    """One Cloud Native Event, unwrapped."""

    id: str
    type: str
    source: str
    """Empty if the producer gave none; then its publisher's resource address is used."""
    time: str
    """RFC 3339, UTC; empty if the producer gave none."""
    version: str
    """The version of the data, as it was given."""
    values: tuple[Value, ...]
    data_content_type: str = JSON_TYPE
    data_schema: str = ""
    extensions: Mapping[str, Extension] = field(default_factory=lambda: NO_ATTRIBUTES)
    """The other CloudEvents attributes of a wrapped event, with their given types; they are forwarded."""
    address: str = ""
    """The resource address in CloudEvents 0.3: its `source`; there, `subject` is the source."""
    is_wrapped: bool = False
    """Whether it arrived as a CloudEvent, with an id made unique by its producer, not as a bare event."""

    @property
    def is_absent(self) -> bool:
        """Whether it reports no data, as used to greet subscribers: in all values, or in the address of the first,
        where cloud-event-proxy looks.
        """
        values = self.values
        return bool(values) and (has_no_data(values[0].resource) or all(value.is_absent for value in values))
