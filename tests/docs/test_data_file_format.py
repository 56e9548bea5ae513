"""docs/data-file-format.md agrees with the code, and says enough to read a log without it."""

from __future__ import annotations

import importlib
import re
import struct
from itertools import accumulate

import pytest

from headwater.core import AppendCondition, Encoding, Event, LogSettings, Query
from headwater.storage import Engine, ids, places, postings, segments
from headwater.storage.frame import DIRECTORY_SLOTS, HEADER_BYTES, MAGIC, Column

from .documents import ROOT, table_after
from .independent_reader import crc32c, read_log

FORMAT = ROOT / "docs" / "data-file-format.md"
TEXT = " ".join(FORMAT.read_text(encoding="utf-8").split())
LAYOUTS = re.findall(r"<!-- (layout: [^>]*?) -->", TEXT)


def _fields(layout: struct.Struct) -> list[int]:
    """The widths of a struct's fields."""
    assert layout.format.startswith("<"), "only without padding can a width be told from the format"
    widths: list[int] = []
    for count, kind in re.findall(r"(\d*)([a-zA-Z])", layout.format):
        size = struct.calcsize(f"<{kind}")
        widths += [int(count or 1)] if kind == "s" else [size] * int(count or 1)
    return widths


@pytest.mark.parametrize("marker", LAYOUTS)
def test_offsets_and_widths_are_those_of_the_code(marker):
    widths: list[int] = []
    for name in marker.removeprefix("layout: ").split():
        module, _, attribute = name.partition(".")
        widths += _fields(getattr(importlib.import_module(f"headwater.storage.{module}"), attribute))
    expected = list(zip(accumulate(widths[:-1], initial=0), widths, strict=True))
    assert [(int(row[0]), int(row[1])) for row in table_after(FORMAT, marker)] == expected


def test_every_header_of_the_code_has_its_table():
    described = " ".join(LAYOUTS)
    for name in ("frame._LEAD frame._HEADER", "segments._HEADER", "postings._HEADER", "places._HEADER", "ids._HEADER"):
        assert name in described


def test_columns_are_those_of_the_code():
    slots = {name: value for name, value in vars(Column).items() if name.isupper()}
    assert {row[1]: int(row[0]) for row in table_after(FORMAT, "columns")} == slots


@pytest.mark.parametrize("magic", [MAGIC, segments.SEGMENT_MAGIC, postings.MAGIC, places.MAGIC, ids.MAGIC])
def test_magic_is_told(magic):
    assert f"`{magic.rstrip(bytes(1)).decode()}`" in TEXT


def test_sizes_told_in_prose_are_those_of_the_code():
    assert segments.SEGMENT_HEADER_BYTES == 64 and "a header of 64 bytes" in TEXT
    assert HEADER_BYTES - 4 * DIRECTORY_SLOTS == 80 and "header of 80 bytes, a directory of 28 slots" in TEXT
    assert DIRECTORY_SLOTS == 28 and HEADER_BYTES == 192 and "at least 192" in TEXT
    assert segments.SEGMENT_BYTES_MIN == 4 << 20 and "4 MiB at first" in TEXT
    assert segments.SEGMENT_BYTES_MAX == 256 << 20 and "up to 256 MiB" in TEXT
    assert segments.SEGMENT_EVENTS_MAX == 262_144 and "262,144 events" in TEXT


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
            Event("Ünïcode", "grüße".encode(), (), "id-1", "/source", {"subject": "s", "time": "t"}, "key"),
            Event("Message", b"body", ("a:1",), "id-2", "", {}, "other", b"\x00Sp", Encoding.DATA),
            Event("Message", b"\x00Sw", (), "id-3", encoding=Encoding.AMQP),
        ], AppendCondition(Query.where(types=["Never"])), partition=3)  # fmt: skip
        log.append([Event("Many", str(number).encode(), (f"n:{number % 7}",)) for number in range(500)])
        expected = [event._asdict() | {"attributes": dict(event.attributes)} for event in log.read()]
        directory = log.directory
    assert list(read_log(directory)) == expected


def test_independent_reader_goes_on_over_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "SEGMENT_BYTES_MIN", 4096)
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
