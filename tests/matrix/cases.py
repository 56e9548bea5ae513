"""The events of the matrix: what a producer means to say, whatever protocol it speaks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headwater.amqp.protocol.message import DATA, DATAS, NONE, SEQUENCE, VALUE, Header, Message, Properties
from headwater.amqp.protocol.types import Symbol
from tests.odd_tags import ODD_TAGS

MIB = 2**20
JSON = {"datacontenttype": "application/json"}
TIME = "2026-01-31T12:00:00.125Z"
TRACE = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "vendor=1,other=a b",
}
NOTIFICATION_TYPE = "event.sync.sync-status.synchronization-state-change"


@dataclass(frozen=True)
class Case:
    """One event."""

    name: str
    type: str = "ORDER_PLACED"
    data: bytes = b'{"total": 12}'
    tags: tuple[str, ...] = ("customer:7", "order:4711")
    attributes: Mapping[str, str] = field(default_factory=lambda: JSON)
    group_key: str = ""
    has_id: bool = True
    """Whether the producer gives id and source."""
    id_form: str = "{writer}-{case}"
    is_notification: bool = False
    message: Message | None = None
    """As an AMQP producer sends it; None: as a CloudEvent in binary mode."""

    def id(self, writer: str) -> str:
        """The event's id from that writer; empty where the log is to give one."""
        return self.id_form.format(writer=writer, case=self.name) if self.has_id else ""

    @property
    def trace(self) -> dict[str, str]:
        """The trace that it is in (W3C Trace Context), as attributes or header fields."""
        return {name: value for name, value in self.attributes.items() if name in TRACE}

    @property
    def source(self) -> str:
        """Who says so."""
        return "/shop" if self.has_id else ""

    def payload(self, writer: str) -> bytes:
        """The payload: that of a notification names a resource of the writer's, so that each one is a state."""
        return (
            self.data.replace(b"RESOURCE", resource(writer, self.name).encode()) if self.is_notification else self.data
        )


def resource(writer: str, case: str) -> str:
    """The address of what a notification is about."""
    return f"/east/{writer}-{case}/sync/sync-status/sync-state".replace("_", "-")


def _notification(value: str) -> bytes:
    content = {"ResourceAddress": "RESOURCE", "data_type": "notification", "value_type": "enumeration", "value": value}
    return json.dumps({"version": "1.0", "values": [content]}, ensure_ascii=False).encode()


CASES = (
    Case("plain", attributes={**JSON, "subject": "order 4711", "time": TIME}),
    Case("untagged", tags=()),
    Case("text", data="keine Zahl: ½".encode(), attributes={"datacontenttype": "text/plain"}),
    Case("not_utf8", data=bytes(range(256)), attributes={"datacontenttype": "application/octet-stream"}),
    Case("not_utf8_said_to_be_json", data=b"\xff{"),
    Case("empty", data=b""),
    Case("json_to_the_letter", data=b'[ {"b" : 1.50, "a":[ ],"a":1e2} ,\t12345678901234567890123, "\\u00e9\\/" ]'),
    Case("json_of_a_huge_number", data=b'{"n": 1e400}'),
    Case("json_object_nested", data=b'{"a":' * 50 + b"1" + b"}" * 50),
    Case("mebibyte", data=b'"%b"' % (b"x" * (MIB - 2))),
    Case("over_64_kib", data=b'"%b"' % (b"y" * (70 * 1024))),
    Case(
        "unicode",
        type="Bestellung \u2713 \u6ce8\u6587",
        data='{"name": "J\u00f6rg \U0001f680 \u0645\u0631\u062d\u0628\u0627"}'.encode(),
        tags=("kunde:M\u00fcller", "ort:\u6771\u4eac, 50%"),
        attributes={**JSON, "subject": "\u00fcber \u6771\u4eac \U0001f680"},
        group_key="Z\u00fcrich",
        id_form="{writer}-\u00fc-\u6771\u4eac",
    ),
    Case("odd_tags", tags=tuple(sorted(ODD_TAGS))),
    Case("of_a_group", group_key="customer 7"),
    Case("anonymous", tags=(), attributes={}, has_id=False),
    Case("traced", attributes={**JSON, **TRACE}),
    Case("traced_without_state", attributes={**JSON, "traceparent": TRACE["traceparent"]}),
    Case("traced_in_a_group_and_untagged", tags=(), attributes={**JSON, **TRACE}, group_key="customer 7"),
    Case("time_with_offset", attributes={**JSON, "time": "2026-01-31T14:30:00.123456+02:30"}),
    Case(
        "notification",
        type=NOTIFICATION_TYPE,
        data=_notification("LOCKED"),
        attributes={**JSON, "time": TIME},
        is_notification=True,
    ),
    Case(
        "notification_traced",
        type=NOTIFICATION_TYPE,
        data=_notification("HOLDOVER"),
        attributes={**JSON, **TRACE, "time": TIME},
        is_notification=True,
    ),
    Case(
        "notification_unicode",
        type=NOTIFICATION_TYPE,
        data=_notification("gesperrt \u2713 \u9501"),
        tags=("ort:M\u00fcnchen",),
        attributes={**JSON, "subject": "M\u00fcnchen", "time": "2026-01-31T14:30:00.123456+02:30"},
        is_notification=True,
    ),
    Case(
        "notification_over_64_kib",
        type=NOTIFICATION_TYPE,
        data=_notification("x" * (70 * 1024)),
        attributes={**JSON, "time": TIME},
        is_notification=True,
    ),
)


