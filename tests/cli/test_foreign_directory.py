"""No command makes a data directory, or a backup, of a folder that has files of somebody else in it."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.running import RunningServer, headwater

from headwater.cli.main import UNAVAILABLE
from headwater.core import Event
from headwater.core.errors import StorageUnavailable
from headwater.storage import Engine, backup

HOLDS = "not a data directory (it contains 'a'); specify a data directory or an empty directory with --data"
REFUSED = {
    "serve": (["serve", "--data", "{foreign}", "--http-port", "0", "--amqp-port", "0", "--flight-port", "0"], HOLDS),
    "user": (["user", "add", "alice", "--token", "--grant", "all:*", "--data", "{foreign}"], HOLDS),
    "accept-state-loss": (["check", "--accept-state-loss", "--data", "{foreign}"], HOLDS),
    "backup": (["backup", "{foreign}", "--data", "{data}"], "not empty; use a new or empty directory"),
    "restore": (["restore", "{copy}", "{foreign}"], "not empty; use a new or empty directory"),
}


def looks(directory: Path) -> tuple[int, list[str]]:
    return stat.S_IMODE(directory.stat().st_mode), sorted(each.name for each in directory.rglob("*"))


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of another program, that others may use."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "a").write_text("x", encoding="utf-8")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory, with a backup beside it."""
    with Engine(tmp_path / "data", reserve_bytes=0) as engine:
        engine.create("orders").append([Event("E")])
    backup(tmp_path / "data", tmp_path / "copy")
    return tmp_path / "data"


@pytest.mark.parametrize("command", REFUSED)
def test_a_folder_of_others_is_refused_and_stays_as_it_is(foreign: Path, data: Path, command: str) -> None:
    arguments, problem = REFUSED[command]
    places = {"foreign": foreign, "data": data, "copy": data.with_name("copy")}
    before = looks(foreign)
    done = headwater(*(each.format(**places) for each in arguments), cwd=data.parent)
    assert (done.returncode, looks(foreign)) == (UNAVAILABLE, before), done.stderr
    assert done.stderr.rstrip().endswith(f"{foreign}: {problem}")


@pytest.mark.parametrize(("file", "held"), [("logs/app.log", "logs/app.log"), ("journal/monday.md", "journal")])
def test_folders_of_others_that_are_called_as_ours_are_refused(foreign: Path, file: str, held: str) -> None:
    (foreign / "a").unlink()
    (foreign / file).parent.mkdir()
    (foreign / file).write_text("x", encoding="utf-8")
    before = looks(foreign)
    with pytest.raises(StorageUnavailable, match=f"not a data directory .it contains '{held}'"):
        Engine(foreign, reserve_bytes=0)
    done = headwater("serve", "--data", str(foreign), "--http-port", "0", "--amqp-port", "0", cwd=foreign.parent)
    assert (done.returncode, looks(foreign)) == (UNAVAILABLE, before), done.stderr


@pytest.mark.parametrize(("name", "held"), [("COPY", "COPY"), ("state.sqlite", "a")])
def test_files_of_others_that_are_called_as_ours_make_no_data_directory(foreign: Path, name: str, held: str) -> None:
    with closing(sqlite3.connect(foreign / name)) as of_others:
        of_others.execute("CREATE TABLE entries (id INTEGER)")
    before = looks(foreign)
    done = headwater("serve", "--data", str(foreign), "--http-port", "0", "--amqp-port", "0", cwd=foreign.parent)
    assert (done.returncode, looks(foreign)) == (UNAVAILABLE, before), done.stderr
    assert done.stderr.rstrip().endswith(HOLDS.replace("'a'", repr(held)))


@pytest.mark.parametrize("is_there", [True, False])
def test_an_empty_folder_has_no_state_to_lose(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "empty"
    if is_there:
        folder.mkdir()
    done = headwater("check", "--accept-state-loss", "--data", str(folder), cwd=tmp_path)
    assert (done.returncode, list(tmp_path.rglob("*"))) == (UNAVAILABLE, [folder] if is_there else [])
    assert done.stderr.rstrip().endswith(
        "not a data directory (there is no state.sqlite); name the data directory with --data"
    )


def test_an_engine_refuses_a_folder_of_others(foreign: Path) -> None:
    before = looks(foreign)
    with pytest.raises(StorageUnavailable, match=r"not a data directory \(it contains 'a'"):
        Engine(foreign)
    assert looks(foreign) == before


def test_a_data_directory_may_have_other_files_in_it(data: Path) -> None:
    (data / "notes.txt").touch()
    data.chmod(0o755)
    with Engine(data, reserve_bytes=0) as engine:
        assert engine.open("orders").head() == 1
    assert looks(data)[0] == 0o700


def test_a_new_file_system_is_empty(data: Path, tmp_path: Path) -> None:
    for name in ("volume", "backup-volume", "restore-volume"):
        (tmp_path / name / "lost+found").mkdir(parents=True)
    with RunningServer("--data", str(tmp_path / "volume"), cwd=tmp_path) as server:
        assert server.ask("/health/ready")[0] == 200
    assert headwater("backup", "backup-volume", "--data", str(data), cwd=tmp_path).returncode == 0
    assert headwater("restore", "backup-volume", "restore-volume", cwd=tmp_path).returncode == 0
    assert headwater("check", "--data", "restore-volume", cwd=tmp_path).returncode == 0


def test_a_setgid_directory_stays_open_to_its_group_and_that_is_told(data: Path, tmp_path: Path) -> None:
    data.chmod(0o2775)
    with RunningServer("--data", str(data), cwd=tmp_path) as server:
        assert server.ask("/health/ready")[0] == 200
        assert f"{data}: others have access to it (mode 2775), kept because of its setgid bit" in server.errors
    assert looks(data)[0] == 0o2775
    assert {looks(path)[0] for path in data.iterdir() if path.is_dir()} == {0o700}


def test_check_names_the_way_to_check_a_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    Engine(data, maintains=False).close()
    before = sorted(data.iterdir())
    done = headwater("check", str(data), cwd=tmp_path)
    assert (done.returncode, sorted(data.iterdir())) == (UNAVAILABLE, before)
    assert (
        f"{data}: not a complete backup, but a data directory: `headwater check --data {data}` checks it" in done.stderr
    )
