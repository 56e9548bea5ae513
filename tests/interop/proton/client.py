"""One operation with python-qpid-proton, by the contract in ../README.md: `client.py OPERATION JSON`."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import time
import uuid
from typing import Any

import proton
from proton import Condition, Delivery, Described, Link, Message, SSLDomain, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption, ReceiverOption

DATA_SHOWN_MAX = 1024
TIMEOUT_S = 20.0
CLOSING_S_MAX = 2.0
KINDS = {
    "symbol": symbol,
    "ubyte": proton.ubyte,
    "ushort": proton.ushort,
    "uint": proton.uint,
    "ulong": proton.ulong,
    "byte": proton.byte,
    "short": proton.short,
    "int": proton.int32,
    "float": proton.float32,
    "timestamp": proton.timestamp,
    "uuid": uuid.UUID,
    "binary": base64.b64decode,
}
OUTCOMES = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
}


def say(event: str, **more: Any) -> None:
    """One line of the answer."""
    print(json.dumps({"event": event, **more}), flush=True)


def typed(value: Any) -> Any:
    """JSON to AMQP."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and next(iter(value)).startswith("$"):
        (tag, inner), *_ = value.items()
        kind = tag[1:]
        if kind == "described":
            return Described(typed(inner[0]), typed(inner[1]))
        return KINDS[kind](inner)
    return {name: typed(item) for name, item in value.items()}


def shown(value: Any) -> Any:
    """AMQP to JSON."""
    for kind, cls in (*KINDS.items(), ("char", proton.char)):
        if isinstance(cls, type) and isinstance(value, cls):
            return {f"${kind}": str(value) if isinstance(value, str | uuid.UUID) else cls.__mro__[1](value)}
    if isinstance(value, bytes | memoryview):
        return {"$binary": base64.b64encode(value).decode()}
    if isinstance(value, Described):
        return {"$described": [shown(value.descriptor), shown(value.value)]}
    if isinstance(value, proton.Array):
        return [shown(item) for item in value.elements]
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {str(name): shown(item) for name, item in value.items()}
    return value


def symbolic(map_: dict[str, Any] | None) -> dict[symbol, Any]:
    """A map whose keys are symbols."""
    return {symbol(name): typed(value) for name, value in (map_ or {}).items()}


def pattern(size: int) -> bytes:
    """The bytes that stand for a body of that size."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def message_of(form: dict[str, Any]) -> Message:
    """The message that a request describes."""
    message = Message()
    message.durable = form.get("durable", True)
    if "size" in form:
        message.body, message.inferred = pattern(form["size"]), True
    elif "data" in form:
        message.body, message.inferred = base64.b64decode(form["data"]), True
    elif "sequence" in form:
        message.body, message.inferred = typed(form["sequence"]), True
    else:
        message.body, message.inferred = typed(form.get("value")), False
    for name, value in form.get("properties", {}).items():
        setattr(message, {"message_id": "id", "to": "address"}.get(name, name), typed(value))
    message.properties = typed(form.get("application_properties")) or None
    message.annotations = symbolic(form.get("message_annotations")) or None
    message.instructions = symbolic(form.get("delivery_annotations")) or None
    return message


def message_shown(message: Message) -> dict[str, Any]:
    """What is told of a message received."""
    body = message.body
    answer: dict[str, Any] = {
        "durable": message.durable,
        "delivery_annotations": shown(message.instructions or {}),
        "message_annotations": shown(message.annotations or {}),
        "application_properties": shown(message.properties or {}),
        "properties": {
            name: shown(value)
            for name, value in (
                ("message_id", message.id),
                ("correlation_id", message.correlation_id),
                ("to", message.address),
                ("subject", message.subject),
                ("content_type", message.content_type),
                ("group_id", message.group_id),
            )
            if value not in (None, "None")
        },
    }
    if isinstance(body, bytes | memoryview) and message.inferred:
        body = bytes(body)
        answer.update(size=len(body), sha256=hashlib.sha256(body).hexdigest())
        if len(body) <= DATA_SHOWN_MAX:
            answer["data"] = base64.b64encode(body).decode()
    else:
        answer["sequence" if message.inferred and isinstance(body, list) else "value"] = shown(body)
    return answer


class AnyFilters(ReceiverOption):
    """Source filters; an entry is described unless it has no descriptor."""

    def __init__(self, filters: list[dict[str, Any]]) -> None:
        self.filters = filters

    def apply(self, receiver: Any) -> None:
        """See LinkOption."""
        entries = {}
        for each in self.filters:
            value = symbolic(each["map"]) if "map" in each else typed(each["value"])
            descriptor = each.get("descriptor")
            if descriptor is not None:
                descriptor = proton.ulong(descriptor) if isinstance(descriptor, int) else symbol(descriptor)
                value = Described(descriptor, value)
            entries[symbol(each["name"])] = value
        receiver.source.filter.put_dict(entries)


class Attaching(LinkOption):
    """Link properties, capabilities, settle modes and durability of the terminus."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request

    def apply(self, link: Any) -> None:
        """See LinkOption."""
        if self.request.get("link_properties"):
            link.properties = symbolic(self.request["link_properties"])
        link.snd_settle_mode = Link.SND_SETTLED if self.request.get("settled") else Link.SND_UNSETTLED
        if self.request.get("rcv_second"):
            link.rcv_settle_mode = Link.RCV_SECOND
        if self.request.get("durable_terminus"):
            link.source.durability = proton.Terminus.DELIVERIES
            link.source.expiry_policy = proton.Terminus.EXPIRE_NEVER


