"""Long appends in MessagePack: what is stepped over, event by event, is read as one decoder reads the whole."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvalidInput
from headwater.core.limits import APPEND_EVENTS_MAX
from headwater.core.loop.append_builder import AppendBuilder
from headwater.dcb.appends import packed
from headwater.dcb.wire import PackedAppendIn
from headwater.formats.budget.packed_pieces import LONG_BYTES

EVENT_BYTES_MAX = 2000
texts = st.text("aü:", max_size=4)
events = st.tuples(texts, st.binary(max_size=6), st.lists(texts, max_size=3)) | st.none() | st.lists(texts, max_size=9)
large = st.just(("A", bytes(EVENT_BYTES_MAX + 1))) | st.just(
    ("A", b"", [], "", "", {str(n): "" for n in range(20_000)})
)
conditions = st.none() | st.just({"query": {"items": []}, "after": 3}) | st.just({"query": {"items": [{}] * 2000}})
bodies = st.fixed_dictionaries(
    {"events": st.lists(events | large, max_size=5)},
    optional={
        "condition": conditions,
        "partition": st.integers(-1, 70_000) | texts | st.lists(st.just(0), max_size=20),
        "strict": st.booleans() | st.none(),
        "other": st.none(),
    },
)


def outcome(body: bytes, event_bytes_max: int = EVENT_BYTES_MAX) -> object:
    async def read() -> object:
        builder = AppendBuilder(event_bytes_max, None)
        given = await packed.read_packed(body, builder)
        return given, builder.columns()

    try:
        return asyncio.run(read())
    except InvalidInput as error:
        return type(error), error.where, str(error)


def decoded(body: bytes, event_bytes_max: int = EVENT_BYTES_MAX) -> object:
    """The same by one decoder, of the whole."""
    given = msgspec.msgpack.decode(body, type=PackedAppendIn)
    builder = AppendBuilder(event_bytes_max, None)
    builder.add(given.events)
    given.events = []
    return given, builder.columns()


@given(bodies, st.randoms(use_true_random=False))
def test_what_is_read_is_what_one_decoder_reads(given: dict[str, Any], chance: Any) -> None:
    members = list(given.items())
    chance.shuffle(members)
    body = msgspec.msgpack.encode(dict(members))
    found = outcome(body)
    try:
        expected = decoded(body)
    except (msgspec.DecodeError, InvalidInput):
        assert is_refused(found)
    else:
        assert is_refused(found) or without_ids(found) == without_ids(expected)


@given(bodies, st.data())
def test_a_damaged_body_is_refused_or_read_as_one_decoder_reads_it(given: dict[str, Any], data: st.DataObject) -> None:
    body = bytearray(msgspec.msgpack.encode(given))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, min(len(body), 200) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.integers(1, len(body)))])
    if not is_refused(found := outcome(damaged)):
        assert without_ids(found) == without_ids(decoded(damaged))


def is_refused(found: object) -> bool:
    return isinstance(found, tuple) and isinstance(found[0], type)


@pytest.mark.parametrize("twice", ["events", "strict"])
def test_a_member_that_is_given_twice_is_refused(twice: str) -> None:
    members = {"events": [("A",)], "strict": False}
    name, value = msgspec.msgpack.encode(twice), msgspec.msgpack.encode(members[twice])
    body = bytes([0x83]) + msgspec.msgpack.encode(members)[1:] + name + value
    assert outcome(body) == (InvalidInput, twice, f"{twice}: it occurs twice")


LONG = bytes(range(256)) * (LONG_BYTES // 256)


@pytest.mark.parametrize(
    "long",
    [("A", LONG), ("A", LONG, ["a"], "id"), ("A", LONG, [], "", "", {"a": "b"}, "g"), ("A", LONG[:-10])],
)
def test_long_bytes_are_those_of_the_event(long: tuple[object, ...]) -> None:
    body = msgspec.msgpack.encode({"events": [("B", b"b"), long, ("C", b"c"), long[:2]], "strict": False})
    found = outcome(body, 4 * LONG_BYTES)
    assert not is_refused(found)
    assert without_ids(found) == without_ids(decoded(body, 4 * LONG_BYTES))


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"type": "A", "data": LONG}, "events[1]"),
        (LONG, "events[1]"),
        ((LONG, b""), "events[1][0]"),
        (("A", LONG.hex()), "events[1][1]"),
        (("A", b"", [LONG]), "events[1][2][0]"),
    ],
)
def test_long_bytes_in_the_wrong_place_are_refused(wrong: object, where: str) -> None:
    body = msgspec.msgpack.encode({"events": [("B", b"b"), wrong]})
    found = outcome(body, 4 * LONG_BYTES)
    assert is_refused(found) and isinstance(found, tuple) and found[:2] == (InvalidInput, where), str(found)[:200]


def test_nothing_is_made_of_more_events_than_are_allowed() -> None:
    body = msgspec.msgpack.encode({"events": [None] * (APPEND_EVENTS_MAX + 1)})
    assert "elements" in str(outcome(body))


def without_ids(found: object) -> object:
    """Ids are drawn at random."""
    if not isinstance(found, tuple) or len(found) != 2:
        return found
    given, columns = found
    fields = (columns.types, columns.data, columns.tags, columns.sources, columns.attributes, columns.envelopes)
    return given, *map(list, fields)
