"""Consumers: each reads the whole log as its protocol has it, over the wire."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from websockets.sync.client import connect

from headwater.amqp.client import Delivery
from headwater.amqp.protocol.message import DATA, Message, Properties, encode_message
from headwater.core.event import SequencedEvent
from headwater.flight.wire import Ticket
from headwater.formats.arrow.tables import events_of
from headwater.formats.cloudevents import decode_tags
from tests.amqp.asking import EARLIEST, OFFSET, SOURCE_PARTITION, TIMESTAMP, annotation, drained

from .cases import JSON
from .seen import Seen, canonical
from .world import CNE, LOG, SILENCE_S_MAX, World

FUTOIN_USER = "bob"


class Reader(Protocol):
    """A consumer of one protocol."""

    name: str

    def read(self, world: World) -> Sequence[Seen]:
        """All that the log has for it, in the order in which it comes."""


class Dcb:
    """POST /logs/{log}/read: lines of JSON."""

    name = "dcb"
    query: Any = "all"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        answer = world.post(f"/logs/{LOG}/read", {"query": self.query})
        assert answer.status == 200, answer.body
        return [_of_envelope(json.loads(line)) for line in answer.body.splitlines()]


class DcbDraft(Dcb):
    """The same, asked for in the form of DCB's first draft."""

    name = "dcb_draft"
    query: Any = {"version": "1.0", "criteria": []}  # noqa: RUF012 - nobody changes it


class DcbSubscription:
    """GET /logs/{log}/subscribe: Server-Sent Events."""

    name = "dcb_subscription"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        connection = http.client.HTTPConnection(urlsplit(world.url).netloc, timeout=SILENCE_S_MAX)
        with contextlib.closing(connection):
            connection.request("GET", f"/logs/{LOG}/subscribe?query=all&after=0")
            lines = (line for line in connection.getresponse() if line.startswith(b"data:"))
            return [_of_envelope(json.loads(next(lines)[5:])) for _ in range(len(world.events))]


class DcbSuite:
    """GET /dcb/{log}/read: as the benchmark suite of dcb.events reads."""

    name = "dcb_suite"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        found = world.call("GET", f"/dcb/{LOG}/read?query=all").json
        return [Seen(each["position"], each["type"], _data_of(each), tuple(each["tags"])) for each in found]


class CloudEvents:
    """A read that asks for a batch of CloudEvents."""

    name = "cloudevents"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        headers = {"content-type": "application/json", "accept": "application/cloudevents-batch+json"}
        answer = world.call("POST", f"/logs/{LOG}/read", b'{"query": "all"}', headers)
        return [self._seen(members) for members in msgspec.json.decode(answer.body, type=list[dict[str, msgspec.Raw]])]

    def _seen(self, raw: Mapping[str, msgspec.Raw]) -> Seen:
        members = {name: msgspec.json.decode(bytes(value)) for name, value in raw.items() if name != "data"}
        if "data_base64" in members:
            data = base64.b64decode(members["data_base64"])
        elif "data" not in raw:
            data = b""
        elif members.get("datacontenttype", JSON["datacontenttype"]).endswith("json"):
            data = bytes(raw["data"])
        else:
            data = msgspec.json.decode(raw["data"], type=str).encode()
        assert members["specversion"] == "1.0"
        return _of_attributes(int(members["sequence"]), members, data)


