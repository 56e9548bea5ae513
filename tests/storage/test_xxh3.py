"""Hashes of many ids at once are those of the library, which made the ones that are on disk."""

from __future__ import annotations

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Event
from headwater.core.limits import check_append
from headwater.core.settings import LogSettings
from headwater.formats.arrow_columns import ArrowColumns, batch_of
from headwater.storage import xxh3
from headwater.storage.frame import ARROW_MIN
from headwater.storage.places import hash_ids, hashes_of

SEEDS = st.integers(0, 2**64 - 1)


@given(st.integers(xxh3.LENGTH_MIN, xxh3.LENGTH_MAX), SEEDS, st.randoms(use_true_random=False))
def test_each_key_has_the_hash_that_the_library_gives_it(length: int, seed: int, random: object) -> None:
    keys = [random.randbytes(length) for _ in range(7)]  # type: ignore[attr-defined]
    expected = [xxhash.xxh3_64_intdigest(key, seed) for key in keys]
    assert xxh3.hash_rows(b"".join(keys), len(keys), seed).tolist() == expected


def test_every_length_of_the_algorithm_and_more_rows_than_are_hashed_at_once() -> None:
    for length in range(xxh3.LENGTH_MIN, xxh3.LENGTH_MAX + 1):
        keys = [bytes(range(number, number + length)) for number in range(100)]
        expected = [xxhash.xxh3_64_intdigest(key, 7) for key in keys]
        assert xxh3.hash_rows(memoryview(b"".join(keys)), len(keys), 7).tolist() == expected, length
    many = np.arange(3 * 20_001, dtype="<u8").tobytes()
    expected = [xxhash.xxh3_64_intdigest(many[at : at + 24], 7) for at in range(0, len(many), 24)]
    assert xxh3.hash_rows(many, 20_001, 7).tolist() == expected


@given(st.sampled_from(["", "of:one:source"]), st.sampled_from([4, 16, 17, 36, 40, 128, 129]), st.booleans(), SEEDS)
def test_ids_of_one_length_and_of_many_are_hashed_alike(source: str, length: int, are_alike: bool, seed: int) -> None:
    ids = [f"{number:0{length if are_alike else 1 + number % 40}d}" for number in range(ARROW_MIN + 3)]
    sources = [source if are_alike or number % 2 else "" for number in range(len(ids))]
    events = [Event("T", b"", id=id, source=source) for id, source in zip(ids, sources, strict=True)]
    columns = check_append(events, LogSettings().event_bytes_max)
    expected = hash_ids(sources, ids, seed)
    assert list(hashes_of(ArrowColumns(batch_of(columns), columns.bytes), seed)) == expected
    behind = ArrowColumns(batch_of(columns).slice(3), columns.bytes)  # its columns begin in the middle of their buffers
    assert list(hashes_of(behind, seed)) == expected[3:]
