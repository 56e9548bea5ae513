"""Bodies of about n bytes that are made to be dear: each the worst that somebody thought of for some way of reading."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa

from headwater.core.limits import APPEND_EVENTS_MAX
from headwater.formats.arrow.stream import stream_of_batch

Shape = Callable[[int], bytes]


def repeated(head: str, unit: str, tail: str, joint: str = ",") -> Shape:
    """Something that goes on and on: `unit`, in which {} is a number, between a head and a tail."""

    def shape(size: int) -> bytes:
        width = len(unit.format(1_000_000)) + len(joint)
        count = max(size - len(head) - len(tail), 0) // width
        return (head + joint.join([unit.format(1_000_000 + number) for number in range(count)]) + tail).encode()

    return shape


def filled(head: str, unit: str, tail: str) -> Shape:
    """A head, a tail, and the same in between."""

    def shape(size: int) -> bytes:
        return (head + unit * (max(size - len(head) - len(tail), 0) // len(unit)) + tail).encode()

    return shape


def then(shape: Shape, tail: bytes) -> Shape:
    """A shape whose last byte is replaced by that."""
    return lambda size: shape(size)[:-1] + tail


def nested(opening: str, closing: str) -> Shape:
    """As deep as there are bytes for."""

    def shape(size: int) -> bytes:
        depth = size // (len(opening) + len(closing))
        return (opening * depth + closing * depth).encode()

    return shape


ANY_JSON: Mapping[str, Shape] = {
    "members": repeated("{", '"m{}":0', "}"),
    "members, the last of them twice": then(repeated("{", '"{}":0', "}"), b',"z":0,"z":0}'),
    "the same member": filled("{", '"m":0,', '"m":0}'),
    "small arrays": repeated("[", "[]", "]"),
    "small numbers": repeated("[", "1", "]"),
    "nested arrays": nested("[", "]"),
    "nested objects": nested('{"a":', "}"),
    "one text": filled('"', "x", '"'),
    "one text of escapes": filled('"', "\\u00e9", '"'),
    "one number": filled("", "9", ""),
    "white space": filled("[", " ", "]"),
    "not ended": filled("[", "[", ""),
}
"""JSON that no front end asks for."""

EVENT = '{"type":"A","data":"e30=","tags":["t:{}"]}'
ITEM = '{"types":["A{}"]}'


def _braces(text: str) -> str:
    """For `format`: braces stand for themselves, but for `{}`."""
    return text.replace("{", "{{").replace("}", "}}").replace("{{}}", "{}")


def json_list(before: str, unit: str, after: str) -> Shape:
    """A list of JSON values in what is otherwise a good document."""
    return repeated(before, _braces(unit), after)


def cloudevents(size: int) -> bytes:
    """A batch."""
    unit = {"specversion": "1.0", "id": "{}", "source": "/s", "type": "A", "data": {"a": 1}, "tags": "t:{}"}
    text = _braces(json.dumps(unit)).replace("{}", "{0}")
    return repeated("[", text, "]")(size)


NIL_OF_MESSAGE_PACK, NIL_OF_CBOR = b"\xc0", b"\xf6"
ANY_MESSAGE_PACK: Mapping[str, Shape] = {
    "nils": lambda size: b"\xdd" + size.to_bytes(4) + NIL_OF_MESSAGE_PACK * size,
    "empty arrays": lambda size: b"\xdd" + size.to_bytes(4) + b"\x90" * size,
    "nested arrays": lambda size: b"\x91" * size + NIL_OF_MESSAGE_PACK,
    "nested maps": lambda size: b"\x81\xa1a" * (size // 3) + NIL_OF_MESSAGE_PACK,
    "the same member": lambda size: b"\xdf" + (size // 3).to_bytes(4) + b"\xa1a\xc0" * (size // 3),
    "members": lambda size: (
        b"\xdf" + (size // 6).to_bytes(4) + b"".join(b"\xa4%04x\xc0" % (n & 0xFFFF) for n in range(size // 6))
    ),
    "more than there is": lambda size: b"\xdd\xff\xff\xff\xff" + NIL_OF_MESSAGE_PACK * size,
    "one text": lambda size: b"\xdb" + size.to_bytes(4) + b"x" * size,
    "extensions": lambda size: b"\xdd" + (size // 6).to_bytes(4) + b"\xd6\xff\x00\x00\x00\x01" * (size // 6),
}
"""MessagePack values."""
ANY_CBOR: Mapping[str, Shape] = {
    "nulls": lambda size: b"\x9a" + size.to_bytes(4) + NIL_OF_CBOR * size,
    "empty arrays": lambda size: b"\x9a" + size.to_bytes(4) + b"\x80" * size,
    "nested arrays": lambda size: b"\x81" * size + NIL_OF_CBOR,
    "nested maps": lambda size: b"\xa1\x61a" * (size // 3) + NIL_OF_CBOR,
    "nested tags": lambda size: b"\xc1" * size + b"\x00",
    "arrays without length": lambda size: b"\x9f" * (size // 2) + b"\xff" * (size // 2),
    "a text in pieces": lambda size: b"\x7f" + b"\x61x" * (size // 2) + b"\xff",
    "the same member": lambda size: b"\xba" + (size // 3).to_bytes(4) + b"\x61a\xf6" * (size // 3),
    "one large number": lambda size: b"\xc2\x5a" + size.to_bytes(4) + b"\xff" * size,
    "decimal fractions": lambda size: (
        b"\x9a" + (size // 9).to_bytes(4) + b"\xc4\x82\x1a\x00\x01\x00\x00\x01\x01" * (size // 9)
    ),
    "shared references": lambda size: b"\x9a" + (size // 4).to_bytes(4) + b"\xd8\x1c\x80\xf6"[:3] * (size // 4),
    "more than there is": lambda size: b"\x9a\xff\xff\xff\xff" + NIL_OF_CBOR * size,
    "one text": lambda size: b"\x7a" + size.to_bytes(4) + b"x" * size,
}
"""CBOR values."""

TAGS_OF_EVENT = 63


def packed_tags(size: int) -> bytes:
    """An append with as many tags as fit, each of its own, so that its tags are what takes long."""
    count = size // (TAGS_OF_EVENT * 7)
    event = b"\x93\xa1A\xc4\x00\xdc" + TAGS_OF_EVENT.to_bytes(2)
    events = (
        event + b"".join(b"\xa6%06x" % number for number in range(start, start + TAGS_OF_EVENT))
        for start in range(0, count * TAGS_OF_EVENT, TAGS_OF_EVENT)
    )
    return b"\x81\xa6events\xdd" + count.to_bytes(4) + b"".join(events)


def chunked(size: int) -> bytes:
    """The body of an HTTP request in chunks of one byte each (RFC 9112, 7.1), to its end."""
    return b"1\r\n \r\n" * (size // 6) + b"0\r\n\r\n"


PIPELINED: Mapping[str, Shape] = {
    "without a host": filled("", "GET / HTTP/1.1\r\n\r\n", ""),
    "not found": filled("", "GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n", ""),
    "not allowed": filled("", "PUT /logs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n", ""),
}
"""Requests one behind the other."""


def arrow(column: Callable[[int], pa.Array], row_bytes: int, **more: Callable[[int], pa.Array]) -> Shape:
    """A batch of Arrow: so many rows as take the bytes, of these columns."""

    def shape(size: int) -> bytes:
        rows = max(min(size // row_bytes, APPEND_EVENTS_MAX), 1)
        columns = {"type": pa.array(["A"] * rows), "data": column(rows)}
        columns |= {name: make(rows) for name, make in more.items()}
        return stream_of_batch(pa.record_batch(columns))

    return shape


def _empty(rows: int) -> pa.Array:
    return pa.array([b""] * rows)


def _tags(rows: int, last: str = "a") -> pa.Array:
    count = 100 * rows
    texts = [f"t:{number}" for number in range(count - 1)] + [last]
    return pa.ListArray.from_arrays(pa.array(range(0, count + 1, 100), pa.int32()), pa.array(texts))


ARROW_BODIES: Mapping[str, tuple[Shape, int]] = {
    "data": (arrow(lambda rows: pa.array([bytes(1000)] * rows), 1100), 200),
    "tags, all of them distinct": (arrow(_empty, 3000, tags=_tags), 200),
    "tags, the last of them unfit": (arrow(_empty, 3000, tags=lambda rows: _tags(rows, "no\ntag")), 400),
    "texts, all of them unfit": (arrow(_empty, 600, id=lambda rows: pa.array(["\n" * 500] * rows)), 400),
}
"""Appends as Arrow, and how they are answered."""