class Operation(MessagingHandler):
    """What the operations share: a connection, its errors, and the end."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False, peer_close_is_error=False)
        self.request = request
        self.is_over = False
        self.address = request.get("address")

    def on_start(self, event: Any) -> None:
        """Connect."""
        self.container = event.container
        options: dict[str, Any] = {"reconnect": False}
        if "ca" in self.request:
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(self.request["ca"])
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
            options["ssl_domain"] = domain
        if "user" in self.request:
            options.update(user=self.request["user"], password=self.request["password"], allowed_mechs="PLAIN")
        else:
            options["allowed_mechs"] = "ANONYMOUS"
        if "idle_timeout_ms" in self.request:
            options["heartbeat"] = self.request["idle_timeout_ms"] / 1000
        if "max_frame_size" in self.request:
            options["max_frame_size"] = self.request["max_frame_size"]
        options["desired_capabilities"] = [symbol("AMQP_EVENT_STREAMS_V1_0")]
        options["allow_insecure_mechs"] = True
        self.connection = event.container.connect(self.request["url"], **options)
        event.container.schedule(self.request.get("timeout_s", TIMEOUT_S), Alarm(self.on_timeout))

    def on_connection_opened(self, event: Any) -> None:
        """Tell the peer's open."""
        connection = event.connection
        say(
            "opened",
            container_id=connection.remote_container,
            offered_capabilities=[str(item) for item in _elements(connection.remote_offered_capabilities)],
            properties=shown(connection.remote_properties or {}),
            idle_timeout_ms=event.transport.remote_idle_timeout * 1000,
            max_frame_size=event.transport.remote_max_frame_size,
        )
        self.begin(event)

    def begin(self, event: Any) -> None:
        """What the operation does on an open connection."""
        hold_s = self.request.get("hold_s", 0)
        event.container.schedule(hold_s, Alarm(self.finish))

    def on_timeout(self) -> None:
        """The time allowed is over."""
        if not self.is_over:
            say("timeout")
            self.finish()

    def finish(self) -> None:
        """Close the connection in order."""
        if not self.is_over:
            self.is_over = True
            self.connection.close()
            self.container.schedule(CLOSING_S_MAX, Alarm(self.container.stop))

    def on_connection_closed(self, event: Any) -> None:
        """Either side has closed."""
        if self.is_over:
            self.container.stop()
        self.fail("connection", event.connection.remote_condition)

    def on_session_closed(self, event: Any) -> None:
        """The peer has ended the session."""
        self.fail("session", event.session.remote_condition)

    def on_link_closed(self, event: Any) -> None:
        """The peer has detached the link."""
        self.fail("link", event.link.remote_condition)

    def on_link_error(self, event: Any) -> None:
        """As on_link_closed."""
        self.fail("link", event.link.remote_condition)

    def on_session_error(self, event: Any) -> None:
        """As on_session_closed."""
        self.fail("session", event.session.remote_condition)

    def on_connection_error(self, event: Any) -> None:
        """As on_connection_closed."""
        self.fail("connection", event.connection.remote_condition)

    def on_transport_error(self, event: Any) -> None:
        """No connection, no TLS, no SASL, or it broke."""
        condition = event.transport.condition
        scope = "sasl" if condition.name == "amqp:unauthorized-access" else "transport"
        if "SSL" in (condition.description or "") or "certificate" in (condition.description or ""):
            scope = "tls"
        self.fail(scope, condition)
        self.container.stop()

    def fail(self, scope: str, condition: Condition | None) -> None:
        """Tell an error of the peer, unless it is over already, and finish."""
        if not self.is_over:
            name = condition.name if condition else None
            info = shown(condition.info) if condition and condition.info else {}
            say("error", scope=scope, condition=name, description=condition and condition.description, info=info)
            self.finish()

    def attached(self, link: Any) -> None:
        """Tell the peer's attach, unless it is the half of a refusal."""
        terminus = link.remote_target if link.is_sender else link.remote_source
        filters = shown(link.remote_source.filter.get_dict()) if _has_map(link.remote_source.filter) else {}
        say(
            "attached",
            is_refused=terminus.type == proton.Terminus.UNSPECIFIED,
            properties=shown(link.remote_properties or {}),
            filters=filters,
            max_message_size=link.remote_max_message_size,
            snd_settle_mode=int(link.remote_snd_settle_mode),
            rcv_settle_mode=int(link.remote_rcv_settle_mode),
        )


