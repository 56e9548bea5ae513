"""Reads: both ways, from anywhere, of what matches."""

from __future__ import annotations

from itertools import product

import pytest

from headwater.core import ALL, EventLog, Query, QueryItem
from headwater.core.errors import InvalidPosition
from headwater.core.limits import SEQUENCE_NUMBER_MAX

from ..builders import event, fill, numbers, refusal
from .conftest import LogFactory


@pytest.fixture
def ten(log_factory: LogFactory) -> EventLog:
    """Ten events of types E1 ... E10; the even ones are tagged `even`, every third `third:yes`, in two partitions."""
    log = log_factory(partitions=2)
    for number in range(1, 11):
        tags = [tag for tag, divisor in (("even", 2), ("third:yes", 3)) if number % divisor == 0]
        log.append([event(f"E{number}", *tags, data=b"%d" % number)], partition=number % 2)
    return log


def test_events_come_in_order(ten: EventLog) -> None:
    assert numbers(ten.read()) == list(range(1, 11))


def test_events_come_in_reverse_order(ten: EventLog) -> None:
    assert numbers(ten.read(backwards=True)) == list(range(10, 0, -1))


def test_the_head_is_known_at_once_and_does_not_depend_on_what_matches(ten: EventLog) -> None:
    reading = ten.read(Query.where(types=["None"]))
    assert (reading.head, list(reading)) == (10, [])


@pytest.mark.parametrize(
    ("backwards", "from_", "after", "expected"),
    [
        (False, 1, None, range(1, 11)),
        (False, 4, None, range(4, 11)),
        (False, 10, None, [10]),
        (False, 11, None, []),
        (False, None, 0, range(1, 11)),
        (False, None, 4, range(5, 11)),
        (False, None, 9, [10]),
        (False, None, 10, []),
        (True, 10, None, range(10, 0, -1)),
        (True, 4, None, range(4, 0, -1)),
        (True, 1, None, [1]),
        (True, None, 11, range(10, 0, -1)),
        (True, None, 4, range(3, 0, -1)),
        (True, None, 2, [1]),
        (True, None, 1, []),
        (True, None, 0, []),
    ],
)
def test_from_is_inclusive_and_after_exclusive_in_the_direction_of_reading(
    ten: EventLog, backwards: bool, from_: int | None, after: int | None, expected: list[int]
) -> None:
    assert numbers(ten.read(from_=from_, after=after, backwards=backwards)) == list(expected)


@pytest.mark.parametrize("beyond", [12, 1000, SEQUENCE_NUMBER_MAX])
def test_beyond_the_head_there_is_nothing_forwards_and_everything_backwards(ten: EventLog, beyond: int) -> None:
    assert numbers(ten.read(from_=beyond)) == numbers(ten.read(after=beyond)) == []
    assert numbers(ten.read(from_=beyond, backwards=True, limit=2)) == [10, 9]
    assert numbers(ten.read(after=beyond, backwards=True, limit=2)) == [10, 9]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (9, 9), (10, 10), (11, 10), (10**9, 10)])
def test_a_limit_bounds_the_matching_events(ten: EventLog, limit: int, count: int, backwards: bool) -> None:
    reading = ten.read(limit=limit, backwards=backwards)
    expected = list(range(10, 0, -1)) if backwards else list(range(1, 11))
    assert reading.head == 10
    assert numbers(reading) == expected[:count]


def test_every_combination_reads_what_a_filter_would(ten: EventLog) -> None:
    everything = list(ten.read())
    queries = [
        ALL,
        Query.where(tags=["even"]),
        Query.where(tags=["third"]),
        Query.where(types=["E3", "E8", "E9"]),
        Query.of(QueryItem(("E1",)), QueryItem((), ("even", "third:yes"))),
        Query.where(types=["E6"], tags=["even"]),
        Query.where(types=["E7"], tags=["even"]),
    ]
    for query, start, backwards, limit, partition in product(
        queries, (None, 3, 7), (False, True), (None, 0, 2), (None, 0, 1)
    ):
        expected = [
            each.sequence_number
            for each in (reversed(everything) if backwards else everything)
            if query.matches(each.type, each.tags)
            and partition in (None, each.partition)
            and (start is None or (each.sequence_number <= start if backwards else each.sequence_number >= start))
        ][:limit]
        found = ten.read(query, from_=start, backwards=backwards, limit=limit, partition=partition)
        assert numbers(found) == expected, (query, start, backwards, limit, partition)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["room"], [1, 2, 3]),
        (["room:1"], [1, 3]),
        (["room", "room:2"], [2]),
        (["room:1", "room:2"], []),
        (["ROOM"], []),
        (["roo"], []),
        (["rooms"], [4]),
        (["note:a:b"], [2]),
        (["note:a"], []),
    ],
)
def test_a_key_asks_for_every_value_of_it_and_for_the_bare_tag(
    log: EventLog, tags: list[str], expected: list[int]
) -> None:
    log.append([event("A", "room:1"), event("A", "room:2", "note:a:b"), event("A", "room", "room:1")])
    log.append([event("A", "rooms:1")])
    assert numbers(log.read(Query.where(tags=tags))) == expected


