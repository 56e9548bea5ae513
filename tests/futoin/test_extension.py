"""headwater.evt.*: idempotency keys, batches, long polls; and that the interfaces of the standard have none of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headwater.core import Event
from headwater.futoin.messages.coders import CBOR, JSON, MPCK

ADD, BATCH = "headwater.evt.gen:1.0:addEvent", "headwater.evt.gen:1.0:addEvents"
POLL = "headwater.evt.poll:1.0:pollEvents"


def test_a_repeated_call_with_its_key_answers_the_same_id_and_adds_nothing(peer: Any) -> None:
    asked = {"type": "A", "data": {"n": 1}, "key": "order-7"}
    assert [peer.call(ADD, asked) for _ in range(3)] == [{"r": "1"}] * 3
    assert peer.log.head() == 1


def test_a_key_of_another_event_is_told(peer: Any) -> None:
    peer.call(ADD, {"type": "A", "data": 1, "key": "k"})
    assert peer.call(ADD, {"type": "A", "data": 2, "key": "k"})["e"] == "KeyReused"


def test_keys_are_of_their_user(peer: Any) -> None:
    asked = {"type": "A", "data": 1, "key": "k"}
    assert peer.call(ADD, asked, sec="alice:x") == {"r": "1"}
    assert peer.call(ADD, asked, sec="bobby:x") == {"r": "2"}


def test_without_a_key_every_call_adds(peer: Any) -> None:
    assert [peer.call(ADD, {"type": "A", "data": 1, "key": key})["r"] for key in (None, None)] == ["1", "2"]
    assert peer.call(ADD, {"type": "A", "data": 1}) == {"r": "3"}


def test_a_batch_is_added_as_a_whole_under_consecutive_ids(peer: Any) -> None:
    events = [{"type": "A", "data": number} for number in range(3)]
    assert peer.call(BATCH, {"events": events}) == {"r": ["1", "2", "3"]}
    events[1] = {"type": "bad", "data": 1}
    assert peer.call(BATCH, {"events": events})["e"] == "InvalidRequest"
    assert peer.log.head() == 3


def test_a_repeated_batch_is_recognised_by_its_keys(peer: Any) -> None:
    events = [{"type": "A", "data": {"n": number}, "key": f"k{number}"} for number in range(3)]
    assert peer.call(BATCH, {"events": events}) == peer.call(BATCH, {"events": events}) == {"r": ["1", "2", "3"]}
    assert peer.call(BATCH, {"events": [*events, {"type": "A", "data": 9}]})["e"] == "KeyReused"


@pytest.mark.parametrize(
    "events", [[], [{"type": "A"}], [{"data": 1}], [{"type": "A", "data": 1, "x": 1}], [7], {}, None]
)
def test_a_malformed_batch_is_an_invalid_request(peer: Any, events: Any) -> None:
    assert peer.call(BATCH, {"events": events})["e"] == "InvalidRequest"


def test_a_batch_may_be_larger_than_64_kib(peer: Any) -> None:
    events = [{"type": "A", "data": "x" * 10_000}] * 100
    assert len(peer.call(BATCH, {"events": events})["r"]) == 100
    packed = b"MPCK" + msgspec.msgpack.encode({"f": BATCH, "p": {"events": events}})
    assert len(MPCK.tree(peer.http("POST", "/futoin/orders", packed).body)["r"]) == 100
    assert peer.call(BATCH, {"events": [{"type": "A", "data": 1}] * 1001})["e"] == "InvalidRequest"


def test_a_long_poll_is_answered_as_soon_as_there_is_an_event(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        socket.say({"f": POLL, "p": {"component": "LIVE", "wait_ms": 60_000, "want": ["A"]}, "rid": "C1"})
        assert await socket.is_silent()
        await asyncio.to_thread(peer.log.append, [Event("NOISE", b"1")])
        assert await socket.is_silent()
        await asyncio.to_thread(peer.log.append, [Event("A", b"1")])
        assert [event["id"] for event in (await socket.next())["r"]] == ["2"]

    peer.run(scenario())


def test_a_long_poll_without_events_ends_in_time(peer: Any) -> None:
    peer.add("NOISE")
    peer.register()
    assert peer.call(POLL, {"component": "C", "wait_ms": 50, "want": ["A"]}) == {"r": []}
    assert peer.acknowledged() == 1


def test_a_long_poll_ends_when_the_server_stops(peer: Any) -> None:
    async def scenario() -> None:
        body = b'{"f":"%b","p":{"component":"LIVE","wait_ms":60000}}' % POLL.encode()
        poll = asyncio.create_task(peer.exchange("POST", "/futoin/orders", body))
        await asyncio.sleep(0.05)
        peer.app.stop()
        async with asyncio.timeout(5):
            assert (await poll).json == {"r": []}

    peer.run(scenario())


@pytest.mark.parametrize("wait_ms", [-1, 60_001, 1.5, "1"])
def test_how_long_a_poll_waits_has_its_bounds(peer: Any, wait_ms: Any) -> None:
    assert peer.call(POLL, {"component": "LIVE", "wait_ms": wait_ms})["e"] == "InvalidRequest"


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OWN = "00-11111111111111111111111111111111-2222222222222222-00"
TRACE = {"traceparent": PARENT, "tracestate": "vendor=1"}
TRACED_ADD, TRACED_BATCH = "headwater.evt.gen:1.1:addEvent", "headwater.evt.gen:1.1:addEvents"
TRACED_POLL = "headwater.evt.poll:1.1:pollEvents"
CODERS = {"json": JSON, "messagepack": MPCK, "cbor": CBOR}


def said(peer: Any, coder: Any, f: str, p: Any, headers: Any = None) -> Any:
    """The answer to a call in that coder's form."""
    body = coder.message([("f", coder.value(f)), ("p", coder.value(p))])
    return coder.tree(peer.http("POST", "/futoin/orders", body, headers=headers or {}).body)


