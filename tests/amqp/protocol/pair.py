"""A client engine and a server engine joined by a fake wire, which may carry one byte at a time."""

from __future__ import annotations

from typing import Any

from headwater.amqp.protocol.connection import Connection
from headwater.amqp.protocol.events import (
    ConnectionOpened,
    Event,
    LinkAttached,
    SessionBegun,
)
from headwater.amqp.protocol.link import Delivery, Receiver, Sender
from headwater.amqp.protocol.performatives import Source, Target
from headwater.amqp.protocol.session import Session
from headwater.amqp.protocol.settings import ConnectionSettings


class Pair:
    """`pump` carries bytes both ways until nobody has anything to say; events are collected on each side."""

    def __init__(
        self,
        client: ConnectionSettings | None = None,
        server: ConnectionSettings | None = None,
        *,
        step: int | None = None,
    ) -> None:
        self.client = Connection(client or ConnectionSettings(), "client", is_server=False)
        self.server = Connection(server or ConnectionSettings(), "server", is_server=True)
        self.step = step
        self.now = 0.0
        self.client_events: list[Event] = []
        self.server_events: list[Event] = []

    def pump(self) -> None:
        """Until silence."""
        while True:
            to_server, to_client = self.client.data_to_send(), self.server.data_to_send()
            if not to_server and not to_client:
                return
            self._carry(self.server, to_server, self.server_events)
            self._carry(self.client, to_client, self.client_events)

    def _carry(self, side: Connection, data: bytes, events: list[Event]) -> None:
        step = self.step or max(len(data), 1)
        for at in range(0, len(data), step):
            events += side.receive_data(data[at : at + step], self.now)

    def opened(self) -> Pair:
        """Both sides open."""
        self.client.start()
        self.client.open()
        self.pump()
        self.server.open()
        self.pump()
        assert isinstance(self.client_events[-1], ConnectionOpened)
        return self

    def session(self) -> tuple[Session, Session]:
        """A session, as the client and as the server see it."""
        ours = self.client.begin()
        self.pump()
        theirs = self.last(self.server_events, SessionBegun).session
        return ours, theirs

    def sender(self, credit: int = 100, session: Session | None = None, **fields: Any) -> tuple[Sender, Receiver]:
        """A link on which the client sends, attached, with that credit."""
        ours, _ = (session, None) if session else self.session()
        fields = {"source": Source(address="here"), "target": Target(address="there"), **fields}
        sender = ours.attach_sender(fields.pop("name", "link"), **fields)
        self.pump()
        receiver = self.last(self.server_events, LinkAttached).link
        assert isinstance(receiver, Receiver)
        receiver.accept(source=receiver.remote.source, target=receiver.remote.target)
        if credit:
            receiver.grant(credit)
        self.pump()
        return sender, receiver

    def receiver(self, credit: int = 100, session: Session | None = None, **fields: Any) -> tuple[Receiver, Sender]:
        """A link on which the client receives, attached, with that credit."""
        ours, _ = (session, None) if session else self.session()
        fields = {"source": Source(address="there"), "target": Target(address="here"), **fields}
        receiver = ours.attach_receiver(fields.pop("name", "link"), **fields)
        if credit:
            receiver.grant(credit)
        self.pump()
        sender = self.last(self.server_events, LinkAttached).link
        assert isinstance(sender, Sender)
        sender.accept(source=sender.remote.source, target=sender.remote.target)
        self.pump()
        return receiver, sender

    @staticmethod
    def last(events: list[Event], kind: type) -> Any:
        """The newest event of that kind."""
        return next(event for event in reversed(events) if isinstance(event, kind))


def payloads(deliveries: list[Delivery]) -> list[bytes | None]:
    """What was delivered."""
    return [delivery.payload for delivery in deliveries]
