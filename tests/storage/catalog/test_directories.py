"""Logs that the state has forgotten, and logs whose directory is gone, are stopped; the others go on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from headwater.core import LogSettings
from headwater.core.errors import LogExists, LogNotFound, StorageCorrupted
from headwater.storage import accept_loss, accept_state_loss, adopt_log, check_directory
from headwater.storage.catalog.directories import RESTORE_JUMP
from headwater.storage.segments.segment import segment_paths

from ..builders import engine, event, log_directory, numbers, without_identities


@pytest.fixture
def forgotten(data: Path) -> Path:
    """A directory with the log `kept`, and one of a log `orders` that the state does not know."""
    with engine(data) as one:
        one.create("kept").append([event()])
        one.create("orders", LogSettings(partitions=3, retention_bytes=90_000)).append([event(), event()])
        one.state.delete("log", "orders")
    return data


def test_no_log_is_begun_anew_beside_its_forgotten_events(forgotten: Path, caplog: pytest.LogCaptureFixture) -> None:
    with engine(forgotten) as one:
        assert "log orders is stopped" in caplog.text
        assert one.names() == ["kept", "orders"]
        for use in (lambda: one.create("orders"), lambda: one.open("orders"), lambda: one.delete("orders")):
            with pytest.raises(StorageCorrupted, match=r"orders\.\w{8}: .* would start at 1 again; .*--adopt orders"):
                use()
        assert numbers(one.open("kept").read()) == [1]
        assert one.create("others").append([event()]).first == 1
        one.maintain()
    assert len(list((forgotten / "logs").glob("orders.*"))) == 1
    report = check_directory(forgotten)
    assert [bool(log.problems) for log in report.logs] == [False, True, False]
    assert (report.logs[1].events, "--adopt orders" in report.logs[1].problems[0]) == (2, True)


def test_a_forgotten_log_is_adopted_and_forgets_nothing(forgotten: Path) -> None:
    directory = adopt_log(forgotten, "orders")
    assert directory == log_directory(forgotten)
    with engine(forgotten) as one:
        log = one.open("orders")
        assert numbers(log.read()) == [1, 2]
        assert log.settings == LogSettings(partitions=3)
    assert check_directory(forgotten).is_sound
    with pytest.raises(LogExists):
        adopt_log(forgotten, "orders")
    with pytest.raises(StorageCorrupted, match=r"no directory belongs to log nothing; every directory is known"):
        adopt_log(forgotten, "nothing")


def test_who_adopts_what_is_not_there_is_told_what_could_be(forgotten: Path) -> None:
    with pytest.raises(StorageCorrupted, match="no directory belongs to log nope; orders can"):
        adopt_log(forgotten, "nope")


def test_stopped_logs_are_told_with_the_readiness_of_the_others(forgotten: Path) -> None:
    with engine(forgotten) as one:
        one.open("kept")
        assert one.unready() is None
        (trouble,) = one.troubles()
        assert trouble.startswith("log orders is stopped; see the log line on stderr")


def test_a_log_whose_meta_is_damaged_is_told_and_can_be_given_up(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
        one.create("others")
        directory = one.open("orders").directory
    without_identities(data)
    (directory / "META.json").write_bytes(b"{")
    with engine(data) as one:
        for _ in range(2):
            with pytest.raises(StorageCorrupted, match=r"move the log's directory away, .*--accept-loss LOG"):
                one.open("orders")
        assert one.unready() is None and "log orders is stopped" in one.troubles()[0]
        assert one.open("others").head() == 0
    assert caplog.text.count("log orders is stopped") == 1
    directory.rename(data / "away")
    accept_loss(data, "orders")
    with engine(data) as one:
        assert one.create("orders").append([event()]).first > RESTORE_JUMP
        assert one.troubles() == []


def test_of_two_directories_none_is_chosen(forgotten: Path) -> None:
    other = forgotten / "logs" / "orders.00000000"
    shutil.copytree(log_directory(forgotten), other)
    with pytest.raises(StorageCorrupted, match=r"orders.00000000, orders\.\w{8} may be the directory of log orders"):
        adopt_log(forgotten, "orders")


def test_a_damaged_meta_hides_no_forgotten_log(forgotten: Path) -> None:
    (log_directory(forgotten) / "META.json").write_bytes(b"\xff{")
    with engine(forgotten) as one, pytest.raises(StorageCorrupted, match="would start at 1 again"):
        one.create("orders")


def test_the_name_in_meta_counts_too(forgotten: Path) -> None:
    os.rename(log_directory(forgotten), forgotten / "logs" / "renamed.12345678")
    with engine(forgotten) as one:
        for name in ("orders", "renamed"):
            with pytest.raises(StorageCorrupted, match=r"renamed\.12345678: "):
                one.create(name)
    with pytest.raises(StorageCorrupted, match="--adopt orders"):
        adopt_log(forgotten, "renamed")


def test_what_is_no_log_and_what_is_left_over_of_a_known_one_stops_nothing(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
    (data / "logs" / "lost+found").mkdir()
    shutil.copytree(log_directory(data), data / "logs" / "orders.00000000.old")
    with engine(data) as one:
        assert numbers(one.open("orders").read()) == [1]
        assert one.create("lost").append([event()]).first == 1
    assert "orders.00000000.old: this directory is unknown to the state" in caplog.text
    report = check_directory(data)
    assert report.is_sound and "orders.00000000.old" in report.state.notes[0]


def test_a_log_without_its_directory_is_stopped_until_it_is_put_back_or_given_up(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(data) as one:
        one.create("kept").append([event()])
        one.create("orders").append([event()])
    there = log_directory(data)
    os.rename(there, data / "away")
    with engine(data) as one:
        assert "log orders is stopped" in caplog.text
        with pytest.raises(StorageCorrupted, match=r"the directory of log orders is missing; .*--accept-loss orders"):
            one.open("orders")
        with pytest.raises(StorageCorrupted):
            one.create("orders")
        assert numbers(one.open("kept").read()) == [1]
        os.rename(data / "away", there)
        assert numbers(one.open("orders").read()) == [1]
    shutil.rmtree(there)
    report = check_directory(data)
    assert [log.problems != [] for log in report.logs] == [False, True]
    assert accept_loss(data, "orders") == [(1, RESTORE_JUMP)]
    with engine(data) as one:
        with pytest.raises(LogNotFound):
            one.open("orders")
        assert one.create("orders").append([event()]).first == RESTORE_JUMP + 1
    assert check_directory(data).is_sound


def test_a_moved_directory_is_adopted_with_the_settings_that_the_state_has(data: Path) -> None:
    with engine(data) as one:
        one.create("orders", LogSettings(retention_bytes=90_000)).append([event()])
    os.rename(log_directory(data), data / "logs" / "orders.copied00")
    with engine(data) as one, pytest.raises(StorageCorrupted, match=r"orders\.copied00 may be it.*--adopt orders"):
        one.open("orders")
    adopt_log(data, "orders")
    with engine(data) as one:
        assert one.open("orders").settings == LogSettings(retention_bytes=90_000)


def test_trash_that_cannot_be_removed_stays_known(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
        with monkeypatch.context() as stuck:
            stuck.setattr(shutil, "rmtree", lambda *_, **__: None)
            one.delete("orders")
        assert len(list(one.state.items("log-trash"))) == 1
    with engine(data) as one:
        assert list((data / "logs").iterdir()) == []
        assert one.create("orders").append([event()]).first == 2
        assert [key for key, _ in one.state.items("log-trash")] == []


def test_a_changed_setting_of_retention_is_not_applied(data: Path) -> None:
    with engine(data) as one:
        one.create("orders", LogSettings(retention_bytes=90_000_000)).append([event()])
    content = (data / "state.sqlite").read_bytes()
    at = content.index(b"90000000") + 1  # 0 becomes 8: 98000000
    (data / "state.sqlite").write_bytes(content[:at] + b"8" + content[at + 1 :])
    found = check_directory(data).state
    assert found.problems == [] and "the entry of kind 'log' and key 'orders' is not what was stored" in found.notes[-1]
    with engine(data) as one:  # the journal has it as it was
        assert one.open("orders").settings.retention_bytes == 90_000_000


def test_a_read_only_medium_is_checked_and_nothing_is_written_to_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
        medium = shutil.copytree(data, tmp_path / "medium", ignore=shutil.ignore_patterns("LOCK", "*-shm", "*.sock"))
    before = {path: path.stat().st_mtime_ns for path in sorted(medium.rglob("*"))}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert check_directory(medium).is_sound
    content = (medium / "state.sqlite-wal").read_bytes()
    (medium / "state.sqlite-wal").write_bytes(content[:5000] + b"\xff" + content[5001:])
    before[medium / "state.sqlite-wal"] = (medium / "state.sqlite-wal").stat().st_mtime_ns
    assert check_directory(medium).is_sound, "the journal has what the image lacks"
    (segment,) = segment_paths(medium / "journal" / "log")
    content = segment.read_bytes()
    segment.write_bytes(content[:300] + b"\xff" + content[301:])
    before[segment] = segment.stat().st_mtime_ns
    assert "was confirmed" in check_directory(medium).state.problems[0]
    assert {path: path.stat().st_mtime_ns for path in sorted(medium.rglob("*"))} == before


def test_a_state_that_is_gone_with_its_witness_is_not_called_sound(data: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
    shutil.rmtree(data / "journal")
    for path in data.glob("state.*"):
        path.unlink()
    (problem,) = check_directory(data).state.problems
    assert "the file is missing, but there are logs" in problem and str(data / "state.sqlite") in problem


def test_a_log_is_not_held_against_a_state_that_cannot_be_used(data: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event() for _ in range(9)])
        one.open("orders").trim(5)
    (data / "state.witness").unlink()
    report = check_directory(data)
    assert report.state.problems and [log.problems for log in report.logs] == [[]]
    accept_state_loss(data)
    assert check_directory(data).is_sound


def test_after_a_loss_of_state_no_number_of_a_deleted_log_is_given_again(data: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event(), event()])
        one.delete("orders")
        one.create("kept").append([event()])
    (data / "state.sqlite").unlink()
    shutil.rmtree(data / "journal")
    accept_state_loss(data)
    adopt_log(data, "kept")
    with engine(data) as one:
        one.create("orders").append([event()])
        assert numbers(one.open("orders").read()) == [RESTORE_JUMP + 1]
        assert numbers(one.open("kept").read()) == [1]
    (data / "state.witness").unlink()
    accept_state_loss(data)
    assert check_directory(data).is_sound
    with engine(data) as one:
        one.create("again").append([event()])
        assert numbers(one.open("again").read()) == [2 * RESTORE_JUMP + 1]