def _plain(name: str, message: Message, type: str = "ORDER_PLACED", **fields: Any) -> Case:
    """A message that is no CloudEvent."""
    return Case(name, type=type, tags=(), has_id=False, message=message, **{"attributes": {}, **fields})


def _structured(name: str, **more: Any) -> Case:
    """A document of CloudEvents as a message."""
    members = {"specversion": "1.0", "id": name, "source": "/shop", "type": "ORDER_PLACED", "tags": "order:4711"}
    text = json.dumps(members | {"datacontenttype": "application/json", "data": {"total": 12}} | more).encode()
    media_type = "application/cloudevents+json"
    time = {"time": more["time"]} if "time" in more else {}
    return Case(
        name,
        type=more.get("type", "ORDER_PLACED"),
        data=text,
        tags=("order:4711",),
        attributes={"datacontenttype": media_type, **time},
        is_notification="type" in more,
        message=Message([text], DATA, properties=Properties(content_type=Symbol(media_type))),
    )


_NAMED = Properties(subject="ORDER_PLACED")
_CREATED = int(datetime.fromisoformat(TIME).astimezone(UTC).timestamp() * 1000)

AMQP_CASES = (
    _plain("amqp_data", Message([b"12"], DATA, properties=_NAMED, application_properties={"k": "v"}), data=b"12"),
    _plain("amqp_no_subject", Message([b"12"], DATA), type="amqp.message", data=b"12"),
    _plain(
        "amqp_subject_is_no_type",
        Message([b"12"], DATA, properties=Properties(subject="a\nb")),
        type="amqp.message",
        data=b"12",
    ),
    _plain(
        "amqp_content_type_and_time",
        Message([b"12"], DATA, properties=Properties(
            message_id="m-1", subject="ORDER_PLACED", content_type=Symbol("text/plain"), creation_time=_CREATED)),
        data=b"12",
        attributes={"datacontenttype": "text/plain", "time": TIME},
    ),
    _plain(
        "amqp_traced",
        Message([b"12"], DATA, properties=_NAMED, application_properties=dict(TRACE)),
        data=b"12",
        attributes=TRACE,
    ),
    _plain(
        "amqp_header_and_annotations",
        Message([b"12"], DATA, header=Header(durable=True, priority=7), properties=_NAMED, message_annotations={
            Symbol("event-streams-group-key"): "customer 7", Symbol("x-opt-k"): 1}),
        data=b"12",
        group_key="customer 7",
    ),
    _plain("amqp_no_body", Message(None, NONE, properties=_NAMED)),
    _plain("amqp_binary_value", Message(b"\xff", VALUE, properties=_NAMED)),
    _plain("amqp_two_data_sections", Message([b"1", b"2"], DATAS, properties=_NAMED)),
    _plain("amqp_sequences", Message([[1, "two"], [None]], SEQUENCE, properties=_NAMED)),
    _plain("amqp_text_value", Message("twelve \u2713", VALUE, properties=_NAMED)),
    _plain("amqp_map_value", Message({"total": 12}, VALUE, properties=_NAMED)),
    _plain("amqp_null_value", Message(None, VALUE, properties=_NAMED)),
    _plain("amqp_footer", Message([b"12"], DATA, properties=_NAMED, footer={Symbol("x-sum"): 3})),
    _structured("amqp_structured"),
    _structured("amqp_structured_notification", type=NOTIFICATION_TYPE, time=TIME, data={
        "version": "1.0",
        "values": [{"ResourceAddress": "/east/amqp-document/sync/sync-status/sync-state", "data_type": "notification",
                    "value_type": "enumeration", "value": "LOCKED"}],
    }),
)  # fmt: skip
"""What only AMQP can say: each kind of body, and messages that are no CloudEvents."""

WHOLE = (
    "amqp_no_body",
    "amqp_binary_value",
    "amqp_two_data_sections",
    "amqp_sequences",
    "amqp_text_value",
    "amqp_map_value",
    "amqp_null_value",
    "amqp_footer",
)
"""Of these the whole message is the event's data."""
