"""Producers: each says an event as its protocol has it, over the wire. One that cannot is told so: `Refused`."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
from websockets.sync.client import connect

from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.amqp.protocol.performatives import Accepted
from headwater.amqp.protocol.types import Symbol
from headwater.core.errors import EventLogError
from headwater.formats.cloudevents import encode_tags

from .cases import Case, resource
from .world import CNE, LOG, SILENCE_S_MAX, Refused, World

FUTOIN_USER = "alice"
RESOURCE = "/sync/sync-status/sync-state"
FUTOIN_CALL_BYTES_MAX = 60 * 1024
"""addEvent takes 64 KiB with all that is around the data; more goes by addEvents."""


class Writer(Protocol):
    """A producer of one protocol."""

    name: str

    def write(self, world: World, case: Case) -> None:
        """Returns when the event is durable. Raises Refused."""


class Dcb:
    """POST /logs/{log}/append, in JSON."""

    name = "dcb"

    def write(self, world: World, case: Case) -> None:
        """See Writer."""
        data = case.payload(self.name)
        event: dict[str, Any] = {"type": case.type, "tags": list(case.tags), "attributes": dict(case.attributes)}
        try:
            event["data"] = data.decode()
        except UnicodeDecodeError:
            event["data_base64"] = base64.b64encode(data).decode()
        if case.has_id:
            event |= {"id": case.id(self.name), "source": case.source}
        if case.group_key:
            event["group_key"] = case.group_key
        _expect(world.post(f"/logs/{LOG}/append", {"events": [event]}), 200)


class CloudEventBinary:
    """POST /logs/{log}/events, attributes as header fields."""

    name = "cloudevents_binary"

    def write(self, world: World, case: Case) -> None:
        """See Writer."""
        attributes = context(case, self.name)
        media_type = attributes.pop("datacontenttype", None)
        headers = {f"ce-{name}": quote(value, safe="") for name, value in attributes.items()}
        if media_type is not None:
            headers["content-type"] = media_type
        _expect(world.call("POST", f"/logs/{LOG}/events", case.payload(self.name), headers), 200)


class CloudEventStructured:
    """POST /logs/{log}/events, as a document."""

    name = "cloudevents_structured"

    def write(self, world: World, case: Case) -> None:
        """See Writer."""
        headers = {"content-type": "application/cloudevents+json"}
        _expect(world.call("POST", f"/logs/{LOG}/events", document(case, self.name), headers), 200)


class Amqp:
    """A transfer to the log: a CloudEvent in binary mode, or the message of the case."""

    name = "amqp"

    def message(self, case: Case) -> Message:
        """What is sent."""
        if case.message is not None:
            return case.message
        if not case.has_id:
            return Message([case.data], DATA, properties=Properties(subject=case.type))
        attributes = context(case, self.name)
        media_type = attributes.pop("datacontenttype", None)
        return Message(
            [case.payload(self.name)],
            DATA,
            properties=Properties(content_type=None if media_type is None else Symbol(media_type)),
            application_properties={f"cloudEvents:{name}": value for name, value in attributes.items()},
        )

    def write(self, world: World, case: Case) -> None:
        """See Writer."""
        sender = world.amqp.sender(LOG)
        outcome = sender.send(self.message(case))
        sender.close()
        if outcome != Accepted():
            raise Refused(repr(outcome))


class FutoIn:
    """addEvent over HTTP, with a key where the event has an id, and its trace; addEvents where it is large."""

    name = "futoin"

    def write(self, world: World, case: Case) -> None:
        """See Writer."""
        key = b',"key":' + json.dumps(case.id(self.name)).encode() if case.has_id else b""
        trace = b",%b" % json.dumps(case.trace).encode()[1:-1] if case.trace else b""
        event = b'{"type":%b,"data":%b%b%b}' % (json.dumps(case.type).encode(), case.payload(self.name), key, trace)
        if len(event) > FUTOIN_CALL_BYTES_MAX:
            function, parameters = b"headwater.evt.gen:1.1:addEvents", b'{"events":[%b]}' % event
        else:
            function, parameters = b"headwater.evt.gen:1.1:addEvent" if key else b"futoin.evt.gen:1.1:addEvent", event
        call = b'{"f":"%b","p":%b,"sec":"%b:secret"}' % (function, parameters, FUTOIN_USER.encode())
        answer = self.answer(world, call)
        if b'"e":' in answer:
            raise Refused(answer.decode())

    def answer(self, world: World, call: bytes) -> bytes:
        """What comes back."""
        return world.call("POST", f"/futoin/{LOG}", call).body


class FutoInSocket(FutoIn):
    """The same over a WebSocket."""

    name = "futoin_websocket"

    def answer(self, world: World, call: bytes) -> bytes:
        """See FutoIn."""
        with connect(f"ws{world.url.removeprefix('http')}/futoin/{LOG}", compression=None) as socket:
            socket.send(call[:-1] + b',"rid":"C1"}')
            answer = socket.recv(SILENCE_S_MAX)
        assert isinstance(answer, bytes)
        return answer


class CneNode:
    """A bare event of a registered publisher: the node's sidecar. Its trace is in the head of the request."""

    name = "cne"

    def write(self, world: World, case: Case) -> None:
        """See Writer."""
        asked = {"ResourceAddress": resource(self.name, case.name)}
        publisher = world.post(f"{CNE}/publishers", asked).json["SubscriptionId"]
        headers = {"content-type": "application/json", **case.trace}
        _expect(world.call("POST", f"{CNE}/create/event", self.document(case, publisher), headers), 202)

    def document(self, case: Case, publisher: str) -> bytes:
        """What is sent."""
        members = {"id": publisher, "type": case.type, "source": RESOURCE, "time": case.attributes.get("time")}
        return json.dumps(members).encode()[:-1] + b', "data": %b}' % (case.payload(self.name) or b"null")


