"""Events that lie apart are decoded in place, by machine code or by Python, all the same.

A frame that no checksum vouches for is not read in place, so what is tried with damaged ones is that nothing outside of
them is read, and that both say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core import Encoding, Event, SequencedEvent
from headwater.core.limits import check_append
from headwater.speedups import IS_NATIVE
from headwater.storage.frames.encoding import encode
from headwater.storage.frames.frame import Frame
from headwater.storage.frames.layout import HEADER_BYTES
from headwater.storage.frames.random_access import pick, pick_any

from ...builders import WHOLE_MESSAGE
from ...speedups.needing import needs_native
from ..builders import CHAIN, SEED

if IS_NATIVE:
    from headwater.speedups._native import pick as pick_plain

FIRST, RECORDED_AT, NO_LIMIT = 41, 1_700_000_000_000, 1 << 62
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
TAGS = st.lists(TEXTS, max_size=4, unique=True).map(tuple)
PLAIN = st.tuples(TEXTS, st.binary(max_size=40), TAGS, TEXTS).map(lambda fields: Event(*fields))
RARE: list[dict[str, Any]] = [
    {"source": "shop"},
    {"attributes": {"a": "b"}},
    {"group_key": "g"},
    {"envelope": b"\0Su\xa0\1", "data": b"1"},
    {"data": WHOLE_MESSAGE, "encoding": Encoding.AMQP},
]
NOT_THERE = [[FIRST + 3], [FIRST, FIRST + 3], [FIRST, FIRST - 1], [FIRST, -1], [FIRST, 1 << 70]]


def frame_of(events: Sequence[Event], before: bytes = b"") -> bytes:
    columns = check_append(events, 1 << 20)
    return before + b"".join(map(bytes, encode(columns, [0] * len(events), FIRST, RECORDED_AT, CHAIN).buffers))


def outcome(way: Any, content: bytes, offset: int, numbers: Sequence[int], budget: int) -> object:
    events: list[SequencedEvent] = []
    try:
        return way(content, offset, numbers, events, budget), events
    except Exception as error:
        return type(error), str(error)


@given(
    st.lists(PLAIN, min_size=1, max_size=20, unique_by=lambda event: event.id),
    st.lists(st.integers(0, 25), min_size=1, max_size=30),
    st.integers(1, 300),
)
def test_both_ways_decode_the_same(events: list[Event], indexes: list[int], budget: int) -> None:
    content = frame_of(events, b"before")
    for numbers in ([FIRST + index for index in indexes], range(FIRST, FIRST + len(events))):
        for limit in (budget, NO_LIMIT):
            assert outcome(pick, content, 6, numbers, limit) == outcome(pick_any, content, 6, numbers, limit)


@needs_native
def test_plain_frames_are_for_machine_code() -> None:
    given = [Event("A", b"x", ("größe", "order:1"), id="1"), Event("A", b"", (), id="2"), Event("B", b"yy", id="3")]
    found: list[SequencedEvent] = []
    left = pick_plain(frame_of(given), 0, (FIRST, FIRST + 1, FIRST + 2), found, 10)
    assert left == 7
    assert [each.event for each in found] == given
    assert all(type(each) is type(Frame(memoryview(frame_of(given)), 0, SEED).event(0)) for each in found)


@needs_native
@pytest.mark.parametrize("rare", RARE, ids=lambda each: next(iter(each)))
def test_others_are_left_to_python_whole(rare: dict[str, Any]) -> None:
    given = [Event("A", b"1", id="1"), Event("A", **{"data": b"2"} | rare, id="2")]
    found: list[SequencedEvent] = []
    assert pick_plain(frame_of(given), 0, [FIRST], found, NO_LIMIT) is None and not found
    pick(frame_of(given), 0, [FIRST, FIRST + 1], found, NO_LIMIT)
    assert [each.event for each in found] == given


@needs_native
@pytest.mark.parametrize(
    "numbers", [[FIRST + 3], [FIRST, FIRST + 3], [FIRST, FIRST - 1], [FIRST, -1], [FIRST, 1 << 70]]
)
def test_numbers_that_the_frame_has_not_are_left_to_python_and_nothing_is_appended(numbers: list[int]) -> None:
    found: list[SequencedEvent] = []
    assert pick_plain(frame_of([Event("A", b"1", id="1")]), 0, numbers, found, NO_LIMIT) is None and not found


@needs_native
@given(st.data(), st.lists(PLAIN, min_size=1, max_size=4, unique_by=lambda event: event.id))
def test_no_damage_makes_them_differ(data: st.DataObject, events: list[Event]) -> None:
    content = bytearray(frame_of(events))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, min(len(content), HEADER_BYTES + 40) - 1))
        content[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    damaged = bytes(content[: data.draw(st.integers(1, len(content)))])
    numbers = range(FIRST, FIRST + len(events))
    found: list[SequencedEvent] = []
    if pick_plain(damaged, 0, numbers, found, NO_LIMIT) is not None:
        assert outcome(pick_any, damaged, 0, numbers, NO_LIMIT) == outcome(pick, damaged, 0, numbers, NO_LIMIT)


@needs_native
@given(st.binary(max_size=400), st.integers(-300, 300))
@example(bytes(HEADER_BYTES), 0)
def test_what_is_no_frame_is_left_to_python(content: bytes, offset: int) -> None:
    assert pick_plain(content, offset, [1], [], NO_LIMIT) is None


def test_a_file_that_was_closed_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(frame_of([Event("A", b"1", id="1")]))
    with open(tmp_path / "file", "r+b") as file:
        mapped = mmap(file.fileno(), 0)
    mapped.close()
    with pytest.raises(ValueError, match="closed"):
        pick(mapped, 0, [FIRST], [], NO_LIMIT)
