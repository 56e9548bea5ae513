"""Large appends from Arrow go another way, column by column: to the same frame, the same index, the same verdicts."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.core import AppendCondition, AppendResult, Encoding, Event, LogSettings, Mark, Query
from headwater.core.errors import AppendConditionFailed, DuplicateEventId
from headwater.core.limits import EventColumns, check_append
from headwater.core.log import AppendRequest
from headwater.formats.arrow.columns import ArrowColumns, batch_of
from headwater.formats.arrow.events import columns_of
from headwater.storage import Engine, StoredLog, check_directory
from headwater.storage.frames.encoding import encode
from headwater.storage.frames.frame import ARROW_MIN, Frame
from headwater.storage.index.id_table import IdTable
from headwater.storage.index.ids import as_list, hash_ids, hashes_of, hashes_of_frame
from headwater.storage.index.index import Index
from headwater.storage.index.postings import KEY, PARTITION, TAG, TYPE, ActivePostings
from headwater.storage.index.runs import RunPostings
from headwater.storage.memory import MemoryLog

from ..builders import as_message
from .builders import CHAIN, SEED

COUNT = ARROW_MIN * 3


def events(count: int, seed: int = 0, **fields: Any) -> list[Event]:
    chance = random.Random(seed)
    return [
        as_message(
            Event(
                type=f"Type{chance.randrange(5)}",
                data=chance.randbytes(chance.randrange(20)),
                tags=tuple(sorted({f"a:{chance.randrange(300)}", f"b:ö{n % 2}" if n % 7 else "b", f"c:{n % 3}"}))
                if n % 11
                else (),
                id=f"{seed}-{n}",
                **{name: value if n % 3 else getattr(Event("T"), name) for name, value in fields.items()},
            )
        )
        for n in range(count)
    ]


VARIANTS: list[dict[str, Any]] = [
    {},
    {"source": "shop", "group_key": "größe"},
    {"attributes": {"subject": "s", "tenant": "t"}, "encoding": Encoding.AMQP},
]


def both(given: list[Event]) -> tuple[EventColumns, ArrowColumns]:
    plain = check_append(given, LogSettings().event_bytes_max)
    arrow = columns_of(batch_of(plain), LogSettings())
    assert isinstance(arrow, ArrowColumns)
    return plain, arrow


@pytest.fixture
def stored(data: Path) -> Iterator[StoredLog]:
    with Engine(data, maintains=False) as engine:
        yield engine.create("orders", LogSettings(partitions=3))


@pytest.mark.parametrize("fields", VARIANTS)
@pytest.mark.parametrize("count", [1, 40, COUNT])
def test_the_frame_is_the_same_byte_for_byte(count: int, fields: dict[str, Any]) -> None:
    plain, arrow = both(events(count, **fields))
    partitions = [n % 3 for n in range(count)]
    frames = [b"".join(encode(each, partitions, 7, 1000, CHAIN).buffers) for each in (plain, arrow)]
    assert frames[0] == frames[1]
    indexes = range(0, count, 2)
    some = [b"".join(encode(each.take(indexes), [0] * len(indexes), 7, 9, CHAIN).buffers) for each in (plain, arrow)]
    assert some[0] == some[1]


@pytest.mark.parametrize("fields", VARIANTS[:2])
def test_hashes_of_ids_are_the_same(fields: dict[str, Any]) -> None:
    plain, arrow = both(events(COUNT, **fields))
    frame = encode(plain, [0] * COUNT, 1, 0, CHAIN)
    expected = hash_ids(plain.sources, plain.ids, SEED)
    assert as_list(hashes_of(arrow, SEED)) == as_list(hashes_of(plain, SEED)) == expected
    decoded = Frame(memoryview(b"".join(frame.buffers)), 0, SEED)
    assert as_list(hashes_of_frame(decoded, SEED)) == expected


def test_postings_are_the_same() -> None:
    plain, arrow = both(events(COUNT))
    partitions = [n % 3 for n in range(COUNT)]
    frame = Frame(memoryview(b"".join(encode(plain, partitions, 100, 0, CHAIN).buffers)), 0, SEED)
    one, other, third = (Index(9, has_partitions=True) for _ in range(3))
    for index in (one, other, third):
        index.apply(10, ["Type1"] * 2, [("a:1",), ("a:1", "c:1")], [0, 2])
        assert index.actives[-1].numbers(KEY, "c") is not None  # asked for, and so kept up
        index.apply(12, ["Type9"] * 88, [("a:2",)] * 88, [1] * 88)
    one.apply(100, plain.types, plain.tags, partitions)
    other.apply_columns(100, arrow, partitions)
    third.apply_frame(frame)
    expected = terms(one.actives[-1])
    assert terms(other.actives[-1]) == terms(third.actives[-1]) == expected
    for index in (one, other, third):
        index.rollback(99)
        index.apply_columns(100, arrow, partitions)
    assert terms(one.actives[-1]) == terms(other.actives[-1]) == expected


def test_a_large_frame_without_tags_is_found_by_type_alone() -> None:
    plain, _ = both([event._replace(tags=()) for event in events(COUNT)])
    frame = Frame(memoryview(b"".join(encode(plain, [0] * COUNT, 1, 0, CHAIN).buffers)), 0, SEED)
    index = Index(0, has_partitions=False)
    index.apply_frame(frame)
    (run,) = index.actives[-1:]
    assert isinstance(run, RunPostings)
    found = {term.decode(): list(numbers) for term, numbers in run.encoded_terms()}
    assert found.keys() == {TYPE + type for type in plain.types}
    assert found[TYPE + "Type1"] == [number for number, type in enumerate(plain.types, 1) if type == "Type1"]


def terms(postings: ActivePostings) -> dict[str, list[int]]:
    for kind, term in ((TYPE, "Type1"), (TAG, "a:1"), (KEY, "c"), (PARTITION, "1")):
        assert postings.numbers(kind, term) is not None
    return {term: list(numbers) for term, numbers in postings.terms()}


def test_a_large_append_is_read_and_found_as_any_other(stored: StoredLog, data: Path) -> None:
    given = events(COUNT, source="shop", group_key="g")
    _, arrow = both(given)
    memory = MemoryLog("orders", stored.settings)
    assert stored.append_columns(arrow) == memory.append(given) == AppendResult(1, COUNT)
    without_time = [each._replace(recorded_at=0) for each in stored.read()]
    assert without_time == [each._replace(recorded_at=0) for each in memory.read()]
    for query in (
        Query.where(tags=["a:7"]),
        Query.where(types=["Type3"], tags=["b:ö1"]),
        Query.where(tags=["a", "c:1"]),
    ):
        assert [each.id for each in stored.read(query)] == [each.id for each in memory.read(query)]
    assert stored.info().partition_events == memory.info().partition_events


def test_a_large_append_that_comes_again_is_recognised(stored: StoredLog) -> None:
    _, arrow = both(events(COUNT))
    assert stored.append_columns(arrow) == AppendResult(1, COUNT)
    assert stored.append_columns(arrow) == AppendResult(1, COUNT, True)
    with pytest.raises(DuplicateEventId) as caught:
        stored.append_columns(both([*events(COUNT, 1), *events(1)])[1])
    assert (caught.value.sequence_number, caught.value.index) == (1, COUNT)
    with pytest.raises(DuplicateEventId) as caught:
        stored.append_columns(both([*events(COUNT, 1), *events(1, 1)])[1])
    assert (caught.value.sequence_number, caught.value.index) == (None, COUNT)
    result, skipped = stored.append_new(both([*events(COUNT, 2), *events(COUNT), *events(5, 2)])[1])
    assert (result, skipped) == (AppendResult(COUNT + 1, 2 * COUNT), COUNT + 5)


def test_conditions_see_a_large_append(stored: StoredLog) -> None:
    _, arrow = both(events(COUNT))
    condition = AppendCondition(Query.where(tags=["c:1"]), 0)
    assert stored.append_columns(arrow, condition, mark=Mark("w", 0, COUNT, True)).last == COUNT
    with pytest.raises(AppendConditionFailed):
        stored.append_columns(both(events(COUNT, 1))[1], condition)


def test_a_large_append_survives_sealing_and_a_lost_index(data: Path, small_segments: None) -> None:
    given = [events(COUNT, seed) for seed in range(4)]
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders")
        for each in given:
            log.append_columns(both(each)[1])
        engine.maintain()
        assert len(log.index.files) == 1
    assert check_directory(data).is_sound
    for path in data.glob("logs/*/idx/*"):
        path.unlink()
    with Engine(data, maintains=False) as engine:
        log = engine.open("orders")
        assert [each.event for each in log.read()] == [event for each in given for event in each]
        assert log.append(given[1][:3]).was_stored
        found = [each.id for each in log.read(Query.where(tags=["a:5"]))]
        assert found == [event.id for each in given for event in each if "a:5" in event.tags]
    assert check_directory(data).is_sound


def test_ids_are_found_whether_they_come_as_a_list_or_an_array() -> None:
    plain, arrow = both(events(COUNT))
    table = IdTable()
    table.insert(hashes_of(arrow, SEED), 1)
    hashes = hash_ids(plain.sources, plain.ids, SEED)
    assert table.has_any(hashes) and table.has_any(hashes_of(arrow, SEED)) and table.has_any(hashes[-1:])
    assert not table.has_any(hashes_of(both(events(COUNT, 9))[1], SEED))
    assert table.find(hashes, 1, COUNT) == [(n, n + 1) for n in range(COUNT)]
    assert table.find(hashes[:3], 2, 9) == [(1, 2), (2, 3)]


def test_arrow_appends_of_one_group_are_joined_as_arrow() -> None:
    plain, arrow = zip(*(both(events(count, seed)) for seed, count in enumerate((COUNT, 3, ARROW_MIN))), strict=True)
    joined = EventColumns.join(arrow)
    assert isinstance(joined, ArrowColumns)
    expected = EventColumns.join(plain)
    partitions = [0] * expected.count
    assert joined.bytes == expected.bytes
    frames = [b"".join(encode(each, partitions, 1, 9, CHAIN).buffers) for each in (joined, expected)]
    assert frames[0] == frames[1]
    index = Index(0, has_partitions=False)
    index.apply_columns(1, joined, partitions)
    assert as_list(hashes_of(joined, SEED)) == as_list(hashes_of(expected, SEED))
    for each in (joined, *arrow):
        for name in EventColumns.__slots__:
            assert name in ("bytes", "count", "is_gated") or not is_made(each, name), f"{name} came as Python objects"


def is_made(columns: ArrowColumns, name: str) -> bool:
    """Whether a lazy column is there already."""
    try:
        EventColumns.__dict__[name].__get__(columns, ArrowColumns)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize(("objects", "is_arrow"), [(1, True), (COUNT, True), (5 * COUNT, False)])
def test_a_mixed_group_is_joined_in_the_form_that_is_cheaper(objects: int, is_arrow: bool) -> None:
    first, second = both(events(COUNT)), both(events(objects, 1))
    joined = EventColumns.join([second[0], first[1]])
    assert isinstance(joined, ArrowColumns) == is_arrow
    expected = EventColumns.join([second[0], first[0]])
    partitions = [0] * expected.count
    frames = [b"".join(encode(each, partitions, 1, 9, CHAIN).buffers) for each in (joined, expected)]
    assert frames[0] == frames[1]


def test_a_group_of_all_forms_is_decided_one_after_the_other(stored: StoredLog) -> None:
    done: list[AppendRequest] = []
    answered = threading.Event()

    def deliver(requests: list[AppendRequest]) -> None:
        done.extend(requests)
        if len(done) == 5:
            answered.set()

    groups = [both(events(COUNT, 1))[1], both(events(2, 2))[0], both(events(COUNT, 3))[1], both(events(COUNT, 1))[1]]
    condition = AppendCondition(Query.where(tags=["c:1"]), 0)
    stored.append(events(1, 9))
    requests = [stored.request_columns(each, None, None, deliver) for each in groups]
    requests.append(stored.request_columns(both(events(COUNT, 4))[1], condition, None, deliver))
    for request in requests:
        stored.submit(request)
    assert answered.wait(60)
    results = [request.result for request in requests]
    assert results[:3] == [
        AppendResult(2, COUNT + 1), AppendResult(COUNT + 2, COUNT + 3), AppendResult(COUNT + 4, 2 * COUNT + 3)
    ]  # fmt: skip
    assert results[3:] == [AppendResult(2, COUNT + 1, True), None]
    assert isinstance(requests[4].error, AppendConditionFailed)