class Amqp:
    """A receiver from the first event on."""

    name = "amqp"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        return [self._seen(delivery) for delivery in self.deliveries(world)]

    def deliveries(self, world: World) -> Sequence[Delivery]:
        """The messages, with all that is around them."""
        receiver = world.amqp.receiver(LOG, credit=0, filter=EARLIEST)
        found = drained(world.amqp, receiver)
        receiver.close()
        return found

    def _seen(self, delivery: Delivery) -> Seen:
        message: Message = delivery.message
        properties = message.properties or Properties()
        given = (message.application_properties or {}).items()
        attributes = {name.partition(":")[2]: value for name, value in given if name.startswith("cloudEvents:")}
        own = {
            "recorded_at": int(annotation(delivery, TIMESTAMP)),
            "partition": int(annotation(delivery, SOURCE_PARTITION)),
            "media_type": None if properties.content_type is None else str(properties.content_type),
        }
        number = int(annotation(delivery, OFFSET))
        message.delivery_annotations = None
        data = bytes(message.body[0]) if message.body_kind == DATA and not message.footer else encode_message(message)
        if attributes:
            seen = _of_attributes(number, attributes, data)._replace(**own)
            if rendered := (message.message_annotations or {}).get("event-streams-group-key"):
                assert rendered == seen.group_key
            return seen
        created = properties.creation_time
        return Seen(
            number,
            properties.subject,
            data,
            time=None if created is None else rfc3339(created),
            trace=_trace_of(dict(given)),
            **own,
        )  # fmt: skip


class FutoInPoll:
    """pollEvents of a registered consumer, page by page."""

    def __init__(self, version: str) -> None:
        self.name = f"futoin_poll_{version}"
        self._interface = f"futoin.evt.poll:{version}"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        component = self.name.replace(".", "").upper()[-14:]
        self._ask(world, "registerConsumer", component=component)
        found: list[Seen] = []
        while True:
            last_id = str(found[-1].number) if found else None
            page = self._ask(world, "pollEvents", component=component, last_id=last_id)
            if page == b"[]":
                return found
            found += map(self._seen, msgspec.json.decode(page, type=list[FutoInEvent]))

    def _seen(self, event: FutoInEvent) -> Seen:
        assert event.traceparent is event.tracestate is None
        return _of_futoin(event)

    def _ask(self, world: World, function: str, **parameters: Any) -> bytes:
        call = {"f": f"{self._interface}:{function}", "p": parameters, "sec": f"{FUTOIN_USER}:secret"}
        answer = world.call("POST", f"/futoin/{LOG}", json.dumps(call).encode())
        return bytes(msgspec.json.decode(answer.body, type=FutoInReply).r)


class FutoInTracedPoll(FutoInPoll):
    """pollEvents of our own interface, whose events say which trace they are in."""

    def __init__(self) -> None:
        self.name = "futoin_poll_traced"
        self._interface = "headwater.evt.poll:1.1"

    def _seen(self, event: FutoInEvent) -> Seen:
        return _of_futoin(event)._replace(trace=(event.traceparent, event.tracestate))


class FutoInPush:
    """What is pushed over a WebSocket, each group acknowledged."""

    name = "futoin_push"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        found: list[Seen] = []
        url = f"ws{world.url.removeprefix('http')}/futoin/{LOG}"
        with connect(url, compression=None, max_size=None) as socket:
            for function in ("registerConsumer", "readyToReceive"):
                call = {"f": f"futoin.evt.push:1.1:{function}", "p": {"component": "PUSHED"}, "rid": "C1"}
                socket.send(json.dumps(call | {"sec": f"{FUTOIN_USER}:secret"}).encode())
                assert json.loads(socket.recv(SILENCE_S_MAX))["r"] is True
            while len(found) < len(world.events):
                pushed = msgspec.json.decode(socket.recv(SILENCE_S_MAX), type=FutoInPushed)
                found += map(_of_futoin, pushed.p.events)
                socket.send(json.dumps({"r": True, "rid": pushed.rid}).encode())
        return found


class FutoInEvent(msgspec.Struct, forbid_unknown_fields=True):
    """EventList's element (FTN18, 3.1), its data as it was written, and what TracedEvents has besides."""

    id: str
    type: str
    data: msgspec.Raw
    ts: str
    traceparent: str | None = None
    tracestate: str | None = None


class FutoInReply(msgspec.Struct):
    """A reply that is no error."""

    r: msgspec.Raw


class FutoInEvents(msgspec.Struct):
    """Parameters of onEvents."""

    events: list[FutoInEvent]


