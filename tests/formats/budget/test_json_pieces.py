"""Long arrays in pieces: the pieces are the array, whatever is inside strings and objects."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import InvalidInput, TooLarge
from headwater.formats.budget import json_pieces, packed_pieces
from headwater.formats.budget import values as values_module
from tests.every import every

values = st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(['},{"a":', "}, {", '"', "\\", "]}"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "},{", "type"]), inner, max_size=3)
    ),
    max_leaves=8,
)
elements = st.lists(st.fixed_dictionaries({"type": st.text(max_size=3), "data": values}), min_size=1, max_size=12)


def put_together(text: bytes) -> list[Any]:
    found: list[Any] = []
    start = 1
    while (piece := json_pieces.cut(text, start)) is not None:
        found += json.loads(piece.text)
        assert piece.following > start
        start = piece.following
    return found + json.loads(b"[" + text[start:])


@pytest.mark.parametrize("indent", [None, 1])
@settings(deadline=None)
@given(elements=elements)
def test_the_pieces_are_the_array(indent: int | None, elements: list[Any]) -> None:
    old = json_pieces.CUT_BYTES
    json_pieces.CUT_BYTES = 8
    try:
        assert put_together(json.dumps(elements, indent=indent).encode()) == elements
        assert put_together(json.dumps(elements, ensure_ascii=False, indent=indent).encode()) == elements
    finally:
        json_pieces.CUT_BYTES = old


def test_long_arrays_have_many_pieces_and_elements_of_many_objects_do_not_hinder_it() -> None:
    element = {"type": "A", "data": [{"a": 1}, {"a": 2}] * 300}
    text = json.dumps([element] * 300).encode()
    assert len(text) > 10 * json_pieces.CUT_BYTES
    start, pieces = 1, 0
    while (piece := json_pieces.cut(text, start)) is not None:
        assert len(piece.text) < 2 * json_pieces.CUT_BYTES
        start = piece.following
        pieces += 1
    assert pieces > 10


@pytest.mark.parametrize(
    "text", [b"", b"[", b"[" * 500_000, b"[" + b'"' * 500_000, b"[" + b"},{" * 200_000, b"\xff" * 500_000]
)
def test_what_is_no_array_of_objects_has_no_pieces(text: bytes) -> None:
    assert json_pieces.cut(text, min(1, len(text))) is None


def test_what_is_searched_is_no_longer_than_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each element has a first member of its own, so that the quickest guess is always wrong."""
    text = b"[%b]" % b",".join([b'{"k%d":"%b"}' % (number, b"x" * 200) for number in range(20_000)])
    searched = []
    guessed = json_pieces._guessed

    def counting(text: bytes, start: int, at: int, before: int, between: Any) -> Any:
        searched.append(min(before, len(text)) - at)
        return guessed(text, start, at, before, between)

    monkeypatch.setattr(json_pieces, "_guessed", counting)
    assert len(put_together(text)) == 20_000
    assert sum(searched) < 8 * len(text)


@given(value=values)
def test_values_are_counted_as_they_are(value: Any) -> None:
    def count(of: Any) -> int:
        if isinstance(of, dict):
            return 1 + sum(map(count, of.values())) + (not of)
        return 1 + sum(map(count, of)) + (not of) if isinstance(of, list) else 1

    text, expected = json.dumps(value).encode(), count(value)
    assert not values_module.holds_more(text, expected)
    assert values_module.holds_more(text, expected - 1) or expected == 1 or len(text) <= expected - 1


@given(value=values)
def test_values_of_messagepack_are_counted_as_they_are(value: Any) -> None:
    def count(of: Any) -> int:
        if isinstance(of, dict):
            return 1 + sum(1 + count(each) for each in of.values())
        return 1 + sum(map(count, of)) if isinstance(of, list) else 1

    try:
        content, expected = msgspec.msgpack.encode(value), count(value)
    except OverflowError:
        return
    assert not values_module.packed_holds_more(content, expected)
    assert values_module.packed_holds_more(content, expected - 1) or len(content) <= expected - 1


@every(
    "value",
    [b"x" * 300, b"x" * 70_000, "x" * 40, "x" * 300, "x" * 70_000, 2**63, -1, -200, -40_000, -(2**40), 200, 70_000, 1.5,
     msgspec.msgpack.Ext(1, b"x"), msgspec.msgpack.Ext(1, b"xxx"), msgspec.msgpack.Ext(1, bytes(16)),
     msgspec.msgpack.Ext(1, bytes(300)), [0] * 20, [0] * 70_000, {str(number): 0 for number in range(70_000)}],
)  # fmt: skip
def test_every_kind_of_messagepack_is_stepped_over(value: Any) -> None:
    content = msgspec.msgpack.encode([value, value, None])
    count = 2 + 2 * (1 + (len(value) if isinstance(value, list) else 2 * len(value) if isinstance(value, dict) else 0))
    assert not values_module.packed_holds_more(content, count)
    assert values_module.packed_holds_more(content, count - 1) or len(content) <= count - 1


def test_commas_in_strings_are_no_values() -> None:
    text = json.dumps({"data": ",[{" * 100_000 + '\\",' * 10}).encode()
    assert not values_module.holds_more(text, 2)
    values_module.check_values(text, 2)
    with pytest.raises(InvalidInput, match="more than 2 values in 30"):
        values_module.check_values(b"[" + b"1,," * 10_000 + b"]", 2)
    values_module.check_values(b"[1,2,3]", 2)  # too short to be looked at


def test_an_array_of_messagepack_is_cut_by_bytes_and_by_elements() -> None:
    array = [["A", b"x" * 1000]] * 2_000
    found = packed_pieces.elements_of(msgspec.msgpack.encode(array), 2_000, "events")
    pieces = list(packed_pieces.pieces_of(found))
    assert [index for index, _ in pieces][:2] == [0, 131]
    assert [each for _, piece in pieces for each in msgspec.msgpack.decode(piece)] == array
    small = packed_pieces.elements_of(msgspec.msgpack.encode([1] * 2_000), 2_000, "events")
    assert [index for index, _ in packed_pieces.pieces_of(small)] == [0, 512, 1024, 1536]
    with pytest.raises(TooLarge, match="events: 2000 elements given, at most 1999 are allowed"):
        packed_pieces.elements_of(msgspec.msgpack.encode(array), 1_999, "events")
