"""What is kept beside a sealed segment: places of frames and hashes of ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headwater.storage.places import Places, hash_ids, write_places


def test_places_come_back_from_their_file(tmp_path: Path) -> None:
    hashes = np.array([5, 2**64 - 1, 7], np.uint64)
    places = Places(write_places(tmp_path, 10, 900, [10, 12], [64, 400], hashes))
    assert (places.first, places.end) == (10, 900)
    assert list(places.firsts) == [10, 12]
    assert list(places.offsets) == [64, 400]
    assert places.id_hashes.tolist() == hashes.tolist()


def test_places_of_an_empty_segment_are_whole(tmp_path: Path) -> None:
    places = Places(write_places(tmp_path, 10, 64, [], [], np.zeros(0, np.uint64)))
    assert list(places.firsts) == []
    assert places.id_hashes.tolist() == []


def test_any_damage_is_noticed(tmp_path: Path) -> None:
    path = write_places(tmp_path, 10, 900, [10, 12], [64, 400], np.array([5, 6, 7], np.uint64))
    whole = path.read_bytes()
    for position in range(len(whole)):
        if 12 <= position < 16:  # spare
            continue
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(ValueError):
            Places(path)
    for length in range(0, len(whole), 5):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError):
            Places(path)


def test_hashes_tell_source_and_id_apart_and_are_never_zero() -> None:
    assert len(set(hash_ids(["", "a", "b"], ["1", "1", "1"], 7))) == 3
    assert hash_ids([""], ["1"], 7) != hash_ids([""], ["1"], 8)
    assert hash_ids(["", ""], ["1", "2"], 7) == [*hash_ids([""], ["1"], 7), *hash_ids([""], ["2"], 7)]
    assert hash_ids(["s"], ["1"], 7) == hash_ids(["s", ""], ["1", "x"], 7)[:1]
    assert 0 not in hash_ids([""] * 1000, [str(n) for n in range(1000)], 7)