class FutoInPushed(msgspec.Struct):
    """A call of onEvents."""

    p: FutoInEvents
    rid: str


class Webhook:
    """What was sent to a subscriber of O-RAN's API while it was written."""

    name = "webhook"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        expected = [
            number
            for (_, case), number in world.written.items()
            if case in ("notification", "notification_traced", "notification_unicode")
        ]
        world.webhook.until(max(expected))
        return [_of_notification(json.loads(body)) for body in world.webhook.bodies]


class CneStates:
    """GET /{ResourceAddress}/CurrentState, of all resources."""

    name = "cne_states"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        found = world.call("GET", f"{CNE}/east/*/sync/CurrentState").json
        return sorted(map(_of_notification, found))


class Flight:
    """do_get of the whole log."""

    name = "flight"

    def read(self, world: World) -> Sequence[Seen]:
        """See Reader."""
        return of_batches(world.bulk.read(Ticket(LOG)))


READERS: Sequence[Reader] = (
    Dcb(),
    DcbDraft(),
    DcbSubscription(),
    DcbSuite(),
    CloudEvents(),
    Amqp(),
    FutoInPoll("1.1"),
    FutoInPoll("1.0"),
    FutoInTracedPoll(),
    FutoInPush(),
    Webhook(),
    CneStates(),
    Flight(),
)
"""All but the source of Spark."""


def rfc3339(ms: int) -> str:
    """In UTC, with milliseconds."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def of_event(event: SequencedEvent) -> Seen:
    """What is to be seen of an event whose protocol shows everything as it is."""
    return Seen(
        event.sequence_number,
        event.type,
        event.data,
        event.tags,
        event.id,
        event.source,
        event.attributes.get("time"),
        event.attributes.get("subject"),
        event.attributes.get("datacontenttype"),
        event.recorded_at,
        event.partition,
        event.group_key,
        _trace_of(event.attributes),
    )


def of_batches(batches: Iterable[pa.RecordBatch]) -> list[Seen]:
    """The rows of batches of the log's own columns."""
    return [of_event(event) for batch in batches for event in events_of(batch)]


def _of_envelope(envelope: Mapping[str, Any]) -> Seen:
    event = envelope["event"]
    attributes = event.get("attributes", {})
    return Seen(
        envelope["sequence_number"],
        event["type"],
        _data_of(event),
        tuple(event["tags"]),
        event["id"],
        event.get("source", ""),
        attributes.get("time"),
        attributes.get("subject"),
        attributes.get("datacontenttype"),
        envelope["recorded_at"],
        envelope["partition"],
        event.get("group_key", ""),
        _trace_of(attributes),
    )


def _data_of(event: Mapping[str, Any]) -> bytes:
    return event["data"].encode() if "data" in event else base64.b64decode(event["data_base64"])


def _of_attributes(number: int, attributes: Mapping[str, str], data: bytes) -> Seen:
    return Seen(
        number,
        attributes["type"],
        data,
        decode_tags(attributes.get("tags", "")),
        attributes["id"],
        attributes["source"],
        attributes.get("time"),
        attributes.get("subject"),
        attributes.get("datacontenttype"),
        group_key=attributes.get("partitionkey", ""),
        trace=_trace_of(attributes),
    )


def _trace_of(attributes: Mapping[str, Any]) -> tuple[str | None, str | None]:
    return attributes.get("traceparent"), attributes.get("tracestate")


def _of_futoin(event: FutoInEvent) -> Seen:
    recorded_at = int(datetime.fromisoformat(event.ts).timestamp() * 1000)
    return Seen(int(event.id), event.type, bytes(event.data), recorded_at=recorded_at)


def _of_notification(members: Mapping[str, Any]) -> Seen:
    assert members["specversion"] == "1.0"
    return Seen(
        int(members["sequence"]),
        members["type"],
        canonical(members["data"]),
        id=members["id"],
        source=members["source"],
        time=members["time"],
        subject=members.get("subject"),
        trace=_trace_of(members),
    )
