"""Transfers that come as a run are taken as each of them by itself would be, whatever the windows and the credit."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.amqp.protocol.connection import Connection
from headwater.amqp.protocol.link import Receiver
from headwater.amqp.protocol.performatives import Accepted, Disposition, decode_performative
from headwater.amqp.protocol.runs import TransferRun
from headwater.amqp.protocol.settings import ConnectionSettings
from headwater.amqp.protocol.wire import accepted_frame

from .pair import Pair

USUAL, LONG = b"\x00\x53\x14", b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x14"
"""The descriptor of a transfer; in its long form, each transfer is read by itself."""
UNSETTLED, SETTLED = b"\x43\x42", b"\x43\x41"


class Frame(NamedTuple):
    """A transfer of which nothing is checked."""

    id: bytes
    tag: bytes = b"\xa0\x04tag0"
    ending: bytes = UNSETTLED
    fields: int = 5
    payload: bytes = b"payload"
    handle: bytes = b"\x43"

    def encoded(self, descriptor: bytes = USUAL) -> bytes:
        content = bytes((self.fields,)) + self.handle + self.id + self.tag + self.ending
        body = descriptor + b"\xc0" + bytes((len(content),)) + content + self.payload
        return struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body


def uint(value: int) -> bytes:
    return b"\x70" + struct.pack(">I", value)


def frames(count: int, ending: bytes = UNSETTLED, first: int = 0) -> list[Frame]:
    return [Frame(uint(first + n), b"\xa0\x02%02d" % n, ending, payload=b"%d" % n) for n in range(count)]


def attached(credit: int = 100, links: int = 1, **settings: Any) -> tuple[Connection, list[Receiver]]:
    """A server with links on which it receives; what it has said so far is forgotten."""
    pair = Pair(server=ConnectionSettings(**settings)).opened()
    session, _ = pair.session()
    receivers = [pair.sender(credit, session, name=f"link {n}")[1] for n in range(links)]
    return pair.server, receivers


def without_flows(data: bytes) -> list[bytes]:
    """Frames; a window is opened behind a run, and not within it."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        found.append(data[at : at + size])
        at += size
    return [frame for frame in found if frame[10] != 0x13]


def told(server: Connection, receivers: list[Receiver], data: bytes, step: int) -> list[Any]:
    """All that can be seen of what the server makes of those bytes."""
    events = [event for at in range(0, len(data), step) for event in server.receive_data(data[at : at + step], 0.0)]
    kinds = [type(event).__name__ for event in events]
    seen: list[Any] = [sorted(set(kinds)), without_flows(server.data_to_send()), server.stage]
    for receiver in receivers:
        taken = [tuple(delivery[:6]) for delivery in receiver.take()]
        seen.append((taken, receiver.credit, receiver.delivery_count, receiver.is_detaching, receiver.is_over))
        known = [delivery[0] for delivery in taken if receiver.session.is_unsettled(delivery[0])]
        if known and receiver.is_attached:
            receiver.settle(known[0], known[-1], Accepted())
        seen.append((known, without_flows(server.data_to_send())))
    return seen


_jumps = st.sampled_from([1, 1, 1, 1, 1, 1, 1, 1, 0, 2])
_endings = st.sampled_from([
    (UNSETTLED, 5), (UNSETTLED, 5), (UNSETTLED, 5), (SETTLED, 5), (b"\x43", 4), (b"", 3), (b"\x52\x00\x42", 5),
    (b"\x43\x40", 5), (b"\x43\x42\x42", 6), (b"\x43\x42\x41", 6), (b"\x43\x42\x42\x40\x40\x42\x42\x41", 11),
    (b"\x43\x42\x42\x40\x40\x42\x41\x42", 11), (b"\x43\x42\x42\x50\x01", 7), (b"\x43\x42\x40\x40\x00\x53\x24\x45", 8),
    (b"\x52\x01\x42", 5), (b"\x43\x42\x40\x40\x40\x41\x42\x42", 11),
])  # fmt: skip


