"""How far a log is trimmed is said by META and by the state; what they do not both say is not unlinked."""

from __future__ import annotations

import errno
import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.core import LogSettings
from headwater.core.errors import DiskFull, StorageCorrupted
from headwater.core.state import kinds_of_log
from headwater.storage import accept_loss, backup, check_directory, restore
from headwater.storage.catalog.directories import LOG_KIND, TRASH_KIND
from headwater.storage.disk import checked_file
from headwater.storage.index.merge import merge_postings
from headwater.storage.maintenance import tasks
from headwater.storage.segments.meta import FORMAT, META_NAME, read_meta
from headwater.storage.state.data_directory import lock_directory

from ..builders import change, engine, event, fill, log_directory, numbers
from ..data.make_format_1 import DIRECTORY

pytestmark = pytest.mark.usefixtures("small_segments", "in_line")


@pytest.fixture
def trimmed(data: Path) -> Path:
    """A log of 120 events, trimmed below 50; its first segments were given back."""
    with engine(data) as one:
        orders = one.create("orders")
        fill(orders, 120, data=b"d" * 60)
        orders.trim(50)  # before the postings of its segments could be merged
        one.maintain()
        one.maintain()
    return data


def segment_files(data: Path) -> list[str]:
    return sorted(path.name for path in log_directory(data).glob("log/*.log"))


