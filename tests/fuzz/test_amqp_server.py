"""A whole AMQP server, but for the sockets, against peers that send valid frames, hurt frames, and frames out of place.

Whatever comes: no exception, no error in the server's log, and nothing left behind once the peers are gone.
`FUZZ_SECONDS` makes it run longer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from headwater.amqp.attach import attach
from headwater.amqp.connections.transport import Transport
from headwater.amqp.container import Container
from headwater.amqp.management.node import ManagementNode
from headwater.amqp.protocol.connection import Connection
from headwater.amqp.protocol.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, TLS_HEADER, frame
from headwater.amqp.protocol.message import DATA, DATAS, Message, Properties, encode_message
from headwater.amqp.protocol.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
    encode_performative,
)
from headwater.amqp.protocol.sasl import SaslInit, SaslResponse, encode_sasl, plain
from headwater.amqp.protocol.settings import ConnectionSettings
from headwater.amqp.protocol.types import Described, Symbol, ULong
from headwater.amqp.settings import AmqpSettings
from headwater.core.access import OpenGuard
from headwater.core.event import Event
from headwater.core.settings import LogSettings
from headwater.storage.memory import MemoryStore

SECONDS = float(os.environ.get("FUZZ_SECONDS", "6"))

STATES = [None, Accepted(), Released(), Rejected(), Rejected(ErrorCondition("x:y", "z", {"k": 1})), Modified(True),
          Modified(True, True, {"x-opt-a": [1]}), Received(1, 2), Described(ULong(5), [])]  # fmt: skip
ADDRESSES = ["orders", "split", "/orders", "orders/$info", "split/$info", "nowhere", "", "amqp://h/split", "a/b", "é",
             None]  # fmt: skip
START = Symbol("amqp:event-streams-delivery-annotations-filter")
FILTERS = [
    None,
    {},
    {"start": Described(START, {Symbol("event-streams-offset"): Symbol("@earliest")})},
    {"start": Described(START, {Symbol("event-streams-offset"): Symbol("00000000000000000003")})},
    {"start": Described(START, {Symbol("event-streams-offset"): 5})},
    {"sql": Described(Symbol("amqp:sql-filter"), "properties.subject LIKE 'T%' AND d.event-streams-offset > '1'")},
    {"sql": Described(Symbol("amqp:sql-filter"), "((((")},
    {"selector": Described(ULong(0x0000468C00000004), "a = 1 OR b IS NULL")},
    {"é": Described(Symbol("unknown"), [1])},
    {"plain": "not described"},
]
PROPERTIES = [
    None,
    {},
    *({Symbol("event-streams-partition"): Symbol(number)} for number in ("0", "1", "7", "x")),
    {Symbol("event-streams-consumer-group"): "g"},
    {Symbol("event-streams-consumer-group"): "g", Symbol("event-streams-epoch"): ULong(3)},
    {Symbol("event-streams-consumer-group"): "h", Symbol("event-streams-partition"): "1",
     Symbol("event-streams-epoch"): ULong(1)},
    {Symbol("event-streams-epoch"): "high", "é": 1},
]  # fmt: skip
MESSAGES = [
    encode_message(Message([b"{}"], DATA, properties=Properties(subject="T"))),
    encode_message(Message([b"{}"], DATA, properties=Properties(subject="T", to="split"))),
    encode_message(Message([b"x" * 5000], DATA, application_properties={"cloudEvents:specversion": "1.0",
                   "cloudEvents:id": "1", "cloudEvents:type": "T", "cloudEvents:source": "/s"})),
    encode_message(Message([b"a", b"b"], DATAS, delivery_annotations={"event-streams-target-partition": Symbol("1")})),
    encode_message(Message({"value": 1})),
    b"", b"\xff", b"\x00\x53\x75\xa0\x02{}",
]  # fmt: skip


class Peer:
    """Makes bytes: mostly what a peer would send now, so that what is out of place meets a state worth disturbing."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.ids = [0, 0, 0]
        self.out = bytearray()

    def bytes(self) -> bytes:
        """All that it has to say on a connection."""
        chance = self.chance
        hurts = chance.random() < 0.5
        self.open()
        for _ in range(chance.randint(1, 40)):
            body = self.frame()
            if hurts and chance.random() < 0.1:
                body = self.hurt(body)
            self.out += body
        return bytes(self.out)

    def open(self) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            init = chance.choice([
                SaslInit("ANONYMOUS", b""), SaslInit("PLAIN", plain("a", "b")), SaslInit("PLAIN"),
                SaslInit("EXTERNAL", b"x"), SaslResponse(b"x"),
            ])  # fmt: skip
            self.out += SASL_HEADER + frame(0, encode_sasl(init), 1)
        self.out += chance.choices([AMQP_HEADER, TLS_HEADER, SASL_HEADER, b"GET / HT"], [97, 1, 1, 1])[0]
        opened = Open(
            chance.choice(["one", "two", "", "n" * 300]),
            max_frame_size=chance.choice([512, 600, 65536, 2**32 - 1]),
            channel_max=chance.choice([0, 2, 65535]),
            idle_time_out=chance.choice([None, 0, 1000, 60000]),
            properties=chance.choice([None, {"é": 1}]),
        )
        self.add(0, opened)
        for channel in range(3):
            self.add(channel, self.begin())
            for handle in range(chance.randint(0, 3)):
                self.add(channel, self.attach(handle))

    def add(self, channel: int, performative: Any, payload: bytes = b"") -> None:
        self.out += frame(channel, bytes(encode_performative(performative)) + payload)

    def frame(self) -> bytes:
        chance = self.chance
        channel = chance.choices([0, 1, 2, 3, 65535], [40, 30, 27, 2, 1])[0]
        kind, payload = self.performative(channel)
        return frame(channel, bytes(encode_performative(kind)) + payload)

    def performative(self, channel: int) -> tuple[Any, bytes]:
        chance = self.chance
        which = chance.choices(range(8), [35, 20, 20, 12, 8, 3, 1.5, 0.5])[0]
        if which == 0:
            return self.transfer(channel)
        made = (None, self.flow, self.disposition, self.attach, self.detach, self.begin, self.end, self.close)[which]
        assert made is not None
        return made(), b""

    def begin(self) -> Begin:
        window = self.chance.choice([0, 1, 5, 1000, 2**32 - 1])
        handle_max = self.chance.choice([0, 3, 2**32 - 1])
        return Begin(None, self.chance.choice([0, 2**32 - 2]), window, window, handle_max)

    def attach(self, handle: int | None = None) -> Attach:
        chance = self.chance
        source = Source(
            chance.choice(ADDRESSES), chance.choice([0, 0, 2]), chance.choice(["session-end", "never", "link-detach"]),
            chance.choice([0, 0, 5]), chance.random() < 0.03, filter=chance.choice(FILTERS),
            default_outcome=chance.choice([None, Released(), Modified(True)]),
        )  # fmt: skip
        target = Target(chance.choice(ADDRESSES), dynamic_node_properties=chance.choice([None, {"é": 1}]))
        unsettled = {b"%08d" % number: chance.choice(STATES) for number in range(chance.choice([0, 0, 3, 200]))}
        return Attach(
            chance.choice(["a", "b", "c", "é" * 200]) + str(chance.randint(0, 3)),
            chance.randint(0, 5) if handle is None else handle,
            chance.random() < 0.6,
            chance.choice([0, 1, 2, 9]),
            chance.choice([0, 0, 1, 9]),
            chance.choices([source, None, Described(ULong(99), [])], [95, 3, 2])[0],
            chance.choices([target, None, Coordinator(), Described(ULong(99), [])], [94, 3, 2, 1])[0],
            unsettled or None,
            initial_delivery_count=chance.choice([0, None, 2**32 - 2]),
            max_message_size=chance.choice([None, 0, 100]),
            properties=chance.choice(PROPERTIES),
        )

    def transfer(self, channel: int) -> tuple[Transfer, bytes]:
        chance = self.chance
        is_first = chance.random() < 0.9
        number = self.ids[channel % 3]
        self.ids[channel % 3] += is_first
        transfer = Transfer(
            chance.randint(0, 3), number if is_first else None, chance.choice([b"t", b"x" * 33, b"%d" % number]),
            chance.choices([0, None, 7], [8, 2, 1])[0], chance.choice([None, False, True]), chance.random() < 0.2,
            state=chance.choices([None, chance.choice(STATES)], [9, 1])[0],
            resume=chance.random() < 0.05, aborted=chance.random() < 0.05,
        )  # fmt: skip
        return transfer, chance.choice(MESSAGES)

    def flow(self) -> Flow:
        chance = self.chance
        count = [None, 0, 0, 1, 2, 2**32 - 2, 2**31]
        has_link = chance.random() < 0.8
        return Flow(
            chance.choice(count), chance.choice([0, 3, 1000, 2**32 - 1]), chance.choice([0, 5, 2**32 - 1]), 10,
            chance.randint(0, 4) if has_link else None, chance.choice(count) if has_link else None,
            chance.choice([None, 0, 1, 10, 1000, 2**32 - 1]) if has_link else None, chance.choice([None, 5]),
            chance.random() < 0.3, chance.random() < 0.3, chance.choice([None, None, {"é": 1}]),
        )  # fmt: skip

    def disposition(self) -> Disposition:
        chance = self.chance
        first = chance.choice([0, 0, 1, 3, 2**32 - 3, 2**31])
        last = chance.choice([None, first, first + 2, 50, 5000, 2**32 - 1])
        return Disposition(
            chance.random() < 0.8, first, last and last & 0xFFFFFFFF, chance.random() < 0.6, chance.choice(STATES)
        )

    def detach(self) -> Detach:
        return Detach(
            self.chance.randint(0, 4), self.chance.random() < 0.6, self.chance.choice([None, ErrorCondition("x:y")])
        )

    def end(self) -> End:
        return End(self.chance.choice([None, ErrorCondition("x:y", "é" * 400)]))

    def close(self) -> Close:
        return Close(self.chance.choice([None, ErrorCondition("x:y", "é" * 400)]))

    def hurt(self, data: bytes) -> bytes:
        """With some bytes changed, put in, or left out; its size mostly right again, so that others see it too."""
        chance = self.chance
        body = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(body))
            body[at : at + chance.randint(0, 2)] = chance.choice([b"", b"\xff", b"\x00", b"\x40", chance.randbytes(2)])
            body = body or bytearray(1)
        if chance.random() < 0.9:
            body[:4] = max(len(body), 4).to_bytes(4)
        return bytes(body)


