"""Coders: JSON, MPCK and CBOR, told apart by the first bytes; the literal examples, and what each refuses."""

from __future__ import annotations

from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Event
from headwater.formats.embedding import DEPTH_MAX
from headwater.futoin.errors import FutoInError
from headwater.futoin.messages.coders import CBOR, JSON, MPCK, coder_of
from headwater.futoin.messages.json_values import portable

ADD, POLL = "futoin.evt.gen:1.1:addEvent", "futoin.evt.poll:1.1:pollEvents"
PACKERS = {
    "MPCK": (lambda value: b"MPCK" + msgspec.msgpack.encode(value), lambda body: msgspec.msgpack.decode(body[4:])),
    "CBOR": (lambda value: b"CBOR" + cbor2.dumps(value), lambda body: cbor2.loads(body[4:])),
}
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(params=["MPCK", "CBOR"])
def packed(request: Any) -> Any:
    return PACKERS[request.param]


def call(peer: Any, packed: Any, f: str, p: Any, **more: Any) -> Any:
    pack, unpack = packed
    answer = peer.http("POST", "/futoin/orders", pack({"f": f, "p": p, **more}))
    assert answer.body[:4] == pack(0)[:4]
    return unpack(answer.body)


def test_the_literal_examples() -> None:
    members = [("r", True), ("rid", "C1")]
    for coder, text in ((MPCK, "4d50434b82a172c3a3726964a24331"), (CBOR, "43424f52a26172f563726964624331")):
        assert coder.message([(name, coder.value(value)) for name, value in members]) == bytes.fromhex(text)
        assert coder_of(bytes.fromhex(text)) is coder
        assert coder_of(bytes.fromhex(text)).decode(bytes.fromhex(text)).rid == "C1"


def test_undefined_in_cbor_is_what_javascript_makes_of_it_in_json(peer: Any) -> None:
    nothing = cbor2.undefined
    data = {"a": nothing, "b": [nothing, {"c": nothing}], "d": None}
    added = call(peer, PACKERS["CBOR"], ADD, {"type": "A", "data": data}, sec=nothing, rid="C1")
    assert added == {"r": "1", "rid": "C1"}
    polled = call(peer, PACKERS["CBOR"], POLL, {"component": "LIVE", "last_id": nothing, "want": nothing})
    assert [event["data"] for event in polled["r"]] == [{"b": [None, {}], "d": None}]
    assert call(peer, PACKERS["CBOR"], ADD, {"type": "A", "data": nothing})["e"] == "InvalidRequest", "as in JSON"


def test_a_reply_has_the_coder_and_the_media_type_of_its_request(peer: Any) -> None:
    for name, (pack, unpack) in PACKERS.items():
        request = pack({"f": "futoin.evt.gen:1.1:ping", "p": {"echo": 7}, "rid": "C3"})
        answer = peer.http("POST", "/futoin/orders", request)
        assert unpack(answer.body) == {"r": {"echo": 7}, "rid": "C3"}
        expected = {"MPCK": "application/futoin+msgpack", "CBOR": "application/futoin+cbor"}[name]
        assert answer.headers["content-type"] == expected


def test_events_come_and_go_in_every_coder(peer: Any, packed: Any) -> None:
    data = {"a": [1, 2.5, None, True, "\u00e9"], "b": {}}
    assert call(peer, packed, ADD, {"type": "A", "data": data}) == {"r": "1"}
    assert peer.add("B", data=data) == ["2"]
    peer.register()
    page = call(peer, packed, POLL, {"component": "C", "last_id": None, "want": None})["r"]
    assert [(event["id"], event["type"], event["data"]) for event in page] == [("1", "A", data), ("2", "B", data)]
    assert page == peer.poll()["r"]


def test_a_thousand_events_in_every_coder(peer: Any, packed: Any) -> None:
    peer.log.append([Event("E", b"1")] * 1000)
    peer.register()
    assert len(call(peer, packed, POLL, {"component": "C"})["r"]) == 1000


def test_an_integer_that_messagepack_has_no_room_for_comes_as_a_number(peer: Any, packed: Any) -> None:
    peer.log.append([Event("BIG", b'{"n": 123456789012345678901234567890}')])
    peer.register()
    assert call(peer, packed, POLL, {"component": "C"})["r"][0]["data"] == {"n": 1.2345678901234568e29}


