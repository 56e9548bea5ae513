"""Pushing (FTN18, 2.2.2 and 3.3.2): reliable and live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headwater.core import Event
from headwater.core.errors import StorageUnavailable
from headwater.futoin.functions.push import LATE_MAX
from headwater.futoin.settings import Settings
from headwater.futoin.websocket import FutoinConnection
from headwater.storage.memory import MemoryStore

from ...volatile import VolatileStore
from ..conftest import LOG

PUSH = "futoin.evt.push:1.1"
READY, REGISTER = f"{PUSH}:readyToReceive", f"{PUSH}:registerConsumer"


def append(peer: Any, *types: str) -> None:
    peer.log.append([Event(type, b"1") for type in types])


async def ready(peer: Any, component: str = "C", registers: bool = True, **p: Any) -> Any:
    """A connection on which a consumer is ready to receive."""
    socket = await peer.connected()
    if registers:
        assert (await socket.ask(REGISTER, {"component": component}))["r"] is True
    assert (await socket.ask(READY, {"component": component, **p}, "C2"))["r"] is True
    return socket


async def pushed(socket: Any) -> tuple[int, list[int], str]:
    """The next group: its seq, its ids, and the rid to answer."""
    message = await socket.next()
    assert message["f"] == "futoin.evt.receiver:1.1:onEvents", message
    return message["p"]["seq"], [int(event["id"]) for event in message["p"]["events"]], message["rid"]


async def acknowledges(socket: Any, peer: Any, upto: int, component: str = "C") -> None:
    async with asyncio.timeout(5):
        while peer.acknowledged(component) != upto:
            await asyncio.sleep(0.005)


class TestReliable:
    def test_the_literal_session(self, peer: Any) -> None:
        data = {"id": 7, "sum": "10.50"}
        peer.call("futoin.evt.gen:1.1:addEvent", {"type": "ORDER_NEW", "data": data})

        async def scenario() -> None:
            socket = await peer.connected()
            assert await socket.ask(REGISTER, {"component": "Billing2"}, sec="alice:s1") == {"r": True, "rid": "C1"}
            ready = {"component": "Billing2", "want": ["ORDER_NEW"]}
            assert await socket.ask(READY, ready, "C2", sec="alice:s1") == {"r": True, "rid": "C2"}
            message = await socket.next()
            (event,) = message["p"].pop("events")
            assert message == {"f": "futoin.evt.receiver:1.1:onEvents", "p": {"seq": 0}, "rid": "S1"}
            assert (event["id"], event["type"], event["data"]) == ("1", "ORDER_NEW", data)
            socket.say({"r": True, "rid": "S1"})
            async with asyncio.timeout(5):
                while peer.acknowledged("Billing2", "alice") != 1:
                    await asyncio.sleep(0.005)

        peer.run(scenario())

    def test_one_group_is_on_its_way_and_seq_rises_with_each_acknowledgement(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "A")
            assert await pushed(socket) == (0, [1], "S1")
            append(peer, "B")
            append(peer, "C")
            assert await socket.is_silent()
            socket.say({"r": True, "rid": "S1"})
            assert await pushed(socket) == (1, [2, 3], "S2")
            assert peer.acknowledged() == 1
            socket.say({"r": True, "rid": "S2"})
            await acknowledges(socket, peer, 3)

        peer.run(scenario())

    def test_any_result_acknowledges(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "A")
            await pushed(socket)
            socket.say({"r": False, "rid": "S1"})
            await acknowledges(socket, peer, 1)

        peer.run(scenario())

    @pytest.mark.parametrize(
        ("more", "size"), [({}, 100), ({"reliable_group_events": 7}, 7), ({"max_chunk_events": 3}, 3)]
    )
    def test_history_comes_first_in_groups_of_100_or_as_it_is_set(
        self, peer_of: Callable[..., Any], more: dict[str, int], size: int
    ) -> None:
        peer = peer_of(settings=Settings(**more))
        append(peer, *["A"] * (2 * size + 1))

        async def scenario() -> None:
            socket = await ready(peer)
            for seq, first, last in ((0, 1, size), (1, size + 1, 2 * size), (2, 2 * size + 1, 2 * size + 1)):
                assert await pushed(socket) == (seq, list(range(first, last + 1)), f"S{seq + 1}")
                socket.say({"r": True, "rid": f"S{seq + 1}"})

        peer.run(scenario())

    def test_after_an_error_half_of_the_group_comes_again_under_the_same_seq(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, *["A"] * 8)
            assert await pushed(socket) == (0, list(range(1, 9)), "S1")
            append(peer, "C")
            for turn, group in ((2, [1, 2, 3, 4]), (3, [1, 2]), (4, [1]), (5, [1])):
                socket.say({"e": "InternalError", "rid": f"S{turn - 1}"})
                assert await pushed(socket) == (0, group, f"S{turn}")
            assert peer.acknowledged() == 0
            for turn, group in ((6, [2, 3]), (7, [4, 5, 6]), (8, [7, 8, 9])):  # one more with each success
                socket.say({"r": True, "rid": f"S{turn - 1}"})
                assert await pushed(socket) == (turn - 5, group, f"S{turn}")

        peer.run(scenario())
        assert peer.app.statistics.redeliveries == 4
        assert peer.app.statistics.pushes == {"reliable": 8}

    def test_a_success_counts_however_late_it_comes(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "A", "B")
            assert await pushed(socket) == (0, [1, 2], "S1")
            assert await pushed(socket) == (0, [1], "S2")
            socket.say({"r": True, "rid": "S1"})
            await acknowledges(socket, peer, 2)
            append(peer, "C")
            assert await pushed(socket) == (1, [3], "S3")

        peer.run(scenario())

    def test_errors_in_a_row_make_the_pause_longer(self, peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses: list[float] = []
        sleep = asyncio.sleep

        async def noted(seconds: float) -> None:
            if seconds:
                pauses.append(seconds)
            await sleep(0)

        async def scenario() -> None:
            socket = await ready(peer)
            monkeypatch.setattr("headwater.futoin.functions.push.asyncio.sleep", noted)
            append(peer, "A")
            for turn in range(1, 9):
                await pushed(socket)
                socket.say({"e": "X", "rid": f"S{turn}"})
            await pushed(socket)

        peer.run(scenario())
        assert pauses[:5] == [0.02, 0.04, 0.08, 0.16, 0.32]
        assert max(pauses) == peer.app._host.settings.answer_s

    def test_without_an_answer_the_same_group_comes_again(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "A")
            assert await pushed(socket) == (0, [1], "S1")
            assert await pushed(socket) == (0, [1], "S2")
            socket.say({"r": True, "rid": "S2"})
            socket.say({"r": True, "rid": "S1"})  # nobody waits for it any more
            await acknowledges(socket, peer, 1)
            assert await socket.is_silent()

        peer.run(scenario())

    def test_of_calls_without_an_answer_a_few_are_remembered(self, peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[dict[str, Any]] = []
        call = FutoinConnection.call

        async def noted(connection: FutoinConnection, *args: Any) -> Any:
            calls.append(connection._calls)
            return await call(connection, *args)

        monkeypatch.setattr(FutoinConnection, "call", noted)

        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "A")
            for _ in range(LATE_MAX + 2):
                await pushed(socket)
            assert len(calls[-1]) <= LATE_MAX + 1  # one more while it is sent
            assert "S1" not in calls[-1]

        peer.run(scenario())

    def test_after_a_reconnect_what_was_not_acknowledged_comes_again_from_seq_0(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "A")
            await pushed(socket)
            socket.say({"r": True, "rid": "S1"})
            await acknowledges(socket, peer, 1)
            append(peer, "B")
            assert await pushed(socket) == (1, [2], "S2")
            socket.leave()
            await socket.task
            socket = await ready(peer)
            assert await pushed(socket) == (0, [2], "S1")

        peer.run(scenario())

    def test_ready_again_on_the_same_connection_begins_at_seq_0(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "A")
            assert await pushed(socket) == (0, [1], "S1")
            assert (await socket.ask(READY, {"component": "C"}, "C3"))["r"] is True
            assert await pushed(socket) == (0, [1], "S2")
            assert await socket.is_silent()

        peer.run(scenario())

    def test_of_two_connections_of_one_consumer_the_newer_one_takes_over(self, peer: Any) -> None:
        async def scenario() -> None:
            older = await ready(peer)
            append(peer, "A")
            assert await pushed(older) == (0, [1], "S1")
            newer = await ready(peer)
            assert await pushed(newer) == (0, [1], "S1")
            newer.say({"r": True, "rid": "S1"})
            append(peer, "B")
            assert await pushed(newer) == (1, [2], "S2")
            assert await older.is_silent()
            assert (await older.ask("futoin.evt.gen:1.1:ping", {"echo": 1}))["r"] == {"echo": 1}

        peer.run(scenario())

    def test_when_the_newer_connection_dies_the_older_one_gets_its_pushes_back(self, peer: Any) -> None:
        async def scenario() -> None:
            older = await ready(peer)
            append(peer, "A")
            assert await pushed(older) == (0, [1], "S1")
            older.say({"r": True, "rid": "S1"})
            await acknowledges(older, peer, 1)
            newest = [await ready(peer), await ready(peer)]
            append(peer, "B")
            assert await pushed(newest[1]) == (0, [2], "S1")
            newest[0].leave()  # it stood by, and does so no more
            await newest[0].task
            newest[1].leave()
            await newest[1].task
            assert await pushed(older) == (1, [2], "S2")
            older.say({"r": True, "rid": "S2"})
            await acknowledges(older, peer, 2)
            older.leave()
            await older.task

        peer.run(scenario())
        assert peer.app.pushing.reliable == {}

    def test_what_is_answered_while_it_stands_by_has_taken_its_seq(self, peer: Any) -> None:
        """A receiver that puts groups in order would wait for the next one for ever."""

        async def scenario() -> None:
            older = await ready(peer)
            append(peer, "A")
            assert await pushed(older) == (0, [1], "S1")
            newer = await ready(peer)
            assert await pushed(newer) == (0, [1], "S1")
            older.say({"r": True, "rid": "S1"})
            await older.ask("futoin.evt.gen:1.1:ping", {"echo": 1})
            newer.leave()
            await newer.task
            await acknowledges(older, peer, 1)
            append(peer, "B")
            assert await pushed(older) == (1, [2], "S2")

        peer.run(scenario())

    def test_a_success_does_not_undo_what_an_operator_did_meanwhile(self, peer: Any) -> None:
        async def scenario() -> None:
            append(peer, "A", "B", "C")
            peer.log.register_consumer("anybody", "C", after=2)
            socket = await ready(peer)
            assert await pushed(socket) == (0, [3], "S1")
            peer.log.reset_consumer("anybody", "C", 0)
            socket.say({"r": True, "rid": "S1"})
            assert await pushed(socket) == (1, [1, 2, 3], "S2")

        peer.run(scenario())

    def test_two_consumers_share_a_connection(self, peer: Any) -> None:
        append(peer, "A")

        async def scenario() -> None:
            socket = await ready(peer, "One")
            await pushed(socket)
            await socket.ask(REGISTER, {"component": "Two"}, "C3")
            await socket.ask(READY, {"component": "Two"}, "C4")
            assert await pushed(socket) == (0, [1], "S2")
            socket.say({"r": True, "rid": "S2"})
            await acknowledges(socket, peer, 1, "Two")
            assert peer.acknowledged("One") == 0

        peer.run(scenario())

    def test_an_unregistered_consumer_is_not_pushed_to(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await peer.connected()
            assert (await socket.ask(READY, {"component": "C"}))["e"] == "NotRegistered"

        peer.run(scenario())

    @pytest.mark.parametrize("want", [None, ["A", "B"]])
    def test_only_what_is_wanted_is_pushed_and_the_rest_counts_as_delivered(self, peer: Any, want: Any) -> None:
        append(peer, "X", "A", "X", "B", "X")

        async def scenario() -> None:
            socket = await ready(peer, want=want)
            assert (await pushed(socket))[1] == ([2, 4] if want else [1, 2, 3, 4, 5])
            socket.say({"r": True, "rid": "S1"})
            await acknowledges(socket, peer, 5)
            if want:
                append(peer, "X", "X")
                await acknowledges(socket, peer, 7)

        peer.run(scenario())

    def test_polling_does_not_end_a_push_which_goes_on_after_the_larger_position(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "A", "B")
            assert await pushed(socket) == (0, [1, 2], "S1")
            append(peer, "C", "D")
            poll = {"component": "C", "last_id": "3"}
            page = await socket.ask("futoin.evt.poll:1.1:pollEvents", poll, "C9")
            assert [event["id"] for event in page["r"]] == ["4"]
            socket.say({"e": "Refused", "rid": "S1"})
            assert await pushed(socket) == (0, [4], "S2")
            poll["last_id"] = "1"
            await socket.ask("futoin.evt.poll:1.1:pollEvents", poll, "C10")
            socket.say({"r": True, "rid": "S2"})
            await acknowledges(socket, peer, 4)

        peer.run(scenario())

    def test_a_poison_group_can_be_skipped_by_polling(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "POISON")
            await pushed(socket)
            append(peer, "GOOD")
            await socket.ask("futoin.evt.poll:1.1:pollEvents", {"component": "C", "last_id": "1"}, "C9")
            assert await pushed(socket) == (0, [2], "S2")

        peer.run(scenario())

    def test_an_operator_moves_a_consumer_back_while_it_is_pushed_to(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            append(peer, "A", "B")
            await pushed(socket)
            socket.say({"r": True, "rid": "S1"})
            await acknowledges(socket, peer, 2)
            peer.log.reset_consumer("anybody", "C", 1)
            assert await pushed(socket) == (1, [2], "S2")

        peer.run(scenario())

    def test_a_consumer_that_is_unregistered_meanwhile_is_told_by_the_end_of_its_connection(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            peer.log.unregister_consumer("anybody", "C")
            frame = await socket.frame()
            assert (frame["type"], frame["reason"]) == ("websocket.close", "consumer C is no longer registered")

        peer.run(scenario())

    def test_a_deleted_log_ends_the_connections_that_it_pushes_on(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer)
            await asyncio.to_thread(peer.store.delete, "orders")
            assert (await socket.frame())["type"] == "websocket.close"

        peer.run(scenario())

    def test_a_waiting_consumer_is_noted_as_alive(self, peer: Any) -> None:
        async def scenario() -> None:
            await ready(peer)
            before = peer.log.consumer("anybody", "C").seen_at
            async with asyncio.timeout(5):
                while peer.log.consumer("anybody", "C").seen_at == before:
                    await asyncio.sleep(0.01)

        peer.run(scenario())

    def test_a_client_of_version_1_0_gets_groups_of_64_kib(self, peer: Any) -> None:
        peer.log.append([Event("BIG", b'"%b"' % (b"x" * 25_000)) for _ in range(4)])

        async def scenario() -> None:
            socket = await peer.connected()
            await socket.ask("futoin.evt.push:1.0:registerConsumer", {"component": "C"})
            await socket.ask("futoin.evt.push:1.0:readyToReceive", {"component": "C", "want": None})
            message = await socket.next()
            assert message["f"] == "futoin.evt.receiver:1.0:onEvents"
            assert [event["id"] for event in message["p"]["events"]] == ["1", "2"]

        peer.run(scenario())

    def test_the_server_calls_back_in_json_whatever_the_client_speaks(self, peer: Any) -> None:
        append(peer, "A")

        def say(f: str, rid: str) -> bytes:
            return b"MPCK" + msgspec.msgpack.encode({"f": f"{PUSH}:{f}", "p": {"component": "C"}, "rid": rid})

        async def scenario() -> None:
            socket = await peer.connected()
            for f, rid in (("registerConsumer", "C1"), ("readyToReceive", "C2")):
                socket.say(say(f, rid))
                assert (await socket.body())[:4] == b"MPCK"
            assert (await pushed(socket))[1] == [1]
            socket.say(b"MPCK" + msgspec.msgpack.encode({"r": True, "rid": "S1"}))
            await acknowledges(socket, peer, 1)

        peer.run(scenario())

    def test_one_connection_is_pushed_to_for_so_many_consumers(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await peer.connected()
            for number in range(65):
                await socket.ask(REGISTER, {"component": f"C{number}"})
                reply = await socket.ask(READY, {"component": f"C{number}"})
                assert ("e" in reply) == (number == 64)
            assert reply["e"] == "DefenseRejected"

        peer.run(scenario())


class TestLive:
    def test_it_starts_at_now_without_registration(self, peer: Any) -> None:
        append(peer, "OLD")

        async def scenario() -> None:
            socket = await ready(peer, "LIVE", registers=False)
            assert await socket.is_silent()
            append(peer, "NEW")
            assert await pushed(socket) == (0, [2], "S1")

        peer.run(scenario())
        assert peer.log.consumers() == []

    def test_an_error_is_harmless(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer, "LIVE", registers=False)
            received: list[int] = []
            for number in range(1, 301):
                append(peer, "A")
                seq, ids, rid = await pushed(socket)
                assert seq == number - 1
                received += ids
                socket.say({"rid": rid, "e": "InternalError", "edesc": "Result type mismatch: onEvents()"})
            assert received == list(range(1, 301))

        peer.run(scenario())

    def test_two_groups_are_on_their_way_at_most(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer, "LIVE", registers=False)
            append(peer, "A")
            assert await pushed(socket) == (0, [1], "S1")
            append(peer, "A")
            assert await pushed(socket) == (1, [2], "S2")
            append(peer, "A")
            append(peer, "A")
            assert await socket.is_silent()
            socket.say({"r": True, "rid": "S2"})
            assert await pushed(socket) == (2, [3, 4], "S3")

        peer.run(scenario())

    def test_who_is_too_slow_misses_the_oldest_and_sees_a_gap_in_seq(self, peer_of: Callable[..., Any]) -> None:
        peer = peer_of(settings=Settings(live_behind_max=10))

        async def scenario() -> None:
            socket = await ready(peer, "LIVE", registers=False)
            for number in (1, 2):
                append(peer, "A")
                assert await pushed(socket) == (number - 1, [number], f"S{number}")
            append(peer, *["A"] * 100)
            await asyncio.sleep(0.05)
            socket.say({"r": True, "rid": "S1"})
            assert await pushed(socket) == (3, list(range(93, 103)), "S3")

        peer.run(scenario())
        assert peer.app.statistics.skipped == 90

    def test_no_answer_frees_the_place_in_time(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer, "LIVE", registers=False)
            for number in range(1, 7):
                append(peer, "A")
                assert (await pushed(socket))[1] == [number]

        peer.run(scenario())

    def test_want_filters(self, peer: Any) -> None:
        async def scenario() -> None:
            socket = await ready(peer, "LIVE", registers=False, want=["B"])
            append(peer, "A")
            append(peer, "B")
            assert await pushed(socket) == (0, [2], "S1")

        peer.run(scenario())

    def test_two_live_consumers_share_a_connection(self, peer: Any) -> None:
        """They are told apart by what they want; the same again begins anew."""

        async def scenario() -> None:
            socket = await ready(peer, "LIVE", registers=False, want=["A"])
            for rid, want in (("C3", ["B", "C"]), ("C4", ["C", "B"])):
                assert (await socket.ask(READY, {"component": "LIVE", "want": want}, rid))["r"] is True
            append(peer, "A")
            assert (await pushed(socket))[:2] == (0, [1])
            append(peer, "B")
            assert (await pushed(socket))[:2] == (0, [2])
            assert await socket.is_silent()

        peer.run(scenario())

    def test_every_live_connection_gets_every_event(self, peer: Any) -> None:
        async def scenario() -> None:
            sockets = [await ready(peer, "LIVE", registers=False) for _ in range(5)]
            append(peer, "A")
            for socket in sockets:
                assert (await pushed(socket))[1] == [1]

        peer.run(scenario())


def test_a_peer_that_leaves_while_a_group_is_on_its_way_ends_only_its_own_push(peer: Any) -> None:
    async def scenario() -> None:
        leaving, staying = await ready(peer, "One"), await ready(peer, "Two")
        append(peer, "A")
        await pushed(leaving)
        await pushed(staying)
        leaving.leave()
        await leaving.task
        staying.say({"r": True, "rid": "S1"})
        append(peer, "B")
        assert await pushed(staying) == (1, [2], "S2")
        assert {key[1:] for key in peer.app.pushing.reliable} == {("anybody", "Two")}

    peer.run(scenario())


def test_32_adders_and_one_reliable_push_lose_nothing_and_repeat_nothing(peer: Any) -> None:
    adders, each = 32, 40

    async def add(number: int) -> None:
        socket = await peer.connected()
        for turn in range(each):
            await socket.ask("futoin.evt.gen:1.1:addEvent", {"type": "A", "data": [number, turn]})

    async def receive() -> list[Any]:
        socket, received = await ready(peer), []
        while len(received) < adders * each:
            message = await socket.next()
            received += message["p"]["events"]
            socket.say({"r": True, "rid": message["rid"]})
        return received

    async def scenario() -> list[Any]:
        results = await asyncio.gather(receive(), *map(add, range(adders)))
        return results[0]

    received = peer.run(scenario())
    assert [int(event["id"]) for event in received] == list(range(1, adders * each + 1))
    assert len({tuple(event["data"]) for event in received}) == adders * each


@pytest.mark.parametrize("component", ["C", "LIVE"])
def test_who_slept_through_its_turn_pushes_nothing_and_ends_the_connection(
    peer_of: Any, component: str, monkeypatch: Any
) -> None:
    turn = [True]
    store = MemoryStore()
    store.create(LOG)
    monkeypatch.setattr(store, "may_act", lambda: turn[0])
    peer = peer_of(store=store)

    async def scenario() -> None:
        socket = await ready(peer, component, registers=component == "C")
        append(peer, "A")
        assert (await pushed(socket))[1] == [1]
        socket.say({"r": True, "rid": "S1"})
        if component == "C":
            await acknowledges(socket, peer, 1)
        turn[0] = False
        append(peer, "B")
        async with asyncio.timeout(5):
            while (frame := await socket.frame())["type"] != "websocket.close":
                assert "onEvents" not in str(frame)
        assert frame["reason"] == "another server now pushes the events"

    peer.run(scenario())


def test_what_a_push_acknowledges_is_durable_before_the_next_group(peer_of: Any) -> None:
    store = VolatileStore()
    store.create(LOG)
    peer = peer_of(settings=Settings(reliable_group_events=2), store=store)
    append(peer, "A", "B", "C")

    async def scenario() -> None:
        socket = await ready(peer)
        _, ids, rid = await pushed(socket)
        assert ids == [1, 2]
        socket.say({"r": True, "rid": rid})
        assert (await pushed(socket))[1] == [3]
        assert b'"acknowledged": 2' in store.volatile.kept_values("consumer")[0]
        socket.leave()

    peer.run(scenario())


def test_where_no_position_can_be_stored_the_consumer_hears_why(peer_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = VolatileStore()
    store.create(LOG)
    peer = peer_of(store=store)
    append(peer, "A")

    async def scenario() -> None:
        socket = await ready(peer)
        _, _, rid = await pushed(socket)
        store.volatile.failure = StorageUnavailable("the home does not answer")
        socket.say({"r": True, "rid": rid})
        frame = await socket.frame()
        assert frame["type"] == "websocket.close" and "positions cannot be stored" in frame["reason"]

    peer.run(scenario())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
