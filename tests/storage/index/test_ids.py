"""The table of ids against a dictionary: growing, rolling back, generations, files, dropping."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.storage.index import id_files, ids
from headwater.storage.index.id_table import IdTable

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
    monkeypatch.setattr(ids, "VECTOR_MIN", 6)
    monkeypatch.setattr(ids, "SIEVED_MIN", 8)


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
        for name, value in [
            ("SLOTS_MIN", 16),
            ("SLOTS_GROWTH", 2),
            ("SLOTS_MAX", 64),
            ("VECTOR_MIN", 6),
            ("SIEVED_MIN", 8),
        ]:
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


def test_a_full_table_is_sieved_and_lets_nothing_through_that_it_has() -> None:
    numbers = np.random.default_rng(7).integers(1, 2**64, 3 * ids.SLOTS_MAX, np.uint64)
    known, unknown = numbers[: 2 * ids.SLOTS_MAX], numbers[2 * ids.SLOTS_MAX :]
    table = IdTable()
    for start in range(0, len(known), 50_000):
        part = known[start : start + 50_000]
        assert not table.has_any(part)
        table.insert(part, start + 1)
    assert len(table.generations) > 2 and not table.has_any(unknown)
    for place in range(0, len(known), 30_011):
        assert table.has_any(np.concatenate([unknown[: ids.SIEVED_MIN], known[place : place + 1]]))


def test_a_table_that_was_full_grows_and_is_full_again_is_sieved_by_what_it_has_then(small_tables: None) -> None:
    model = Model()
    first = int(ids.SLOTS_MIN * ids.LOAD_MAX)
    model.insert(WORDS[:first])
    (table,) = model.table.generations
    assert table.room == 0 and not model.table.has_any(WORDS[1000:1020])  # by a sieve
    known = first
    while table.slots < ids.SLOTS_MAX or table.room:
        model.insert(WORDS[known : known + 1])
        known += 1
    assert len(model.table.generations) == 1
    for each in WORDS[:known]:
        assert table.has_any(np.array([*WORDS[1000:1010], each], np.uint64))
    model.rollback(known - 3)
    for each in WORDS[: known - 3]:
        assert table.has_any(np.array([*WORDS[1000:1010], each], np.uint64))


def test_hashes_that_collide_in_their_slots_are_told_apart(small_tables: None) -> None:
    model = Model()
    model.insert([(number << 32) | 5 for number in range(1, 40)])
    model.check([(number << 32) | 5 for number in range(1, 60)])


def moved(table: IdTable, directory: Path) -> list[Path]:
    """Let files take the place of all generations but the newest."""
    paths = [id_files.save(generation, directory) for generation in table.generations[:-1]]
    for path in paths:
        table.replace(id_files.load(path))
    return paths


def test_files_say_what_the_generations_said_whose_place_they_take(tmp_path: Path, small_tables: None) -> None:
    model = Model()
    model.insert(WORDS[:500])
    model.insert(WORDS[100:110])  # twice, as an event that is appended again after its horizon is
    before = [model.table.find(wanted, 20, 480) for wanted in (WORDS[:3], WORDS[:700])]
    moved(model.table, tmp_path)
    assert len(model.table.generations) == 1 and len(model.table.files) > 5
    model.check(WORDS[:1000])
    assert [model.table.find(wanted, 20, 480) for wanted in (WORDS[:3], WORDS[:700])] == before
    assert not model.table.has_any(WORDS[600:]) and not model.table.has_any(WORDS[600:603])
    assert model.table.has_any(WORDS[499:900]) and model.table.has_any([WORDS[700], WORDS[0]])
    assert model.table.last == 510


def test_merged_files_say_what_they_said_apart(tmp_path: Path, small_tables: None) -> None:
    model = Model()
    model.insert(WORDS)
    model.insert(WORDS[:20])
    paths = moved(model.table, tmp_path)
    merged = id_files.load(id_files.merge_ids(paths, tmp_path))
    model.table.replace(merged)
    assert model.table.files == (merged,) and merged.count == sum(id_files.load(path).count for path in paths)
    model.check([*WORDS, 1, 2**64 - 1])


def test_the_filter_lets_few_pass(tmp_path: Path) -> None:
    hashes = np.array([_chance.getrandbits(64) for _ in range(4000)], np.uint64)
    generation = ids.Generation.of(1, 4000, hashes, np.arange(4000, dtype=np.uint32))
    file = id_files.load(id_files.save(generation, tmp_path))
    others = np.array([_chance.getrandbits(64) for _ in range(20_000)], np.uint64)
    assert file._may_have(hashes).all()
    assert file._may_have(others).mean() < 0.03


def test_ids_in_memory_are_bounded_whatever_was_appended(tmp_path: Path, small_tables: None) -> None:
    table = IdTable()
    for start in range(0, len(WORDS), 100):
        table.insert(WORDS[start : start + 100], start + 1)
        moved(table, tmp_path)
        assert sum(generation.slots for generation in table.generations) <= 64


def test_what_was_rolled_back_is_in_no_file(tmp_path: Path, small_tables: None) -> None:
    model = Model()
    model.insert(WORDS[:20])
    model.rollback(15)
    (generation,) = model.table.generations
    path = id_files.save(generation, tmp_path)
    assert path.name == f"{1:020d}-{15:020d}.ids"
    loaded = id_files.load(path)
    assert (loaded.first, loaded.last, loaded.count) == (1, 15, 15)
    model.table.generations = (loaded.generation(),)
    model.check(WORDS[:40])
    model.insert(WORDS[40:60])
    model.check(WORDS[:80])


def test_what_is_rolled_back_again_and_again_leaves_nothing(tmp_path: Path, small_tables: None) -> None:
    model = Model()
    model.insert(WORDS[:70])
    for start in range(100, 1000, 10):
        model.insert(WORDS[start : start + 10])
        model.rollback(70)
    assert len(model.table.generations) <= 3
    for _ in range(3):
        moved(model.table, tmp_path)
    assert all(file.count for file in model.table.files)
    assert len({file.path for file in model.table.files}) == len(model.table.files) <= 2
    model.insert(WORDS[200:300])
    model.check(WORDS[:400])


def test_a_later_state_of_a_generation_replaces_its_older_file(tmp_path: Path) -> None:
    table = IdTable()
    table.insert(WORDS[:5], 1)
    id_files.save(table.generations[0], tmp_path)
    table.insert(WORDS[5:9], 6)
    path = id_files.save(table.generations[0], tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_any_damage_to_a_file_is_noticed(tmp_path: Path) -> None:
    table = IdTable()
    table.insert(WORDS[:5], 1)
    path = id_files.save(table.generations[0], tmp_path)
    whole = path.read_bytes()
    for position in [*range(12), *range(16, len(whole))]:
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(ValueError):
            id_files.load(path)
    for length in (0, 10, 48, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError):
            id_files.load(path)
    path.write_bytes(whole)
    assert id_files.load(path).count == 5