def witness(state: Any, data: Path) -> tuple[str, Any]:
    kind = kinds_of_log(read_meta(log_directory(data)).incarnation)[2]
    return kind, state.get(kind, "")


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_the_state_is_written_before_meta(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(data) as one:
        orders = one.create("orders")
        fill(orders, 120, data=b"d" * 60)
        one.maintain()
        with monkeypatch.context() as patch:
            patch.setattr(checked_file, "write_whole", no_room)
            with pytest.raises(DiskFull):
                orders.trim(80)
        assert json.loads(witness(one.state, data)[1].value) == {"first_retained": 80, "known_from": 1}
        before = segment_files(data)
        one.maintain()
        assert (orders.first_retained, segment_files(data)) == (1, before), "the trim was not answered"
    assert check_directory(data).is_sound
    with engine(data) as one:
        orders = one.open("orders")
        assert numbers(orders.read()) == list(range(1, 121))
        assert orders.trim(30) == 30, "another trim may be lower"
    with engine(data) as one:
        assert one.open("orders").first_retained == 30


def test_meta_ahead_of_the_state_is_refused_until_the_loss_is_accepted(trimmed: Path) -> None:
    with engine(trimmed) as one:
        one.state.delete(witness(one.state, trimmed)[0], "")
        before = segment_files(trimmed)
        with pytest.raises(StorageCorrupted, match=r"is 50 in META\.json, but 1 in the state") as refused:
            one.open("orders")
        one.maintain()
        assert segment_files(trimmed) == before
        assert "headwater check --accept-loss orders" in str(refused.value)
    assert check_directory(trimmed).logs[0].problems == [str(refused.value)]
    assert accept_loss(trimmed, "orders") == []
    assert check_directory(trimmed).is_sound
    with engine(trimmed) as one:
        assert numbers(one.open("orders").read()) == list(range(50, 121))


@pytest.mark.parametrize("value", [b"", b"\xff", b"[50, 1]", b'{"first_retained": "50", "known_from": 1}'])
def test_a_witness_that_cannot_be_read_is_told(trimmed: Path, value: bytes) -> None:
    with engine(trimmed) as one:
        one.state.put(witness(one.state, trimmed)[0], "", value)
        with pytest.raises(StorageCorrupted, match="unreadable in the state"):
            one.open("orders")
    assert "unreadable in the state" in check_directory(trimmed).logs[0].problems[0]


def test_nothing_goes_that_only_meta_calls_trimmed(trimmed: Path, caplog: pytest.LogCaptureFixture) -> None:
    with engine(trimmed) as one:
        orders = one.open("orders")
        orders.trim(100)
        kind, entry = witness(one.state, trimmed)
        one.state.put(kind, "", entry.value.replace(b"100", b"50"))
        before = segment_files(trimmed)
        one.maintain()
        assert segment_files(trimmed) == before
        assert "first_retained is 100 in META.json, but 50 in the state" in caplog.text
        assert "Traceback" not in caplog.text
        one.state.put(kind, "", entry.value)
        one.maintain()
        assert segment_files(trimmed) < before or len(segment_files(trimmed)) < len(before)


def test_nothing_goes_that_only_the_log_in_memory_calls_trimmed(trimmed: Path) -> None:
    with engine(trimmed) as one:
        orders = one.open("orders")
        before = segment_files(trimmed)
        orders._numbering.first_retained = 100
        one.maintain()
        assert segment_files(trimmed) == before


@pytest.mark.parametrize("which", [0, 1])
def test_segments_go_only_if_their_headers_say_who_they_are(
    trimmed: Path, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(trimmed) as one:
        orders = one.open("orders")
        one.maintain()
        orders.trim(orders.head())
        before = segment_files(trimmed)
        path = orders.frames.segments[which].path
        change(path, 40, b"\xff")
        one.maintain()
        assert segment_files(trimmed) == before
        assert "the header of the segment is damaged" in caplog.text


def test_a_segment_that_ends_elsewhere_than_the_next_begins_does_not_go(trimmed: Path) -> None:
    with engine(trimmed) as one:
        orders = one.open("orders")
        orders.trim(orders.head())
        segment, following = orders.frames.segments[:2]
        for wrong in (segment.last - 1, following.first):
            segment.last, was = wrong, segment.last
            with pytest.raises(StorageCorrupted, match="but the next segment is"):
                tasks.reclaim(orders, one.state.flush)
            segment.last = was
        assert segment.path.exists()


def test_postings_that_are_hurt_are_not_kept_as_history(trimmed: Path, caplog: pytest.LogCaptureFixture) -> None:
    with engine(trimmed) as one:
        orders = one.open("orders")
        orders.trim(orders.head())
        (first, *_) = [file for file in orders.index.files if file.path.parent.name == "idx"]
        change(first.path, first.path.stat().st_size - 3, b"\xff\xff\xff")
        before = segment_files(trimmed)
        one.maintain()
        assert segment_files(trimmed) == before
        assert "the checksum does not match" in caplog.text
    with engine(trimmed) as one:
        one.open("orders")
        one.maintain()
        assert len(segment_files(trimmed)) == 1, "made anew at the opening, and then given back"
    assert check_directory(trimmed).is_sound


def test_postings_that_are_hurt_are_not_merged(trimmed: Path) -> None:
    paths = sorted(log_directory(trimmed).glob("idx/*.postings"))
    change(paths[0], paths[0].stat().st_size - 3, b"\xff\xff\xff")
    with pytest.raises(ValueError, match="the checksum does not match"):
        merge_postings(paths, paths[0].parent)


def test_history_goes_only_if_both_witnesses_give_it_up(trimmed: Path) -> None:
    history = log_directory(trimmed) / "history"
    with engine(trimmed) as one:
        orders = one.open("orders")
        before = sorted(history.iterdir())
        orders._numbering.known_from = 50
        one.maintain()
        assert sorted(history.iterdir()) == before
    with engine(trimmed) as one:
        one.change("orders", LogSettings(keeps_history=False), drops_at_most=None)
        one.maintain()
        assert len(list(history.iterdir())) < len(before)
    assert read_meta(log_directory(trimmed)).known_from == 50
    assert check_directory(trimmed).is_sound


def test_what_is_retained_by_size_goes_by_both_witnesses(data: Path) -> None:
    with engine(data) as one:
        orders = one.create("orders", LogSettings(retention_bytes=20_000))
        fill(orders, 300, data=b"d" * 60)
        for _ in range(3):
            one.maintain()
        said = json.loads(witness(one.state, data)[1].value)
        assert said["first_retained"] == read_meta(log_directory(data)).first_retained == orders.first_retained > 1
        assert int(segment_files(data)[0].split(".")[0]) <= orders.first_retained
    assert check_directory(data).is_sound


@pytest.mark.parametrize("field", ["end", "last"])
def test_the_header_of_a_last_frame_does_not_decide_what_retention_counts(data: Path, field: str) -> None:
    """Its length and its count are not looked at by a checksum when the log is opened; its places are."""
    with engine(data) as one:
        orders = one.create("orders")
        fill(orders, 120, data=b"d" * 60)
        one.maintain()
        segment = orders.frames.segments[0]
        path, place = segment.path, segment.offsets[-1]
    offset = 8 if field == "end" else 24  # its length, or its count of events
    content = bytearray(path.read_bytes())
    content[place + offset] ^= 8
    path.write_bytes(content)
    with engine(data) as one, pytest.raises(StorageCorrupted, match="are damaged"):
        one.open("orders")


# Directories of 0.1.0, and 0.1.0 with a directory of today.


@pytest.fixture
def first_format(tmp_path: Path) -> Path:
    """A directory of 0.1.0, with a log that is trimmed."""
    copy = Path(shutil.copytree(DIRECTORY, tmp_path / "format-1"))
    for log in (copy / "logs").iterdir():
        for part in ("idx", "history"):
            (log / part).mkdir(exist_ok=True)
    return copy


def refused_by_0_1_0(path: Path) -> str | None:
    """What 0.1.0 does with META before anything else (`read_meta` there); None if it goes on."""
    known = 2
    found = msgspec.json.decode(path.read_bytes())
    if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] > known:
        return f"{path}: format {found['format']} is newer than this headwater ({known}); use a newer headwater"
    return None


def test_a_log_of_0_1_0_is_taken_over_once(first_format: Path) -> None:
    directory = log_directory(first_format)
    assert (read_meta(directory).format, refused_by_0_1_0(directory / META_NAME)) == (1, None)
    assert check_directory(first_format).is_sound
    with engine(first_format) as one:
        one.open("orders")
        assert json.loads(witness(one.state, first_format)[1].value) == {"first_retained": 71, "known_from": 1}
        one.state.delete(witness(one.state, first_format)[0], "")
    assert read_meta(directory).format == FORMAT == 3
    with engine(first_format) as one, pytest.raises(StorageCorrupted, match="but 1 in the state"):
        one.open("orders")


def test_a_backup_leaves_a_directory_of_0_1_0_to_its_server(first_format: Path, tmp_path: Path) -> None:
    before = (first_format / "state.sqlite").read_bytes()
    with closing(lock_directory(first_format)):
        backup(first_format, tmp_path / "copy")
    assert (first_format / "state.sqlite").read_bytes() == before
    assert not (first_format / "state.witness").exists()
    assert check_directory(tmp_path / "copy").is_sound
    restore(tmp_path / "copy", tmp_path / "again")
    with engine(tmp_path / "again") as one:
        assert one.open("orders").first_retained == 71


def test_0_1_0_refuses_a_log_of_today_clearly(trimmed: Path) -> None:
    refusal = refused_by_0_1_0(log_directory(trimmed) / META_NAME)
    assert refusal is not None and "format 3 is newer than this headwater (2); use a newer headwater" in refusal


@pytest.mark.parametrize("old", ["name", "first_retained", "known_from", "format", "voids", "incarnation"])
def test_a_meta_of_0_1_0_with_a_hurt_name_of_a_field_is_refused(first_format: Path, old: str) -> None:
    path = log_directory(first_format) / META_NAME
    path.write_bytes(path.read_bytes().replace(b'"%s"' % old.encode(), b'"%s"' % (old[:-1] + "~").encode()))
    with engine(first_format) as one, pytest.raises(StorageCorrupted, match="unreadable"):
        one.open("orders")
    assert any(log.problems for log in check_directory(first_format).logs)


@pytest.mark.parametrize(
    "changes",
    [
        {"first_retained": 0}, {"first_retained": 70, "known_from": 71}, {"incarnation": "x" * 32}, {"segments_id": ""},
        {"id_seed": -1}, {"partitions": 0}, {"format": 0}, {"epoch": -1}, {"voids": [[5, 4]]}, {"lost": [[0, 4]]},
        {"clean": {"head": 1, "segment": "../x", "end": 64, "crc": 1}}, {"name": 7}, {"name": ""},
        {"clean": {"head": 1, "segment": "00000000000000000001.log", "end": 64, "crc": 2**32}},
        {"unknown": 1}, {"epoch": True},
    ],
    ids=str,
)  # fmt: skip
def test_values_of_a_meta_of_0_1_0_that_cannot_be_are_refused(first_format: Path, changes: dict[str, Any]) -> None:
    path = log_directory(first_format) / META_NAME
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))
    with engine(first_format) as one, pytest.raises(StorageCorrupted, match="unreadable"):
        one.open("orders")
    assert any(log.problems for log in check_directory(first_format).logs)


