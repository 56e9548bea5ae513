"""A server engine, and a peer that writes its frames by hand: in any order, and with any content."""

from __future__ import annotations

from struct import unpack_from
from typing import Any

from headwater.amqp.protocol.connection import Connection
from headwater.amqp.protocol.events import Event, LinkAttached
from headwater.amqp.protocol.frames import AMQP_HEADER, frame
from headwater.amqp.protocol.performatives import (
    Attach,
    Begin,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    decode_performative,
    encode_performative,
)
from headwater.amqp.protocol.settings import ConnectionSettings

SOURCE, TARGET = Source(address="here"), Target(address="there")


class Peer:
    """A server engine, and what a peer that writes frames by hand gets from it."""

    def __init__(self, *, is_open: bool = True, open: Open | None = None, **settings: Any) -> None:
        self.engine = Connection(ConnectionSettings(**settings), "server", is_server=True)
        self.events: list[Event] = []
        self.rest = b""
        if is_open:
            self.give(AMQP_HEADER)
            self.send(open or Open("peer"))
            self.engine.open()
            self.got()

    def give(self, data: bytes) -> list[Event]:
        events = self.engine.receive_data(data, 0.0)
        self.events += events
        return events

    def send(self, performative: Performative, payload: bytes = b"", channel: int = 0) -> list[Event]:
        return self.give(framed(performative, payload, channel))

    def begun(self, channel: int = 0, **fields: Any) -> Peer:
        self.send(Begin(None, **{"incoming_window": 1000, "outgoing_window": 1000, **fields}), channel=channel)
        self.got()
        return self

    def attached(self, attach: Attach, **answer: Any) -> Any:
        """The server's end of a link, attached."""
        link = self.pending(attach)
        link.accept(**{"source": SOURCE, "target": TARGET, **answer})
        self.got()
        return link

    def pending(self, attach: Attach) -> Any:
        """The server's end of a link whose attach it has not answered."""
        (event,) = self.send(attach)
        assert isinstance(event, LinkAttached)
        return event.link

    def frames(self) -> list[tuple[int, Performative, bytes]]:
        """What came back, in its order: channel, performative, payload; none larger than what the peer takes."""
        data = self.rest + self.engine.data_to_send()
        if data.startswith(AMQP_HEADER):
            data = data[8:]
        found = []
        at = 0
        while at < len(data):
            size, doff, kind, channel = unpack_from(">IBBH", data, at)
            assert size <= self.engine.frame_bytes_max or self.engine.remote is None
            assert (doff, kind) == (2, 0)
            performative, payload_at = decode_performative(data, at + 8, at + size)
            found.append((channel, performative, data[payload_at : at + size]))
            at += size
        assert at == len(data)
        return found

    def got(self) -> list[Performative]:
        return [performative for _, performative, _ in self.frames()]


def framed(performative: Performative, payload: bytes = b"", channel: int = 0) -> bytes:
    return frame(channel, bytes(encode_performative(performative)) + payload)


def sending(name: str = "link", handle: int = 0, **fields: Any) -> Attach:
    return Attach(name, handle, False, **{"source": SOURCE, "target": TARGET, "initial_delivery_count": 0, **fields})


def receiving(name: str = "link", handle: int = 0, **fields: Any) -> Attach:
    return Attach(name, handle, True, **{"source": SOURCE, "target": TARGET, **fields})


def credit(credit: int, handle: int = 0, **fields: Any) -> Flow:
    window = {"next_incoming_id": 0, "incoming_window": 1000, "outgoing_window": 1000, "delivery_count": 0}
    return Flow(**{**window, "handle": handle, "link_credit": credit, **fields})