class Alarm:
    """A handler of a timer that calls back."""

    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def on_timer_task(self, event: Any) -> None:
        """Time."""
        self.callback()


class Send(Operation):
    """Sends messages and tells what became of them."""

    def begin(self, event: Any) -> None:
        """See Operation."""
        forms = self.request.get("messages") or [self.request.get("message", {})] * self.request.get("count", 1)
        self.messages = [message_of(form) for form in forms]
        self.repeat_s = self.request.get("pause_ms", 0) / 1000
        self.next = 0
        self.outcomes: dict[str, int] = {}
        self.indexes: dict[str, int] = {}
        self.sender = event.container.create_sender(self.connection, self.address, options=Attaching(self.request))

    def on_link_opened(self, event: Any) -> None:
        """The peer's attach is here."""
        self.attached(event.link)

    def on_sendable(self, event: Any) -> None:
        """Send as many as there is credit for."""
        while event.sender.credit and self.next < len(self.messages):
            delivery = event.sender.send(self.messages[self.next])
            self.indexes[delivery.tag] = self.next
            self.next += 1
            if self.request.get("settled"):
                self.count("settled")

    def on_settled(self, event: Any) -> None:
        """The peer's outcome of one message."""
        if event.delivery.link.is_receiver:
            return
        remote = event.delivery.remote
        outcome = OUTCOMES.get(remote.type, "none")
        if outcome != "accepted":
            condition = remote.condition if outcome == "rejected" else None
            index = self.indexes[event.delivery.tag]
            name, text = (condition.name, condition.description) if condition else (None, None)
            say("outcome", index=index, outcome=outcome, condition=name, description=text)
        if not event.delivery.settled:
            event.delivery.settle()
        self.count(outcome)

    def count(self, outcome: str) -> None:
        """Count an outcome; the last one ends the operation."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if sum(self.outcomes.values()) == len(self.messages):
            say("sent", **self.outcomes)
            self.container.schedule(self.request.get("hold_s", 0), Alarm(self.finish))


class Receive(Operation):
    """Receives messages, settles them as asked, and drains where asked."""

    def begin(self, event: Any) -> None:
        """See Operation."""
        self.received = 0
        self.credit = self.request.get("credit", 100)
        self.count = self.request.get("count", 1)
        self.is_held = False
        options = [Attaching(self.request), AnyFilters(self.request.get("filters", []))]
        name = self.request.get("link_name")
        self.receiver = event.container.create_receiver(self.connection, self.address, name=name, options=options)

    def on_link_opened(self, event: Any) -> None:
        """Give the first credit."""
        self.attached(event.link)
        if self.request.get("drain"):
            self.receiver.drain(self.credit)
        else:
            self.receiver.flow(self.credit)

    def on_link_flow(self, event: Any) -> None:
        """A drain is over when its credit is gone."""
        if self.request.get("drain") and not self.receiver.draining() and not self.receiver.credit and not self.is_over:
            say("drained", received=self.received)
            self.finish()

    def on_message(self, event: Any) -> None:
        """One message."""
        if self.is_over or self.is_held:
            return
        self.received += 1
        if self.request.get("quiet") is not True:
            say("message", **message_shown(event.message))
        self.settle(event.delivery)
        if self.received == self.count and not self.request.get("drain"):
            say("received", count=self.received)
            self.is_held = True
            self.container.schedule(self.request.get("hold_s", 0), Alarm(self.finish))
        elif not self.request.get("drain") and self.receiver.credit < (self.credit + 1) // 2:
            self.receiver.flow(self.credit - self.receiver.credit)

    def settle(self, delivery: Any) -> None:
        """The outcome that was asked for."""
        outcome = self.request.get("outcome", "accept")
        if delivery.settled or outcome == "none":
            return
        if outcome == "release":
            delivery.update(Delivery.RELEASED)
        elif outcome == "modify":
            delivery.local.failed = delivery.local.undeliverable = True
            delivery.update(Delivery.MODIFIED)
        elif outcome == "reject":
            delivery.local.condition = Condition("interop:rejected", "as asked")
            delivery.update(Delivery.REJECTED)
        else:
            delivery.update(Delivery.ACCEPTED)
        if not self.request.get("rcv_second"):
            delivery.settle()

    def on_settled(self, event: Any) -> None:
        """With the receiver settling second, ours follows the peer's."""
        if event.delivery.link.is_receiver and self.request.get("rcv_second"):
            event.delivery.settle()
            say("settled_by_peer")