@st.composite
def _transfers(draw: st.DrawFn) -> list[Frame]:
    made, id = [], draw(st.sampled_from([0, 5, 250]))
    for _ in range(draw(st.integers(1, 12))):
        if made and draw(st.integers(0, 3)):
            ending, fields = made[-1].ending, made[-1].fields
        else:
            ending, fields = draw(_endings)
        form = uint(id) if id > 255 or draw(st.integers(0, 9)) else b"\x43" if id == 0 else bytes((0x52, id))
        tag = draw(st.sampled_from([1, 1, 1, 1, 2, 8, 32, 33]))
        handle = draw(st.sampled_from([b"\x43"] * 9 + [b"\x52\x00", b"\x52\x01", uint(0), uint(1), b"\x52\x07"]))
        payload = draw(st.binary(max_size=3) | st.just(bytes(300)))
        made.append(Frame(form, bytes((0xA0, tag)) + bytes(tag), ending, fields, payload, handle))
        id = (id + draw(_jumps)) % 2**32
    return made


@given(_transfers(), st.integers(0, 14), st.sampled_from([4, 5000]), st.sampled_from([5, 1000]), st.integers(1, 2000))
def test_a_run_is_taken_as_its_transfers_by_themselves(
    given_frames: list[Frame], credit: int, window: int, unsettled_max: int, step: int
) -> None:
    settings = {"incoming_window": window, "unsettled_max": unsettled_max, "frame_bytes_max": 512}
    as_run = attached(credit, 2, **settings)
    one_by_one = attached(credit, 2, **settings)
    assert told(*as_run, b"".join(map(Frame.encoded, given_frames)), step) == told(
        *one_by_one, b"".join(frame.encoded(LONG) for frame in given_frames), 10_000
    )


@pytest.mark.parametrize("handle", [b"\x43", b"\x52\x00", uint(0)])
@pytest.mark.parametrize("ending", [UNSETTLED, SETTLED])
def test_transfers_of_one_form_are_one_run(ending: bytes, handle: bytes) -> None:
    server, (receiver,) = attached()
    server.receive_data(b"".join(frame._replace(handle=handle).encoded() for frame in frames(50, ending)), 0.0)
    (run,) = receiver.take_runs()
    assert isinstance(run, TransferRun)
    assert (run.first, run.last, run.is_settled, run.bytes) == (0, 49, ending == SETTLED, 90)
    assert run.payloads == [b"%d" % n for n in range(50)] and run.tags == [b"%02d" % n for n in range(50)]


def test_a_run_ends_where_the_credit_does() -> None:
    server, (receiver,) = attached(credit=10)
    server.receive_data(b"".join(map(Frame.encoded, frames(11))), 0.0)
    assert len(receiver.take()) == 10
    assert receiver.is_detaching


def test_delivery_ids_begin_anew_behind_the_highest() -> None:
    server, (receiver,) = attached()
    server.receive_data(b"".join(Frame(uint((2**32 - 2 + n) % 2**32)).encoded() for n in range(4)), 0.0)
    assert [delivery.id for delivery in receiver.take()] == [2**32 - 2, 2**32 - 1, 0, 1]
    server.data_to_send()
    receiver.settle(2**32 - 2, 1, Accepted())
    assert server.data_to_send() == accepted_frame(0, 2**32 - 2, 1)
    assert not any(receiver.session.is_unsettled(id) for id in (2**32 - 2, 2**32 - 1, 0, 1))


@pytest.mark.parametrize("first, last", [(0, 0), (3, 77), (2**32 - 1, 2)])
def test_the_frame_of_an_accepted_range_says_so_in_full_width(first: int, last: int) -> None:
    frame = accepted_frame(7, first, last)
    assert struct.unpack_from(">IBBH", frame) == (len(frame), 2, 0, 7)
    performative, end = decode_performative(frame, 8, len(frame))
    assert (performative, end) == (Disposition(True, first, last, True, Accepted()), len(frame))
    assert frame[8 + 5] == len(Disposition.FIELDS)
