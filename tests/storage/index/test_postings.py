"""Postings in memory and on file: the same answers, and files that are whole or refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.storage.index import merge
from headwater.storage.index import postings as postings_module
from headwater.storage.index.merge import merge_postings
from headwater.storage.index.postings import (
    KEY,
    PARTITION,
    TAG,
    TYPE,
    ActivePostings,
    FilePostings,
    Postings,
    write_postings,
)

Row = tuple[str, tuple[str, ...], int]
rows = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "Ü"]),
        st.lists(st.sampled_from(["x:1", "x:2", "x", "y:1", "y:é"]), max_size=4, unique=True).map(
            lambda tags: tuple(sorted(tags))
        ),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=30,
)
TERMS = [(TYPE, "A"), (TYPE, "B"), (TYPE, "Ü"), (TYPE, "C"), (TAG, "x:1"), (TAG, "x:2"), (TAG, "x"), (TAG, "y:é"),
         (TAG, "z"), (KEY, "x"), (KEY, "y"), (KEY, "z"), (PARTITION, "0"), (PARTITION, "2")]  # fmt: skip


def active(content: list[Row], first: int = 1) -> ActivePostings:
    found = ActivePostings(first, has_partitions=True)
    apply(found, content, first)
    return found


def apply(target: ActivePostings, content: list[Row], first: int) -> None:
    target.apply(first, [row[0] for row in content], [row[1] for row in content], [row[2] for row in content])


def expected(content: list[Row], kind: str, term: str, first: int = 1) -> list[int]:
    def has(row: Row) -> bool:
        if kind == TYPE:
            return row[0] == term
        if kind == PARTITION:
            return str(row[2]) == term
        return term in (row[1] if kind == TAG else [tag.partition(":")[0] for tag in row[1]])

    return [number for number, row in enumerate(content, first) if has(row)]


def found(postings: Postings, kind: str, term: str) -> list[int]:
    numbers = postings.numbers(kind, term)
    if numbers is None:
        return []
    assert len(numbers) > 0
    return [value + numbers.base for value in numbers.values]


def assert_all(postings: Postings, content: list[Row], first: int = 1) -> None:
    assert (postings.first, postings.last) == (first, first + len(content) - 1)
    for kind, term in TERMS:
        assert found(postings, kind, term) == expected(content, kind, term, first), (kind, term)


@settings(max_examples=60, deadline=None)
@given(rows, rows, st.booleans())
def test_key_postings_are_right_whenever_they_are_first_asked_for(one: list[Row], two: list[Row], asks: bool) -> None:
    postings = active(one)
    if asks:
        assert_all(postings, one)
    apply(postings, two, len(one) + 1)
    assert_all(postings, one + two)


@settings(max_examples=60, deadline=None)
@given(rows, rows, st.integers(0, 30), st.booleans())
def test_a_rollback_leaves_what_was_there_before(one: list[Row], two: list[Row], kept: int, asks: bool) -> None:
    kept = min(kept, len(one))
    postings = active(one)
    if asks:
        assert_all(postings, one)
    postings.rollback(kept)
    assert_all(postings, one[:kept])
    assert all(list(numbers) for _, numbers in postings.terms())
    apply(postings, two, kept + 1)
    assert_all(postings, one[:kept] + two)


@settings(max_examples=60, deadline=None)
@given(rows, st.sampled_from([1, 7, 10**18 - 100]))
def test_a_file_answers_as_memory_does(
    tmp_path_factory: pytest.TempPathFactory, content: list[Row], first: int
) -> None:
    directory = tmp_path_factory.mktemp("postings")
    postings = active(content, first)
    written = FilePostings(write_postings(directory, postings.first, postings.last, postings.encoded_terms()))
    written.verify()
    assert_all(written, content, first)


@settings(max_examples=40, deadline=None)
@given(st.lists(rows, min_size=2, max_size=5))
def test_merged_files_answer_as_one(tmp_path_factory: pytest.TempPathFactory, parts: list[list[Row]]) -> None:
    directory = tmp_path_factory.mktemp("postings")
    paths, first = [], 1
    for part in parts:
        run = active(part, first)
        paths.append(write_postings(directory, run.first, run.last, run.encoded_terms()))
        first += len(part)
    merged = FilePostings(merge_postings(paths, directory))
    merged.verify()
    assert_all(merged, [row for part in parts for row in part])


def test_postings_of_a_rolled_back_type_are_not_written(tmp_path: Path) -> None:
    postings = active([("A", ("x:1",), 0), ("B", ("y:1",), 1)])
    postings.rollback(1)
    written = FilePostings(write_postings(tmp_path, 1, 1, postings.encoded_terms()))
    assert written.numbers(TYPE, "B") is None
    assert written.numbers(KEY, "y") is None
    assert written.numbers(PARTITION, "1") is None


def test_any_damage_to_a_file_is_noticed(tmp_path: Path) -> None:
    postings = active([("A", ("x:1",), 0), ("B", ("y:1", "x"), 1)])
    path = write_postings(tmp_path, 1, 2, postings.encoded_terms())
    whole = path.read_bytes()
    other = tmp_path / "damaged.postings"
    for position in range(len(whole)):
        if 12 <= position < 16:  # spare
            continue
        other.write_bytes(whole[:position] + bytes([whole[position] ^ 0x80]) + whole[position + 1 :])
        with pytest.raises((ValueError, OverflowError)):
            FilePostings(other).verify()
    for length in range(0, len(whole), 7):
        other.write_bytes(whole[:length])
        with pytest.raises(ValueError):
            FilePostings(other).verify()


def test_a_file_of_nothing_is_whole(tmp_path: Path) -> None:
    written = FilePostings(write_postings(tmp_path, 5, 4, []))
    written.verify()
    assert written.numbers(TYPE, "A") is None


@pytest.mark.parametrize("batch", [1, 40, 1000])
def test_many_tags_are_kept_in_many_tables_and_found_as_in_one(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings_module, "TABLE_TAGS_MAX", 300)
    monkeypatch.setattr(postings_module, "PART_EVENTS", 50)
    content: list[Row] = [("A", (f"n:{index}", f"some:{index % 200}", "x"), 0) for index in range(1000)]
    one = active([], 1)
    for start in range(0, len(content), batch):
        apply(one, content[start : start + batch], start + 1)
    assert len(one._tags) == postings_module.TABLES
    assert max(map(len, one._tags)) < postings_module.TABLE_TAGS_MAX
    for kind, term in [(TAG, "n:0"), (TAG, "n:999"), (TAG, "some:7"), (TAG, "x"), (TAG, "no"), (KEY, "some")]:
        assert found(one, kind, term) == expected(content, kind, term), term
    assert dict(one.terms())[TAG + "some:7"] == expected(content, TAG, "some:7")
    one.rollback(500)
    assert found(one, TAG, "some:7") == expected(content[:500], TAG, "some:7")
    assert found(one, TAG, "n:999") == []


def lines_run(do: Callable[[], object]) -> int:
    """How many lines of this room's postings it takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != postings_module.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", ["asked for", "written"])