class Wire(asyncio.Transport):
    """A transport that leads nowhere."""

    def __init__(self, protocol: Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self._protocol: asyncio.BaseProtocol = protocol
        self._loop = loop
        self.is_paused = self._is_closing = self.is_lost = False
        self.written = 0
        protocol.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    @property
    def is_given_away(self) -> bool:
        """Whether what comes now is thrown away."""
        return not isinstance(self._protocol, Transport)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self.written += len(data)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose)

    abort = close

    def _lose(self) -> None:
        self.is_lost = True
        self._protocol.connection_lost(None)


async def _serve(container: Container, management: ManagementNode, chance: random.Random) -> None:
    """Some peers at the same time, each with its bytes in pieces of any size, until each goes, one way or another."""
    loop = asyncio.get_running_loop()
    peers = []
    for _ in range(chance.randint(1, 3)):
        protocol = Transport(container, partial(attach, container, management))
        wire = Wire(protocol, loop)
        peers.append((protocol, wire, Peer(chance).bytes()))
    while peers:
        index = chance.randrange(len(peers))
        protocol, wire, data = peers[index]
        if wire.is_closing() or wire.is_given_away or (not data and chance.random() < 0.3):
            wire.close()
            del peers[index]
            continue
        if wire.is_paused:
            await asyncio.sleep(0.0005)
            continue
        size = chance.choice([1, 7, 100, 1000, 100_000])
        protocol.data_received(data[:size])
        peers[index] = protocol, wire, data[size:]
        if chance.random() < 0.3:
            protocol.resume_writing() if protocol.has_room is False else protocol.pause_writing()
        if chance.random() < 0.1:
            container.tick(loop.time())
        if chance.random() < 0.5:
            await asyncio.sleep(chance.choice([0, 0, 0.001]))


