"""What streams tell of their positions: kept by owner and name, in bounds, for seven days."""

from __future__ import annotations

import pytest

from headwater.core.errors import InvalidInput, InvalidPosition
from headwater.core.streams import SILENT_MS_MAX, STREAMS_MAX, STREAMS_OF_OWNER_MAX, StreamPositions


class World:
    def __init__(self) -> None:
        self.now, self.head = 1_700_000_000_000, 100
        self.streams = StreamPositions(lambda: self.head, lambda: self.now)

    def told(self) -> list[tuple[str, str, int]]:
        return [each[:3] for each in self.streams.all()]


@pytest.fixture
def world() -> World:
    return World()


def test_the_last_word_of_a_stream_counts_also_where_it_goes_back(world: World) -> None:
    world.streams.tell("ann", "copy", 40)
    world.now += 5
    world.streams.tell("ann", "copy", 30)
    world.streams.tell("bob", "copy", 7)
    assert world.told() == [("ann", "copy", 30), ("bob", "copy", 7)]
    told = world.streams.get("ann", "copy")
    assert told is not None and told.told_at == world.now
    assert world.streams.get("ann", "paste") is None


def test_what_is_no_name_and_no_position_is_refused(world: World) -> None:
    for name in ("", "x" * 257, "a\x00b"):
        with pytest.raises(InvalidInput, match="stream: expected 1 to 256 characters"):
            world.streams.tell("ann", name, 1)
    for position in (-1, 101):
        with pytest.raises(InvalidPosition, match="expected 0 to the head 100"):
            world.streams.tell("ann", "copy", position)
    assert world.told() == []


def test_a_stream_that_says_nothing_for_seven_days_is_forgotten(world: World) -> None:
    world.streams.tell("ann", "dead", 1)
    world.now += SILENT_MS_MAX - 1
    world.streams.tell("ann", "alive", 2)
    assert len(world.told()) == 2
    world.now += 1
    assert world.told() == [("ann", "alive", 2)]
    assert world.streams.get("ann", "dead") is None


def test_a_stream_is_forgotten_until_its_next_word(world: World) -> None:
    world.streams.tell("ann", "copy", 1)
    assert world.streams.forget("ann", "copy") and not world.streams.forget("ann", "copy")
    assert world.told() == []
    world.streams.tell("ann", "copy", 2)
    assert world.told() == [("ann", "copy", 2)]


def test_who_makes_up_names_displaces_its_own_streams_only(world: World) -> None:
    world.streams.tell("bob", "copy", 1)
    for number in range(STREAMS_OF_OWNER_MAX):
        world.streams.tell("ann", f"s{number}", 1)
    world.streams.tell("ann", "s0", 2)
    world.streams.tell("ann", "one more", 1)
    assert ("bob", "copy", 1) in world.told() and len(world.told()) == STREAMS_OF_OWNER_MAX + 1
    assert world.streams.get("ann", "s1") is None, "it was silent for longest"
    assert world.streams.get("ann", "s0") is not None


def test_a_log_remembers_a_bounded_number(world: World) -> None:
    for number in range(STREAMS_MAX + 1):
        world.streams.tell(f"user{number}", "copy", 1)
    assert len(world.told()) == STREAMS_MAX
    assert world.streams.get("user0", "copy") is None