class CneCloudEvent:
    """POST /create/event, as a CloudEvent in structured mode."""

    name = "cne_cloudevent"

    def write(self, world: World, case: Case) -> None:
        """See Writer."""
        headers = {"content-type": "application/cloudevents+json"}
        _expect(world.call("POST", f"{CNE}/create/event", document(case, self.name), headers), 202)


class Flight:
    """do_put of a batch of one row."""

    name = "flight"

    def write(self, world: World, case: Case) -> None:
        """See Writer."""
        try:
            world.bulk.append(LOG, [pa.RecordBatch.from_pylist([row(case, self.name)], COLUMNS)])
        except EventLogError as error:
            raise Refused(str(error)) from None


COLUMNS = pa.schema(
    {
        "type": pa.string(),
        "data": pa.binary(),
        "tags": pa.list_(pa.string()),
        "id": pa.string(),
        "source": pa.string(),
        "attributes": pa.map_(pa.string(), pa.string()),
        "group_key": pa.string(),
    }
)
WRITERS: Sequence[Writer] = (
    Dcb(),
    CloudEventBinary(),
    CloudEventStructured(),
    Amqp(),
    FutoIn(),
    FutoInSocket(),
    CneNode(),
    CneCloudEvent(),
    Flight(),
)
"""All but the sink of Spark, which takes a while to start, and writes all cases at once."""


def row(case: Case, writer: str) -> dict[str, Any]:
    """The event as a row of columns."""
    return {
        "type": case.type,
        "data": case.payload(writer),
        "tags": list(case.tags),
        "id": case.id(writer) or None,
        "source": case.source or None,
        "attributes": dict(case.attributes),
        "group_key": case.group_key or None,
    }


def context(case: Case, writer: str) -> dict[str, str]:
    """The event's context attributes, as CloudEvents has them."""
    found = {"specversion": "1.0", "type": case.type, **case.attributes}
    if case.has_id:
        found |= {"id": case.id(writer), "source": case.source}
    if case.tags:
        found["tags"] = encode_tags(case.tags)
    if case.group_key:
        found["partitionkey"] = case.group_key
    return found


def document(case: Case, writer: str) -> bytes:
    """The event in the JSON format of CloudEvents."""
    members, data = json.dumps(context(case, writer)).encode(), case.payload(writer)
    try:
        json.loads(data)
    except ValueError:
        return members[:-1] + b', "data_base64": "%b"}' % base64.b64encode(data) if data else members
    return members[:-1] + b', "data": %b}' % data


def _expect(answer: Any, status: int) -> None:
    if answer.status != status:
        raise Refused(f"{answer.status}: {answer.headers.get('headwater-problem', '')}{answer.body.decode()}")
