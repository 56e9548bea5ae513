"""Small documents of the wire, one idea each; made here, in the shape of what is in the field."""

from __future__ import annotations

import json
from typing import Any

SYNC_STATE = "/sync/sync-status/sync-state"
NODE_SYNC_STATE = f"/cluster/node/worker-0{SYNC_STATE}"


def v1_value(**more: Any) -> dict[str, Any]:
    value = {"resource": SYNC_STATE, "dataType": "notification", "valueType": "enumeration", "value": "LOCKED"}
    return {**value, **more}


def v2_value(**more: Any) -> dict[str, Any]:
    value = {"ResourceAddress": SYNC_STATE, "data_type": "notification", "value_type": "enumeration", "value": "LOCKED"}
    return {**value, **more}


def bare(*values: Any, **more: Any) -> dict[str, Any]:
    """A Cloud Native Event; a member set to `...` is left out."""
    document = {
        "id": "p1",
        "type": "event.sync.sync-status.synchronization-state-change",
        "source": "/cluster/node/worker-0/ptp",
        "dataContentType": "application/json",
        "time": "2024-05-06T07:08:09.5Z",
        "data": {"version": "1.0", "values": list(values) or [v1_value()]},
        **more,
    }
    return {name: value for name, value in document.items() if value is not ...}


def wrapped(*values: Any, **more: Any) -> dict[str, Any]:
    """The same as a CloudEvent."""
    document = bare(*(values or [v2_value()]), dataContentType=..., specversion="1.0", id="ce-1")
    return {name: value for name, value in {**document, **more}.items() if value is not ...}


def text(document: Any) -> bytes:
    return json.dumps(document).encode()


def redfish(*, event_type: str | None = "Alert", **more: Any) -> dict[str, Any]:
    """A Redfish event in the shape that a BMC sends."""
    record = {
        "EventId": "4711",
        "EventTimestamp": "2024-05-06T09:08:07+0200",
        "EventType": event_type,
        "MemberId": "1",
        "Message": "Fan 3 is slow.",
        "MessageArgs": ["3"],
        "MessageArgs@odata.count": 1,
        "MessageId": "FAN0003",
        "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/1"},
        "Severity": "Warning",
    }
    return {
        "@odata.context": "/redfish/v1/$metadata#Event.Event",
        "@odata.type": "#Event.v1_3_0.Event",
        "Context": "root",
        "Events": [{name: value for name, value in record.items() if value is not None}],
        "Id": "1b2c",
        "Name": "Event Array",
        "Oem": {"Vendor": {"reading": 12.50}},
        **more,
    }


EXAMPLE_REDFISH = {
    "@odata.context": "/redfish/v1/$metadata#Event.Event",
    "@odata.type": "#Event.v1_3_0.Event",
    "Context": "any string is valid",
    "Events": [{"EventId": "2162", "MemberId": "615703", "MessageId": "TMP0100"}],
    "Id": "5e004f5a-e3d1-11eb-ae9c-3448edf18a38",
    "Name": "Event Array",
}
"""Of the specification's examples."""
