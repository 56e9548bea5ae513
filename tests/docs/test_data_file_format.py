"""docs/data-file-format.md agrees with the code, and says enough to read a log without it."""

from __future__ import annotations

import importlib
import re
import struct
from dataclasses import fields
from itertools import accumulate

import pyarrow as pa
import pytest

from headwater.core import AppendCondition, Encoding, Event, LogSettings, Mark, Query
from headwater.core.limits import EventColumns
from headwater.storage import Engine, backup
from headwater.storage.disk.checked_file import CRC_FIELD
from headwater.storage.frames.layout import DIRECTORY_SLOTS, HEADER_BYTES, MAGIC, Column
from headwater.storage.index import id_files, postings
from headwater.storage.segments import places, segment, segment_log
from headwater.storage.segments.meta import Meta
from headwater.storage.segments.segment import SEGMENT_HEADER_BYTES
from headwater.storage.staging import segments
from headwater.storage.staging.batches import Staging
from headwater.storage.staging.part import PART_MAGIC

from .documents import ROOT, check_none, table_after, text_of
from .independent_reader import crc32c, read_checked, read_log, read_meta

FORMAT = ROOT / "docs" / "data-file-format.md"
TEXT = " ".join(text_of(FORMAT).split())
EVENTS = pa.schema({"type": pa.string(), "data": pa.binary()})
LAYOUTS = re.findall(r"<!-- (layout: [^>]*?) -->", TEXT)


def _fields(layout: struct.Struct) -> list[int]:
    """The widths of a struct's fields."""
    assert layout.format.startswith("<"), "only without padding can a width be told from the format"
    widths: list[int] = []
    for count, kind in re.findall(r"(\d*)([a-zA-Z])", layout.format):
        size = struct.calcsize(f"<{kind}")
        widths += [int(count or 1)] if kind == "s" else [size] * int(count or 1)
    return widths


def test_offsets_and_widths_are_those_of_the_code() -> None:
    assert LAYOUTS
    check_none(
        f"{FORMAT.name}: {marker}: {told}; the code has {expected}"
        for marker in LAYOUTS
        if (told := _told(marker)) != (expected := _of_code(marker))
    )


def _told(marker: str) -> list[tuple[int, int]]:
    """The offsets and widths in the table of a layout."""
    return [(int(row[0]), int(row[1])) for row in table_after(FORMAT, marker)]


def _of_code(marker: str) -> list[tuple[int, int]]:
    """Those of the structs that its comment names."""
    widths: list[int] = []
    for name in marker.removeprefix("layout: ").split():
        module, _, attribute = name.rpartition(".")
        widths += _fields(getattr(importlib.import_module(f"headwater.storage.{module}"), attribute))
    return list(zip(accumulate(widths[:-1], initial=0), widths, strict=True))


def test_every_header_of_the_code_has_its_table():
    described = " ".join(LAYOUTS)
    for name in (
        "frames.layout.LEAD frames.layout.HEADER",
        "segments.segment._HEADER",
        "index.postings._HEADER",
        "segments.places._HEADER",
        "index.id_files._HEADER",
    ):
        assert name in described


def test_columns_are_those_of_the_code():
    slots = {name: value for name, value in vars(Column).items() if name.isupper()}
    assert {row[1]: int(row[0]) for row in table_after(FORMAT, "columns")} == slots


def test_magics_are_told() -> None:
    magics = [MAGIC, segment.SEGMENT_MAGIC, postings.MAGIC, places.MAGIC, id_files.MAGIC]
    assert [magic for magic in magics if f"`{magic.rstrip(bytes(1)).decode()}`" not in TEXT] == []


def test_sizes_told_in_prose_are_those_of_the_code():
    assert segment.SEGMENT_HEADER_BYTES == 64 and "a header of 64 bytes" in TEXT
    assert HEADER_BYTES - 4 * DIRECTORY_SLOTS == 80 and "header of 80 bytes, a directory of 28 slots" in TEXT
    assert DIRECTORY_SLOTS == 28 and HEADER_BYTES == 192 and "at least 192" in TEXT
    assert segment_log.SEGMENT_BYTES_FIRST == 64 << 10 and "64 KiB at first" in TEXT
    assert segment_log.SEGMENT_GROWTH == 8 and "eight times as large" in TEXT
    assert segment_log.SEGMENT_BYTES_MIN == 4 << 20 and "up to 4 MiB" in TEXT
    assert segment_log.SEGMENT_BYTES_MAX == 256 << 20 and "up to 256 MiB" in TEXT
    assert segment_log.SEGMENT_EVENTS_MAX == 262_144 and "262,144 events" in TEXT


def test_checksum_is_the_one_described():
    assert crc32c(b"123456789") == 0xE3069283


