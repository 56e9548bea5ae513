"""A small blocking AMQP client on the same engine, for programs, tests and demonstrations that use no other AMQP
library.

    with Client("amqp://localhost") as client:
        sender = client.sender("orders")
        sender.send(Message([b"..."], DATA, properties=Properties(subject="OrderPlaced")))
        for delivery in client.receiver("orders", filter={...}):
            ...
        reply = client.manage("READ", type="io.headwater.log", name="orders")

Use a client from one thread only. If the peer refuses a request, its error is raised as AmqpError.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ..core.closing import Closing
from .protocol import sasl
from .protocol.conditions import AmqpError, ConnectionFault, LinkFault
from .protocol.connection import Connection
from .protocol.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    LinkDetached,
    MechanismsOffered,
    MessagesReceived,
    OutcomesReceived,
    SaslEnded,
    SessionEnded,
)
from .protocol.link import Delivery as Received
from .protocol.link import Receiver as ReceivingLink
from .protocol.link import Sender as SendingLink
from .protocol.message import VALUE, Message, Properties, decode_message, encode_message
from .protocol.performatives import Accepted, ErrorCondition, Rejected, Source, Target
from .protocol.settings import ConnectionSettings
from .protocol.types import Described, Symbol

READ_BYTES = 256 * 1024


class Delivery(NamedTuple):
    """A received message, with methods that settle it."""

    message: Message
    received: Received
    link: Receiver

    def settle(self, state: Any = None) -> None:
        """Settle it with this outcome; the default is accepted."""
        if not self.received.is_settled:
            self.link.link.settle(self.received.id, self.received.id, Accepted() if state is None else state)


class Reply(NamedTuple):
    """The response of a management node."""

    status: int
    """As in HTTP; 200 to 299 is success."""
    description: str
    body: Any
    properties: Mapping[str, Any]
    """All application-properties of the answer."""


class Client(Closing):
    """A connection with one session."""

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        container_id: str | None = None,
        timeout_s: float = 30.0,
        idle_ms: int | None = None,
    ) -> None:
        """Connect to `amqp://[name:password@]host[:port]` (or `amqps`). Raises OSError, AmqpError, TimeoutError."""
        parts = urlsplit(url)
        is_secure = parts.scheme == "amqps"
        host = parts.hostname or "localhost"
        self.timeout_s = timeout_s
        self._socket = socket.create_connection((host, parts.port or (5671 if is_secure else 5672)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_secure:
            context = tls or ssl.create_default_context()
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._names = itertools.count()
        self._error: AmqpError | None = None
        self._ends: dict[Any, Sender | Receiver] = {}
        self._management: tuple[Sender, Receiver] | None = None
        settings = ConnectionSettings(idle_ms=idle_ms, open_fields={"hostname": host})
        name = container_id or f"client-{time.time_ns():x}"
        self.engine = Connection(settings, name, is_server=False, now=time.monotonic())
        try:
            self._open(unquote(parts.username or ""), unquote(parts.password or ""))
            self.session = self.engine.begin()
            """The session that all links share."""
            self.wait(lambda: self.session.remote is not None)
        except BaseException:
            self._socket.close()
            raise

    def sender(self, address: str | None, *, name: str | None = None, **fields: Any) -> Sender:
        """Attach a link to an address; `fields` are fields of the attach. Raises AmqpError."""
        return Sender(self, address, name or f"sender-{next(self._names)}", fields)

    def receiver(
        self,
        address: str | None,
        *,
        credit: int = 100,
        filter: Mapping[str, object] | None = None,
        name: str | None = None,
        source: Mapping[str, Any] | None = None,
        waits: bool = True,
        **fields: Any,
    ) -> Receiver:
        """Attach a link from an address; `fields` belong to the attach, `source` to its source. Raises AmqpError.

        If `waits` is false, it does not wait for the answer to the attach.
        """
        filters = None if filter is None else {Symbol(key): value for key, value in filter.items()}
        terminus = Source(address=address, filter=filters, **(source or {}))
        return Receiver(self, terminus, name or f"receiver-{next(self._names)}", credit, fields, waits)

    def manage(self, operation: str, body: Any = None, **properties: Any) -> Reply:
        """Send a request to `$management`; `properties` (type, name, ...) are its other properties. Raises AmqpError.

        A refusal does not raise: check the status of the reply.
        """
        if self._management is None:
            self._management = self.sender("$management"), self.receiver("$management", credit=10)
        sender, receiver = self._management
        request_id = f"request-{next(self._names)}"
        about = Properties(message_id=request_id, reply_to=receiver.link.name)
        state = sender.send(
            Message(body, VALUE, properties=about, application_properties={"operation": operation, **properties})
        )
        if isinstance(state, Rejected):
            raise _fault(LinkFault, state.error, "the request was rejected")
        until = time.monotonic() + self.timeout_s
        while (left := until - time.monotonic()) > 0:
            for delivery in receiver.take(1, left):
                delivery.settle()
                answer, found = delivery.message.application_properties or {}, delivery.message.properties
                if found is not None and found.correlation_id == request_id:
                    return Reply(answer["statusCode"], answer["statusDescription"], delivery.message.body, answer)
        raise TimeoutError("the management node did not answer in time")

    def close(self) -> None:
        """Close the connection properly, if the peer is still connected."""
        try:
            if not self.engine.is_over:
                self.engine.close()
                self.wait(lambda: self.engine.is_over)
        except (OSError, AmqpError, TimeoutError):
            pass  # closed one way or the other
        finally:
            self._socket.close()

    def drop(self) -> None:
        """Drop the connection without closing it, as a crash would."""
        self._socket.close()

    def flush(self) -> None:
        """Write pending output."""
        if data := self.engine.data_to_send():
            self._socket.sendall(data)

    def pump(self, timeout_s: float) -> bool:
        """Write, read once, and handle the input. Returns whether any input arrived. Raises AmqpError if the peer
        closes.
        """
        self.flush()
        self._socket.settimeout(max(timeout_s, 0.0001))
        try:
            data = self._socket.recv(READ_BYTES)
        except (TimeoutError, ssl.SSLWantReadError):
            self._deal(self.engine.tick(time.monotonic()))
            self.flush()
            return False
        finally:
            self._socket.settimeout(self.timeout_s)
        if not data:
            raise self._error or ConnectionResetError("the peer closed the connection")
        self._deal(self.engine.receive_data(data, time.monotonic()))
        self.flush()
        return True

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Pump until `is_done` returns true. Raises TimeoutError, AmqpError."""
        until = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while not is_done():
            if self._error is not None:
                raise self._error
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the peer did not answer in time")
            self.pump(min(left, 0.5))

    def adopt(self, link: Any, end: Sender | Receiver) -> None:
        """Pass the events of this link to `end`."""
        self._ends[link] = end

    def _open(self, name: str, password: str) -> None:
        self.engine.start(uses_sasl=True)
        self._credentials = (name, password)
        self._is_open = False
        self.wait(lambda: self._is_open)

    def _deal(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, MessagesReceived | OutcomesReceived | LinkDetached):
                if (end := self._ends.get(event.link)) is not None:
                    end.deal(event)
            elif isinstance(event, MechanismsOffered):
                name, password = self._credentials
                if name:
                    self.engine.sasl_init("PLAIN", sasl.plain(name, password))
                else:
                    self.engine.sasl_init("EXTERNAL" if "EXTERNAL" in event.mechanisms else "ANONYMOUS", b"")
            elif isinstance(event, SaslEnded):
                if event.code == sasl.SYS_TEMP:
                    told = "the server has too many logins to check; try again in a few seconds"
                    self._error = ConnectionFault(Symbol("amqp:resource-limit-exceeded"), told)
                elif event.code:
                    self._error = ConnectionFault(Symbol("amqp:unauthorized-access"), "the login was refused")
                else:
                    self.engine.open()
            elif isinstance(event, ConnectionOpened):
                self._is_open = True
            elif isinstance(event, ConnectionClosed):
                self._error = self._error or _fault(ConnectionFault, event.error, "the peer closed the connection")
            elif isinstance(event, SessionEnded):
                self._error = _fault(ConnectionFault, event.error, "the peer ended the session")


