"""What a data directory has in it is its owner's alone, whatever the umask, whoever made it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.storage import SqliteState, accept_state_loss, backup, check_directory, restore
from headwater.storage.disk import system
from headwater.storage.disk.system import private_opener

from ..builders import engine, event

SECRETS = ("state.sqlite", "state.sqlite-wal", "state.sqlite-shm", "state.witness", "LOCK", "BACKUP.lock", "META.json")


@pytest.fixture(params=[0, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def others_may_use(directory: Path) -> list[Path]:
    """What others can get at, if they know where it is: directories, and files of secrets."""
    return [
        path
        for path in (directory, *directory.rglob("*"))
        if mode(path) & 0o077
        and ((path.is_dir() and path.parent.name != path.name) or path.name in SECRETS)
        and not any(parent.name.startswith("orders.") for parent in path.parents)
    ]


def fill(data: Path) -> None:
    with engine(data) as one:
        one.state.put("user", "alice", b"{}")
        one.create("orders").append([event()])
        one.maintain()
        assert others_may_use(data) == []
        assert {mode(data / name) for name in SECRETS[:5]} == {0o600}


@pytest.mark.usefixtures("umask")
def test_a_data_directory_is_private_from_the_start(data: Path) -> None:
    fill(data)
    assert others_may_use(data) == []


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("made", [0o755, 0o777])
def test_one_that_others_could_use_is_tightened_and_that_is_told(
    made: int, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(data)
    for path in (data, *data.rglob("*")):
        path.chmod(made if path.is_dir() else 0o644)
    (data / "logs").chmod(made)
    with engine(data) as one:
        one.state.put("user", "bob", b"{}")
        assert one.open("orders").append([event()]).first == 2
        assert others_may_use(data) == []
    assert f"others had access to it (mode {made:04o}), which contains secrets; removed their access" in caplog.text
    caplog.clear()
    engine(data).close()
    assert caplog.text == ""


def test_where_it_is_not_ours_it_is_told_and_what_is_made_is_private(
    data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    chmod = Path.chmod

    def refuse(path: Path, mode: int, **options: bool) -> None:
        if path == data:
            raise PermissionError(1, "Operation not permitted")
        chmod(path, mode, **options)

    monkeypatch.setattr(Path, "chmod", refuse)
    with engine(data) as one:
        one.create("orders").append([event()])
        assert others_may_use(data) == [data]
    assert "others have access to it (mode 0755): Operation not permitted;" in caplog.text
    assert "it contains secrets, set it to 0700" in caplog.text


@pytest.mark.usefixtures("umask")
def test_backups_and_what_is_restored_are_private_file_by_file(data: Path, tmp_path: Path) -> None:
    fill(data)
    for path in data.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for target in (tmp_path / "new", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(mode=0o755, exist_ok=True)
        backup(data, target)
        restore(target, tmp_path / f"{target.name}-restored")
        check_directory(target)
        for directory in (target, tmp_path / f"{target.name}-restored"):
            assert mode(directory) == 0o700
            assert {mode(path) for path in directory.rglob("*") if path.is_dir()} == {0o700}
            assert {mode(path) for path in directory.rglob("*") if path.is_file()} == {0o600}


@pytest.mark.usefixtures("umask")
def test_a_mended_state_is_private(data: Path) -> None:
    fill(data)
    (data / "state.witness").unlink()
    accept_state_loss(data)
    (aside,) = data.glob("state.lost-*")
    assert mode(aside) == 0o700
    assert {mode(path) for path in aside.rglob("*") if path.is_dir()} == {0o700}
    assert {mode(path) for path in aside.rglob("*") if path.is_file()} == {0o600}
    with closing(SqliteState(data / "state.sqlite")):
        assert others_may_use(data) == []


def test_what_root_makes_belongs_to_the_owner_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    real = os.stat_result

    def of_somebody(path: str | Path) -> os.stat_result:
        found = list(os.lstat(path))
        found[4], found[5] = 1234, 4321
        return real(found)

    def of_root(descriptor: int) -> os.stat_result:
        found = list(os.lstat(tmp_path / "file"))
        found[4] = 0
        return real(found)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "stat", of_somebody)
    monkeypatch.setattr(os, "fstat", of_root)
    monkeypatch.setattr(os, "fchown", lambda descriptor, owner, group: given.append((owner, group)))
    os.close(private_opener(str(tmp_path / "file"), os.O_CREAT | os.O_RDWR))
    os.close(private_opener(str(tmp_path / "file"), os.O_RDWR))
    assert given == [(1234, 4321)]


def test_a_directory_is_made_durably_with_all_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(system, "sync_directory", synced.append)
    system.make_directory(tmp_path / "a" / "b")
    system.make_directory(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
