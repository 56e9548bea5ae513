"""Who a log is: a damaged META.json is rebuilt from the journal, and one that says something else is not believed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headwater.core import Query
from headwater.core.errors import PositionOfOtherIncarnation, StorageCorrupted
from headwater.core.limits import EventColumns
from headwater.core.mark import Mark
from headwater.storage import accept_loss, accept_state_loss, backup, check_directory, restore
from headwater.storage.catalog import identity as module
from headwater.storage.catalog.identity import IDENTITY_KIND, known_identity
from headwater.storage.segments.meta import META_NAME, Meta, read_meta
from headwater.storage.state.data_directory import open_state

from ..builders import crashed, engine, event, log_directory, numbers, without_identities


def damage(directory: Path) -> None:
    (directory / META_NAME).write_bytes(b"\xff" * 100)


def made(data: Path) -> Path:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event("E", f"n:{n}", id=str(n)) for n in range(1, 21)])
        log.append_columns(EventColumns.none(), mark=Mark("w", 1, 0, True))
        log.trim(6)
    return log_directory(data)


@pytest.mark.parametrize("harm", [damage, lambda each: (each / META_NAME).unlink()])
def test_a_log_whose_meta_is_lost_goes_on(
    data: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    directory = made(data)
    before = read_meta(directory)
    harm(directory)
    report = check_directory(data)
    assert report.is_sound and "META.json is rebuilt from the journal at the next start" in report.logs[0].notes[0]
    with engine(data) as one:
        log = one.open("orders")
        assert numbers(log.read()) == list(range(6, 21))
        assert numbers(log.read(Query.where(tags=["n:7"]))) == [7]
        assert log.append([event("E", "n:7", id="7")]).was_stored, "ids are told as before"
        assert log.writer("w") is not None, "and marks"
        assert log.append([event()]).first == 21
    assert "META.json is rebuilt from the journal, and nothing is lost" in caplog.text
    after = read_meta(directory)
    assert after.epoch > before.epoch
    assert after.changed(epoch=0, clean=None) == before.changed(epoch=0, clean=None)
    assert check_directory(data).logs[0].notes == []


def test_what_a_kill_leaves_beside_a_damaged_meta_is_all_there(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event() for _ in range(10)])
        log.trim(3)
        log.append([event()])
        copy = crashed(data, tmp_path / "crashed")
        epoch = log.meta.epoch
    damage(log_directory(copy))
    with engine(copy) as one:
        assert numbers(one.open("orders").read()) == list(range(3, 12))
        assert one.open("orders").meta.epoch > epoch, "no frame has that one"


@pytest.mark.parametrize(
    "changes",
    [
        {"id_seed": 1},
        {"created_at": 1},
        {"partitions": 2},
        {"name": "others"},
        {"incarnation": "0" * 32},
        {"segments_id": "0" * 32},
        {"voids": [(100, 200)]},
        {"lost": [(1, 2)]},
        {"distrusted": [(1, 2, 3)]},
    ],
)
def test_a_meta_that_says_something_else_is_not_believed(data: Path, changes: dict[str, object]) -> None:
    directory = made(data)
    sound = (directory / META_NAME).read_bytes()
    read_meta(directory).changed(**changes).write(directory)
    (name,) = changes
    problem = f"{name} (?:is|differs) .*: one of them was changed.*headwater check --accept-loss"
    with engine(data) as one, pytest.raises(StorageCorrupted, match=problem):
        one.open("orders")
    assert name in check_directory(data).logs[0].problems[0]
    (directory / META_NAME).write_bytes(sound)
    with engine(data) as one:
        assert one.open("orders").head() == 20


def test_an_older_state_is_not_believed_about_newer_losses(data: Path) -> None:
    directory = made(data)
    meta = read_meta(directory)
    meta.changed(lost=[(8, 9)]).write(directory)
    with engine(data) as one, pytest.raises(StorageCorrupted, match="lost differs between"):
        one.open("orders")
    accept_loss(data, "orders")
    with engine(data) as one:
        assert one.open("orders").meta.lost == [(8, 9)]


def test_what_the_journal_had_when_it_was_interrupted_is_done(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal comes first, META.json second: whoever opens the log next completes it."""
    directory = made(data)
    meta = read_meta(directory)
    with closing(open_state(data)) as state:
        module.record_identity(state, directory, meta.changed(lost=[(8, 9)], distrusted=[(10, 11, 12)]))
    with engine(data) as one:
        found = one.open("orders").meta
        assert (found.lost, found.distrusted) == ([(8, 9)], [(10, 11, 12)])
    assert read_meta(directory).lost == [(8, 9)]


def test_a_log_of_an_earlier_version_is_entered_when_it_is_opened(data: Path) -> None:
    directory = made(data)
    without_identities(data)
    with engine(data) as one:
        assert known_identity(one.state, directory) is None
        one.open("orders")
        found = known_identity(one.state, directory)
        assert found is not None and found.id_seed == read_meta(directory).id_seed


def test_it_goes_with_its_log(data: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
        one.delete("orders")
        assert list(one.state.items(IDENTITY_KIND)) == []
        one.create("orders")
        assert len(list(one.state.items(IDENTITY_KIND))) == 1


def test_a_restored_log_is_another_incarnation_in_both_copies(data: Path, tmp_path: Path) -> None:
    made(data)
    backup(data, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    directory = log_directory(tmp_path / "restored")
    damage(directory)
    with engine(tmp_path / "restored") as one:
        log = one.open("orders")
        found = known_identity(one.state, directory)
        assert found is not None and found.incarnation == log.meta.incarnation
        assert log.meta.incarnation != read_meta(log_directory(data)).incarnation
        assert numbers(log.read()) == list(range(6, 21))
        with pytest.raises(PositionOfOtherIncarnation):
            log.check_position(30)


def test_a_backup_beside_a_first_mark_is_of_one_moment(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """META.json is copied after the state: what it says then, the copy of the state must say too."""
    backup_module = sys.modules["headwater.storage.backup"]
    with engine(data) as one:
        log = one.create("orders")
        log.append([event()])
        real = getattr(backup_module, "_copy_state")  # noqa: B009 - the module has the name of its function

        def then_a_mark(source: Path, target: Path) -> None:
            real(source, target)
            if not log.meta.has_marks:
                log.append_columns(EventColumns.none(), mark=Mark("w", 1, 0, True))

        monkeypatch.setattr(backup_module, "_copy_state", then_a_mark)
        backup(data, tmp_path / "backup")
    assert check_directory(tmp_path / "backup").is_sound


def test_after_a_loss_of_state_meta_is_believed(data: Path) -> None:
    directory = made(data)
    (data / "state.sqlite").unlink()
    shutil.rmtree(data / "journal")
    accept_state_loss(data)
    with closing(open_state(data)) as state:
        assert known_identity(state, directory) is None
    assert isinstance(read_meta(directory), Meta)