class Sender:
    """A link that sends messages."""

    def __init__(self, client: Client, address: str | None, name: str, fields: Mapping[str, Any]) -> None:
        fields = {"source": Source(address=name), **fields}
        self._client = client
        self._tags = itertools.count(1)
        self.states: dict[int, Any] = {}
        """Outcomes that the caller has not requested yet, by delivery."""
        self.error: AmqpError | None = None
        self.link: SendingLink = client.session.attach_sender(name, target=Target(address=address), **fields)
        client.adopt(self.link, self)
        client.wait(lambda: self.link.remote is not None)
        if self.link.remote is None or self.link.remote.target is None:
            client.wait(lambda: self.error is not None)
            assert self.error is not None
            raise self.error

    def send(self, message: Message | bytes) -> Any:
        """Send a message and wait for its outcome."""
        (state,) = self.send_all([message])
        return state

    def send_all(self, messages: Sequence[Message | bytes], *, is_settled: bool = False) -> list[Any]:
        """Send as credit allows, and wait for the outcomes. Returns them in the order of the messages."""
        tags = []
        for message in messages:
            encoded = message if isinstance(message, bytes) else encode_message(message)
            self._client.wait(lambda: self.link.sendable > 0 or self.error is not None)
            if self.error is not None:
                raise self.error
            tag = next(self._tags)
            self.link.send(encoded, tag, tag, is_settled=is_settled)
            tags.append(tag)
            if self._client.engine.bytes_to_send > READ_BYTES or self._client.engine.has_large:
                self._client.flush()
        if is_settled:
            self._client.flush()
            return []
        self._client.wait(lambda: self.error is not None or all(tag in self.states for tag in tags))
        if self.error is not None:
            raise self.error
        return [self.states.pop(tag) for tag in tags]

    def close(self) -> None:
        """Close the link."""
        self.link.detach()
        self._client.wait(lambda: self.link.is_over)

    def deal(self, event: Event) -> None:
        """Handle an event of the link."""
        if isinstance(event, OutcomesReceived):
            self.states.update((tag, event.state) for tag in event.contexts)
        elif isinstance(event, LinkDetached):
            self.error = _fault(LinkFault, event.error, "the peer detached the link")


