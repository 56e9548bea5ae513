"""An addEvent that is begun at once says what any other one says; what comes together is appended together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.core import AppendRequest, Grant, Right
from headwater.core.limits import EventColumns
from headwater.core.local import LocalLog
from headwater.futoin.functions import quick_add
from headwater.server.users.accounts import Account, AccountDirectory, hash_password
from headwater.server.users.guard import AccountGuard
from headwater.storage.memory import MemoryState

from ..conftest import LOG

ADD = "futoin.evt.gen:1.1:addEvent"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each message that was looked at, whether it was begun at once."""
    found: list[bool] = []
    begin = quick_add.begin

    def watched(*given: Any) -> Any:
        adding = begin(*given)
        found.append(adding is not None)
        return adding

    for room in ("websocket", "http"):
        monkeypatch.setattr(f"headwater.futoin.{room}.begin", watched)
    return found


def message(**more: Any) -> bytes:
    said = {"f": ADD, "p": {"type": "A", "data": {"n": 1}}, "rid": "C1", **more}
    return json.dumps({name: value for name, value in said.items() if value is not ...}).encode()


def plain(data: str) -> bytes:
    return b'{"f":"%b","p":{"type":"A","data":%b},"rid":"C1"}' % (ADD.encode(), data.encode("utf-8", "surrogatepass"))


OTHERS = {
    "no rid": message(rid=...),
    "an unfit rid": message(rid="X"),
    "another member": message(forcersp=True),
    "a login that is none": message(sec=7),
    "a login without a colon": message(sec="user"),
    "a signature": message(sec="-hmac:alice:SHA256:AAAA"),
    "an unknown version": message(f="futoin.evt.gen:9.9:addEvent"),
    "an unfit type": message(p={"type": "a", "data": 1}),
    "no data": message(p={"type": "A"}),
    "an unknown parameter": message(p={"type": "A", "data": 1, "x": 2}),
    "a key": message(f="headwater.evt.gen:1.1:addEvent", p={"type": "A", "data": 1, "key": "k"}),
    "another function": message(f="futoin.evt.gen:1.1:ping", p={"echo": 7}),
    "half a surrogate pair": plain('"\\ud800"'),
    "no UTF-8": plain('"\ud800"'),
    "no JSON": plain("{"),
    "a number without end": plain("1e999"),
    "a long message": plain('"' + "x" * 20_000 + '"'),
}


@pytest.mark.parametrize("f", [ADD, "futoin.evt.gen:1.0:addEvent", "headwater.evt.gen:1.1:addEvent"])
def test_a_plain_addition_is_begun_at_once_on_both_ways(peer: Any, begun: list[bool], f: str) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        assert (await socket.ask(f, {"type": "A", "data": 0}))["r"] == "1"  # which opens the log
        begun.clear()
        assert await socket.ask(f, {"type": "A", "data": {"a": [1.50, "\u00e4"]}}, "C-7") == {"r": "2", "rid": "C-7"}
        assert (await peer.exchange("POST", f"/futoin/{LOG}", message(f=f))).json == {"r": "3", "rid": "C1"}
        assert peer.app.statistics.calls[f.replace(":1.1:", ".").replace(":1.0:", ".")] == 3

    peer.run(scenario())
    assert begun == [True, True]
    assert [json.loads(event.data) for event in peer.log.read()] == [0, {"a": [1.5, "\u00e4"]}, {"n": 1}]


@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_is_answered_as_ever(peer: Any, begun: list[bool], name: str) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        assert (await socket.ask(ADD, {"type": "A", "data": 1}))["r"] == "1"
        begun.clear()
        answer = await peer.exchange("POST", f"/futoin/{LOG}", OTHERS[name])
        assert answer.status == 200
        assert {"r", "e"} & answer.json.keys()

    peer.run(scenario())
    assert begun == [False]


@pytest.fixture
def guard() -> AccountGuard:
    accounts = [
        Account("alice", (Grant("*", frozenset(Right)),), hash_password("secret-1")),
        Account("bob", (Grant("*", frozenset({Right.READ})),), hash_password("secret-1")),
    ]
    return AccountGuard(AccountDirectory(accounts, MemoryState()), allows_anybody=False)


@pytest.mark.parametrize("sec", ["alice:secret-1", {"user": "alice", "secret": "secret-1"}])
def test_an_addition_with_a_password_that_was_right_lately_is_begun_at_once(
    peer_of: Any, guard: AccountGuard, begun: list[bool], sec: Any
) -> None:
    peer = peer_of(guard)

    async def scenario() -> None:
        socket = await peer.connected()
        for number in (1, 2):
            assert await socket.ask(ADD, {"type": "A", "data": 1}, sec=sec) == {"r": f"{number}", "rid": "C1"}
        assert (await peer.exchange("POST", f"/futoin/{LOG}", message(sec=sec))).json == {"r": "3", "rid": "C1"}
        assert (await socket.ask(ADD, {"type": "A", "data": 1}, sec="alice:wrong"))["e"] == "SecurityError"
        assert (await socket.ask(ADD, {"type": "A", "data": 1}))["e"] == "SecurityError"

    peer.run(scenario())
    assert begun == [False, True, True, False, False]
    assert peer.log.head() == 3


def test_who_may_not_add_is_told_and_counted_once(peer_of: Any, guard: AccountGuard) -> None:
    peer = peer_of(guard)

    async def scenario() -> None:
        socket = await peer.connected()
        await socket.ask(ADD, {"type": "A", "data": 1}, sec="alice:secret-1")  # which opens the log
        for number in (1, 2):
            reply = await socket.ask(ADD, {"type": "A", "data": 1}, sec="bob:secret-1")
            assert reply["e"] == "Unauthorized"
            assert guard.refusals["forbidden"] == number

    peer.run(scenario())


def test_what_comes_in_one_turn_is_one_append_and_each_has_its_number(
    peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    request = LocalLog.request_columns

    def watched(self: LocalLog, columns: EventColumns, *more: Any, **options: Any) -> AppendRequest:
        sizes.append(columns.count)
        return request(self, columns, *more, **options)

    monkeypatch.setattr(LocalLog, "request_columns", watched)

    async def scenario() -> None:
        socket = await peer.connected()
        await socket.ask(ADD, {"type": "A", "data": 0})
        sizes.clear()
        for number in range(10):
            socket.say(message(rid=f"C{number}"))
        socket.say(message(f="headwater.evt.gen:1.1:addEvent", p={"type": "A", "data": 1, "key": "k"}, rid="C10"))
        replies = [await socket.next() for _ in range(11)]
        assert replies == [{"r": str(number + 2), "rid": f"C{number}"} for number in range(11)]

    peer.run(scenario())
    assert sizes == [10, 1]  # with a key, which the log may know, it goes alone


def test_one_that_cannot_be_appended_fails_alone(peer: Any) -> None:
    async def scenario() -> None:
        socket = await peer.connected()
        await socket.ask(ADD, {"type": "A", "data": 0})
        key = {"f": "headwater.evt.gen:1.1:addEvent", "rid": "C1"}
        socket.say({**key, "p": {"type": "A", "data": 1, "key": "k"}})
        socket.say({**key, "p": {"type": "A", "data": 2, "key": "k"}, "rid": "C2"})
        socket.say(message(rid="C3"))
        replies = {reply["rid"]: reply for reply in [await socket.next() for _ in range(3)]}
        assert replies["C1"]["r"] == "2"
        assert replies["C2"]["e"] == "KeyReused"
        assert replies["C3"]["r"] == "3"

    peer.run(scenario())
