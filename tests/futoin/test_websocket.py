"""WebSocket (FTN5, FTN3): messages both ways, and what a bad peer can do: nothing to others, nor to the process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from headwater.core import Event
from headwater.futoin import websocket
from headwater.futoin.messages.coders import coder_of

ADD, POLL = "futoin.evt.gen:1.1:addEvent", "futoin.evt.poll:1.1:pollEvents"
EVENT = {"type": "A", "data": 1}


def test_requests_are_answered_in_binary_frames_with_their_rid(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        socket.say({"f": ADD, "p": EVENT, "rid": "C1"})
        frame = await socket.frame()
        assert json.loads(frame["bytes"]) == {"r": "1", "rid": "C1"}
        assert "text" not in frame

    peer.run(scenario())


def test_text_frames_are_taken_too(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        socket.say(json.dumps({"f": ADD, "p": EVENT, "rid": "C1"}))
        assert await socket.next() == {"r": "1", "rid": "C1"}

    peer.run(scenario())


def test_every_coder_is_taken_on_one_connection(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        socket.say(b"MPCK" + msgspec.msgpack.encode({"f": ADD, "p": EVENT, "rid": "C1"}))
        assert msgspec.msgpack.decode((await socket.body())[4:]) == {"r": "1", "rid": "C1"}
        assert (await socket.ask(ADD, EVENT, "C2"))["r"] == "2"

    peer.run(scenario())


@pytest.mark.parametrize("rid", [None, "", 7, "1", "X1", "C", "C1\n", "C" * 65 + "1"])
def test_a_message_without_rid_gets_an_invalid_request_and_the_connection_goes_on(peer: Any, rid: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        socket.say({"f": ADD, "p": EVENT, **({} if rid is None else {"rid": rid})})
        reply = await socket.next()
        assert reply["e"] == "InvalidRequest"
        assert "rid" not in reply
        assert (await socket.ask(ADD, EVENT))["r"] == "1"

    peer.run(scenario())


@pytest.mark.parametrize(
    "garbage", [b"", b"\x00", b"{", b"[]", b"MPCK\xc1", b"CBOR\xff", "\ud800", b'{"rid":"C1"}', b"{}"]
)
def test_garbage_gets_an_invalid_request_and_the_connection_goes_on(peer: Any, garbage: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        socket.say(garbage)
        answer = await socket.body()
        assert coder_of(answer).decode(answer).error == "InvalidRequest"
        assert (await socket.ask(ADD, EVENT))["r"] == "1"

    peer.run(scenario())


def test_an_answer_that_nobody_waits_for_is_nothing(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        for answer in ({"r": True, "rid": "S1"}, {"e": "X", "rid": 7}, {"r": True}, {"e": {"a": 1}, "rid": "S1"}):
            socket.say(answer)
        assert await socket.is_silent()
        assert (await socket.ask(ADD, EVENT))["r"] == "1"

    peer.run(scenario())


def test_requests_side_by_side_are_all_answered_and_added_in_order(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        await socket.ask(POLL, {"component": "LIVE"})  # so that the log is open
        for number in range(1, 501):
            socket.say({"f": ADD, "p": {"type": "A", "data": number}, "rid": f"C{number}"})
        replies = [await socket.next() for _ in range(500)]
        assert {reply["rid"]: reply["r"] for reply in replies} == {f"C{n}": str(n) for n in range(1, 501)}

    peer.run(scenario())
    assert [json.loads(event.data) for event in peer.log.read()] == list(range(1, 501))


def test_additions_of_every_kind_keep_their_order_while_the_log_opens(peer: Any) -> None:
    def message(number: int) -> Any:
        p = {"type": "A", "data": number}
        if number % 9 == 4:
            batch = {"events": [p, p]}
            return {"f": "headwater.evt.gen:1.1:addEvents", "p": batch, "rid": f"C{number}"}
        if number % 9 == 7:
            return {"f": "headwater.evt.gen:1.1:addEvent", "p": {**p, "key": str(number)}, "rid": f"C{number}"}
        body = {"f": ADD, "p": p, "rid": f"C{number}"}
        return b"MPCK" + msgspec.msgpack.encode(body) if number % 9 == 5 else body

    async def scenario() -> None:
        socket = await peer.connected()
        for number in range(300):
            socket.say(message(number))
        for _ in range(300):
            await socket.body()

    peer.run(scenario())
    expected = [number for number in range(300) for _ in range(2 if number % 9 == 4 else 1)]
    assert [json.loads(event.data) for event in peer.log.read()] == expected


def test_a_consumer_may_be_ready_before_its_registration_is_answered(peer: Any) -> None:
    peer.add("A")

    async def scenario() -> None:
        socket = await peer.connected()
        for number, function in enumerate(("registerConsumer", "readyToReceive")):
            f = f"futoin.evt.push:1.1:{function}"
            socket.say({"f": f, "p": {"component": "C"}, "rid": f"C{number}"})
        assert [(await socket.next())["r"] for _ in range(2)] == [True, True]
        assert (await socket.next())["p"]["events"][0]["id"] == "1"

    peer.run(scenario())


def test_a_slow_request_holds_up_no_other(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        waiting = {"component": "LIVE", "wait_ms": 60_000}
        socket.say({"f": "headwater.evt.poll:1.0:pollEvents", "p": waiting, "rid": "C1"})
        assert (await socket.ask("futoin.evt.gen:1.1:ping", {"echo": 1}, "C2"))["r"] == {"echo": 1}

    peer.run(scenario())


def test_a_peer_that_does_not_read_makes_the_server_hold_only_so_much(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        other = await peer.connected()
        socket.stop_reading()
        for number in range(1000):
            socket.say({"f": "futoin.evt.gen:1.1:ping", "p": {"echo": number}, "rid": f"C{number}"})
        assert (await other.ask(ADD, EVENT))["r"] == "1"
        await asyncio.sleep(0.1)
        assert 1000 - socket._inbox.qsize() <= websocket.REQUESTS_MAX + 1
        socket.go_on_reading()
        assert len([await socket.next() for _ in range(1000)]) == 1000

    peer.run(scenario())


def test_of_large_replies_one_at_a_time_is_made_and_waits_to_be_taken(peer: Any) -> None:
    peer.log.append([Event("A", b'"%b"' % (b"x" * 900_000)) for _ in range(8)])

    async def scenario() -> None:
        socket = await peer.connected()
        socket.stop_reading()
        begun = []
        original = peer.log.read_page

        def read_page(query: Any, after: int, **more: Any) -> Any:
            if after == 0:  # a reply begins; it takes several steps
                begun.append(1)
            return original(query, after, **more)

        peer.log.read_page = read_page
        for number in range(20):
            socket.say({"f": POLL, "p": {"component": "LIVE"}, "rid": f"C{number}"})
        await asyncio.sleep(0.2)
        assert len(begun) == 1
        socket.go_on_reading()
        for _ in range(20):
            assert len((await socket.next())["r"]) == 8

    peer.run(scenario())


def test_a_peer_that_leaves_in_the_middle_of_everything_harms_nobody(peer: Any) -> None:
    async def scenario() -> None:
        other = await peer.connected()
        for number in range(20):
            socket = await peer.connected()
            await socket.ask("futoin.evt.push:1.1:readyToReceive", {"component": "LIVE"})
            socket.say({"f": ADD, "p": EVENT, "rid": "C1"})
            if number % 2:
                await socket.next()
            socket.leave()
            async with asyncio.timeout(5):
                await socket.task
        assert int((await other.ask(ADD, EVENT))["r"]) > 10

    peer.run(scenario())


def test_a_stopping_server_lets_running_requests_finish_and_says_goodbye(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        await socket.ask("futoin.evt.push:1.1:readyToReceive", {"component": "LIVE"})
        socket.say({"f": ADD, "p": EVENT, "rid": "C2"})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        peer.app.stop()
        frames = []
        while not frames or frames[-1]["type"] != "websocket.close":
            frames.append(await socket.frame())
        assert any(b'"rid":"C2"' in frame.get("bytes", b"") for frame in frames)
        assert frames[-1]["code"] == 1012
        async with asyncio.timeout(5):
            await socket.task

    peer.run(scenario())


def test_no_websocket_is_served_below_the_endpoint(peer: Any) -> None:
    async def scenario() -> None:
        socket = peer.socket("/futoin/orders/futoin.evt.gen")
        assert (await socket.frame())["type"] == "websocket.close"

    peer.run(scenario())


def test_pages_over_websocket_are_cut_by_the_interface_that_is_named(peer: Any) -> None:
    peer.log.append([Event("BIG", b'"%b"' % (b"x" * 30_000)) for _ in range(10)])

    async def scenario() -> None:
        socket = await peer.connected()
        for interface, count in (("poll:1.1", 10), ("poll:1.0", 2), ("push:1.1", 2)):
            socket.say({"f": f"futoin.evt.{interface}:pollEvents", "p": {"component": "LIVE"}, "rid": "C1"})
            body = await socket.body()
            assert len(json.loads(body)["r"]) == count
            assert count > 2 or len(body) <= 65536

    peer.run(scenario())