class Receiver:
    """A link that receives messages. It renews credit as the caller takes messages."""

    def __init__(
        self, client: Client, source: Source, name: str, credit: int, fields: Mapping[str, Any], waits: bool
    ) -> None:
        self._client = client
        self._credit = credit
        self._received: deque[Received] = deque()
        self.error: AmqpError | None = None
        self.link: ReceivingLink = client.session.attach_receiver(
            name, source=source, target=Target(address=name), **fields
        )
        client.adopt(self.link, self)
        if credit:
            self.link.grant(credit)
        client.flush()
        if waits:
            self.attached()

    def attached(self, timeout_s: float | None = None) -> None:
        """Wait for the answer to the attach. Raises AmqpError if it is a refusal."""
        self._client.wait(lambda: self.link.remote is not None, timeout_s)
        if self.link.remote is None or self.link.remote.source is None:
            self._client.wait(lambda: self.error is not None)
            assert self.error is not None
            raise self.error

    def take(self, count: int, timeout_s: float = 10.0) -> list[Delivery]:
        """Return `count` deliveries, or fewer if no more arrive before the timeout. Raises AmqpError if the link is
        detached first.
        """
        until = time.monotonic() + timeout_s
        while len(self._received) < count and (left := until - time.monotonic()) > 0:
            if self.error is not None:
                raise self.error
            if self._credit and self.link.credit <= self._credit >> 1 and self.link.is_attached:
                self.link.grant(self._credit)
            self._client.pump(left)
        taken = [self._received.popleft() for _ in range(min(count, len(self._received)))]
        return [Delivery(decode_message(each.payload or b""), each, self) for each in taken]

    def __iter__(self) -> Iterator[Delivery]:
        """Iterate over deliveries forever. Each one is accepted when the next one is requested."""
        while True:
            for delivery in self.take(1, self._client.timeout_s):
                yield delivery
                delivery.settle()

    def close(self, *, is_closed: bool = True) -> None:
        """Close the link, or detach it."""
        self.link.detach(is_closed=is_closed)
        self._client.wait(lambda: self.link.is_over)

    def deal(self, event: Event) -> None:
        """Handle an event of the link."""
        if isinstance(event, MessagesReceived):
            self._received += self.link.take()
        elif isinstance(event, LinkDetached):
            self.error = _fault(LinkFault, event.error, "the peer detached the link")


def _fault(kind: type[AmqpError], error: ErrorCondition | Described | None, otherwise: str) -> AmqpError:
    if isinstance(error, ErrorCondition):
        return kind(Symbol(error.condition), error.description or "", error.info)
    return kind(Symbol("amqp:connection:forced"), otherwise)