def test_a_damaged_log_of_0_1_0_is_taken_over_when_its_loss_is_accepted(first_format: Path) -> None:
    path = sorted(log_directory(first_format).glob("log/*.log"))[0]
    change(path, 400, b"\xa5\xa5")
    assert accept_loss(first_format, "orders")
    with engine(first_format) as one:
        assert one.open("orders").first_retained == 71


# Backups.


def test_a_restored_log_is_as_trimmed_as_its_backup(trimmed: Path, tmp_path: Path) -> None:
    backup(trimmed, tmp_path / "backup")
    assert check_directory(tmp_path / "backup").is_sound
    restore(tmp_path / "backup", tmp_path / "restored")
    assert check_directory(tmp_path / "restored").is_sound
    with engine(tmp_path / "restored") as one:
        orders = one.open("orders")
        assert numbers(orders.read()) == list(range(50, 121))
        assert len(list(one.state.items(kinds_of_log(orders.meta.incarnation)[2]))) == 1


def test_a_backup_of_0_1_0_is_restored(first_format: Path, tmp_path: Path) -> None:
    (first_format / "BACKUP.json").write_text(json.dumps({"created_at": 1, "logs": HEADS, "format": 1}))
    restore(first_format, tmp_path / "restored")
    with engine(tmp_path / "restored") as one:
        assert one.open("orders").first_retained == 71
    (first_format / "BACKUP.json").write_text(json.dumps({"created_at": 1, "logz": HEADS, "format": 1}))
    assert not check_directory(first_format).is_sound