def test_independent_reader_reads_what_the_engine_wrote(tmp_path):
    with Engine(tmp_path, maintains=False) as engine:
        log = engine.create("all", LogSettings(partitions=4))
        log.append([Event("Plain")])
        log.append(
            [Event("Tagged", b"\0\xff", ("a:1", "b", "c:ü")), Event("Untagged", b"2"), Event("Tagged", b"", ("b",))]
        )
        log.append([
            Event("Ünïcode", "grüße".encode(), (), "id-1", "/source", {"subject": "s", "tenant": "t"}, "key"),
            Event("Message", b"body", ("a:1",), "id-2", "", {}, "other", b"\x00Su\xa0\x04", Encoding.DATA),
            Event("Message", b"\x00Sw@", (), "id-3", encoding=Encoding.AMQP),
        ], AppendCondition(Query.where(types=["Never"])), partition=3)  # fmt: skip
        log.append([Event("Many", str(number).encode(), (f"n:{number % 7}",)) for number in range(500)])
        expected = [event._asdict() | {"attributes": dict(event.attributes)} for event in log.read()]
        directory = log.directory
    assert list(read_log(directory)) == expected


def test_independent_reader_goes_on_over_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES_MIN", 4096)
    with Engine(tmp_path, maintains=False) as engine:
        log = engine.create("small")
        for number in range(60):
            log.append([Event("Counted", bytes(100), (f"n:{number}",), id=str(number))])
        directory = log.directory
    assert len(list((directory / "log").glob("*.log"))) > 2
    assert [event["id"] for event in read_log(directory)] == [str(number) for number in range(60)]


def test_independent_reader_refuses_a_flipped_bit(tmp_path):
    with Engine(tmp_path, maintains=False) as engine:
        log = engine.create("hurt")
        log.append([Event("Sound", b"payload")])
        [segment] = (log.directory / "log").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"payload")] ^= 1
    segment.write_bytes(content)
    with pytest.raises(ValueError, match="not whole"):
        list(read_log(segment.parents[1]))


def test_independent_reader_leaves_out_what_is_trimmed(tmp_path):
    with Engine(tmp_path, maintains=False) as engine:
        log = engine.create("trimmed")
        log.append([Event("E", id=str(number)) for number in range(1, 11)])
        log.trim(8)
        directory = log.directory
    assert [event["id"] for event in read_log(directory)] == ["8", "9", "10"]


def test_independent_reader_checks_every_small_file(tmp_path):
    with Engine(tmp_path / "data", maintains=False) as engine:
        log = engine.create("marked")
        log.append_columns(EventColumns.none(), mark=Mark("w", 1, 0, True))
        directory = log.directory
    backup(tmp_path / "data", tmp_path / "backup")
    assert read_meta(directory)["has_marks"]
    assert read_checked(directory / "WRITERS.json", 2)["writers"][0][0] == "w"
    assert read_checked(tmp_path / "backup" / "BACKUP.json", 3)["logs"] == {"marked": 0}
    for path, format in ((directory / "META.json", 3), (directory / "WRITERS.json", 2)):
        content = bytearray(path.read_bytes())
        content[content.index(b"format") + 1] ^= 1
        path.write_bytes(content)
        with pytest.raises((ValueError, KeyError)):
            read_checked(path, format)


def test_fields_of_meta_are_those_of_the_code():
    described = [row[0].strip("`") for row in table_after(FORMAT, "meta")]
    assert set(described) == {CRC_FIELD, *(each.name for each in fields(Meta))}
    assert described[-1] == CRC_FIELD


def test_a_staged_part_is_as_it_is_described(tmp_path):
    with Engine(tmp_path, maintains=False) as engine:
        part = Staging(engine.create("staged").directory).stage("w", 1, 0, 0, EVENTS)
        part.write(pa.record_batch([["E"], [b"x"]], schema=EVENTS))
        part.close()
        (path,) = tmp_path.glob("logs/*/staged/*/1/0-0.arrow")
        content = path.read_bytes()
        assert content[-12:-4] == PART_MAGIC and f"`{PART_MAGIC.decode()}`" in TEXT
        assert int.from_bytes(content[-4:], "little") == crc32c(content[:-4])
        assert pa.ipc.open_file(content[:-12]).read_all()["type"].to_pylist() == ["E"]


def test_staged_segments_are_as_they_are_described(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "FRAME_BYTES", 1)
    described = [int(row[0]) for row in table_after(FORMAT, "staged frame")]
    assert described == list(range(len(segments.StagedFrame.__struct_fields__)))
    with Engine(tmp_path, maintains=False) as engine:
        part = Staging(engine.create("staged").directory).stage("w", 1, 0, 0, EVENTS)
        part.write(pa.record_batch([["E", "F"], [b"x", b"payload"]], schema=EVENTS))
        part.close()
        (path,) = tmp_path.glob("logs/*/staged/*/1/0-0.frames")
        table = read_checked(path, checked_from=1)
        (segment,) = table["segments"]
        (frame,) = segment["frames"]
        offset, length, count, tags, crc, _, largest, directory = frame
        assert (offset, count, tags, largest) == (SEGMENT_HEADER_BYTES, 2, 0, 7)
        content = (path.parent / segment["name"]).read_bytes()
        assert len(content) == offset + length
        assert crc32c(content[offset + table["room"] :]) == crc
        assert content[offset + directory[Column.DATA_BYTES] :].startswith(b"xpayload")