@pytest.mark.parametrize("coder", CODERS.values(), ids=CODERS)
def test_a_trace_comes_in_by_our_own_interface_and_goes_out_by_it(peer: Any, coder: Any) -> None:
    one = {"type": "A", "data": {"n": 1}}
    assert said(peer, coder, TRACED_ADD, one | TRACE) == {"r": "1"}
    batch = [one, one | {"traceparent": OWN}, one | {"key": "k", **TRACE}, one | {"tracestate": "lost=1"}]
    assert said(peer, coder, TRACED_BATCH, {"events": batch}) == {"r": ["2", "3", "4", "5"]}
    expected = [TRACE, {}, {"traceparent": OWN}, TRACE, {}]
    assert [dict(event.attributes) for event in peer.log.read()] == expected
    for f, shown in ((TRACED_POLL, expected), (POLL, [{}] * 5)):
        events = said(peer, coder, f, {"component": "LIVE"})["r"]
        assert [
            {name: event[name] for name in event.keys() - {"id", "type", "data", "ts"}} for event in events
        ] == shown


def test_a_long_batch_is_in_its_traces_too(peer: Any) -> None:
    events = [{"type": "A", "data": "x" * 10_000, **TRACE}] * 10
    assert len(said(peer, JSON, TRACED_BATCH, {"events": events})["r"]) == 10
    assert [dict(event.attributes) for event in peer.log.read()] == [TRACE] * 10


@pytest.mark.parametrize("f", ["futoin.evt.gen:1.1:addEvent", ADD, TRACED_ADD])
def test_an_addition_over_http_is_in_the_trace_of_its_request(peer: Any, f: str) -> None:
    said(peer, JSON, f, {"type": "A", "data": 1}, TRACE)
    assert [dict(event.attributes) for event in peer.log.read()] == [TRACE]


def test_a_batch_over_http_is_in_the_trace_of_its_request_but_for_events_that_name_their_own(peer: Any) -> None:
    said(
        peer,
        JSON,
        TRACED_BATCH,
        {"events": [{"type": "A", "data": 1}, {"type": "A", "data": 1, "traceparent": OWN}]},
        TRACE,
    )
    assert [dict(event.attributes) for event in peer.log.read()] == [TRACE, {"traceparent": OWN}]


@pytest.mark.parametrize(
    "trace", [{"traceparent": "00-x"}, {"traceparent": 7}, {"tracestate": "\u00e9"}, {"tracestate": "x" * 513}]
)
def test_a_malformed_trace_is_an_invalid_request(peer: Any, trace: Any) -> None:
    one = {"type": "A", "data": 1, **trace}
    assert peer.call(TRACED_ADD, one)["e"] == peer.call(TRACED_BATCH, {"events": [one]})["e"] == "InvalidRequest"


def test_a_malformed_trace_of_an_event_is_not_shown(peer: Any) -> None:
    peer.log.append([Event("A", b"1", attributes={"traceparent": "00-x"})])
    assert peer.call(TRACED_POLL, {"component": "LIVE"})["r"][0].keys() == {"id", "type", "data", "ts"}


def test_the_interfaces_of_the_standard_have_none_of_it(peer: Any) -> None:
    for f, p in (
        ("futoin.evt.gen:1.1:addEvent", {"type": "A", "data": 1, **TRACE}),
        (ADD, {"type": "A", "data": 1, **TRACE}),
        (BATCH, {"events": [{"type": "A", "data": 1, **TRACE}]}),
        ("futoin.evt.gen:1.1:addEvent", {"type": "A", "data": 1, "key": "k"}),
        ("futoin.evt.gen:1.1:addEvents", {"events": [{"type": "A", "data": 1}]}),
        ("futoin.evt.poll:1.1:pollEvents", {"component": "LIVE", "wait_ms": 1}),
    ):
        assert peer.call(f, p)["e"] == "InvalidRequest"
