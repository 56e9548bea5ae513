"""Postings of large appends as sorted runs: they know what a table knows, whatever is merged, rolled back or mixed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core import LogSettings, Query
from headwater.core.limits import EventColumns, check_append
from headwater.formats.arrow.columns import ArrowColumns, batch_of
from headwater.formats.arrow.events import columns_of
from headwater.storage.frames.frame import ARROW_MIN
from headwater.storage.index import index as index_module
from headwater.storage.index import runs as runs_module
from headwater.storage.index.backlog import ID_BYTES, weight
from headwater.storage.index.index import Index
from headwater.storage.index.matches import PostingsPiece, matching
from headwater.storage.index.postings import (
    KEY,
    PARTITION,
    TAG,
    TYPE,
    ActivePostings,
    Postings,
    write_columns,
    write_postings,
)
from headwater.storage.index.runs import MERGED_RUNS, RunPostings, SortedRun

from ...builders import event

TERMS = [
    *((TYPE, f"T{n}") for n in range(4)),
    *((TAG, f"a:{n}") for n in range(40)),
    *((TAG, f"ö:{n}") for n in range(3)),
    *((KEY, key) for key in ("a", "ö", "plain", "b")),
    *((PARTITION, str(n)) for n in range(3)),
    (TAG, "plain"),
]
QUERIES = [
    Query.where(tags=["a:1"]),
    Query.where(tags=["a:1", "ö:1"]),
    Query.where(types=["T1"], tags=["a"]),
    Query.where(types=["T1", "T2"]),
    Query.where(tags=["plain", "ö"]),
    Query.where(tags=["nowhere"]),
]


def some(count: int, seed: int) -> EventColumns:
    chance = random.Random(seed)
    tags = [f"a:{n}" for n in range(30)] + ["ö:1", "ö:2", "plain"]
    events = [event(f"T{chance.randrange(3)}", *chance.sample(tags, chance.randrange(4))) for _ in range(count)]
    return check_append(events, LogSettings().event_bytes_max)


def arrow(columns: EventColumns) -> ArrowColumns:
    made = columns_of(batch_of(columns), LogSettings())
    assert isinstance(made, ArrowColumns)
    return made


def partitions_of(count: int, first: int) -> list[int]:
    return [(first + n) % 3 for n in range(count)]


class Both:
    """One index, and one table beside it that knows the same."""

    def __init__(self) -> None:
        self.index = Index(0, has_partitions=True)
        self.table = ActivePostings(1, has_partitions=True)

    def append(self, columns: EventColumns, form: EventColumns | None = None) -> None:
        first = self.table.last + 1
        partitions = partitions_of(columns.count, first)
        self.index.apply_columns(first, form or columns, partitions)
        self.table.apply(first, columns.types, columns.tags, partitions)

    def rollback(self, above: int) -> None:
        self.index.rollback(above)
        self.table.rollback(above)

    def check(self) -> None:
        last = self.table.last
        pieces = self.index.pieces(1, last)
        assert [(piece.low, piece.high) for piece in pieces[:1]] == [(1, pieces[0].high)] and pieces[-1].high == last
        for kind, term in TERMS:
            found = [n for piece in pieces for n in numbers_of(piece.postings, kind, term)]
            assert found == numbers_of(self.table, kind, term), (kind, term)
        for low in (1, last // 3, last - 5):
            whole = [PostingsPiece(self.table, low, last)]
            for query in QUERIES:
                for backwards in (False, True):
                    expected = list(matching(whole, query, backwards=backwards))
                    assert list(matching(self.index.pieces(low, last), query, backwards=backwards)) == expected


def numbers_of(postings: Postings, kind: str, term: str) -> list[int]:
    found = postings.numbers(kind, term)
    return [] if found is None else [value + found.base for value in found.values]


def test_runs_know_what_a_table_knows_while_they_are_merged() -> None:
    both = Both()
    for seed in range(2 * MERGED_RUNS + 3):
        columns = some(ARROW_MIN, seed)
        both.append(columns, arrow(columns))
        if seed in (0, MERGED_RUNS - 2, MERGED_RUNS - 1):
            both.check()
    both.check()
    (only,) = both.index.actives
    assert isinstance(only, RunPostings)
    sizes = [run.last - run.first + 1 for run in only.runs]
    assert sizes == [MERGED_RUNS * ARROW_MIN] * 2 + [ARROW_MIN] * 3


def test_a_rollback_drops_runs_and_cuts_those_that_were_merged() -> None:
    both = Both()
    for seed in range(MERGED_RUNS + 2):
        columns = some(ARROW_MIN, seed)
        both.append(columns, arrow(columns))
    for above in ((MERGED_RUNS + 1) * ARROW_MIN, MERGED_RUNS * ARROW_MIN, (MERGED_RUNS - 3) * ARROW_MIN + 7):
        both.rollback(above)
        both.check()
    columns = some(ARROW_MIN, 99)
    both.append(columns, arrow(columns))
    both.check()
    both.rollback(0)
    assert all(piece.postings.numbers(TYPE, "T1") is None for piece in both.index.pieces(1, 10))
    both.append(columns, arrow(columns))
    both.check()


def test_a_run_that_was_made_before_its_numbers_were_known_is_the_same() -> None:
    columns = arrow(some(ARROW_MIN, 5))
    known = SortedRun.of(1001, columns.type_terms, columns.tag_terms, None)
    before = SortedRun.of(1, columns.type_terms, columns.tag_terms, None)
    kinds = [(kind, term) for kind, term in TERMS if kind != PARTITION]
    assert any(numbers_of(before, kind, term) for kind, term in kinds)  # what was asked for then is not kept
    moved = before.at(1001)
    assert (moved.first, moved.last) == (known.first, known.last)
    for kind, term in kinds:
        assert numbers_of(moved, kind, term) == numbers_of(known, kind, term)
    assert sorted(moved.encoded_terms()) == sorted(known.encoded_terms())


def test_what_goes_to_file_is_the_same() -> None:
    both = Both()
    for seed in range(3):
        columns = some(ARROW_MIN, seed)
        both.append(columns, arrow(columns))
    both.rollback(2 * ARROW_MIN + 1)
    (runs,) = both.index.actives
    terms = {term: list(numbers) for term, numbers in runs.encoded_terms()}
    assert terms == {term: list(numbers) for term, numbers in both.table.encoded_terms()}


@pytest.mark.parametrize(("batches", "above"), [(1, ARROW_MIN), (3, 2 * ARROW_MIN + 1), (9, 9 * ARROW_MIN), (1, 1)])
def test_a_file_that_is_made_in_arrays_is_the_same(tmp_path: Path, batches: int, above: int) -> None:
    both = Both()
    for seed in range(batches):
        columns = some(ARROW_MIN, seed)
        both.append(columns, arrow(columns))
    both.rollback(above)
    (runs,) = both.index.actives
    assert isinstance(runs, RunPostings)
    columns_of_file = runs.columns()
    assert columns_of_file is not None
    made = write_columns(tmp_path, runs.first, runs.last, columns_of_file).read_bytes()
    assert made == write_postings(tmp_path, runs.first, runs.last, both.table.encoded_terms()).read_bytes()


def test_events_without_tags_go_to_file_in_arrays_too(tmp_path: Path) -> None:
    columns = arrow(check_append([event("A")] * 3 + [event("B")], LogSettings().event_bytes_max))
    run = SortedRun.of(7, columns.type_terms, columns.tag_terms, None)
    columns_of_file = run.columns()
    assert columns_of_file is not None
    made = write_columns(tmp_path, 7, 10, columns_of_file).read_bytes()
    assert made == write_postings(tmp_path, 7, 10, run.encoded_terms()).read_bytes()


def test_terms_of_one_hash_are_not_made_in_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = arrow(some(ARROW_MIN, 1))
    run = SortedRun.of(1, columns.type_terms, columns.tag_terms, None)
    monkeypatch.setattr(runs_module.xxhash, "xxh3_64_intdigest", lambda text: len(text))
    assert run.columns() is None


def test_tags_of_one_hash_are_told_by_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes_of = runs_module._hashes_of
    monkeypatch.setattr(runs_module, "_hashes_of", lambda tags: hashes_of(tags) % 3)
    monkeypatch.setattr(runs_module, "_hashed", lambda tag: (tag.encode(), int(hashes_of(pa.array([tag]))[0]) % 3))
    both = Both()
    for seed in range(MERGED_RUNS + 1):
        columns = some(ARROW_MIN, seed)
        both.append(columns, arrow(columns))
    both.check()


def test_small_appends_stay_in_tables_and_few_pieces_are_made_of_a_mixed_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "TABLE_EVENTS_MIN", 2000)
    both = Both()
    for seed in range(12):
        small, large = some(3, seed), some(ARROW_MIN, 100 + seed)
        both.append(small, arrow(small))
        both.append(large, arrow(large))
    both.check()
    assert [type(each) for each in both.index.actives] == [ActivePostings, RunPostings, ActivePostings, RunPostings,
                                                          ActivePostings]  # fmt: skip
    plain = Both()
    for seed in range(3):
        plain.append(some(2 * ARROW_MIN, seed))
    assert [type(each) for each in plain.index.actives] == [ActivePostings]


def test_a_run_takes_less_memory_than_a_table() -> None:
    chance = random.Random(1)
    events = [event("T", f"account:{chance.randrange(5000)}", f"course:{n}") for n in range(4 * ARROW_MIN)]
    columns = arrow(check_append(events, LogSettings().event_bytes_max))
    table, run = (
        ActivePostings(1, has_partitions=False),
        SortedRun.of(1, columns.type_terms, columns.tag_terms, None),
    )
    table.apply(1, columns.types, columns.tags, [])
    assert run.nbytes < sum(map(size_of, table._tags[0].items())) / 2


def size_of(entry: tuple[str, int | Sequence[int]]) -> int:
    """What a tag and its numbers take at least, without the table."""
    return entry[0].__sizeof__() + entry[1].__sizeof__()


def test_the_backlog_counts_a_run_by_its_arrays() -> None:
    both = Both()
    columns = [some(ARROW_MIN, seed) for seed in range(3)]
    for each in columns:
        both.append(each, arrow(each))
    (runs,) = both.index.actives
    assert isinstance(runs, RunPostings)
    whole = runs.weight
    assert whole == both.index.backlog.unindexed == 3 * ARROW_MIN * ID_BYTES + sum(run.nbytes for run in runs.runs)
    assert whole < sum(weight(each.tags) for each in columns) / 2
    both.rollback(ARROW_MIN)
    assert runs.weight == both.index.backlog.unindexed == ARROW_MIN * ID_BYTES + runs.runs[0].nbytes
    both.rollback(0)
    assert both.index.backlog.unindexed == 0
