"""What is kept beside a sealed segment: places of frames and hashes of ids."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Event
from headwater.core.errors import DuplicateEventId
from headwater.core.limits import check_append
from headwater.core.settings import LogSettings
from headwater.formats.arrow.columns import ArrowColumns, batch_of
from headwater.storage import Engine
from headwater.storage.frames.frame import ARROW_MIN
from headwater.storage.index.ids import hash_ids, hashes_of
from headwater.storage.segments import segment_log
from headwater.storage.segments.places import FramePlaces, write_places


def test_places_come_back_from_their_file(tmp_path: Path) -> None:
    hashes = np.array([5, 2**64 - 1, 7], np.uint64)
    places = FramePlaces(write_places(tmp_path, 10, 900, [10, 12], [64, 400], hashes))
    assert (places.first, places.end) == (10, 900)
    assert list(places.firsts) == [10, 12]
    assert list(places.offsets) == [64, 400]
    assert places.id_hashes.tolist() == hashes.tolist()


def test_places_of_an_empty_segment_are_whole(tmp_path: Path) -> None:
    places = FramePlaces(write_places(tmp_path, 10, 64, [], [], np.zeros(0, np.uint64)))
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
            FramePlaces(path)
    for length in range(0, len(whole), 5):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError):
            FramePlaces(path)


def test_the_file_of_another_segment_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole, and in the wrong place; an id that it lacks would be taken twice."""
    monkeypatch.setattr(segment_log, "SEGMENT_EVENTS_MAX", 10)
    with closing(Engine(tmp_path)) as engine:
        for number in range(1, 31):
            engine.create("orders").append([Event("E", bytes(number), id=str(number))])
        engine.maintain()
    first, second, *_ = sorted(tmp_path.glob("logs/orders*/idx/*.places"))
    first.write_bytes(second.read_bytes())
    with closing(Engine(tmp_path)) as engine:
        for number in range(1, 31):
            with pytest.raises(DuplicateEventId):
                engine.open("orders").append([Event("E", b"", id=str(number))])


def test_hashes_tell_source_and_id_apart_and_are_never_zero() -> None:
    assert len(set(hash_ids(["", "a", "b"], ["1", "1", "1"], 7))) == 3
    assert hash_ids([""], ["1"], 7) != hash_ids([""], ["1"], 8)
    assert hash_ids(["", ""], ["1", "2"], 7) == [*hash_ids([""], ["1"], 7), *hash_ids([""], ["2"], 7)]
    assert hash_ids(["s"], ["1"], 7) == hash_ids(["s", ""], ["1", "x"], 7)[:1]
    assert 0 not in hash_ids([""] * 1000, [str(n) for n in range(1000)], 7)


@given(st.sampled_from(["", "of:one:source"]), st.sampled_from([4, 36, 129]), st.booleans(), st.integers(0, 2**64 - 1))
def test_ids_of_one_length_and_of_many_are_hashed_alike(source: str, length: int, are_alike: bool, seed: int) -> None:
    ids = [f"{number:0{length if are_alike else 1 + number % 40}d}" for number in range(ARROW_MIN + 3)]
    sources = [source if are_alike or number % 2 else "" for number in range(len(ids))]
    events = [Event("T", b"", id=id, source=source) for id, source in zip(ids, sources, strict=True)]
    columns = check_append(events, LogSettings().event_bytes_max)
    expected = hash_ids(sources, ids, seed)
    assert list(hashes_of(ArrowColumns(batch_of(columns), columns.bytes), seed)) == expected
    behind = ArrowColumns(batch_of(columns).slice(3), columns.bytes)  # its columns begin in the middle of their buffers
    assert list(hashes_of(behind, seed)) == expected[3:]