def test_an_event_that_matches_two_items_comes_once(log: EventLog) -> None:
    log.append([event("A", "x:1", "y:1")])
    query = Query.of(QueryItem(("A",)), QueryItem((), ("x:1",)), QueryItem((), ("y",)), QueryItem(("A",)))
    assert numbers(log.read(query)) == numbers(log.read(query, backwards=True)) == [1]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_read_ends_at_the_head_of_its_begin(log: EventLog, backwards: bool) -> None:
    fill(log, 3)
    reading = log.read(backwards=backwards)
    first = next(reading)
    fill(log, 2)
    assert reading.head == 3
    assert sorted([first.sequence_number, *numbers(reading)]) == [1, 2, 3]


def test_a_backward_read_from_beyond_the_head_ends_at_the_head_of_its_begin(log: EventLog) -> None:
    fill(log, 3)
    reading = log.read(backwards=True, from_=100)
    fill(log, 2)
    assert reading.head == 3
    assert numbers(reading) == [3, 2, 1]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_long_read_is_whole(log: EventLog, backwards: bool) -> None:
    """Over more than a page by count, and more than a page by bytes."""
    log.append([event("Small", "k:1" if number % 7 == 0 else "k:2") for number in range(3500)])
    for _ in range(5):
        log.append([event("Big", data=bytes(600_000))])
    expected = list(range(1, 3506))
    sevenths = [number for number in expected if number <= 3500 and (number - 1) % 7 == 0]
    if backwards:
        expected.reverse()
        sevenths.reverse()
    assert numbers(log.read(backwards=backwards)) == expected
    assert numbers(log.read(Query.where(tags=["k:1"]), backwards=backwards)) == sevenths
    assert numbers(log.read(backwards=backwards, limit=2500)) == expected[:2500]


def test_both_positions_at_once_are_refused(log: EventLog) -> None:
    with refusal(InvalidPosition("give `from` (inclusive) or `after` (exclusive), not both", "from")):
        log.read(from_=1, after=1)


@pytest.mark.parametrize(
    ("where", "selection", "given", "low"),
    [
        ("from", {"from_": 0}, "0", 1),
        ("from", {"from_": -1}, "-1", 1),
        ("from", {"from_": SEQUENCE_NUMBER_MAX + 1}, str(SEQUENCE_NUMBER_MAX + 1), 1),
        ("after", {"after": -1}, "-1", 0),
        ("after", {"after": SEQUENCE_NUMBER_MAX + 1}, str(SEQUENCE_NUMBER_MAX + 1), 0),
        ("limit", {"limit": -1}, "-1", 0),
        ("from", {"from_": 0, "backwards": True}, "0", 1),
        ("after", {"after": -1, "backwards": True}, "-1", 0),
    ],
)
def test_a_number_out_of_range_is_refused(
    log: EventLog, where: str, selection: dict[str, int], given: str, low: int
) -> None:
    with refusal(InvalidPosition(f"expected {low} to {SEQUENCE_NUMBER_MAX}, got {given}", where)):
        log.read(**selection)  # type: ignore[arg-type]


@pytest.mark.parametrize("partition", [-1, 2, 1000])
def test_a_partition_that_is_not_there_is_refused(log_factory: LogFactory, partition: int) -> None:
    log = log_factory(partitions=2)
    with refusal(InvalidPosition(f"expected 0 to 1, got {partition}", "partition")):
        log.read(partition=partition)
    with refusal(InvalidPosition(f"expected 0 to 1, got {partition}", "partition")):
        log.append([event()], partition=partition)
    with refusal(InvalidPosition(f"expected 0 to 1, got {partition}", "partition")):
        log.subscribe(partition=partition)


def test_what_was_read_is_appended(log: EventLog) -> None:
    """An event is visible to its producer as soon as the append has answered."""
    for number in range(1, 30):
        log.append([event(f"E{number}")])
        assert log.head() == number
        assert numbers(log.read(backwards=True, limit=1)) == [number]
        assert numbers(log.read(Query.where(types=[f"E{number}"]))) == [number]