def test_keys_of_tags_without_colon_take_no_more_for_each_where_there_are_more(kind: str) -> None:
    """Each is a key of its own: to look through all tags for each of them would take four times as long for twice as
    many."""

    def work(count: int) -> int:
        found = ActivePostings(1, has_partitions=False)
        tags = [f"order/{number}" for number in range(count)]
        found.apply(1, ["A"] * count, [(tag,) for tag in tags], [0] * count)
        if kind == "written":
            return lines_run(lambda: list(found.encoded_terms()))
        return lines_run(lambda: [found.numbers(KEY, tag) for tag in tags])

    assert work(400) < 3 * work(200)


def test_keys_follow_their_tags_through_appends_and_rollbacks() -> None:
    found = ActivePostings(1, has_partitions=False)

    def numbers(key: str) -> list[int]:
        of_key = found.numbers(KEY, key)
        return [] if of_key is None else [number + of_key.base for number in of_key.values]

    found.apply(1, ["A"] * 2, [("order",), ("order/1",)], [0] * 2)
    assert (numbers("order"), numbers("order/1"), numbers("none")) == ([1], [2], [])
    found.apply(3, ["A"] * 3, [("order:1",), ("order:2", "order:3"), ("none",)], [0] * 3)
    assert (numbers("order"), numbers("none")) == ([1, 3, 4], [5])
    found.apply(6, ["A"], [("order:1", "order/1")], [0])
    assert (numbers("order"), numbers("order/1")) == ([1, 3, 4, 6], [2, 6])
    found.rollback(2)
    assert (numbers("order"), numbers("order/1"), numbers("none")) == ([1], [2], [])
    found.apply(3, ["A"], [("order:9",)], [0])
    assert numbers("order") == [1, 3]


@pytest.mark.parametrize("is_at_once", [True, False])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(rows, min_size=2, max_size=5))
def test_merging_at_once_and_term_by_term_make_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, is_at_once: bool, parts: list[list[Row]]
) -> None:
    directory, first, paths = tmp_path_factory.mktemp("idx"), 5, []
    for part in parts:
        paths.append(write_postings(directory, first, first + len(part) - 1, active(part, first).encoded_terms()))
        first += len(part)
    whole = [row for part in parts for row in part]
    with pytest.MonkeyPatch.context() as patched:
        if not is_at_once:
            patched.setattr(merge, "NUMBERS_AT_ONCE", 0)
        merged = merge_postings(paths, directory).read_bytes()
    made = write_postings(directory / "..", 5, first - 1, active(whole, 5).encoded_terms())
    assert merged == made.read_bytes()


def test_terms_that_share_a_hash_stay_apart_in_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings_module.xxhash, "xxh3_64_intdigest", lambda text: len(text))
    parts: list[list[Row]] = [[("A", ("x:1", "x:2"), 0)], [("A", ("x:2", "y:1"), 0)]]
    paths = [
        write_postings(tmp_path, first, first, active(part, first).encoded_terms())
        for first, part in enumerate(parts, 1)
    ]
    postings_module._hashed.cache_clear()
    merged = FilePostings(merge_postings(paths, tmp_path))
    assert found(merged, TAG, "x:1") == [1] and found(merged, TAG, "x:2") == [1, 2] and found(merged, TAG, "y:1") == [2]
    monkeypatch.undo()
    postings_module._hashed.cache_clear()