def test_what_json_cannot_say_is_an_invalid_request() -> None:
    for value in (b"bytes", {1: 2}, float("inf"), [{"a": [b""]}]):
        for pack, _ in PACKERS.values():
            body = pack({"f": ADD, "p": {"type": "A", "data": value}})
            with pytest.raises(FutoInError, match="InvalidRequest"):
                coder_of(body).decode(body).parameters({"data"})


@pytest.mark.parametrize("depth", [DEPTH_MAX, DEPTH_MAX + 1, 190])
def test_every_coder_takes_the_same_depth(peer: Any, depth: int) -> None:
    data: Any = 1
    for _ in range(depth):
        data = {"a": data}
    asked = {"f": ADD, "p": {"type": "T", "data": data}}
    bodies = [msgspec.json.encode(asked), *(pack(asked) for pack, _ in PACKERS.values())]
    answers = [peer.http("POST", "/futoin/orders", body).body for body in bodies]
    assert [b"InvalidRequest" in answer for answer in answers] == [depth > DEPTH_MAX] * 3
    assert [f"{DEPTH_MAX} nested brackets".encode() in answer for answer in answers] == [depth > DEPTH_MAX] * 3


@pytest.mark.parametrize(
    "body",
    [
        b"MPCK", b"MPCK\xc1", b"MPCK\x93", b"MPCK\x81\x01\x02", b"CBOR", b"CBOR\xff", b"CBOR\x80",
        b"CBOR\x9a\xff\xff\xff\xff",
        b"CBOR" + b"\x81" * 50_000, b"MPCK" + b"\x91" * 50_000, b"CBOR\xc5\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01",
        b"CBOR\xa1\x61p\xd8\x23\x61a", b"CBOR" + b"x" * 100_000,
    ],
)  # fmt: skip
def test_malformed_messages_are_invalid_requests_in_their_coder(peer: Any, body: bytes) -> None:
    answer = peer.http("POST", "/futoin/orders", body)
    _, decode = PACKERS[body[:4].decode()]
    assert decode(answer.body)["e"] == "InvalidRequest"


def test_a_date_in_cbor_is_refused_in_cbor_with_its_rid(peer: Any) -> None:
    """And not as no message at all, which a client could match with none of its calls."""
    for tagged in (cbor2.CBORTag(0, "2026-11-22T20:00:00Z"), cbor2.CBORTag(1, 1_700_000_000), cbor2.CBORTag(99, 1)):
        given = {"f": ADD, "p": {"type": "A", "data": {"at": tagged}}, "rid": "C7"}
        answer = peer.http("POST", "/futoin/orders", b"CBOR" + cbor2.dumps(given))
        assert answer.headers["content-type"] == "application/futoin+cbor"
        reply = cbor2.loads(answer.body[4:])
        assert (reply["e"], reply["rid"]) == ("InvalidRequest", "C7")
        assert "dates and similar values to text" in reply["edesc"]


def test_references_of_cbor_make_no_message_larger_than_it_is(peer: Any) -> None:
    shared = b"\xd8\x1c\x82\xd8\x1d\x00\xd8\x1d\x00"  # a list that holds itself, twice
    body = b"CBOR" + cbor2.dumps({"f": ADD})[: -0 or None]
    body = b"CBOR\xa2\x61f" + cbor2.dumps(ADD) + b"\x61p\xa2\x64type\x61A\x64data" + shared
    assert cbor2.loads(peer.http("POST", "/futoin/orders", body).body[4:])["e"] == "InvalidRequest"


@given(json_values)
def test_data_survives_every_coder(value: Any) -> None:
    value = portable(value)
    for coder in (JSON, MPCK, CBOR):
        body = coder.message(
            [("f", coder.value("x")), ("p", coder.message([]) if coder is JSON else _map(coder, value))]
        )
        if coder is JSON:
            body = b'{"f":"x","p":{"data":%b}}' % msgspec.json.encode(value)
        text = coder_of(body).decode(body).parameters({"data"})["data"]
        assert msgspec.json.decode(text) == value


def _map(coder: Any, value: Any) -> bytes:
    return coder.message([("data", coder.value(value))])[4:]


@given(st.binary(max_size=200), st.sampled_from([b"", b"MPCK", b"CBOR", b"{"]))
def test_any_bytes_are_a_message_or_an_invalid_request(garbage: bytes, magic: bytes) -> None:
    body = magic + garbage
    try:
        message = coder_of(body).decode(body)
        message.parameters({"data"})
        message.tree()
    except FutoInError as error:
        assert error.name == "InvalidRequest"
