"""Event types that FutoIn has no name for: aliases, OTHER, leaving out; and data that is not JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from headwater.core import Encoding, Event
from headwater.core.errors import InvalidInput
from headwater.futoin.naming import Alias, Naming, read_alias
from headwater.futoin.settings import Settings

ALIASES = (read_alias("ord*:OrderPlaced=ORDER_PLACED"), read_alias("other:OrderPaid=ORDER_PAID"))


@pytest.fixture
def foreign(peer_of: Callable[..., Any]) -> Any:
    """A peer of a log with events of other producers."""
    peer = peer_of(settings=Settings(ALIASES))
    types = ("OrderPlaced", "OrderPaid", "ORDER_SHIPPED", "OTHER", "seat.booked:v2")
    peer.log.append([Event(type, b'{"n":1}') for type in types])
    return peer


def events(peer: Any, **p: Any) -> list[tuple[str, Any]]:
    return [(event["type"], event["data"]) for event in peer.poll("LIVE", **p)["r"]]


def test_types_go_by_themselves_by_alias_or_as_other(foreign: Any) -> None:
    n = {"n": 1}
    assert events(foreign) == [
        ("ORDER_PLACED", n),
        ("OTHER", {"type": "OrderPaid", "data": n}),
        ("ORDER_SHIPPED", n),
        ("OTHER", n),
        ("OTHER", {"type": "seat.booked:v2", "data": n}),
    ]


def test_want_takes_the_names_that_are_shown(foreign: Any) -> None:
    assert [type for type, _ in events(foreign, want=["ORDER_PLACED", "ORDER_SHIPPED"])] == [
        "ORDER_PLACED",
        "ORDER_SHIPPED",
    ]
    assert len(events(foreign, want=["OTHER"])) == 3
    assert events(foreign, want=["ORDER_PAID"]) == [], "an alias of another log"


def test_events_without_a_name_are_left_out_where_that_is_set(peer_of: Callable[..., Any]) -> None:
    peer = peer_of(settings=Settings(ALIASES, without_other=["o*"]))
    peer.log.append([Event(type, b"1") for type in ("OrderPlaced", "OrderPaid", "OTHER", "A")])
    assert events(peer) == [("ORDER_PLACED", 1), ("OTHER", 1), ("A", 1)]
    assert events(peer, want=["OTHER"]) == [("OTHER", 1)]
    peer.register()
    peer.log.append([Event("OrderPaid", b"1")])
    assert peer.polled(last_id="4") == []
    assert peer.acknowledged() == 5, "what is left out is delivered"


@pytest.mark.parametrize("data", [b"", b"text", b"\xff\x00", b"{", b"NaN", b'{"a":1}{', b'"\\ud800"', b"[" * 5000])
def test_data_that_is_not_json_travels_as_base64(peer: Any, data: bytes) -> None:
    peer.log.append([Event("RAW", data)])
    assert events(peer) == [("RAW", {"data_base64": base64.b64encode(data).decode()})]


def test_an_amqp_message_without_one_payload_travels_as_base64(peer: Any) -> None:
    peer.log.append([Event("amqp.message", b"\0Sw@", encoding=Encoding.AMQP)])
    assert events(peer) == [("OTHER", {"type": "amqp.message", "data": {"data_base64": "AFN3QA=="}})]


def test_very_many_wanted_types_are_looked_at_one_by_one(foreign: Any) -> None:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    many = [a + b for a in letters for b in letters]
    assert events(foreign, want=[*many, "ORDER_SHIPPED"]) == [("ORDER_SHIPPED", {"n": 1})]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders:OrderPlaced",
        "orders:=A",
        ":OrderPlaced=A",
        "orders:ORDER=A",
        "*:x=lower",
        "*:x=" + "A" * 17,
    ],
)
def test_a_malformed_alias_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_alias(text)


def test_an_alias_may_be_of_any_type() -> None:
    alias = read_alias("*:a:b=c=A_B")
    assert alias == Alias("*", "a:b=c", "A_B")
    assert str(alias) == "*:a:b=c=A_B"


def test_endless_new_types_are_not_remembered_for_ever() -> None:
    naming = Naming({}, leaves_out_other=False)
    for number in range(70_000):
        assert naming.name(f"type-{number}") == "OTHER"
    assert len(naming._known) <= 65_536
