"""What differs between an event as it was found, and as it should be."""

from __future__ import annotations

import contextlib
import json
import reprlib
import uuid
from collections.abc import Iterator

from headwater.core.event import Event

from .mapping import MADE, MADE_TIME, too_large
from .seen import Seen

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200


def differences(name: str, found: Event | Seen | None, expected: Event | Seen | None) -> Iterator[str]:
    """A line for each field that differs; None: the event is not there."""
    if found is None or expected is None:
        if found is not expected:
            yield f"{name}: found {_SHORT.repr(found)}, expected {_SHORT.repr(expected)}"
        return
    if expected.data.startswith(b"{too_large"):
        with contextlib.suppress(ValueError, LookupError, TypeError):  # else it is no stub, and differs
            found = found._replace(data=too_large(json.loads(found.data)["too_large"]["bytes"]))
    for field, found_value, expected_value in zip(expected._fields, found, expected, strict=True):
        if found_value != expected_value:
            yield f"{name}: {field}: found {_SHORT.repr(found_value)}, expected {_SHORT.repr(expected_value)}"


def without_made_up(found: Event, expected: Event) -> Event:
    """The event with `MADE` in place of an id that the log made, and PUBLISHER in place of a publisher's id."""
    if expected.id == MADE:
        with contextlib.suppress(ValueError):  # else it is no id of ours, and differs
            found = found._replace(id=MADE if uuid.UUID(found.id).version == 7 else found.id)
    if publisher := found.attributes.get("cnepublisher"):
        attributes = {**found.attributes, "cnepublisher": "PUBLISHER"}
        found = found._replace(data=found.data.replace(publisher.encode(), b"PUBLISHER"), attributes=attributes)
    if "cnestamped" in found.attributes:
        found = found._replace(attributes={**found.attributes, "time": MADE_TIME})
    return found
