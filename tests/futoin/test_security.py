"""Who asks, and what they may: sec in all its forms, HTTP Basic, signatures, rights, secure channels (FTN3, FTN8.1)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from headwater.core import Credentials, Grant, Right, TooManyLogins, User
from headwater.futoin import websocket
from headwater.futoin.messages.coders import CBOR, MPCK
from headwater.futoin.messages.signatures import ALGORITHMS, LEGACY_ALGORITHMS, Signature
from headwater.server.users.accounts import Account, AccountDirectory, hash_password, hash_token
from headwater.server.users.guard import AccountGuard
from headwater.storage.memory import MemoryState

GEN, POLL = "futoin.evt.gen:1.1", "futoin.evt.poll:1.1"
ADD, REGISTER, PULL = f"{GEN}:addEvent", f"{POLL}:registerConsumer", f"{POLL}:pollEvents"
EVENT = {"type": "A", "data": {"a": 1.5, "b": [1, "x"]}}
KEY = b"0123456789abcdef"
ALICE = "alice:secret:1/x"


def grants(*rights: Right, logs: str = "*") -> tuple[Grant, ...]:
    return (Grant(logs, frozenset(rights)),)


@pytest.fixture(scope="module")
def accounts() -> list[Account]:
    return [
        Account("alice", grants(*Right), hash_password("secret:1/x"), (hash_token("hw_token"),), KEY),
        Account("erin", grants(*Right), key=2 * KEY),
        Account("bob", grants(Right.READ), hash_password("bobs-secret")),
        Account("carol", grants(Right.APPEND, logs="other-*"), hash_password("carols-secret")),
    ]


@pytest.fixture
def guarded(peer_of: Callable[..., Any], accounts: list[Account]) -> Any:
    async def sleep(seconds: float) -> None:
        pass

    directory = AccountDirectory(accounts, MemoryState())
    return peer_of(AccountGuard(directory, allows_anybody=False, sleep=sleep))


def test_nobody_is_anonymous(guarded: Any) -> None:
    assert guarded.call(ADD, EVENT) == {"e": "SecurityError", "edesc": "Anonymous not allowed"}


def test_a_login_that_was_not_looked_at_is_no_wrong_password(
    peer_of: Callable[..., Any], accounts: list[Account]
) -> None:
    class Crowded(AccountGuard):
        async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
            raise TooManyLogins(2.0)

    peer = peer_of(Crowded(AccountDirectory(accounts, MemoryState()), allows_anybody=False))
    reply = peer.call(ADD, EVENT, sec=ALICE)
    assert reply["e"] == "DefenseRejected" and "try again in 2 s" in reply["edesc"]


class Held(AccountGuard):
    """The first login takes until it may go on."""

    def __init__(self, accounts: list[Account]) -> None:
        super().__init__(AccountDirectory(accounts, MemoryState()), allows_anybody=False)
        self.has_begun, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
        if not self.has_begun.is_set():
            self.has_begun.set()
            await self.may_go_on.wait()
        return await super().authenticate(credentials, peer)


def test_an_addition_that_waits_for_its_login_holds_up_additions_alone(
    peer_of: Callable[..., Any], accounts: list[Account]
) -> None:
    guard = Held(accounts)
    peer = peer_of(guard)

    async def scenario() -> None:
        socket = await peer.connected()
        additions = [(ADD, 1), (ADD, 2), ("headwater.evt.gen:1.1:addEvents", 3), (ADD, 4)]
        for f, number in additions:
            event = {"type": "A", "data": number}
            socket.say({"f": f, "p": event if f == ADD else {"events": [event]}, "rid": f"C{number}", "sec": ALICE})
        async with asyncio.timeout(20):
            assert (await socket.ask(f"{GEN}:ping", {"echo": 5}, "C5", sec=ALICE))["r"] == {"echo": 5}
        assert peer.log.head() == 0
        guard.may_go_on.set()
        replies = [await socket.next() for _ in additions]
        assert {reply["rid"]: reply["r"] for reply in replies} == {"C1": "1", "C2": "2", "C3": ["3"], "C4": "4"}
        assert [json.loads(event.data) for event in peer.log.read()] == [1, 2, 3, 4]

    peer.run(scenario())


def test_so_much_of_additions_waits_for_a_login_and_then_nothing_is_read(
    peer_of: Callable[..., Any], accounts: list[Account], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "WAITING_BYTES_MAX", 300)
    guard = Held(accounts)
    peer = peer_of(guard)

    async def scenario() -> None:
        socket = await peer.connected()
        for number in range(1, 31):
            p = {"type": "A", "data": number}
            socket.say({"f": ADD, "p": p, "rid": f"C{number}", "sec": ALICE})
        await guard.has_begun.wait()
        assert await socket.is_silent()
        assert socket._inbox.qsize() >= 26
        guard.may_go_on.set()
        assert {(await socket.next())["r"] for _ in range(30)} == {str(number) for number in range(1, 31)}
        assert [json.loads(event.data) for event in peer.log.read()] == list(range(1, 31))

    peer.run(scenario())


def test_a_wrong_password_is_a_security_error(guarded: Any) -> None:
    for sec in ("alice:wrong", "nobody:secret:1/x", "alice", "alice:", ":", "alice:secret:1/x\x00", "-internal:x"):
        reply = guarded.call(ADD, EVENT, sec=sec)
        assert reply["e"] == "SecurityError"
    assert guarded.call(ADD, EVENT, sec="alice:wrong")["edesc"] == "Basic Auth Verification Failed"
    assert guarded.log.head() == 0


def test_a_password_may_hold_colons(guarded: Any) -> None:
    assert guarded.call(ADD, EVENT, sec=ALICE) == {"r": "1"}


def test_sec_may_be_a_structure(guarded: Any) -> None:
    assert guarded.call(ADD, EVENT, sec={"user": "alice", "secret": "secret:1/x"}) == {"r": "1"}
    assert guarded.call(ADD, EVENT, sec={"user": "alice", "secret": "wrong"})["e"] == "SecurityError"
    assert guarded.call(ADD, EVENT, sec={"user": "alice"})["e"] == "SecurityError"
    assert guarded.call(ADD, EVENT, sec=7)["e"] == "InvalidRequest"


def test_a_token_is_shown_without_a_name(guarded: Any) -> None:
    assert guarded.call(ADD, EVENT, sec=":hw_token") == {"r": "1"}
    assert guarded.call(ADD, EVENT, headers={}, sec=":hw_other")["e"] == "SecurityError"


def test_the_authorization_header_counts_where_the_message_says_nothing(guarded: Any) -> None:
    message = {"f": ADD, "p": EVENT}
    basic = {"authorization": "Basic " + base64.b64encode(ALICE.encode()).decode()}
    assert guarded.post(message, headers=basic) == {"r": "1"}
    assert guarded.post(message, headers={"authorization": "Bearer hw_token"}) == {"r": "2"}
    assert guarded.post({**message, "sec": "bob:wrong"}, headers=basic)["e"] == "SecurityError"
    for header in ("Basic !", "Digest x", "Basic " + base64.b64encode(b"alice").decode()):
        assert guarded.post(message, headers={"authorization": header})["e"] == "SecurityError"


def test_security_in_a_path_is_decoded_by_itself(guarded: Any) -> None:
    path = "/futoin/orders/futoin.evt.poll/1.1/ping/alice%3Asecret%3A1%2Fx"
    assert guarded.http("GET", path, query_string=b"echo=1").json == {"r": {"echo": 1}}


def test_who_has_not_said_who_they_are_learns_nothing_of_what_there_is(guarded: Any) -> None:
    for f in (f"{GEN}:removeEvent", "futoin.evt.gen:9.9:addEvent", "no.such:1.0:thing", "futoin.evt.gen:1.1:"):
        assert guarded.call(f)["e"] == "UnknownInterface"
    assert guarded.call(f"{GEN}:removeEvent", sec=ALICE)["e"] == "InvalidRequest"
    assert guarded.call("futoin.evt.gen:9.9:addEvent", sec=ALICE)["e"] == "NotSupportedVersion"


def test_rights_are_those_of_the_configuration(guarded: Any) -> None:
    bob, carol = "bob:bobs-secret", "carol:carols-secret"
    assert guarded.call(ADD, EVENT, sec=bob)["e"] == "Unauthorized"
    assert guarded.call(ADD, EVENT, sec=carol)["e"] == "Unauthorized"
    assert guarded.call(PULL, {"component": "LIVE"}, sec=carol)["e"] == "Unauthorized"
    assert guarded.call(PULL, {"component": "LIVE"}, sec=bob) == {"r": []}
    answer = guarded.http("POST", "/futoin/nolog", json.dumps({"f": ADD, "p": EVENT, "sec": carol}).encode())
    assert answer.json["e"] == "Unauthorized", "whether there is such a log is not for them"


def test_registering_takes_the_right_to_manage_and_repeating_it_the_right_to_read(guarded: Any) -> None:
    bob = "bob:bobs-secret"
    assert guarded.call(REGISTER, {"component": "C"}, sec=bob)["e"] == "Unauthorized"
    guarded.log.register_consumer("bob", "C", after=0)
    assert guarded.call(REGISTER, {"component": "C"}, sec=bob) == {"r": True}
    assert guarded.call(PULL, {"component": "C"}, sec=bob) == {"r": []}


def test_one_component_of_two_users_is_two_consumers(guarded: Any) -> None:
    guarded.log.register_consumer("bob", "C", after=0)
    assert guarded.call(REGISTER, {"component": "C"}, sec=ALICE) == {"r": True}
    guarded.call(ADD, EVENT, sec=ALICE)
    guarded.call(PULL, {"component": "C", "last_id": "1"}, sec="bob:bobs-secret")
    assert (guarded.acknowledged("C", "alice"), guarded.acknowledged("C", "bob")) == (0, 1)


def test_identity_is_of_each_message_and_not_of_the_connection(guarded: Any) -> None:
    async def scenario() -> None:
        socket = await guarded.connected()
        assert (await socket.ask(ADD, EVENT, "C1", sec=ALICE))["r"] == "1"
        assert (await socket.ask(ADD, EVENT, "C2", sec="bob:bobs-secret"))["e"] == "Unauthorized"
        assert (await socket.ask(ADD, EVENT, "C3"))["e"] == "SecurityError"

    guarded.run(scenario())


class TestSignatures:
    def signed(
        self, message: dict[str, Any], algorithm: str, kind: str = "-smac", user: str = "alice"
    ) -> dict[str, Any]:
        mac = (ALGORITHMS if kind == "-smac" else LEGACY_ALGORITHMS)[algorithm]
        return {**message, "sec": f"{kind}:{user}:{algorithm}:{Signature(mac, KEY).of(message)}"}

    @pytest.mark.parametrize("algorithm", LEGACY_ALGORITHMS)
    def test_hmac(self, guarded: Any, algorithm: str) -> None:
        reply = guarded.post(self.signed({"f": ADD, "p": EVENT, "rid": "C1"}, algorithm, "-hmac"))
        assert (reply["r"], reply["rid"]) == ("1", "C1")
        assert reply["sec"] == Signature(LEGACY_ALGORITHMS[algorithm], KEY).of(reply)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_smac(self, guarded: Any, algorithm: str) -> None:
        message = {"f": ADD, "p": EVENT}
        sign = Signature(ALGORITHMS[algorithm], 2 * KEY)
        reply = guarded.post({**message, "sec": f"-smac:erin:{algorithm}:{sign.of(message)}"})
        assert reply["sec"] == sign.of(reply)

    def test_a_key_too_short_for_its_algorithm_is_refused(self, guarded: Any) -> None:
        reply = guarded.call(ADD, EVENT, sec="-smac:alice:KMAC256:AAAA")
        assert reply["e"] == "SecurityError"

    def test_the_literal_vector(self, guarded: Any) -> None:
        sec = "-hmac:alice:SHA256:cu/QefAfrqPhcm0UG+D0ulj6zODbe4tom7VjLq6RGbA="
        data = {"a": 1.5, "b": [1, "x", None, True]}
        assert guarded.call(ADD, {"type": "ORDER_NEW", "data": data}, sec=sec)["r"] == "1"

    def test_sec_may_be_a_structure(self, guarded: Any) -> None:
        message = {"f": ADD, "p": EVENT}
        sec = {"user": "alice", "algo": "HS256", "sig": Signature(ALGORITHMS["HS256"], KEY).of(message)}
        assert guarded.post({**message, "sec": sec})["r"] == "1"

    def test_errors_and_pages_are_signed_too(self, guarded: Any) -> None:
        sign = Signature(ALGORITHMS["HS256"], KEY)
        guarded.call(ADD, EVENT, sec=ALICE)
        for message in ({"f": ADD, "p": {}}, {"f": PULL, "p": {"component": "LIVE"}}):
            reply = guarded.post(self.signed(message, "HS256"))
            assert reply["sec"] == sign.of(reply)

    def test_in_the_other_coders(self, guarded: Any) -> None:
        sign = Signature(ALGORITHMS["HS256"], KEY)
        message = {"f": ADD, "p": EVENT, "rid": "C1"}
        for coder in (MPCK, CBOR):
            members = [(name, coder.value(value)) for name, value in self.signed(message, "HS256").items()]
            answer = guarded.http("POST", "/futoin/orders", coder.message(members))
            reply = coder.tree(answer.body)
            assert reply["r"] and reply["sec"] == sign.of(reply)

    def test_what_is_not_right_is_refused(self, guarded: Any) -> None:
        good = self.signed({"f": ADD, "p": EVENT}, "HS256")
        for message in (
            {**good, "p": {**EVENT, "type": "B"}},
            {**good, "rid": "C1"},
            {**good, "sec": good["sec"].replace("alice", "bob")},
            {**good, "sec": good["sec"].replace("alice", "nobody")},
            {**good, "sec": good["sec"] + "!"},
            {**good, "sec": "-smac:alice:HS256:"},
        ):
            assert guarded.post(message)["e"] == "SecurityError"
        for sec in ("-smac:alice:SHA256:AAAA", "-hmac:alice:HS256:AAAA", "-smac:alice:ROT13:AAAA"):
            assert guarded.post({**good, "sec": sec})["e"] == "InvalidRequest"
        assert guarded.post({**good, "sec": "-smac:alice:HS256"})["e"] == "SecurityError"
        assert guarded.log.head() == 0

    def test_where_no_user_is_configured_nobody_can_have_signed(self, peer: Any) -> None:
        assert peer.post(self.signed({"f": ADD, "p": EVENT}, "HS256"))["e"] == "SecurityError"


class TestSecureChannel:
    FAR = ("192.0.2.7", 50000)

    def test_adding_needs_a_secure_channel(self, guarded: Any) -> None:
        for f, p in ((ADD, EVENT), (f"{GEN}:ping", {"echo": 1}), ("headwater.evt.gen:1.0:addEvent", EVENT)):
            reply = guarded.call(f, p, sec=ALICE)
            assert "r" in reply, "loopback is one"
            message = {"f": f, "p": p, "sec": ALICE}
            assert guarded.post(message, client=self.FAR) == {"e": "SecurityError", "edesc": "Insecure channel"}

    def test_tls_or_a_trusted_proxy_that_says_so_is_one(self, guarded: Any) -> None:
        message = {"f": ADD, "p": EVENT, "sec": ALICE}
        assert guarded.post(message, client=self.FAR, scheme="https") == {"r": "1"}

    def test_over_websocket(self, guarded: Any) -> None:
        async def scenario() -> None:
            socket = await guarded.connected(client=self.FAR)
            assert (await socket.ask(ADD, EVENT, sec=ALICE))["edesc"] == "Insecure channel"
            socket = await guarded.connected(client=self.FAR, scheme="wss")
            assert (await socket.ask(ADD, EVENT, sec=ALICE))["r"] == "1"

        guarded.run(scenario())

    def test_polling_does_not_need_one(self, guarded: Any) -> None:
        message = {"f": PULL, "p": {"component": "LIVE"}, "sec": ALICE}
        assert guarded.post(message, client=self.FAR) == {"r": []}


def test_with_no_user_configured_consumers_belong_to_the_name_that_is_claimed(peer: Any) -> None:
    assert peer.call(REGISTER, {"component": "C"}, sec="alice:whatever") == {"r": True}
    assert peer.call(REGISTER, {"component": "C"}) == {"r": True}
    assert peer.call(REGISTER, {"component": "C"}, sec="\u00e9!:x") == {"r": True}
    assert [consumer.owner for consumer in peer.log.consumers()] == ["alice", "anybody"]