HEADS = {"again": 10, "flights": 20, "orders": 150}


def test_a_log_that_is_trimmed_while_it_is_backed_up_is_sound_in_the_copy(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        orders = one.create("orders")
        one.create("afterwards")
        fill(orders, 120, data=b"d" * 60)

        def trim(*_: object) -> None:
            orders.trim(100)

        backup(data, tmp_path / "backup", trim)
    assert check_directory(tmp_path / "backup").is_sound
    restore(tmp_path / "backup", tmp_path / "restored")
    with engine(tmp_path / "restored") as one:
        one.open("orders")


@pytest.mark.parametrize("bit", range(8))
def test_a_flip_in_the_manifest_of_a_backup_is_told(trimmed: Path, tmp_path: Path, bit: int) -> None:
    made = tmp_path / "backup"
    backup(trimmed, made)
    path = made / "BACKUP.json"
    was = path.read_bytes()
    for at in range(len(was)):
        path.write_bytes(was[:at] + bytes([was[at] ^ 1 << bit]) + was[at + 1 :])
        if at % 512 == bit:
            assert check_directory(made).problems, at
        with pytest.raises(Exception, match="not a complete backup"):
            restore(made, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


# Directories that are removed.


@pytest.mark.parametrize("name", [b"", b"flights", b"orders2"])
def test_a_log_is_not_removed_because_the_state_calls_its_directory_trash(
    trimmed: Path, name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    directory = log_directory(trimmed).name
    with engine(trimmed) as one:
        entry = one.state.get(LOG_KIND, "orders")
        assert entry is not None
        one.state.delete(LOG_KIND, "orders")
        one.state.put(TRASH_KIND, directory, name)
        before = segment_files(trimmed)
        for _ in range(3):
            one.maintain()
        assert segment_files(trimmed) == before
        assert caplog.text.count("not removed") == 1
    with engine(trimmed) as one:
        one.state.put(LOG_KIND, "orders", entry.value)
        assert numbers(one.open("orders").read()) == list(range(50, 121))


@pytest.mark.parametrize("directory", ["..", "../elsewhere.00000000", "", "orders", "/tmp/x.00000000"])
def test_trash_that_is_no_directory_of_a_log_is_not_removed(data: Path, directory: str) -> None:
    (data.parent / "elsewhere.00000000").mkdir()
    with engine(data) as one:
        one.create("orders").append([event()])
        one.state.put(TRASH_KIND, directory, b"orders")
        one.maintain()
        assert one.open("orders").head() == 1
    assert (data.parent / "elsewhere.00000000").exists()
    assert log_directory(data).exists()


def test_a_removal_that_was_interrupted_goes_on(trimmed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = log_directory(trimmed)
    with engine(trimmed) as one:
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", lambda path, **_: (path / "x").parent.rename(path))
            one.delete("orders")
        assert (directory / META_NAME).exists(), "who it is goes last"
        one.maintain()
        assert not directory.exists()
        assert list(one.state.items(TRASH_KIND)) == []


def test_what_was_made_halfway_is_removed(data: Path) -> None:
    with engine(data) as one:
        for content in (None, b"{"):
            half = data / "logs" / "orders.01234567"
            (half / "log").mkdir(parents=True)
            if content is not None:
                (half / META_NAME).write_bytes(content)
            one.state.put(TRASH_KIND, half.name, b"")
            one.maintain()
            assert not half.exists()
