"""Single events, read in place: what they are, and that the way there is short and keeps nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import ALL, Encoding, Event, LogSettings, Query, QueryItem, SequencedEvent
from headwater.core.errors import StorageCorrupted
from headwater.storage import StoredLog, accept_loss
from headwater.storage.frames.frame import Frame
from headwater.storage.index.postings import FilePostings, write_postings
from headwater.storage.read import reader
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.segments import segment, segment_log

from ..builders import as_message
from .builders import change, engine, event, numbers
from .index.test_postings import active

TAGS = ["a:1", "a:2", "b:1", "b", "größe:9", "c:"]
kinds = st.fixed_dictionaries(
    {"type": st.sampled_from(["A", "B", "Ereignis-Ä"]), "data": st.binary(max_size=40)},
    optional={
        "tags": st.lists(st.sampled_from(TAGS), max_size=5).map(tuple),
        "source": st.sampled_from(["/here", "/dort/ü"]),
        "attributes": st.dictionaries(st.sampled_from(["comment", "other"]), st.text("xyzü", min_size=1, max_size=5)),
        "group_key": st.sampled_from(["k1", "k2"]),
        "envelope": st.binary(max_size=20),
        "encoding": st.sampled_from([Encoding.DATA, Encoding.AMQP]),
    },
).map(lambda fields: as_message(Event(**fields))._asdict())
appends = st.lists(
    st.one_of(st.lists(kinds, min_size=1, max_size=1), st.lists(kinds, min_size=1, max_size=40)),
    min_size=1,
    max_size=25,
)
items = st.builds(
    QueryItem,
    st.lists(st.sampled_from(["A", "B", "Ereignis-Ä", "no"]), max_size=2, unique=True).map(tuple),
    st.lists(st.sampled_from([*TAGS, "a", "no"]), max_size=2, unique=True).map(tuple),
).filter(lambda item: item.count > 0)
queries = st.lists(items, min_size=1, max_size=3).map(lambda found: Query.of(*found))


def stored(log: StoredLog) -> list[dict[str, Any]]:
    """All events the long way: whole columns, as Arrow, by nothing that reads single events."""
    mapped = MappedLog(log.directory)
    mapped.refresh(log.head())
    rows = [row for batch in mapped.scan(0, log.head()) for row in batch.to_pylist()]
    mapped.close()
    return rows


def row(event: SequencedEvent) -> dict[str, Any]:
    """An event as `stored` gives it."""
    found = event._asdict()
    found |= {"tags": list(event.tags), "attributes": list(event.attributes.items()), "encoding": int(event.encoding)}
    return found


def comparable(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: int(each[name].timestamp() * 1000) if hasattr(each[name], "timestamp") else each[name]
             for name in SequencedEvent._fields} for each in rows]  # fmt: skip


def paged(log: StoredLog, query: Query, *, backwards: bool, limit: int, bytes_max: int) -> Iterator[SequencedEvent]:
    cursor = log.head() + 1 if backwards else 0
    while True:
        page = log.read_page(query, cursor, backwards=backwards, limit=limit, bytes_max=bytes_max)
        payload = [len(each.data) + len(each.envelope) for each in page.events]
        assert len(page.events) <= limit and sum(payload[:-1]) < bytes_max
        yield from page.events
        if page.is_last:
            return
        cursor = page.cursor


@settings(max_examples=60, deadline=None)
@given(appends, queries, st.booleans(), st.sampled_from([1, 3, 100]), st.sampled_from([1, 60, 10**6]), st.booleans())
def test_the_quick_way_gives_what_the_long_way_gives(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[dict[str, Any]]],
    query: Query,
    backwards: bool,
    limit: int,
    bytes_max: int,
    is_reopened: bool,
) -> None:
    data = tmp_path_factory.mktemp("points")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_log, "SEGMENT_BYTES_MIN", 8 * 1024)
        patch.setattr(segment_log, "SEGMENT_BYTES_MAX", 16 * 1024)
        with engine(data) as one:
            log = one.create("orders", LogSettings(partitions=2 if len(batches) % 2 else 1))
            for batch in batches:
                log.append([Event(**each) for each in batch])
        with engine(data) as one:
            log = one.open("orders")
            rows = comparable(stored(log)) if not is_reopened else []
            found = [row(each) for each in paged(log, query, backwards=backwards, limit=limit, bytes_max=bytes_max)]
            singles = [row(log.read_page(ALL, n, limit=1).events[0]) for n in range(log.head())]
            rows = rows or comparable(stored(log))
    assert singles == rows
    wanted = [each for each in rows if query.matches(each["type"], each["tags"])]
    assert found == (wanted[::-1] if backwards else wanted)


def test_frames_of_single_appends_are_made_once_however_many_there_are(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Counted(Frame):
        __slots__ = ()

        def __init__(self, *args: Any) -> None:
            made.append(1)
            super().__init__(*args)

    with engine(data) as one:
        log = one.create("orders")
        for n in range(700):
            log.append([event("A", f"n:{n % 70}")])
        monkeypatch.setattr(segment, "Frame", Counted)
        for _ in range(2):
            for n in range(70):
                assert len(log.read_page(Query.where(tags=[f"n:{n}"]), 0).events) == 10
    assert not made


def test_a_damaged_frame_is_found_when_a_single_event_of_it_is_first_read(data: Path, small_segments: None) -> None:
    with engine(data) as one:
        log = one.create("orders")
        for n in range(120):
            log.append([event("A", f"n:{n}", data=bytes(200))])
        path, offset = log.frames.segments[1].path, log.frames.segments[1].offsets[3]
        number = log.frames.segments[1].firsts[3]
        one.maintain()  # it is sealed now: when it is opened, its frames are not looked at
    change(path, offset + 400, b"\xff")
    with engine(data) as one:
        log = one.open("orders")
        for _ in range(2):
            with pytest.raises(StorageCorrupted, match=f"events {number} to {number} are damaged"):
                log.read_page(Query.where(tags=[f"n:{number - 1}"]), 0)
        assert numbers(log.read_page(Query.where(tags=[f"n:{number}"]), 0).events) == [number + 1]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("query", [Query.where(tags=["all"]), Query.where(types=["A"], tags=["all"])])
def test_what_was_lost_is_left_out(data: Path, small_segments: None, query: Query, backwards: bool) -> None:
    with engine(data) as one:
        log = one.create("orders")
        for _ in range(60):
            log.append([event("A", "all", data=bytes(200)), event("A", "all")])
        segment = log.frames.segments[1]
        path, lost = segment.path, [(segment.firsts[at], segment.offsets[at]) for at in (0, 3)]
    for _, offset in lost:
        change(path, offset + 400, b"\xff")
    assert accept_loss(data, "orders") == [(first, first + 1) for first, _ in lost]
    with engine(data) as one:
        log = one.open("orders")
        gone = {first + n for first, _ in lost for n in (0, 1)}
        kept = [number for number in range(1, 121) if number not in gone]
        for limit in (1, 2, 1000):
            found = numbers(paged(log, query, backwards=backwards, limit=limit, bytes_max=10**6))
            assert found == (kept[::-1] if backwards else kept)
            found = numbers(paged(log, ALL, backwards=backwards, limit=limit, bytes_max=10**6))
            assert found == (kept[::-1] if backwards else kept)


def test_queries_of_single_terms_walk_no_postings(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event("AB"[n % 2], f"n:{n}", "all") for n in range(100)])
        monkeypatch.setattr(reader, "matching", None)
        assert len(log.read_page(Query.where(tags=["all"]), 0).events) == 100
        either = Query.of(QueryItem(tags=("n:7",)), QueryItem(tags=("n:3",)), QueryItem(types=("A",)))
        assert numbers(log.read_page(either, 4, limit=3).events) == [5, 7, 8]
        assert numbers(log.read_page(Query.where(types=["A", "B"]), 101, backwards=True, limit=2).events) == [100, 99]


class Counting:
    """Hashes that count how often they are looked at."""

    def __init__(self, hashes: Sequence[int]) -> None:
        self.hashes, self.looks = hashes, 0

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, index: int) -> int:
        self.looks += 1
        return self.hashes[index]


def test_a_term_is_found_by_bisection_of_the_hashes(tmp_path: Path) -> None:
    run = active([("A", (f"n:{n}",), 0) for n in range(20_000)])
    file = FilePostings(write_postings(tmp_path, run.first, run.last, run.encoded_terms()))
    hashes = Counting(file.hashes)
    file.hashes = hashes  # type: ignore[assignment]
    for n in range(0, 20_000, 20):
        found = file.numbers("g", f"n:{n}")
        assert found is not None and [value + found.base for value in found.values] == [n + 1]
    assert hashes.looks <= 16 * 1000  # of 20,001 terms: 15 looks, and one more
    assert all(file.numbers("g", f"no:{n}") is None for n in range(1000))


def test_a_decoded_event_is_a_sequenced_event_wherever_it_goes(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event("A", "n:1", data=b"x", id="1")])
        (found,) = log.read()
    given = SequencedEvent(*found)
    assert isinstance(found, SequencedEvent) and found == given and hash((found.id,)) and repr(found) == repr(given)
    for other in (copy.copy(found), copy.deepcopy(found._replace(attributes={})), pickle.loads(pickle.dumps(
        found._replace(attributes={})))):  # fmt: skip
        assert type(other) is SequencedEvent and other[:8] == given[:8]
    assert found._replace(data=b"y").data == b"y" and found.event == given.event
