"""What the server's operator switches off, or bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.futoin.settings import Settings

REGISTER, POLL = "futoin.evt.poll:1.1:registerConsumer", "futoin.evt.poll:1.1:pollEvents"
READY = "futoin.evt.push:1.1:readyToReceive"


def test_without_reliable_consumers_only_live_is_left(peer_of: Callable[..., Any]) -> None:
    peer = peer_of(settings=Settings(allow_reliable=False))
    peer.log.register_consumer("anybody", "C", after=0)  # from before
    for f in (REGISTER, POLL):
        refused = peer.call(f, {"component": "C"})
        assert (refused["e"], "futoin.allow_reliable" in refused["edesc"]) == ("SecurityError", True)
    assert peer.call(REGISTER, {"component": "LIVE"})["e"] == "LiveNotAllowed"
    assert peer.call(POLL, {"component": "LIVE"}) == {"r": []}

    async def scenario() -> None:
        socket = await peer.connected()
        assert (await socket.ask(READY, {"component": "C"}))["e"] == "SecurityError"
        assert (await socket.ask(READY, {"component": "LIVE"}))["r"] is True

    peer.run(scenario())


def test_without_polling_events_are_only_pushed(peer_of: Callable[..., Any]) -> None:
    peer = peer_of(settings=Settings(allow_polling=False))
    peer.register()
    for f in (POLL, "headwater.evt.poll:1.0:pollEvents"):
        for component in ("C", "LIVE"):
            refused = peer.call(f, {"component": component})
            assert (refused["e"], "futoin.allow_polling" in refused["edesc"]) == ("SecurityError", True)

    async def scenario() -> None:
        socket = await peer.connected()
        assert (await socket.ask(READY, {"component": "C"}))["r"] is True

    peer.run(scenario())


def test_a_page_has_no_more_events_than_are_set(peer_of: Callable[..., Any]) -> None:
    peer = peer_of(settings=Settings(max_chunk_events=3))
    peer.register()
    peer.add(*["A"] * 5)
    assert peer.polled() == [1, 2, 3]
    assert peer.polled(last_id="3") == [4, 5]


def test_calls_and_errors_are_counted_by_names_that_peers_cannot_make_up(peer: Any) -> None:
    peer.add("A", "A")
    peer.call("futoin.evt.gen:1.1:addEvent", {"type": "a", "data": 1})
    peer.call("made.up:1.0:function")
    peer.post(b"nothing")

    async def scenario() -> None:
        socket = await peer.connected()
        for _ in range(3):
            await socket.ask("futoin.evt.gen:1.1:addEvent", {"type": "A", "data": 1})

    peer.run(scenario())
    assert peer.app.statistics.calls == {"futoin.evt.gen.addEvent": 5}
    assert peer.app.statistics.errors == {"InvalidRequest": 2, "UnknownInterface": 1}