class Request(Operation):
    """Sends requests, one after the other's answer, with a node made on demand to reply to."""

    def begin(self, event: Any) -> None:
        """See Operation."""
        self.forms = list(self.request["messages"])
        self.receiver = event.container.create_receiver(self.connection, None, dynamic=True)
        self.sender = None

    def on_link_opened(self, event: Any) -> None:
        """First the receiver's, then the sender's."""
        self.attached(event.link)
        if event.link.is_receiver:
            self.receiver.flow(10)
            self.sender = event.container.create_sender(self.connection, self.address)
        elif event.link.remote_target.type != proton.Terminus.UNSPECIFIED:
            self.ask()

    def ask(self) -> None:
        """The next request."""
        message = message_of(self.forms.pop(0))
        message.reply_to = self.receiver.remote_source.address
        self.sender.send(message)

    def on_message(self, event: Any) -> None:
        """An answer."""
        say("message", **message_shown(event.message))
        event.delivery.update(Delivery.ACCEPTED)
        event.delivery.settle()
        if self.forms:
            self.ask()
        else:
            self.finish()


def _elements(value: Any) -> list[Any]:
    if value is None:
        return []
    data = value.get_py_array() if hasattr(value, "get_py_array") else value
    return list(getattr(data, "elements", data) if not isinstance(data, str) else [data])


def _has_map(data: Any) -> bool:
    data.rewind()
    return data.next() == proton.Data.MAP


OPERATIONS = {"connect": Operation, "send": Send, "receive": Receive, "request": Request}


def main() -> None:
    """See the module."""
    operation, request = sys.argv[1], json.loads(sys.argv[2])
    began = time.monotonic()
    container = Container(OPERATIONS[operation](request))
    if "container_id" in request:
        container.container_id = request["container_id"]
    container.run()
    say("done", seconds=round(time.monotonic() - began, 3))


if __name__ == "__main__":
    main()
