"""What a message may cost before it is known who sent it, and how long ones are read: in CPU, calls and bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headwater.core import Event, Grant, Right
from headwater.futoin import identity
from headwater.futoin.functions import batches
from headwater.futoin.messages import signatures
from headwater.futoin.messages.coders import CBOR, JSON, MPCK
from headwater.futoin.messages.limits import check_long
from headwater.futoin.messages.message import SIGNED_BYTES_MAX, VALUES_MAX
from headwater.futoin.messages.signatures import LEGACY_ALGORITHMS, Signature
from headwater.server.users.accounts import Account, AccountDirectory
from headwater.server.users.guard import AccountGuard
from headwater.storage.memory import MemoryState
from tests import costly_bodies as bodies

from ..http.cost import STEP_S_MAX, check_growth, cost_of, memory_of
from .conftest import LOG

BATCH, POLL = "headwater.evt.gen:1.0:addEvents", "futoin.evt.poll:1.1:pollEvents"
KEY = b"0123456789abcdef"


@pytest.fixture
def guarded(peer_of: Callable[..., Any]) -> Any:
    account = Account("alice", (Grant("*", frozenset(Right)),), key=KEY)
    return peer_of(AccountGuard(AccountDirectory([account], MemoryState()), allows_anybody=False))


def post(peer: Any, body: bytes) -> bytes:
    """The reply, in whatever coder."""
    return peer.http("POST", f"/futoin/{LOG}", body).body


def signed(message: dict[str, Any], user: str = "alice", key: bytes = KEY) -> dict[str, Any]:
    code = Signature(LEGACY_ALGORITHMS["SHA256"], key).of(message)
    return {**message, "sec": f"-hmac:{user}:SHA256:{code}"}


@pytest.mark.parametrize("name", bodies.FUTOIN)
def test_a_message_costs_no_more_than_its_bytes(peer: Any, guarded: Any, name: str) -> None:
    body = bodies.FUTOIN[name]
    for each in (peer, guarded):
        check_growth(body, lambda text, each=each: post(each, text), 300_000)  # type: ignore[misc]
        assert b"InvalidRequest" in post(each, body(1_000_000)) or b"SecurityError" in post(each, body(1_000_000))


def test_what_is_signed_by_nobody_takes_no_more_memory_than_a_few_times_its_body(guarded: Any) -> None:
    body = bodies.signed_tree(3_900_000)
    assert memory_of(lambda: post(guarded, body)) < 3 * len(body)


def test_the_size_for_a_function_is_looked_at_before_anything_is_built_or_anybody_is_asked_for(
    guarded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(*_: object) -> None:
        raise AssertionError("somebody was asked for")

    monkeypatch.setattr("headwater.futoin.calls.identify", asked)
    reply = json.loads(post(guarded, bodies.signed_add_event(70_000)))
    assert reply["e"] == "InvalidRequest" and "at most 65536 are allowed" in reply["edesc"]


def test_an_unknown_user_costs_what_a_wrong_signature_costs_and_is_answered_alike(
    guarded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            done.append((name, len(repr(arguments[-1]))))
            return function(*arguments)

        return counted

    monkeypatch.setattr(signatures, "_leaf", counting("leaf", signatures._leaf))
    algorithms = {"SHA256": counting("mac", LEGACY_ALGORITHMS["SHA256"])}
    monkeypatch.setattr(identity, "LEGACY_ALGORITHMS", algorithms)
    seen = []
    for name in (b"nobody", b"alice"):
        done.clear()
        body = bodies.signed_tree(5_000, name)
        reply = json.loads(post(guarded, body))
        seen.append((reply, list(done)))
    assert seen[0][1], "something was counted"
    assert seen[0] == seen[1]


def test_more_than_a_signature_is_computed_of_is_refused_with_what_to_do(guarded: Any) -> None:
    long = {"f": BATCH, "p": {"events": [{"type": "A", "data": "x" * SIGNED_BYTES_MAX}]}}
    many = {"f": BATCH, "p": {"events": [{"type": "A", "data": [1] * 70_000}]}}
    for message, told in (
        (long, "at most 1048576 are allowed in a signed message; send less at once"),
        (many, "at most 65536 values in a signed message; send fewer at once"),
    ):
        for pack in (lambda given: json.dumps(given).encode(), lambda given: b"MPCK" + msgspec.msgpack.encode(given)):
            reply = post(guarded, pack(signed(message)))
            assert told.encode() in reply


def test_a_signed_message_may_hold_values_in_any_depth_and_order(guarded: Any) -> None:
    data = {"b": [{"z": [[], {}, None, [1, 2.5]], "a": "x"}] * 500, "a": None, "10": 1, "9": True}
    reply = guarded.post(signed({"f": BATCH, "p": {"events": [{"type": "A", "data": data}]}}))
    assert reply["r"] == ["1"]
    code = Signature(LEGACY_ALGORITHMS["SHA256"], KEY).of({"r": ["1"]})
    assert reply["sec"] == code


def test_a_page_with_a_signature_has_no_more_than_a_signature_is_computed_of_but_for_one_large_event(
    guarded: Any,
) -> None:
    guarded.log.append([Event("A", b'"%b"' % (b"x" * 400_000)) for _ in range(4)])
    poll = signed({"f": POLL, "p": {"component": "LIVE"}})
    assert len(guarded.post(poll)["r"]) == 2


@pytest.mark.parametrize("body", [bodies.add_events, bodies.packed_add_events])
def test_a_batch_of_eight_mib_is_added_in_short_steps(peer: Any, body: Callable[[int], bytes]) -> None:
    text = body(7_500_000)
    assert len(text) > 4 * 2**20
    assert b"1000" in post(peer, text)
    assert peer.log.head() == 1000
    check_growth(body, lambda text: post(peer, text), 1_800_000)


@pytest.mark.parametrize("coder", [JSON, MPCK, CBOR])
def test_a_page_of_eight_mib_is_rendered_in_short_steps(peer: Any, coder: Any) -> None:
    data = json.dumps({"values": [{"a": number, "b": [1.5, "x"]} for number in range(200)]}).encode()
    for _ in range(4):
        peer.log.append([Event("A", data) for _ in range(250)])
    message = coder.message([("f", coder.value(POLL)), ("p", coder.value({"component": "LIVE"}))])
    assert cost_of(lambda: post(peer, message)).longest < STEP_S_MAX
    reply = coder.tree(post(peer, message))
    assert [each["id"] for each in reply["r"]] == [str(number) for number in range(1, len(reply["r"]) + 1)]
    assert len(reply["r"]) > 900


def test_an_event_of_a_long_batch_is_kept_as_it_was_written(peer: Any) -> None:
    data = b'{ "n" : 1.50, "text": "},{ \\" \\\\" }'
    events = b" ,\n ".join([b'{"type":"A", "data":%b}' % data] * 1000)
    body = b'{"f":"%b","p":{"events": [ %b ] },"rid":"C1"}' % (BATCH.encode(), events + b" " * 200_000)
    assert json.loads(post(peer, body))["rid"] == "C1"
    assert {event.data for event in peer.log.read()} == {data}


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"type": "A"}, "events[600]"),
        ({"type": "bad type", "data": 1}, "events[900]"),
        ({"type": "A", "data": 1, "key": ""}, "events[900]"),
        ({"type": "A", "data": 1, "more": 1}, "unknown field"),
        ({"type": 7, "data": 1}, "str"),
    ],
)
def test_what_is_wrong_with_a_long_batch_is_told_and_nothing_is_added(peer: Any, event: Any, told: str) -> None:
    events: list[Any] = [{"type": "A", "data": "x" * 500}] * 1000
    events[900] = event
    for pack in (lambda given: json.dumps(given).encode(), lambda given: b"MPCK" + msgspec.msgpack.encode(given)):
        reply = post(peer, pack({"f": BATCH, "p": {"events": events}}))
        assert b"InvalidRequest" in reply
        assert told in reply.decode("utf-8", "replace") or "events[" in reply.decode("utf-8", "replace")
    assert peer.log.head() == 0


NUMBERS, TEXTS = b",".join([b"1"] * (VALUES_MAX + 1)), b",".join([b'",,\\",\\\\"'] * 300_000)


def test_a_message_of_more_values_than_are_allowed_is_refused_with_what_to_do(peer: Any) -> None:
    body = b'{"f":"%b","p":{"events":[{"type":"A","data":[%b]}]}}' % (BATCH.encode(), NUMBERS)
    assert b"expected at most 1048576 values in a message; send fewer at once" in post(peer, body)


def test_an_event_of_more_values_than_are_allowed_is_refused_with_what_to_do(peer: Any) -> None:
    assert b"values in a message or 65536 in one event; send fewer at once" in post(peer, bodies.packed_data(1_100_000))


def test_commas_and_brackets_in_texts_are_no_values() -> None:
    asyncio.run(check_long(b'{"f":"%b","p":{"events":[{"type":"A","data":[%b]}]}}' % (BATCH.encode(), TEXTS)))


def test_of_an_event_that_is_longer_than_the_log_takes_nothing_is_looked_at(
    peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    monkeypatch.setattr(batches, "checked_json", lambda text: looked_at.append(len(text)) or text)
    body = b'{"f":"%b","p":{"events":[{"type":"A","data":"%b"}]}}'
    assert b"at most 1048576 are allowed" in post(peer, body % (BATCH.encode(), b"x" * 1_100_000))
    assert b"bytes of one event given" in post(peer, body % (BATCH.encode(), b"x" * 8_000_000))
    assert looked_at == []
