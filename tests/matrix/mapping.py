"""What changes between a producer, the log and a reader: one row for each choice, as in docs/reference/mapping.md.

What no row names does not change. `stored` says what the log has of an event from a writer, `shown` what a reader
gets of it.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headwater.amqp.protocol.message import encode_message
from headwater.core.event import Encoding, Event, SequencedEvent

from .cases import WHOLE, Case, resource
from .readers import of_event, rfc3339
from .seen import NOT_SHOWN, Seen, canonical
from .world import LOG
from .writers import FUTOIN_USER, RESOURCE, CneNode, document

MADE = "made by the log"
"""Stands for an id that nobody knows beforehand."""
MADE_TIME = "1999-12-31T23:59:59.123456Z"
"""Stands for a time that the log made."""
FUTOIN_TYPE = re.compile(r"[A-Z_]{1,16}")
DRAFT_ID = re.compile(r"[\w\-]{1,100}", re.ASCII)
CNE_BYTES_MAX = 64 * 1024


class WriterRow(NamedTuple):
    """A choice on the way in."""

    title: str
    writers: Sequence[str]
    applies: Callable[[Case], bool]
    change: Callable[[Event, Case, str], Event] | None
    """None: the event is refused."""


class Told(NamedTuple):
    """A stored event, and where it came from."""

    event: SequencedEvent
    case: Case
    writer: str


class ReaderRow(NamedTuple):
    """A choice on the way out."""

    title: str
    readers: Sequence[str]
    applies: Callable[[Told], bool]
    change: Callable[[Seen, Told], Seen] | None
    """None: the event does not come."""


def stored(case: Case, writer: str) -> Event | None:
    """What the log has of it; None where it is refused. An id `MADE` is any UUIDv7."""
    event = Event(
        case.type,
        case.payload(writer),
        tuple(sorted(case.tags)),
        case.id(writer),
        case.source,
        case.attributes,
        case.group_key,
    )
    for row in WRITER_ROWS:
        if writer in row.writers and row.applies(case):
            if row.change is None:
                return None
            event = row.change(event, case, writer)
    return event


def shown(reader: str, told: Told) -> Seen | None:
    """What that reader sees of it; None where it does not come."""
    seen = of_event(told.event)
    for row in READER_ROWS:
        if reader in row.readers and row.applies(told):
            if row.change is None:
                return None
            seen = row.change(seen, told)
    return seen


def rows_of(reader: str, told: Told) -> list[str]:
    """The choices that concern that event for that reader."""
    return [row.title for row in READER_ROWS if reader in row.readers and row.applies(told)]


def too_large(size: int) -> bytes:
    """What stands for the stub of an event of that many bytes, whatever else is in it."""
    return b"{too_large: %d}" % size


def is_json(data: bytes) -> bool:
    """Whether it is JSON."""
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def is_embeddable(data: bytes) -> bool:
    """Whether it is JSON whose numbers every peer can decode."""
    return is_json(data) and b"1e400" not in data


def is_structured(case: Case) -> bool:
    """Whether it is a document that is sent as a message."""
    return case.name.startswith("amqp_structured")


def _always(_: Any) -> bool:
    return True


# On the way in


def _of_futoin(event: Event, case: Case, writer: str) -> Event:
    source = f"/futoin/{FUTOIN_USER}" if case.has_id else ""
    return Event(event.type, event.data, id=event.id, source=source, attributes=case.trace)


def _of_publisher(event: Event, case: Case, writer: str) -> Event:
    address = resource(writer, case.name)
    return Event(
        event.type,
        CneNode().document(case, "PUBLISHER"),
        id=MADE,
        source=RESOURCE,
        tags=_place_tags(case, writer),
        attributes=_times(case)
        | {**case.trace, "datacontenttype": "application/json", "cnepublisher": "PUBLISHER", "cneaddress": address},
    )


def _of_node_cloudevent(event: Event, case: Case, writer: str) -> Event:
    tags = {*case.tags, f"resource:{case.source}", *(_place_tags(case, writer) if case.is_notification else ())}
    return event._replace(
        data=document(case, writer),
        tags=tuple(sorted(tags)),
        attributes={**case.attributes, **_times(case), "datacontenttype": "application/cloudevents+json"},
    )


def _times(case: Case) -> dict[str, str]:
    given = case.attributes.get("time")
    return {"time": _normalised(given)} if given else {"time": MADE_TIME, "cnestamped": "true"}


def _place_tags(case: Case, writer: str) -> tuple[str, ...]:
    _, cluster, node, _ = resource(writer, case.name).split("/", 3)
    return tuple(sorted((f"cluster:{cluster}", f"node:{node}", f"resource:{RESOURCE}")))


def _whole_message(event: Event, case: Case, writer: str) -> Event:
    assert case.message is not None
    attributes = {**case.attributes, "datacontenttype": "application/amqp"}
    return event._replace(data=encode_message(case.message), attributes=attributes, encoding=Encoding.AMQP)


def _is_no_object(case: Case) -> bool:
    return not (is_json(case.data) and case.data.startswith(b"{"))


_FUTOIN_IN = ("futoin", "futoin_websocket")
_CNE = ("cne", "cne_cloudevent")
_CLOUDEVENTS = ("cloudevents_binary", "cloudevents_structured")

WRITER_ROWS = (
    WriterRow("id that nobody gave", ("dcb", "amqp", *_FUTOIN_IN, "flight", "spark"), lambda case: not case.has_id,
              lambda event, case, writer: event._replace(id=MADE)),
    WriterRow("CloudEvent without id or source", _CLOUDEVENTS, lambda case: not case.has_id, None),
    WriterRow("FutoIn type other than 1 to 16 capitals or underscores", _FUTOIN_IN,
              lambda case: not FUTOIN_TYPE.fullmatch(case.type), None),
    WriterRow("FutoIn data that is not JSON", _FUTOIN_IN, lambda case: not is_embeddable(case.data), None),
    WriterRow("FutoIn event", _FUTOIN_IN, _always, _of_futoin),
    WriterRow("data that is no JSON object, from a CNE producer", _CNE, _is_no_object, None),
    WriterRow("CloudEvent of a CNE producer without id or source", ("cne_cloudevent",),
              lambda case: not case.has_id, None),
    WriterRow("notification over 64 KiB, from a CNE producer", _CNE,
              lambda case: case.is_notification and len(case.data) > CNE_BYTES_MAX, None),
    WriterRow("bare event of a CNE publisher", ("cne",), _always, _of_publisher),
    WriterRow("CloudEvent of a CNE producer", ("cne_cloudevent",), _always, _of_node_cloudevent),
    WriterRow("AMQP message whose body is not one data section, or with a footer", ("amqp",),
              lambda case: case.name in WHOLE, _whole_message),
    WriterRow("structured CloudEvent over AMQP", ("amqp",), is_structured,
              lambda event, case, writer: event._replace(id=json.loads(case.data)["id"])),
)  # fmt: skip


# On the way out


def _uuid5(seen: Seen, told: Told) -> Seen:
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, told.event.source)
    return seen._replace(id=str(uuid.uuid5(namespace, told.event.id)))


def _normalised(time: str) -> str:
    """In UTC, with the fraction as it was."""
    seconds, fraction, _ = re.fullmatch(r"([^.]+)(\.\d+)?(Z|[+-].*)", time).groups()  # type: ignore[union-attr]
    moment = datetime.fromisoformat(seconds + time[len(seconds) + len(fraction or "") :]).astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction or ''}Z"


def _message_as_sent(seen: Seen, told: Told) -> Seen:
    """A message that is no CloudEvent in binary mode has no words for these."""
    return seen._replace(
        id=NOT_SHOWN,
        source=NOT_SHOWN,
        tags=NOT_SHOWN,
        subject=NOT_SHOWN,
        time=None if is_structured(told.case) else seen.time,
        group_key=NOT_SHOWN,
        media_type=told.case.attributes.get("datacontenttype"),
    )


def _base64(seen: Seen, told: Told) -> Seen:
    return seen._replace(data=b'{"data_base64":"%b"}' % base64.b64encode(told.event.data))


def _other(seen: Seen, told: Told) -> Seen:
    type = json.dumps(told.event.type, ensure_ascii=False).encode()
    return seen._replace(type="OTHER", data=b'{"type":%b,"data":%b}' % (type, seen.data))


def _too_large(seen: Seen, told: Told) -> Seen:
    return seen._replace(data=too_large(len(told.event.data)))


def _stub(bytes_max: int) -> Callable[[Told], bool]:
    return lambda told: len(told.event.data) > bytes_max


def _written_anew(seen: Seen, told: Told) -> Seen:
    payload = json.loads(told.case.payload(told.writer))
    payload = payload.get("data", payload)
    return seen._replace(
        data=canonical(payload),
        time=_normalised(told.event.attributes["time"]),
        media_type=NOT_SHOWN,
        tags=NOT_SHOWN,
        recorded_at=NOT_SHOWN,
        partition=NOT_SHOWN,
        group_key=NOT_SHOWN,
    )


def _is_message_of_its_own(told: Told) -> bool:
    """Whether it came over AMQP, and not as a CloudEvent in binary mode."""
    return told.writer == "amqp" and (told.case.message is not None or not told.case.has_id)


def _payload_of_document(seen: Seen, told: Told) -> Seen:
    document = json.loads(told.event.data)
    return seen._replace(data=json.dumps(document["data"]).encode(), media_type=document["datacontenttype"])


_SUITE, _CE, _AMQP = ("dcb_suite",), ("cloudevents",), ("amqp",)
_STANDARD = ("futoin_poll_1.1", "futoin_poll_1.0", "futoin_push")
_FUTOIN = (*_STANDARD, "futoin_poll_traced")
_STATES = ("webhook", "cne_states")

READER_ROWS = (
    ReaderRow("what the suite of dcb.events reads", _SUITE, _always,
              lambda seen, told: Seen(seen.number, seen.type, seen.data, seen.tags)),
    ReaderRow("id that is none of DCB's draft", ("dcb_draft",),
              lambda told: not DRAFT_ID.fullmatch(told.event.id), _uuid5),
    ReaderRow("no source, as a CloudEvent", (*_CE, *_AMQP),
              lambda told: not told.event.source, lambda seen, told: seen._replace(source=f"/logs/{LOG}")),
    ReaderRow("no time, as a CloudEvent", (*_CE, *_AMQP), lambda told: "time" not in told.event.attributes,
              lambda seen, told: seen._replace(time=rfc3339(told.event.recorded_at))),
    ReaderRow("time of recording and partition, as a CloudEvent", _CE, _always,
              lambda seen, told: seen._replace(recorded_at=NOT_SHOWN, partition=NOT_SHOWN)),
    ReaderRow("structured CloudEvent over AMQP, as a CloudEvent", _CE, lambda told: is_structured(told.case),
              _payload_of_document),
    ReaderRow("message of an AMQP producer", _AMQP, lambda told: told.writer == "amqp",
              lambda seen, told: seen._replace(
                  source=told.event.source, time=told.event.attributes.get("time"))),
    ReaderRow("message of an AMQP producer that is no CloudEvent in binary mode", _AMQP, _is_message_of_its_own,
              _message_as_sent),
    ReaderRow("message without a subject that is a type", _AMQP,
              lambda told: told.case.name in ("amqp_no_subject", "amqp_subject_is_no_type") or is_structured(told.case),
              lambda seen, told: seen._replace(type="a\nb" if told.case.name == "amqp_subject_is_no_type" else None)),
    ReaderRow("what a FutoIn event has", _FUTOIN, _always,
              lambda seen, told: Seen(
                  seen.number, seen.type, seen.data, recorded_at=told.event.recorded_at // 1000 * 1000,
                  trace=seen.trace)),
    ReaderRow("trace of an event, for FutoIn", _STANDARD, _always,
              lambda seen, told: seen._replace(trace=NOT_SHOWN)),
    ReaderRow("data that is not JSON, for FutoIn", _FUTOIN,
              lambda told: told.event.encoding is Encoding.AMQP or not is_embeddable(told.event.data),
              _base64),
    ReaderRow("type that is none of FutoIn", _FUTOIN, lambda told: not FUTOIN_TYPE.fullmatch(told.event.type), _other),
    ReaderRow("event that is larger than a message of FutoIn", ("futoin_poll_1.0",), _stub(CNE_BYTES_MAX), _too_large),
    ReaderRow("event that is no notification", _STATES, lambda told: not told.case.is_notification, None),
    ReaderRow("notification over 64 KiB, for a webhook", ("webhook",), _stub(CNE_BYTES_MAX), None),
    ReaderRow("notification", _STATES, _always, _written_anew),
)  # fmt: skip
