"""Each function of FutoIn in each coder, with parameters that nobody asked for; and who is not known, or signs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from headwater.futoin.functions.push import Pushing
from headwater.futoin.server import handlers
from tests.every import every
from tests.night import pairs
from tests.server.running import SILENCE_S_MAX

from .measuring import ObservedServer
from .shapes import ANY_CBOR, ANY_JSON, ANY_MESSAGE_PACK, NIL_OF_MESSAGE_PACK, Shape, json_list

SIZE_MAX = 2 * 1024 * 1024
FUNCTIONS = (
    ("futoin.evt.gen:1.1:ping", "echo"),
    ("futoin.evt.gen:1.1:addEvent", "data"),
    ("headwater.evt.gen:1.0:addEvents", "events"),
    ("futoin.evt.poll:1.1:registerConsumer", "component"),
    ("headwater.evt.poll:1.0:pollEvents", "want"),
    ("futoin.evt.push:1.1:readyToReceive", "want"),
)
PATH = "/futoin/l"
BATCH = "headwater.evt.gen:1.0:addEvents"


def json_message(function: str, parameter: str, value: bytes) -> bytes:
    """A call with one parameter."""
    return b'{"f":"%b","p":{"%b":%b}}' % (function.encode(), parameter.encode(), value)


def message_pack_message(function: str, parameter: str, value: bytes) -> bytes:
    """A call with one parameter."""
    return b"MPCK\x82\xa1f%b\xa1p\x81%b%b" % (_text(0xD9, function), _text(0xD9, parameter), value)


def cbor_message(function: str, parameter: str, value: bytes) -> bytes:
    """A call with one parameter."""
    return b"CBOR\xa2\x61f%b\x61p\xa1%b%b" % (_text(0x78, function), _text(0x78, parameter), value)


def _text(marker: int, text: str) -> bytes:
    return bytes([marker, len(text)]) + text.encode()


CODERS: Mapping[str, tuple[Callable[[str, str, bytes], bytes], Mapping[str, Shape]]] = {
    "JSON": (json_message, ANY_JSON),
    "MPCK": (message_pack_message, ANY_MESSAGE_PACK),
    "CBOR": (cbor_message, ANY_CBOR),
}


def test_no_function_is_left_out() -> None:
    assert {name.split(":")[2] for name, _ in FUNCTIONS} == {name for _, name in handlers(Pushing())}


WAYS = [(coder, shape) for coder, (_, shapes) in CODERS.items() for shape in shapes]


@every("function, way", pairs(FUNCTIONS, WAYS), ids=":".join)
def test_parameters_that_nobody_asked_for(
    server: ObservedServer, function: tuple[str, str], way: tuple[str, str]
) -> None:
    coder, shape = way
    message, shapes = CODERS[coder]
    server.check_growth(
        f"{':'.join(function)}, {coder}, {shape}",
        lambda size: server.exchange("POST", PATH, message(*function, shapes[shape](size)), "application/json"),
        SIZE_MAX,
    )


def _signed(name: str, code: str, value: bytes) -> bytes:
    return b'{"f":"%b","sec":"-hmac:%b:SHA256:%b","p":{"events":%b}}' % (
        BATCH.encode(), name.encode(), code.encode(), value,
    )  # fmt: skip


EVENTS = json_list("[", '{"type":"A","data":{"a":[1,2,3,"{}"]}}', "]")


@every("shape", ["nested arrays", "members", "small arrays", "small numbers", "events"], ids=str)
@pytest.mark.parametrize("name", ["nobody", "alice"])
def test_a_signature_of_whoever_it_is(guarded: ObservedServer, name: str, shape: str) -> None:
    value = EVENTS if shape == "events" else ANY_JSON[shape]
    guarded.check_growth(
        f"signed by {name}, {shape}",
        lambda size: guarded.exchange("POST", PATH, _signed(name, "AAAA", value(size)), "application/json"),
        SIZE_MAX,
    )


def test_a_thousand_large_events(server: ObservedServer) -> None:
    def events(size: int) -> bytes:
        text = b'{"type":"A","data":"%b"}' % (b"x" * (size // 1000))
        return json_message(BATCH, "events", b"[" + b",".join([text] * 1000) + b"]")

    server.check_growth(
        "addEvents", lambda size: server.exchange("POST", PATH, events(size), "application/json"), SIZE_MAX
    )


def test_a_thousand_events_of_many_values(server: ObservedServer) -> None:
    def events(size: int) -> bytes:
        values = b",".join([b"[1]"] * (size // 4000))
        return json_message(BATCH, "events", b"[" + b",".join([b'{"type":"A","data":[%b]}' % values] * 1000) + b"]")

    server.check_growth(
        "addEvents", lambda size: server.exchange("POST", PATH, events(size), "application/json"), SIZE_MAX
    )


UPGRADE = (
    b"GET /futoin/l HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
MASKED = bytes(4)
FRAMES: Mapping[str, bytes] = {
    "fragments of one byte": b"\x00\x81" + MASKED + b" ",
    "fragments of nothing": b"\x00\x80" + MASKED,
    "pings": b"\x89\x80" + MASKED,
}


def send_frames(server: ObservedServer, frame: bytes, size: int) -> None:
    """One message over a WebSocket, with so many bytes of such frames within; its answer is awaited."""
    address = urlsplit(server.url)
    with (
        socket.create_connection((address.hostname, address.port), timeout=SILENCE_S_MAX) as peer,
        suppress(ConnectionError),
    ):
        peer.sendall(UPGRADE)
        assert peer.recv(4096).startswith(b"HTTP/1.1 101 ")
        peer.sendall(b"\x01\x81" + MASKED + b"{" + frame * (size // len(frame)) + b"\x80\x81" + MASKED + b"}")
        assert peer.recv(4096)


@pytest.mark.parametrize("name", FRAMES)
def test_small_frames(server: ObservedServer, name: str) -> None:
    server.check_growth(name, lambda size: send_frames(server, FRAMES[name], size), 2**20)


def event_of(value: bytes, count: int) -> Callable[[int], bytes]:
    """An addEvents of so many events, each with an equal part of an array of that value."""

    def body(size: int) -> bytes:
        data = b",".join([value] * (size // count // (len(value) + 1)))
        return json_message(BATCH, "events", b"[%b]" % b",".join([b'{"type":"A","data":[%b]}' % data] * count))

    return body


def packed_event_of(value: bytes, count: int) -> Callable[[int], bytes]:
    """The same as MessagePack."""

    def body(size: int) -> bytes:
        values = size // count // len(value)
        event = b"\x82\xa4type\xa1A\xa4data\xdd" + values.to_bytes(4) + value * values
        return message_pack_message(BATCH, "events", b"\xdd" + count.to_bytes(4) + event * count)

    return body


LONGEST = 8_000_000
DEAR: Mapping[str, Callable[[int], bytes]] = {
    "small numbers": event_of(b"1", 8),
    "small arrays": event_of(b"[]", 8),
    "texts": event_of(b'"%b"' % (b"x" * 100), 8),
    "texts with commas": event_of(b'",,,,,,,,"', 8),
    "texts like large numbers": event_of(b'"e999"', 8),
    "large numbers": event_of(b"1e300", 8),
    "escapes": event_of(b'"\\ud83d\\ude00"', 8),
    "one event": event_of(b'"%b"' % (b"x" * 100_000), 1),
    "small events": event_of(b"[1,2.5]", 1000),
    "MessagePack nils": packed_event_of(NIL_OF_MESSAGE_PACK, 8),
    "MessagePack arrays": packed_event_of(b"\x90", 1000),
    "MessagePack numbers": packed_event_of(b"\xcb" + bytes(8), 1000),
}


@pytest.mark.parametrize("name", DEAR)
def test_as_long_a_message_as_there_may_be(server: ObservedServer, name: str) -> None:
    server.check_growth(name, lambda size: server.exchange("POST", PATH, DEAR[name](size), "application/json"), LONGEST)
