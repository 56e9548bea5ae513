"""Stored events as CloudEvents in lines of a file, both ways: written by `headwater export`, read back by an import.

What CloudEvents cannot express is in extension attributes of Headwater, which an import removes: any other reader gets
a valid CloudEvent, and an import gets the original event.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from ...core.errors import InvalidInput
from ...core.event import NO_ATTRIBUTES, Encoding, Event, SequencedEvent
from ...core.limits import check_attribute_name, check_attribute_value
from .. import cloudevents

_ADDED = "headwateradded"
"""The attributes that the export added, joined with commas; the event does not have them. Present in every export."""
_ATTRIBUTES = "headwaterattributes"
"""All attributes as JSON, if some are not valid in CloudEvents."""
_DATA = "headwaterdata"
"""The data in base64, if the CloudEvent shows the payload inside it."""
_ENVELOPE = "headwaterenvelope"
"""The envelope in base64, if there is one."""
_ENCODING = "headwaterencoding"
"""The name of the encoding, unless it is plain data."""
_OURS = "headwater"
_attributes = msgspec.json.Decoder(dict[str, str])


def exported_line(event: SequencedEvent, default_source: str) -> bytes:
    """The event in the JSON format, on one line without its end; events without a source get `default_source`."""
    attributes = {name: value for name, value in event.attributes.items() if _is_sayable(name, value)}
    is_document = bool(event.envelope) and cloudevents.is_structured(event.attributes)
    more = {_ADDED: ",".join(["sequence"] + ["source"] * (not event.source) + ["time"] * ("time" not in attributes))}
    if is_document or len(attributes) < len(event.attributes):
        more[_ATTRIBUTES] = msgspec.json.encode(dict(event.attributes)).decode()
    if is_document:
        more[_DATA] = base64.b64encode(event.data).decode()
    if event.envelope:
        more[_ENVELOPE] = base64.b64encode(event.envelope).decode()
    if event.encoding:
        more[_ENCODING] = event.encoding.name.lower()
    return cloudevents.event_to_json(event._replace(attributes=attributes), default_source, more, is_line=True)


def taken_back(event: Event) -> Event:
    """The original event, if a file's CloudEvent was exported; any other event unchanged. Raises InvalidInput."""
    said = dict(event.attributes)
    if (added := said.pop(_ADDED, None)) is None:
        return event
    names = added.split(",")
    for name in names:
        said.pop(name, None)
    data, envelope = _bytes(said, _DATA), _bytes(said, _ENVELOPE)
    encoding = said.pop(_ENCODING, "data").upper()
    if encoding not in Encoding.__members__:
        raise InvalidInput("expected data or amqp", _ENCODING)
    if (attributes := said.pop(_ATTRIBUTES, None)) is not None:
        try:
            said = _attributes.decode(attributes)
        except msgspec.MsgspecError as error:
            raise InvalidInput(str(error), _ATTRIBUTES) from None
    return event._replace(
        data=event.data if data is None else data,
        source="" if "source" in names else event.source,
        attributes=said or NO_ATTRIBUTES,
        envelope=envelope or b"",
        encoding=Encoding[encoding],
    )


def _is_sayable(name: str, value: str) -> bool:
    """Whether an event's attribute can be an attribute of its CloudEvent without being mistaken for another."""
    is_taken = name in ("sequence", "partitionkey") or name.startswith(_OURS)
    return not (is_taken or check_attribute_name(name) or check_attribute_value(name, value))


def _bytes(said: dict[str, str], name: str) -> bytes | None:
    if (text := said.pop(name, None)) is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("expected base64", name) from None
