"""A data directory that is found elsewhere than it was is named once, and refused while its first one is served."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.storage import backup, check_directory, restore
from headwater.storage.catalog.location import LOCATION_NAME
from headwater.storage.disk.checked_file import CheckedFile
from headwater.storage.disk.locks import InUse
from tests.server.running import environment

from ..builders import change, crashed, engine, event

MADE = "whose logs are new incarnations"
_CODE = """
import sys
from pathlib import Path
from headwater.storage import Engine
with Engine(Path(sys.argv[1]), reserve_bytes=0, ballast_bytes=0, maintains=False):
    print("serves", flush=True)
    sys.stdin.readline()
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="names of sockets that are no files are Linux's")


@contextmanager
def served(directory: Path) -> Iterator[None]:
    """Another process serves it meanwhile."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _CODE, str(directory)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment()) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "serves\n"
            yield
        finally:
            process.stdin.close()
            process.wait(60)


@pytest.fixture
def made(data: Path) -> Path:
    """A directory that was served."""
    with engine(data) as one:
        one.create("orders").append([event()])
    return data


@LINUX
def test_a_copy_is_refused_while_the_first_one_is_served_and_then_named_once(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "copy"
    with served(made):
        crashed(made, copy)
        for _ in range(2):
            with pytest.raises(InUse) as refused:
                engine(copy)
            assert f"{copy}: it was copied from {made}, and another process" in str(refused.value)
            assert f"headwater backup BACKUP --data {copy}" in str(refused.value)
        assert MADE not in caplog.text
    for _ in range(3):
        with engine(copy) as one:
            assert one.open("orders").head() == 1
    (told,) = [record.getMessage() for record in caplog.records if MADE in record.getMessage()]
    assert f"{copy}: it is a copy of {made}, which still exists" in told
    engine(made).close()
    assert caplog.text.count(MADE) == 1, "the first one is where it was"


@LINUX
@pytest.mark.parametrize("content", [None, b"damaged"])
def test_a_copy_without_a_location_is_refused_while_the_first_one_is_served(
    made: Path, tmp_path: Path, content: bytes | None
) -> None:
    """As one that was made before headwater knew locations."""
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    (copy / LOCATION_NAME).unlink()
    if content is not None:
        (copy / LOCATION_NAME).write_bytes(content)
    with served(made), pytest.raises(InUse, match="another process on this machine serves the same directory or a c"):
        engine(copy)
    engine(copy).close()


@LINUX
def test_the_first_one_says_that_its_copy_is_served(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(made, tmp_path / "copy")
    with served(tmp_path / "copy"):
        engine(made).close()
    assert f"{made}: another process on this machine serves the same directory or a copy" in caplog.text
    assert MADE in caplog.text


def test_a_name_that_is_no_text_is_a_directory_like_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = tmp_path / os.fsdecode(b"caf\xe9")
    engine(data).close()
    assert b"caf\\\\xe9" in (data / LOCATION_NAME).read_bytes()
    for _ in range(2):
        engine(data).close()
    assert not caplog.text
    shutil.copytree(data, tmp_path / "copy")
    engine(tmp_path / "copy").close()
    assert MADE in caplog.text


def test_a_move_to_another_file_system_is_named_once(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(made, moved)
    shutil.rmtree(made)
    for _ in range(2):
        engine(moved).close()
    (told,) = [record.getMessage() for record in caplog.records if MADE in record.getMessage()]
    assert f"{moved}: it was moved here from {made}, or copied" in told


def test_a_rename_is_not_worth_a_word(made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made.rename(tmp_path / "renamed")
    for _ in range(2):
        engine(tmp_path / "renamed").close()
    assert not caplog.text
    shutil.copytree(tmp_path / "renamed", tmp_path / "copy")
    engine(tmp_path / "copy").close()
    assert f"it is a copy of {tmp_path / 'renamed'}, which still exists" in caplog.text


def test_another_file_system_counts_though_the_inode_is_the_same(
    made: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the top of a volume, which most file systems give one number."""
    found = os.statvfs(made)

    class Other:
        f_fsid = found.f_fsid + 1

        def __getattr__(self, name: str) -> object:
            return getattr(found, name)

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "statvfs", lambda path: Other())
        engine(made).close()
    assert caplog.text.count(MADE) == 1


def test_what_a_restore_makes_has_an_identity_of_its_own(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(made):
        backup(made, tmp_path / "backup")
    assert not (tmp_path / "backup" / LOCATION_NAME).exists()
    with served(made):
        restore(tmp_path / "backup", tmp_path / "restored")
        engine(tmp_path / "restored").close()
    assert not caplog.text


def test_a_check_stores_no_location(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "copy")
    before = (tmp_path / "copy" / LOCATION_NAME).read_bytes()
    assert check_directory(tmp_path / "copy").is_sound
    assert (tmp_path / "copy" / LOCATION_NAME).read_bytes() == before


def test_a_damaged_location_is_made_again(made: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(made / LOCATION_NAME, 5, b"\xff")
    engine(made).close()
    assert "the former path of the directory is unknown" in caplog.text
    caplog.clear()
    engine(made).close()
    assert not caplog.text


def test_a_location_that_cannot_be_written_stops_no_start(
    data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = CheckedFile.write

    def written(self: CheckedFile, directory: Path, content: object) -> None:
        if self.name == LOCATION_NAME:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        write(self, directory, content)

    monkeypatch.setattr(CheckedFile, "write", written)
    engine(data).close()
    assert f"{data / LOCATION_NAME}: it cannot be written" in caplog.text


@LINUX
def test_without_sockets_of_the_machine_a_start_warns(
    made: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `RestrictAddressFamilies` of systemd."""

    def refused(family: int, *rest: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    with monkeypatch.context() as restricted:
        restricted.setattr(socket, "socket", refused)
        engine(made).close()
    assert "other processes cannot detect that it is served" in caplog.text


@LINUX
def test_a_forked_process_keeps_no_name(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "copy")
    reading, writing = os.pipe()
    with engine(made):
        child = os.fork()
        if not child:  # pragma: no cover - another process
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    try:
        subprocess.run(
            [sys.executable, "-c", _CODE, str(tmp_path / "copy")],
            input="", text=True, env=environment(), check=True, timeout=60,
        )  # fmt: skip
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
