"""Events of a segment by their numbers, over all of its frames: the same by machine code and by its twin."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Event, SequencedEvent
from headwater.core.errors import StorageCorrupted
from headwater.formats import packed
from headwater.formats.packed import PackedEvents
from headwater.speedups import IS_NATIVE
from headwater.storage.frames.layout import GATED_FEATURE, OPTIONAL_AT
from headwater.storage.segments import segment as segment_module
from headwater.storage.segments.segment import Segment, pick, segment_header

from ...speedups.needing import needs_native
from ..builders import CHAIN, LOG_ID, SEED, content, decoded, encoded, event, numbers

FIRST, NO_LIMIT = 41, 1 << 62
WAYS = [pytest.param(IS_NATIVE, id="as built"), pytest.param(False, id="python")]
"""Values of IS_NATIVE."""
PLAIN, RARE = {}, {"source": "shop"}


class Given:
    """A segment of frames of so many events each; what they are, and which of the frames are gated."""

    def __init__(
        self,
        directory: Path,
        sizes: Sequence[int],
        *,
        first: int = FIRST,
        rare: int = -1,
        ungated: int = -1,
        gap: int = 0,
    ) -> None:
        self.events: dict[int, SequencedEvent] = {}
        self.ungated: set[int] = set()
        whole, places = bytearray(segment_header(LOG_ID, first, SEED)), []
        chain = CHAIN
        for index, size in enumerate(sizes):
            fields = RARE if index == rare else PLAIN
            frame = encoded([made(first + each, **fields) for each in range(size)], first, chain=chain)
            chain = chain._replace(previous_crc=frame.crc)
            places.append((frame, len(whole)))
            whole += content(frame)
            if index == ungated:
                whole[places[-1][1] + OPTIONAL_AT] &= ~GATED_FEATURE
                self.ungated = set(range(first, first + size))
            self.events |= {each.sequence_number: each for each in decoded(frame).events()}
            first += size + gap
        self.path = directory / f"{next(iter(self.events)):020d}.log"
        self.path.write_bytes(whole)
        self.segment = Segment(self.path, LOG_ID)
        for frame, offset in places:
            self.segment.add(frame, offset)
        self.below = first

    def picked(
        self, wanted: list[int], budget: int, *, packs: bool = False
    ) -> tuple[list[SequencedEvent], int, int, bool]:
        """What is appended, up to where, what is left of the budget, and whether all was gated."""
        events = PackedEvents() if packs else list[SequencedEvent]()
        position, budget, is_gated = pick([self.segment], wanted, events, budget)
        assert packed.encode_page(events) == packed.encode_page(list(events))
        return list(events), position, budget, is_gated

    def expected(self, wanted: list[int], budget: int) -> tuple[list[SequencedEvent], int, int, bool]:
        """The same, from one event after the other."""
        events: list[SequencedEvent] = []
        position = 0
        while position < len(wanted) and budget > 0:
            if (found := self.events.get(wanted[position])) is not None:
                events.append(found)
                budget -= len(found.data) + len(found.envelope)
            position += 1
        return events, position, budget, not self.ungated.intersection(wanted[:position])


def made(number: int, **fields: str) -> Event:
    return event(
        f"T{number % 3}", *(f"n:{number}", "größe")[: number % 4], data=b"x" * (number % 5), id=str(number), **fields
    )


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "IS_NATIVE", request.param)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[Given]:
    """Frames of one event and of many; with rare columns, without the mark of the gate, with lost events between."""

    def given(*sizes: int, **more: int) -> Given:
        return Given(tmp_path_factory.mktemp("segment"), sizes, **more)

    ones, mixed = (1,) * 80, (1, 20, 1, 3, 40, 1, 1)
    return [given(*ones), given(*mixed, rare=4), given(*mixed, ungated=1), given(*mixed, gap=3), given(300)]


@given(data=st.data(), packs=st.booleans(), backwards=st.booleans(), budget=st.sampled_from([1, 7, 60, NO_LIMIT]))
@pytest.mark.parametrize("is_native", WAYS)
def test_events_are_those_of_the_numbers(
    several: list[Given], is_native: bool, data: st.DataObject, packs: bool, backwards: bool, budget: int
) -> None:
    one = several[data.draw(st.integers(0, len(several) - 1))]
    inside = st.integers(FIRST, one.below - 1)
    wanted = sorted(data.draw(st.one_of(st.sets(inside, min_size=1), inside.map(lambda n: set(range(n, one.below))))))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_module, "IS_NATIVE", is_native)
        wanted = wanted[::-1] if backwards else wanted
        assert one.picked(wanted, budget, packs=packs) == one.expected(wanted, budget)


def test_numbers_are_looked_for_in_their_segments(several: list[Given], tmp_path: Path, way: None) -> None:
    one = several[0]
    other = Given(tmp_path, (1, 20, 1), first=one.below)
    for wanted in ([FIRST, FIRST + 79, FIRST + 80, FIRST + 82], [FIRST + 81, FIRST + 80, FIRST + 1, FIRST]):
        for events in (list[SequencedEvent](), PackedEvents()):
            assert pick([one.segment, other.segment], wanted, events, NO_LIMIT)[0] == len(wanted)
            assert list(events) == [(one.events | other.events)[number] for number in wanted]
    assert pick([other.segment], [FIRST, FIRST + 80], events := list[SequencedEvent](), NO_LIMIT)[0] == 2
    assert numbers(events) == [FIRST + 80], "the other one was trimmed"


def test_each_frame_is_verified_when_it_is_first_read(tmp_path: Path, way: None) -> None:
    one = Given(tmp_path, (1, 1, 1, 1))
    content = bytearray(one.path.read_bytes())
    content[one.segment.offsets[2] + 200] ^= 1
    one.path.write_bytes(content)
    damaged = Segment(one.path, LOG_ID)
    damaged.adopt(one.segment.firsts, one.segment.offsets)
    one.segment = damaged
    assert numbers(one.picked([FIRST, FIRST + 1], NO_LIMIT)[0]) == [FIRST, FIRST + 1]
    assert numbers(one.picked([FIRST, FIRST + 1, FIRST + 3], NO_LIMIT)[0]) == [FIRST, FIRST + 1, FIRST + 3]
    with pytest.raises(StorageCorrupted, match=f"events {FIRST + 2} to {FIRST + 2} are damaged"):
        one.picked([FIRST, FIRST + 1, FIRST + 2], NO_LIMIT)


def test_frames_are_added_after_a_walk(tmp_path: Path, way: None) -> None:
    one = Given(tmp_path, (1, 1))
    assert one.picked([FIRST, FIRST + 1], NO_LIMIT)[1] == 2
    one.segment.add(encoded([made(FIRST + 2)], FIRST + 2), one.segment.end)
    assert one.segment.last == FIRST + 2


@needs_native
def test_plain_frames_are_walked_in_one_call_up_to_what_is_not_plain(several: list[Given]) -> None:
    plain, rare, ungated, gaps, large = several
    every = list(plain.events)
    for wanted in (every, every[::-1], every[::7]):
        assert walked(plain, wanted) == (len(wanted), True)
    assert walked(plain, every, budget=3) == (2, True)  # of 1 and 2 bytes
    assert walked(rare, list(rare.events)) == (25, True)
    assert walked(ungated, list(ungated.events)) == (67, False)
    assert walked(gaps, [FIRST, FIRST + 1, FIRST + 4]) == (1, True)
    assert walked(large, list(large.events)) == (300, True)
    plain.segment.unverify()
    assert walked(plain, every) == (0, True)


def walked(one: Given, wanted: list[int], budget: int = NO_LIMIT) -> tuple[int, bool]:
    """Up to where `walk` goes, and whether all was gated; what it appends is as it should be."""
    from headwater.speedups._native import walk

    its, events, rows = one.segment, [], bytearray(b"before")
    for into in (events, rows):
        found = walk(its.map, its.firsts, its.offsets, its._verified, wanted, 0, one.below, into, budget, 0)
        position, left, is_gated = found
        assert left == budget - sum(len(one.events[number].data) for number in wanted[:position])
    assert events == [one.events[number] for number in wanted[:position]]
    assert rows == b"before" + b"".join(map(packed.encode, events))
    return position, is_gated


@needs_native
@pytest.mark.parametrize(
    ("place", "value"),
    [(0, None), (3, b"\1"), (4, (1,)), (5, -1), (6, "2"), (6, 1 << 70), (7, ()), (8, "9"), (9, -1)],
)
def test_arguments_of_other_types_are_left_to_python(place: int, value: object) -> None:
    from headwater.speedups._native import know_event, walk

    whole, events = content(encoded([event("Ex", id="id-1")])), list[SequencedEvent]()
    given: list[Any] = [whole, array("Q", [1]), array("Q", [0]), bytearray(b"\1"), [1], 0, 2, events, 9, 0]
    assert walk(*given) == (1, 9, True) and numbers(events) == [1]
    assert walk(*given[:9]) is None
    assert walk(whole, array("I", [1, 0]), *given[2:]) == (0, 9, True)
    given[place] = value
    assert walk(*given) is None and len(events) == 1
    wrongs: list[Any] = [(), (1,), ((1, 2),)]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="know_event takes an event"):
            know_event(*wrong)


SIZES = (0, 1, 15, 16, 31, 32, 127, 128, 255, 256, 65535, 65536)
"""Where MessagePack begins a longer form."""


@needs_native
@pytest.mark.parametrize("size", SIZES)
def test_rows_have_the_shortest_form_of_each_length_and_number(size: int) -> None:
    """As msgspec writes it. The walk of C does all of them: nothing here is rare."""
    tag = "t" * min(max(size, 1), 1100)
    for at, number in ((size, size + 1), (2**32 - 1 + size, 2**32 - 1 + size), (2**45, 10**18 - 1 - size)):
        for each in (
            Event("E", b"d" * size),
            Event("E" * min(max(size, 1), 200), tags=tuple(f"{n:05}" for n in range(min(size, 128))), id="i"),
            Event("ö" * min(max(size // 2, 1), 200), tags=("\N{GRINNING FACE}", tag), id="i" * min(size, 512)),
        ):
            frame = encoded([each], number, at=at)
            assert packed_row(content(frame), number) == packed.encode(decoded(frame).event(0))


@needs_native
def test_rows_of_what_is_no_time_or_no_text_are_left_to_python() -> None:
    whole = content(encoded([event("Ex", "tag:1", id="id-1")]))
    assert packed_row(whole, 1) is not None
    for text in (b"Ex", b"tag:1", b"id-1"):
        assert packed_row(whole.replace(text, text[:-1] + b"\xff"), 1) is None
    assert packed_row(whole[:79] + b"\xff" + whole[80:], 1) is None  # recorded before 1970


def packed_row(whole: bytes, number: int) -> bytes | None:
    """What `walk` makes of the one event of a frame."""
    from headwater.speedups._native import walk

    rows, below, places = bytearray(), number + 1, (array("Q", [number]), array("Q", [0]), bytearray([True]))
    position, _, _ = walk(whole, *places, [number], 0, below, rows, NO_LIMIT, 0)
    assert position == bool(rows)
    return bytes(rows) or None
