"""AMQP: each performative, each section of a message, filters, `$management` and `$events`, and floods of small frames.

Everything is written at once, without waiting for an answer, as a hostile peer would.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, frame
from headwater.amqp.protocol.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
    encode_performative,
)
from headwater.amqp.protocol.sasl import SaslInit, encode_sasl
from headwater.amqp.protocol.types import Described, Symbol
from headwater.amqp.settings import AmqpSettings
from tests.every import every

from .measuring import SILENCE_S_MAX, ObservedServer
from .shapes import Shape

FRAME_BYTES_MAX = AmqpSettings().frame_bytes_max
FRAME_SIZE_MAX = FRAME_BYTES_MAX - 200
SIZE_MAX = 1024 * 1024
NULL = b"\x40"


def _list(count: int, content: bytes) -> bytes:
    return b"\xd0" + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content


def _map(pairs: int, content: bytes) -> bytes:
    return b"\xd1" + (len(content) + 4).to_bytes(4) + (2 * pairs).to_bytes(4) + content


def _array(count: int, constructor: bytes, content: bytes) -> bytes:
    return b"\xf0" + (len(content) + len(constructor) + 4).to_bytes(4) + count.to_bytes(4) + constructor + content


def _nested(size: int) -> bytes:
    value = b"\x45"
    for _ in range(min(size // 9, 2000)):
        value = _list(1, value)
    return value + b"\xb0" + (size - len(value)).to_bytes(4) + b"x" * (size - len(value))


ANY_AMQP: Mapping[str, Shape] = {
    "nulls": lambda size: _list(size, NULL * size),
    "empty lists": lambda size: _list(size, b"\x45" * size),
    "nested lists": _nested,
    "symbols": lambda size: _map(size // 8, b"".join(b"\xa3\x05%05x\x40" % (n & 0xFFFFF) for n in range(size // 8))),
    "the same member": lambda size: _map(size // 4, b"\xa3\x01a\x40" * (size // 4)),
    "described by described": lambda size: b"\x00" * size + NULL * (size + 1),
    "described values": lambda size: _list(size // 4, b"\x00\x53\x05\x40" * (size // 4)),
    "an array of small numbers": lambda size: _array(size, b"\x50", b"\x01" * size),
    "an array of nothing": lambda size: _array(2**31, b"\x45", b""),
    "an array of lists": lambda size: _array(size // 2, b"\xc0", b"\x01\x00" * (size // 2)),
    "one text": lambda size: b"\xb1" + size.to_bytes(4) + b"x" * size,
    "more than there is": lambda size: b"\xd0" + size.to_bytes(4) + b"\xff\xff\xff\xff" + NULL * (size - 4),
}
"""Values of about n bytes."""

FIELDS = {
    0x10: ("open", 10), 0x11: ("begin", 8), 0x12: ("attach", 14), 0x13: ("flow", 11), 0x14: ("transfer", 11),
    0x15: ("disposition", 6), 0x16: ("detach", 3), 0x17: ("end", 1), 0x18: ("close", 1),
}  # fmt: skip
"""Code and number of fields of each performative (part 2, section 2.7)."""
TERMINI = {0x28: ("source", 11), 0x29: ("target", 7)}
SECTIONS = {
    0x70: "header", 0x71: "delivery-annotations", 0x72: "message-annotations", 0x73: "properties",
    0x74: "application-properties", 0x76: "amqp-sequence", 0x77: "amqp-value", 0x78: "footer",
}  # fmt: skip


def _frame(performative: Performative, channel: int = 0) -> bytes:
    return frame(channel, encode_performative(performative))


LOGIN = SASL_HEADER + frame(0, encode_sasl(SaslInit(Symbol("ANONYMOUS"))), 1) + AMQP_HEADER
OPENED = LOGIN + _frame(Open("hostile", "localhost", max_frame_size=FRAME_BYTES_MAX, channel_max=65535))
BEGUN = OPENED + _frame(Begin(None, 0, 2**31 - 1, 2**31 - 1, handle_max=2**32 - 1))


def _attach(handle: int, *, sends: bool) -> bytes:
    ends = Source(address="l"), Target(address="l")
    counts = {"initial_delivery_count": 0} if sends else {}
    return _frame(Attach(f"link-{handle}", handle, not sends, source=ends[0], target=ends[1], **counts))


ATTACHED = BEGUN + _attach(0, sends=True) + _attach(1, sends=False)


class Place:
    """Where the server is, for AMQP."""

    def __init__(self, server: ObservedServer) -> None:
        self.server = server
        self.url = server.further_url("amqp")
        parts = urlsplit(self.url)
        self._address = parts.hostname, parts.port

    def write(self, data: bytes) -> None:
        """All of it on a connection of its own, and then wait until the server has closed it."""
        with socket.create_connection(self._address, SILENCE_S_MAX) as peer, suppress(ConnectionError):
            peer.sendall(data)
            with suppress(OSError):  # it is closed already
                peer.shutdown(socket.SHUT_WR)
            while peer.recv(1_000_000):
                pass

    def attempt(self, act: Callable[[Client], object]) -> None:
        """Something on a connection of a good client, whether or not it is refused."""
        with Client(self.url, timeout_s=SILENCE_S_MAX) as client, suppress(AmqpError, ConnectionError):
            act(client)


@pytest.fixture(scope="module")
def place(server: ObservedServer) -> Iterator[Place]:
    yield Place(server)


@every("shape", ANY_AMQP, ids=str)
@pytest.mark.parametrize("code", FIELDS, ids=lambda code: FIELDS[code][0])
def test_each_field_of_a_performative(place: Place, code: int, shape: str) -> None:
    name, count = FIELDS[code]
    before = LOGIN if code == 0x10 else ATTACHED

    def write(size: int) -> None:
        value = ANY_AMQP[shape](size)
        for field in range(count):
            place.write(before + _with_field(code, count, field, value))

    place.server.check_growth(f"{name}, {shape}", write, FRAME_SIZE_MAX)


@every("shape", ANY_AMQP, ids=str)
@pytest.mark.parametrize("code", TERMINI, ids=lambda code: TERMINI[code][0])
def test_each_field_of_a_terminus(place: Place, code: int, shape: str) -> None:
    name, count = TERMINI[code]

    def write(size: int) -> None:
        value = ANY_AMQP[shape](size)
        for field in range(count):
            fields = [b"\xa1\x01x", b"\x43", b"\x41", NULL, NULL, NULL, NULL]
            fields[code - 0x28 + 5] = _composite(code, [NULL] * field + [value])
            place.write(BEGUN + frame(0, _composite(0x12, fields)))

    place.server.check_growth(f"{name}, {shape}", write, FRAME_SIZE_MAX)


def _with_field(code: int, count: int, field: int, value: bytes) -> bytes:
    fields = [NULL] * count
    fields[field] = value
    return frame(0, _composite(code, fields))


def _composite(code: int, fields: list[bytes]) -> bytes:
    return b"\x00\x53" + bytes([code]) + _list(len(fields), b"".join(fields))


@every("shape", ANY_AMQP, ids=str)
@pytest.mark.parametrize("code", SECTIONS, ids=SECTIONS.__getitem__)
@pytest.mark.parametrize("address", ["l", "$management"])
def test_each_section_of_a_message(place: Place, address: str, code: int, shape: str) -> None:
    def send(size: int) -> None:
        section = b"\x00\x53" + bytes([code]) + ANY_AMQP[shape](size)
        place.attempt(lambda client: client.sender(address).send(section))

    place.server.check_growth(f"{address}: {SECTIONS[code]}, {shape}", send, SIZE_MAX)


BODIES: Mapping[str, Callable[[int], bytes]] = {
    "data sections": lambda size: b"\x00\x53\x75\xa0\x00" * (size // 5),
    "sequence sections": lambda size: b"\x00\x53\x76\x45" * (size // 4),
    "unknown sections": lambda size: b"\x00\x53\x01\x45" * (size // 4),
}


@pytest.mark.parametrize("name", BODIES)
def test_many_sections(place: Place, name: str) -> None:
    place.server.check_growth(
        name, lambda size: place.attempt(lambda client: client.sender("l").send(BODIES[name](size))), SIZE_MAX
    )


def _sql(text: str) -> dict[str, object]:
    return {"f": Described(Symbol("amqp:sql-filter"), text)}


FILTERS: Mapping[str, Callable[[int], dict[str, object]]] = {
    "parentheses": lambda size: _sql("(" * (size // 2) + "TRUE" + ")" * (size // 2)),
    "ors": lambda size: _sql(" OR ".join(["a=1"] * (size // 7))),
    "alternatives of tags": lambda size: _sql(" AND ".join(["(a='1' OR a='2')"] * (size // 21))),
    "in": lambda size: _sql("a IN (" + ",".join(["1"] * (size // 2)) + ")"),
    "like": lambda size: _sql("a LIKE '" + "%a" * (size // 2) + "'"),
    "a long text": lambda size: _sql("a = '" + "''" * (size // 2) + "'"),
    "a long number": lambda size: _sql("a = " + "9" * size),
    "nots": lambda size: _sql("NOT " * (size // 4) + "TRUE"),
    "minuses": lambda size: _sql("a = " + "- " * (size // 2) + "1"),
    "selector": lambda size: {
        "f": Described(Symbol("apache.org:selector-filter:string"), "a=1 OR " * (size // 7) + "1=1")
    },
    "many filters": lambda size: {f"f{n}": Described(Symbol("amqp:sql-filter"), "a=1") for n in range(size // 40)},
    "unknown filters": lambda size: {f"f{n}": Described(Symbol("x:y"), "a") for n in range(size // 20)},
    "properties": lambda size: {
        "f": Described(Symbol("amqp:application-properties-filter"), {f"p{n}": "x" for n in range(size // 12)})
    },
    "a topic": lambda size: {"f": Described(Symbol("apache.org:legacy-amqp-topic-binding:string"), "#." * (size // 2))},
}  # fmt: skip


@every("name", FILTERS, ids=str)
@pytest.mark.parametrize("address", ["l", "$events"])
def test_filters(place: Place, address: str, name: str) -> None:
    place.server.check_growth(
        f"{address}: {name}",
        lambda size: place.attempt(lambda client: client.receiver(address, filter=FILTERS[name](size))),
        FRAME_BYTES_MAX // 5 * 4,
    )


def _many(count_of: Callable[[int], bytes], unit: int) -> Callable[[int], bytes]:
    return lambda size: b"".join(map(count_of, range(size // unit)))


FLOODS: Mapping[str, tuple[bytes, Callable[[int], bytes]]] = {
    "empty frames": (BEGUN, lambda size: EMPTY_FRAME * (size // 8)),
    "begins": (OPENED, _many(lambda n: _frame(Begin(None, 0, 1, 1), n % 60000), 30)),
    "begins and ends": (OPENED, lambda size: (_frame(Begin(None, 0, 1, 1)) + _frame(End())) * (size // 40)),
    "attaches of senders": (BEGUN, _many(lambda n: _attach(n, sends=True), 80)),
    "attaches of receivers": (BEGUN, _many(lambda n: _attach(n, sends=False), 80)),
    "attaches and detaches": (
        BEGUN, lambda size: (_attach(5, sends=False) + _frame(Detach(5, True))) * (size // 100)
    ),
    "attaches to nowhere": (
        BEGUN,
        _many(lambda n: _frame(Attach(f"x{n}", n, True, source=Source(address=f"no-{n}"), target=Target())), 80),
    ),
    "flows": (ATTACHED, lambda size: _frame(Flow(0, 100, 0, 100, 1, 0, 10)) * (size // 30)),
    "echoes": (ATTACHED, lambda size: _frame(Flow(0, 100, 0, 100, echo=True)) * (size // 30)),
    "drains": (ATTACHED, lambda size: _frame(Flow(0, 100, 0, 100, 1, 0, 10, drain=True)) * (size // 30)),
    "dispositions": (ATTACHED, lambda size: _frame(Disposition(True, 0, 2**31, settled=True)) * (size // 30)),
    "small transfers of one delivery": (
        ATTACHED,
        lambda size: _frame(Transfer(0, 0, b"t", 0, more=True)) + (_frame(Transfer(0, more=True)) + b"") * (size // 20),
    ),
    "closes": (BEGUN, lambda size: _frame(Close()) * (size // 12)),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOODS)
def test_floods(place: Place, name: str) -> None:
    before, flood = FLOODS[name]
    place.server.check_growth(name, lambda size: place.write(before + flood(size)), SIZE_MAX)


LINKS_EACH = 250


def _with_links(count: int) -> bytes:
    """Sessions full of receivers that have credit."""
    frames = [OPENED]
    for channel in range(-(-count // LINKS_EACH)):
        frames.append(_frame(Begin(None, 0, 2**31 - 1, 2**31 - 1, handle_max=LINKS_EACH), channel))
        for handle in range(LINKS_EACH):
            source = Source(address="l")
            attach = Attach(f"link-{channel}-{handle}", handle, True, source=source, target=Target(address="x"))
            frames.append(_frame(attach, channel))
            frames.append(_frame(Flow(0, 2**31 - 1, 0, 2**31 - 1, handle, 0, 10), channel))
    return b"".join(frames)


def test_a_connection_with_many_links_goes(place: Place) -> None:
    def go(count: int) -> None:
        place.write(_with_links(count))
        place.server.exchange("POST", "/logs/l/append", b'{"events":[{"type":"A"}]}', "application/json")

    place.server.check_growth("links of a connection that goes", go, 20_000)
    assert "Traceback" not in place.server.errors and "level=error" not in place.server.errors