async def _served(seed: int) -> None:
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    failures: list[Any] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    store = MemoryStore()
    store.create("orders").append([Event("T", b"{}")] * 20)
    split = store.create("split", LogSettings(partitions=2, event_bytes_max=4096))
    split.append([Event("T", b"{}")] * 20)
    settings = AmqpSettings(group_pending_max=2, credit=10, unsettled_max=15, held_bytes_max=2000, info_pause_ms=1,
                            group_drain_ms=1, group_pending_ms=20)  # fmt: skip
    container = Container(store, OpenGuard(), settings)
    management = ManagementNode(container)
    for _ in range(3):
        await _serve(container, management, chance)
    async with asyncio.timeout(5):
        while container.nodes._tasks or container.nodes._opening or container.connections or container.shared._links:
            await asyncio.sleep(0.001)  # attaches that are cancelled let go of their links in the next turn
    for node in container.nodes._nodes.values():
        assert not node.consumers and not node.waiting and not node.groups._of
    await container.nodes.close()
    assert not failures


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.found.append(logging.Formatter().format(record))


@pytest.fixture
def errors() -> Iterator[list[str]]:
    handler = _Errors()
    for name in ("headwater", "asyncio"):
        logging.getLogger(name).addHandler(handler)
    yield handler.found
    for name in ("headwater", "asyncio"):
        logging.getLogger(name).removeHandler(handler)


@pytest.mark.timeout(SECONDS + 60)
def test_whatever_peers_send_nothing_breaks_and_nothing_is_left_behind(errors: list[str]) -> None:
    until = time.monotonic() + SECONDS
    seed = int(os.environ.get("FUZZ_SEED", "0"))
    while time.monotonic() < until:
        seed += 1
        try:
            asyncio.run(_served(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        assert not errors, f"seed {seed}: {errors[0]}"


def test_whatever_servers_send_a_client_engine_takes() -> None:
    until = time.monotonic() + SECONDS / 6
    seed = 0
    while time.monotonic() < until:
        seed += 1
        chance = random.Random(seed)
        engine = Connection(ConnectionSettings(), "client", is_server=False)
        engine.start()
        engine.open()
        session = engine.begin()
        session.attach_sender("a0", source=Source("a"), target=Target("orders"))
        session.attach_receiver("b1", source=Source("orders"), target=Target("b")).grant(10)
        data = AMQP_HEADER + bytes(Peer(chance).bytes()).partition(AMQP_HEADER)[2] + EMPTY_FRAME
        for at in range(0, len(data), 100):
            engine.receive_data(data[at : at + 100], 0.0)
            for link in session.links:
                if link.is_sender and link.sendable:  # type: ignore[attr-defined]
                    link.send(b"x" * chance.choice([1, 700]), 1)  # type: ignore[attr-defined]
            engine.data_to_send()
