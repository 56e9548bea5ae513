"""Columns of frames: what the events are, in place where a frame is taken whole, gathered where rows of many are."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from headwater.core import Encoding, Event, SequencedEvent
from headwater.formats.arrow.tables import SCHEMA
from headwater.formats.arrow.tables import record_batch as reference
from headwater.storage.frames import columns as columns_module
from headwater.storage.frames import layout
from headwater.storage.frames.columns import HEADER, Content, Frames, Rows, in_place, record_batch
from headwater.storage.frames.frame import Frame, UnknownFeature
from headwater.storage.frames.layout import FORMAT_VERSION, HEADER_BYTES, Column

from ..builders import SEED, content, encoded, event

PLAIN = [Event("A", b"data", ("x:1",), id="1"), Event("B", b"", (), id="2"), Event("A", b"more", ("x:1", "y"), id="3")]
FULL = [
    Event("Größe", b"\xa1\1x", ("x:ü",), "4", "urn:a", {"subject": "é", "tenant": "t"}, "g", b"\0Sw", Encoding.AMQP),
    Event("B", b"d" * 100, ("a", "b:1", "c"), "5"),
    Event("C", b"", (), "6", "", {"subject": "s"}, "", b"", Encoding.DATA),
]
FRAMES = [
    content(encoded(PLAIN, 1, at=1000)),
    content(encoded(FULL, 4, at=2000, partitions=[0, 7, 1000])),
    content(encoded(PLAIN[:1], 7, at=-5)),
    content(encoded(FULL * 3, 8, at=3000)),
]


def mapped(directory: Path, frames: Sequence[bytes]) -> tuple[Content, Frames, list[SequencedEvent]]:
    """A file of these frames, behind 64 bytes of something else, and the events that are in them."""
    path = directory / "frames"
    path.write_bytes(bytes(64) + b"".join(frames))
    with open(path, "rb") as file:
        found = Content(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    offsets = 64 + np.cumsum([0, *map(len, frames[:-1])])
    events = [event for each in frames for event in Frame(memoryview(each), 0, SEED).events()]
    return found, Frames(found, offsets), events


def with_times(frame: bytes, times: Sequence[int]) -> bytes:
    """The frame with a column of times, which this version reads but does not write."""
    changed = bytearray(frame + struct.pack(f"<{len(times)}q", *times))
    struct.pack_into("<Q", changed, 8, len(changed))
    struct.pack_into("<I", changed, HEADER_BYTES - 4 * layout.DIRECTORY_SLOTS + 4 * Column.RECORDED_AT, len(frame))
    return sealed(changed)


def sealed(frame: bytearray) -> bytes:
    """The frame with the checksum that it should have."""
    struct.pack_into("<I", frame, 4, google_crc32c.extend(SEED, bytes(frame[8:])))
    return bytes(frame)


def test_headers_are_read_as_frames_write_them() -> None:
    frame = FRAMES[1]
    (found,) = np.frombuffer(frame[:HEADER_BYTES], HEADER)
    expected = (
        *layout.LEAD.unpack_from(frame),
        *layout.HEADER.unpack_from(frame, 8),
        list(layout.DIRECTORY.unpack_from(frame, 80)),
    )
    assert [each.tolist() if isinstance(each, np.ndarray) else each for each in found.item()] == list(expected)


@pytest.mark.parametrize("name", SCHEMA.names)
def test_every_column_is_what_the_events_are(tmp_path: Path, name: str) -> None:
    frames = [*FRAMES, with_times(FRAMES[0], [5, 6, 7])]
    _, found, events = mapped(tmp_path, frames)
    expected = reference(events).column(name)
    assert Rows.all(found).column(name) == expected
    gathered = record_batch(Rows.all(found), [name])
    gathered.validate(full=True)
    assert gathered.schema == pa.schema([SCHEMA.field(name)])


@pytest.mark.parametrize("spans", [1, 1000])
@pytest.mark.parametrize("which", [FRAMES, [FRAMES[0], content(encoded(PLAIN, 4))]])
def test_whole_frames_are_joined_as_rows_are_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: list[bytes], spans: int
) -> None:
    monkeypatch.setattr(columns_module, "_SPAN_MIN", spans)
    _, found, events = mapped(tmp_path, which)
    firsts = [each.sequence_number for each in events]
    for low, high in [(0, 100), (firsts[1], firsts[-2]), (firsts[-1], 100), (firsts[0], firsts[0])]:
        batch = record_batch(Rows.all(found).between(low, high), SCHEMA.names)
        batch.validate(full=True)
        assert batch == reference([each for each in events if low <= each.sequence_number <= high])


def test_long_frames_are_joined_and_no_row_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event("A" * (n % 3 + 1), "n:1", *["ü"] * (n % 2), data=bytes(n % 5), id=str(n)) for n in range(100)]
    frames = [content(encoded(events[at : at + 50], 1 + at)) for at in (0, 50)]
    _, found, expected = mapped(tmp_path, frames)
    monkeypatch.setattr(Rows, "_gathered", None)
    batch = record_batch(Rows.all(found).between(3, 97), SCHEMA.names)
    batch.validate(full=True)
    assert batch == reference(expected[2:97])


@pytest.mark.parametrize("frame", [*FRAMES, with_times(FRAMES[1], [5, 6, 7])])
def test_a_frame_in_place_is_what_its_events_are(tmp_path: Path, frame: bytes) -> None:
    _, found, events = mapped(tmp_path, [frame])
    batch = in_place(found, SCHEMA.names)
    batch.validate(full=True)
    assert batch == reference(events)
    assert batch.slice(1) == reference(events).slice(1)


def test_some_rows_of_some_frames_are_gathered(tmp_path: Path) -> None:
    _, found, events = mapped(tmp_path, FRAMES)
    rows = Rows.all(found)
    for chosen in ([0], [2, 3, 4], [15], [1, 5, 6, 9, 14], list(range(16))):
        which = np.zeros(len(rows), np.bool_)
        which[chosen] = True
        batch = record_batch(rows.taken(which), SCHEMA.names)
        batch.validate(full=True)
        assert batch == reference([events[index] for index in chosen])
    nothing = record_batch(rows.taken(np.zeros(len(rows), np.bool_)), SCHEMA.names)
    assert nothing == reference([])


def test_rows_between_two_numbers(tmp_path: Path) -> None:
    _, found, events = mapped(tmp_path, FRAMES)
    for low in range(18):
        for high in range(18):
            numbers = [each.sequence_number for each in events if low <= each.sequence_number <= high]
            assert Rows.all(found).between(low, high).numbers.tolist() == numbers


def test_buffers_of_a_frame_in_place_are_the_files(tmp_path: Path) -> None:
    file, found, _ = mapped(tmp_path, [FRAMES[3]])
    batch = in_place(found, SCHEMA.names)
    inside = {name: [_is_inside(file, each) for each in batch.column(name).buffers() if each] for name in SCHEMA.names}
    stored = [name for name in SCHEMA.names if name not in ("sequence_number", "recorded_at", "partition")]
    assert all(all(inside[name]) for name in stored)


def test_columns_that_a_frame_has_not_take_no_memory(tmp_path: Path) -> None:
    _, found, _ = mapped(tmp_path, [FRAMES[2]])
    names = ["partition", "source", "attributes", "group_key", "envelope", "encoding"]
    in_place(found, names)
    before = pa.total_allocated_bytes()
    batches = [in_place(found, names) for _ in range(10)]
    assert len(batches) == 10 and pa.total_allocated_bytes() == before


def test_a_batch_outlives_whoever_made_it(tmp_path: Path) -> None:
    batch = in_place(mapped(tmp_path, [FRAMES[1]])[1], SCHEMA.names)
    (tmp_path / "frames").unlink()
    assert batch.column("type").to_pylist() == ["Größe", "B", "C"]


@pytest.mark.parametrize("offset", [0, 1, 5, 8, 24, 33, 100, 200, -1])
def test_a_damaged_frame_is_found(tmp_path: Path, offset: int) -> None:
    damaged = bytearray(FRAMES[1])
    damaged[offset] ^= 0x10
    file, found, _ = mapped(tmp_path, [FRAMES[0], bytes(FRAMES[1])])
    assert _first_bad(file, found) is None
    file, found, _ = mapped_unread(tmp_path, [FRAMES[0], bytes(damaged)])
    index, _ = _first_bad(file, found) or (None, None)
    assert index == 1


@pytest.mark.parametrize(("offset", "value"), [(16, FORMAT_VERSION + 1), (18, 1)])
def test_a_frame_of_a_newer_format_is_refused(tmp_path: Path, offset: int, value: int) -> None:
    newer = bytearray(FRAMES[0])
    struct.pack_into("<H", newer, offset, value)
    file, found, _ = mapped_unread(tmp_path, [sealed(newer)])
    with pytest.raises(UnknownFeature, match="use a newer headwater"):
        _first_bad(file, found)


def mapped_unread(directory: Path, frames: Sequence[bytes]) -> tuple[Content, Frames, None]:
    """As `mapped`, of frames that need not be whole."""
    path = directory / "damaged"
    path.write_bytes(bytes(64) + b"".join(frames))
    with open(path, "rb") as file:
        found = Content(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    return found, Frames(found, 64 + np.cumsum([0, *map(len, frames[:-1])])), None


def _first_bad(file: Content, frames: Frames) -> Any:
    return frames.first_bad(np.arange(len(frames)), file.buffer.size, SEED)


def _is_inside(file: Content, buffer: pa.Buffer) -> bool:
    return (
        file.buffer.address <= buffer.address and buffer.address + buffer.size <= file.buffer.address + file.buffer.size
    )
