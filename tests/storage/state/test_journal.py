"""The journal: changes as frames, read back, cut where a loss of power tore it, refused where it is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.core.errors import DiskFull, StorageCorrupted, StorageUnavailable
from headwater.storage.disk.system import Disk
from headwater.storage.segments.segment import segment_paths
from headwater.storage.state.journal import (
    EntryRecord,
    HadUsers,
    Journal,
    JournalSnapshot,
    Record,
    Written,
    make_journal,
    read_journal,
    salvaged,
)

from ..disks import FullDisk


def put(key: str, value: bytes = b"v", version: int = 1) -> EntryRecord:
    return EntryRecord("kind", key, version, value)


def opened(directory: Path, confirmed: int = 0, disk: Disk | None = None) -> Journal:
    return Journal(directory, confirmed=confirmed, disk=disk or Disk(), clock=lambda: 1000)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    make_journal(tmp_path / "journal", 0, iter([[HadUsers(False), JournalSnapshot(1, 0)]]), lambda: 1000)
    return tmp_path / "journal"


@pytest.fixture
def journal(place: Path) -> Iterator[Journal]:
    with closing(opened(place)) as found:
        yield found


def test_records_are_numbered_and_read_back(journal: Journal, place: Path) -> None:
    records: list[Record] = [put("a"), put("é\n", b"\x00\xff" * 10, 2**62), put("gone", b"", 0)]
    assert journal.head == 2
    assert journal.append(records, is_durable=False) == 5
    assert journal.append([HadUsers(True), JournalSnapshot(3, -5)], is_durable=True) == 7
    expected = [*map(Written, range(1, 3), [HadUsers(False), JournalSnapshot(1, 0)])]
    expected += [*map(Written, range(3, 6), records), Written(6, HadUsers(True)), Written(7, JournalSnapshot(3, -5))]
    assert list(journal.read(0)) == list(read_journal(place, 0)) == expected
    assert list(journal.read(4)) == list(read_journal(place, 4)) == expected[4:]
    journal.close()
    with closing(opened(place, confirmed=7)) as again:
        assert list(again.read(0)) == expected
        assert again.meta.epoch == journal.meta.epoch + 1


def test_one_that_begins_above_a_number_goes_on_there(tmp_path: Path) -> None:
    make_journal(tmp_path / "journal", 41, iter([[put("a")]]), lambda: 1000)
    with closing(opened(tmp_path / "journal", confirmed=42)) as journal:
        assert (journal.head, journal.first) == (42, 42)
        assert journal.append([put("b")], is_durable=True) == 43
        assert [number for number, _ in journal.read(0)] == [42, 43]


def test_its_segments_stay_small_and_go_when_they_are_forgotten(journal: Journal, place: Path) -> None:
    for number in range(50):
        journal.append([put(str(number), bytes(100_000))], is_durable=False)
    assert len(segment_paths(place / "log")) >= 5
    journal.forget(30)
    kept = segment_paths(place / "log")
    assert len(kept) == 3 and int(kept[0].stem) <= 30 < int(kept[1].stem) + 20
    assert [number for number, _ in journal.read(29)] == list(range(30, 53))
    journal.close()
    with closing(opened(place, confirmed=52)) as again:
        assert (again.first, again.head) == (30, 52)
    with pytest.raises(StorageCorrupted, match="starts with record 30, but record 29 is required"):
        list(read_journal(place, 28))


def test_a_torn_end_is_cut_where_it_was_not_confirmed(journal: Journal, place: Path) -> None:
    journal.append([put("durable")], is_durable=True)
    journal.append([put("lazy")], is_durable=False)
    end = journal.frames.segments[-1].end
    journal.close()
    (path,) = segment_paths(place / "log")
    with open(path, "r+b") as file:
        file.seek(end - 8)
        file.write(bytes(8))
    with pytest.raises(StorageCorrupted, match="events 4 to 4 are damaged"):
        opened(place, confirmed=4)
    assert [record for _, record in read_journal(place, 2)] == [put("durable")]
    with closing(opened(place, confirmed=3)) as again:
        assert again.head == 3
        assert again.append([put("next")], is_durable=True) == 4


def test_what_is_appended_durably_makes_all_before_it_durable(journal: Journal, place: Path) -> None:
    journal.append([put("lazy")], is_durable=False)
    journal.append([put("durable")], is_durable=True)
    journal.append([put("next")], is_durable=False)
    *_, last = journal.frames.read(0)
    assert last.durable_upto == 4, "a frame tells how far the journal was durable before it"


def test_a_full_disk_refuses_and_leaves_it_as_it_was(place: Path) -> None:
    disk = FullDisk()
    with closing(opened(place, disk=disk)) as journal:
        for number in range(8):
            journal.append([put(str(number), bytes(100_000))], is_durable=True)
        disk.refuses_allocation = True
        head = journal.head
        with pytest.raises((DiskFull, StorageUnavailable)):
            for number in range(30):
                journal.append([put(str(number), bytes(100_000))], is_durable=True)
                head = journal.head
        disk.refuses_allocation = False
        assert journal.append([put("again")], is_durable=True) == head + 1


def test_a_record_of_a_newer_kind_is_refused(journal: Journal, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.state.journal._TYPES", {HadUsers: "from-the-future"})
    journal.append([HadUsers(True)], is_durable=True)
    with pytest.raises(StorageUnavailable, match=r"newer headwater \(type 'from-the-future'"):
        list(journal.read(0))


def test_whatever_is_whole_of_a_damaged_one_is_found(journal: Journal, place: Path) -> None:
    for number in range(10):
        journal.append([put(str(number), bytes(1000))], is_durable=True)
    journal.close()
    (path,) = segment_paths(place / "log")
    content = bytearray(path.read_bytes())
    frames = list(journal.frames.segments[0].offsets)
    content[frames[4] + 300] ^= 1
    path.write_bytes(content)
    with pytest.raises(StorageCorrupted):
        opened(place)
    written, lost = salvaged(place)
    assert [number for number, _ in written] == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12]
    assert lost == ["records 6 to 6 of the journal"]
    (place / "META.json").write_bytes(b"{}")
    assert salvaged(place)[0] == written, "the segments say whose they are"


def test_one_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    def fails() -> Iterator[list[Record]]:
        yield [put("a")]
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        make_journal(tmp_path / "journal", 0, fails(), lambda: 1000)
    assert not (tmp_path / "journal").exists()
