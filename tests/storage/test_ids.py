"""The table of ids against a dictionary: growing, rolling back, generations, files, dropping."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.storage import ids
from headwater.storage.ids import IdTable

_chance = random.Random(3)
WORDS = [_chance.getrandbits(64) | 1 for _ in range(3000)]


class Model:
    """Number by hash, as it should be."""

    def __init__(self) -> None:
        self.table = IdTable()
        self.known: dict[int, list[int]] = {}
        self.head = 0

    def insert(self, hashes: list[int]) -> None:
        self.table.insert(hashes, self.head + 1)
        for each in hashes:
            self.head += 1
            self.known.setdefault(each, []).append(self.head)

    def rollback(self, above: int) -> None:
        self.table.rollback(above)
        self.head = above
        for each, numbers in list(self.known.items()):
            self.known[each] = [number for number in numbers if number <= above]

    def check(self, wanted: list[int]) -> None:
        for each in wanted:
            expected = self.known.get(each, [])
            assert sorted(self.table.candidates(each)) == expected
            if expected:
                assert self.table.has_any([each])
        present = [each for each in wanted if self.known.get(each)]
        assert self.table.has_any(wanted) or not present


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "SLOTS_MIN", 16)
    monkeypatch.setattr(ids, "SLOTS_GROWTH", 2)
    monkeypatch.setattr(ids, "SLOTS_MAX", 64)
    monkeypatch.setattr(ids, "SLOTS_REHASHED_MAX", 32)
    monkeypatch.setattr(ids, "_VECTOR_MIN", 6)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.lists(st.sampled_from(WORDS[:60]), min_size=1, max_size=30)),
        st.tuples(st.just("rollback"), st.integers(0, 40)),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_the_table_is_a_dictionary_whatever_is_inserted_and_rolled_back(given_steps: list[tuple[str, object]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in [("SLOTS_MIN", 16), ("SLOTS_GROWTH", 2), ("SLOTS_MAX", 64), ("SLOTS_REHASHED_MAX", 32),
                            ("_VECTOR_MIN", 6)]:  # fmt: skip
            patch.setattr(ids, name, value)
        model = Model()
        for step, argument in given_steps:
            if step == "insert":
                assert isinstance(argument, list)
                model.insert(argument)
            else:
                assert isinstance(argument, int)
                model.rollback(max(model.head - argument, 0))
            model.check(WORDS[:70])


def test_a_rollback_over_the_begin_of_a_generation_is_gone_on_from(small_tables: None) -> None:
    model = Model()
    model.insert(WORDS[:200])
    assert len(model.table.generations) > 2
    model.rollback(3)
    model.insert(WORDS[300:500])
    model.check(WORDS[:600])
    model.rollback(0)
    model.insert(WORDS[10:12])
    model.check(WORDS[:100])


def test_many_at_once_and_one_by_one_are_the_same(small_tables: None) -> None:
    together, single = IdTable(), IdTable()
    together.insert(WORDS, 1)
    for number, word in enumerate(WORDS, 1):
        single.insert([word], number)
    for word in WORDS:
        assert list(together.candidates(word)) == list(single.candidates(word))


def test_hashes_that_collide_in_their_slots_are_told_apart(small_tables: None) -> None:
    model = Model()
    model.insert([(number << 32) | 5 for number in range(1, 40)])
    model.check([(number << 32) | 5 for number in range(1, 60)])


def test_a_generation_comes_back_from_its_file(tmp_path: Path, small_tables: None) -> None:
    model = Model()
    model.insert(WORDS[:20])
    model.rollback(15)
    (generation,) = model.table.generations
    path = ids.save(generation, tmp_path)
    assert path.name == f"{1:020d}-{15:020d}.ids"
    loaded = ids.load(path)
    assert (loaded.first, loaded.last, loaded.count, loaded.slots) == (1, 15, generation.count, generation.slots)
    model.table.generations = (loaded,)
    model.check(WORDS[:40])
    model.insert(WORDS[40:60])
    model.check(WORDS[:80])


def test_a_later_state_of_a_generation_replaces_its_older_file(tmp_path: Path) -> None:
    table = IdTable()
    table.insert(WORDS[:5], 1)
    ids.save(table.generations[0], tmp_path)
    table.insert(WORDS[5:9], 6)
    path = ids.save(table.generations[0], tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_any_damage_to_a_file_is_noticed(tmp_path: Path) -> None:
    table = IdTable()
    table.insert(WORDS[:5], 1)
    path = ids.save(table.generations[0], tmp_path)
    whole = path.read_bytes()
    for position in [*range(8), *range(16, 60), len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(ValueError):
            ids.load(path)
    for length in (0, 10, 48, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError):
            ids.load(path)
    os.unlink(path)
    with pytest.raises(OSError):
        ids.load(path)


def test_dropping_forgets_whole_generations_but_never_the_newest(small_tables: None) -> None:
    table = IdTable()
    table.insert(WORDS[:300], 1)
    bounds = [(generation.first, generation.last) for generation in table.generations]
    table.drop(bounds[1][1] + 1)
    assert [(generation.first, generation.last) for generation in table.generations] == bounds[2:]
    table.drop(10**6)
    assert [(generation.first, generation.last) for generation in table.generations] == bounds[-1:]


def test_numbers_near_the_largest_are_kept() -> None:
    table = IdTable()
    table.insert(WORDS[:3], 10**18 - 3)
    assert list(table.candidates(WORDS[2])) == [10**18 - 1]
