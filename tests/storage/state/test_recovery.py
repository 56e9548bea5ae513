"""A journal and its image: each is made anew from the other; neither is believed where it lacks what was confirmed."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.core import StateEntry, StateStore
from headwater.core.errors import Closed, EventLogError, StorageCorrupted, StorageUnavailable
from headwater.storage import Engine, SqliteState, accept_state_loss, backup
from headwater.storage.disk.system import make_directory
from headwater.storage.segments.segment import segment_paths
from headwater.storage.state import journal_snapshot as snapshot
from headwater.storage.state import recovery as module
from headwater.storage.state.data_directory import open_state
from headwater.storage.state.files import STATE_NAME, prove, witness_path
from headwater.storage.state.journal import JOURNAL, UNFINISHED, read_journal
from headwater.storage.state.journaled_state import JournalState
from headwater.storage.state.last_confirmed import read_witness

WITNESS = "state.witness"
FLIPS = 60
PLAIN_SCHEMA = """
CREATE TABLE entry (
    kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID
"""
Content = dict[tuple[str, str], StateEntry]


def content_of(state: StateStore) -> Content:
    return {(kind, key): entry for kind in ("user", "log", "consumer/0") for key, entry in state.items(kind)}


def opened(directory: Path) -> JournalState:
    found = open_state(directory)
    assert isinstance(found, JournalState)
    return found


def fill(state: StateStore) -> None:
    state.put("user", "alice", b"{}")
    for number in range(300):
        state.put("consumer/0", f"c{number % 70}", b"%d" % number, is_durable=False)
    state.put("log", "orders", b'{"directory": "orders.01234567"}')
    state.delete("consumer/0", "c3")
    for number in range(20):
        state.put("consumer/0", f"c{number}", b"later %d" % number, is_durable=False)


def killed(source: Path, target: Path) -> Path:
    """What a kill leaves of a directory that is open."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock", "LOCK"))
    return target


@pytest.fixture
def expected(tmp_path: Path) -> Content:
    with closing(opened(tmp_path / "expected")) as state:
        fill(state)
        return content_of(state)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    with closing(opened(tmp_path / "closed")) as state:
        fill(state)
    return tmp_path / "closed"


@pytest.fixture
def behind(tmp_path: Path) -> Path:
    """One that was killed before its image took what came last."""
    with closing(opened(tmp_path / "open")) as state:
        fill(state)
        assert state.image.serial < state.journal.head
        return killed(tmp_path / "open", tmp_path / "behind")


def test_what_a_kill_leaves_is_all_there(behind: Path, expected: Content) -> None:
    with closing(opened(behind)) as state:
        assert content_of(state) == expected
        assert state.had_users() and state.mended == []
        assert state.image.serial == state.journal.head


def test_it_is_the_same_after_any_number_of_openings(closed: Path, expected: Content) -> None:
    for _ in range(3):
        with closing(opened(closed)) as state:
            assert content_of(state) == expected and state.mended == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_state_of_an_earlier_version_gets_a_journal(tmp_path: Path, version: int, expected: Content) -> None:
    make_earlier(tmp_path / "old", version, expected)
    with closing(opened(tmp_path / "old")) as state:
        assert content_of(state) == expected
        assert state.had_users()
        assert prove(tmp_path / "old" / STATE_NAME).version == 3, "an earlier version leaves it alone"
    assert read_witness(tmp_path / "old" / WITNESS).serial <= state.journal.head


def make_earlier(directory: Path, version: int, content: Content) -> None:
    """As 0.1.0 (1) and 0.1.1 (2) left their state."""
    make_directory(directory)
    if version == 2:
        with closing(SqliteState(directory / STATE_NAME)) as state:
            for (kind, key), entry in content.items():
                for _ in range(entry.version):
                    state.put(kind, key, entry.value, is_durable=False)
            state.flush()
        return
    with closing(sqlite3.connect(directory / STATE_NAME)) as connection:
        connection.execute(PLAIN_SCHEMA)
        rows = [(*name, entry.value, entry.version) for name, entry in content.items()]
        connection.executemany("INSERT INTO entry VALUES (?, ?, ?, ?)", rows)
        connection.commit()


class Killed(BaseException):
    """As if the process were gone."""


@pytest.mark.parametrize("version", [1, 2])
def test_a_migration_that_is_killed_anywhere_is_done_again(
    tmp_path: Path, version: int, expected: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that changes a name or a file durably is a moment at which it may end."""
    make_earlier(tmp_path / "old", version, expected)
    real = {name: getattr(os, name) for name in ("rename", "replace", "fsync", "fdatasync", "pwritev", "mkdir")}
    moments = 0
    while True:
        directory = tmp_path / f"at-{moments}"
        shutil.copytree(tmp_path / "old", directory)
        left = moments

        def counted(name: str) -> Callable[..., object]:
            def call(*args: object, **more: object) -> object:
                nonlocal left
                if left == 0:
                    raise Killed
                left -= 1
                return real[name](*args, **more)

            return call

        with monkeypatch.context() as patched:
            for name in real:
                patched.setattr(os, name, counted(name))
            try:
                state: JournalState | None = opened(directory)
            except Killed:
                state = None
        if state is not None:
            state.close()
            break
        with closing(opened(directory)) as again:
            assert content_of(again) == expected and again.had_users()
        shutil.rmtree(directory)
        moments += 1
    assert moments > 15


def test_a_server_of_an_earlier_version_that_wrote_on_the_image_is_followed(closed: Path, expected: Content) -> None:
    """As one does that came between the journal and the new schema version of its image."""
    with closing(SqliteState(closed / STATE_NAME)) as image:
        image.put("log", "theirs", b"{}")
    with closing(opened(closed)) as state:
        assert content_of(state) == expected | {("log", "theirs"): StateEntry(b"{}", 1)}
        (told,) = state.mended
        assert "rebuilding it from state.sqlite, which has every confirmed change" in told


@pytest.mark.parametrize("how", ["closed", "behind"])
def test_an_image_that_is_gone_is_made_anew(how: str, request: pytest.FixtureRequest, expected: Content) -> None:
    directory: Path = request.getfixturevalue(how)
    for each in directory.glob(f"{STATE_NAME}*"):
        each.unlink()
    with closing(opened(directory)) as state:
        assert content_of(state) == expected and state.had_users()
        assert "rebuilding it from the journal" in state.mended[0]
    with closing(opened(directory)) as state:
        assert content_of(state) == expected and state.mended == []


def test_a_damaged_image_is_made_anew_and_kept_aside(closed: Path, expected: Content) -> None:
    with closing(sqlite3.connect(closed / STATE_NAME, isolation_level=None)) as connection:
        connection.execute("UPDATE entries SET value = x'00' WHERE key = 'orders'")
    damaged = (closed / STATE_NAME).read_bytes()
    with closing(opened(closed)) as state:
        assert content_of(state) == expected
        assert "kind 'log' and key 'orders' is not what was stored" in state.mended[0]
    (aside,) = closed.glob("state.damaged-*")
    assert (aside / STATE_NAME).read_bytes() == damaged


@pytest.mark.parametrize("damage", ["gone", "meta", "segment"])
def test_a_damaged_journal_is_made_anew_from_a_whole_image(closed: Path, expected: Content, damage: str) -> None:
    if damage == "gone":
        shutil.rmtree(closed / JOURNAL)
    else:
        (segment,) = segment_paths(closed / JOURNAL / "log")
        path = closed / JOURNAL / "META.json" if damage == "meta" else segment
        flip(path, 200 if damage == "meta" else 3000, 2)
    with closing(opened(closed)) as state:
        assert content_of(state) == expected and state.had_users()
        assert (state.mended == []) is (damage == "gone"), "a backup has none either"
    with closing(opened(closed)) as state:
        assert content_of(state) == expected and state.mended == []


@pytest.mark.parametrize("damage", ["gone", "segment"])
def test_a_damaged_journal_is_not_made_anew_from_an_image_that_is_behind(behind: Path, damage: str) -> None:
    if damage == "gone":
        shutil.rmtree(behind / JOURNAL)
    else:
        (segment,) = segment_paths(behind / JOURNAL / "log")
        flip(segment, 3000, 2)
    before = files_in(behind)
    with pytest.raises(StorageCorrupted, match=r"confirmed: some (changes|records) are lost.*headwater restore"):
        opened(behind)
    assert files_in(behind) == before, "what is refused is left as it is"


def files_in(directory: Path) -> dict[Path, bytes]:
    """All but the lock, and what SQLite's processes share, which says nothing by itself."""
    found = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {path: content for path, content in found.items() if path.name not in ("LOCK", f"{STATE_NAME}-shm")}


def test_both_gone_are_a_loss(closed: Path) -> None:
    shutil.rmtree(closed / JOURNAL)
    (closed / STATE_NAME).unlink()
    with pytest.raises(StorageCorrupted):
        opened(closed)


def test_without_its_witness_nothing_is_believed(closed: Path) -> None:
    (closed / WITNESS).unlink()
    with pytest.raises(StorageCorrupted, match=r"state\.witness"):
        opened(closed)


def flip(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["closed", "behind"])
@pytest.mark.parametrize("name", [STATE_NAME, f"{STATE_NAME}-wal", WITNESS, "journal/META.json", "journal/log"])
def test_a_flipped_bit_anywhere_is_mended_or_told(
    how: str, name: str, request: pytest.FixtureRequest, tmp_path: Path, expected: Content
) -> None:
    directory: Path = request.getfixturevalue(how)
    path = segment_paths(directory / name)[0] if name.endswith("log") else directory / name
    if not path.exists() or not path.stat().st_size:
        pytest.skip(f"there is no {name} when it is {how}")
    draw, told = random.Random(name + how), 0
    used = min(path.stat().st_size, 40_000)
    for number in range(FLIPS):
        copy = tmp_path / f"flipped-{number}"
        shutil.copytree(directory, copy)
        flip(copy / path.relative_to(directory), draw.randrange(used), draw.randrange(8))
        try:
            with closing(opened(copy)) as state:
                assert content_of(state) == expected and state.had_users()
        except (StorageCorrupted, StorageUnavailable):
            told += 1
        shutil.rmtree(copy)
    if name == STATE_NAME or (how == "closed" and name.startswith("journal")):
        assert told == 0, "the other one has everything"


def test_a_snapshot_lets_the_journal_forget_and_makes_the_same_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "GROWTH_BYTES_MIN", 200_000)
    monkeypatch.setattr(snapshot, "STEP_ENTRIES", 7)
    with closing(opened(tmp_path)) as state:
        fill(state)
        state.delete("log", "orders")
        draw = random.Random(1)
        for number in range(12_000):
            state.put("consumer/0", f"c{draw.randrange(100)}", b"%d" % number * 20, is_durable=False)
            if number % 500 == 0:
                state.delete("consumer/0", f"c{draw.randrange(100)}")
                state.maintain(True)
        assert state.journal.first > 1000
        assert len(segment_paths(tmp_path / JOURNAL / "log")) <= 3
        expected = content_of(state)
        assert ("log", "orders") not in expected
    for each in tmp_path.glob(f"{STATE_NAME}*"):
        each.unlink()
    with closing(opened(tmp_path)) as state:
        assert content_of(state) == expected and state.had_users()


def test_changes_between_the_steps_of_a_snapshot_are_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes between two steps: entries before and behind the one that was copied last, new and removed."""
    monkeypatch.setattr(snapshot, "GROWTH_BYTES_MIN", 0)
    monkeypatch.setattr(snapshot, "STEP_ENTRIES", 3)
    draw = random.Random(7)
    with closing(opened(tmp_path)) as state:
        for number in range(40):
            state.put("consumer/0", f"c{number:02}", b"0", is_durable=False)
        taken = 0
        while taken < 4:
            assert state._step()
            for _ in range(draw.randrange(4)):
                key = f"c{draw.randrange(60):02}"
                if draw.random() < 0.4:
                    state.delete("consumer/0", key)
                else:
                    state.put("consumer/0", key, b"%d" % draw.randrange(1000), is_durable=draw.random() < 0.2)
            if state._snapshotting.to_prove is not None:
                state._snapshotting.prove()
                state._forget()
                state._snapshotting._begin_above = 0
                taken += 1
                from_journal = {
                    (record.kind, record.key): StateEntry(record.value, record.version)
                    for _, record in read_journal(tmp_path / JOURNAL, state.journal.first - 1)
                    if isinstance(record, snapshot.EntryRecord)
                }
                assert {name: entry for name, entry in from_journal.items() if entry.version} == content_of(state)


def test_a_snapshot_that_is_not_what_the_image_has_forgets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "GROWTH_BYTES_MIN", 0)
    with closing(opened(tmp_path)) as state:
        fill(state)
        first, real = state.journal.first, SqliteState.after
        monkeypatch.setattr(SqliteState, "after", lambda *args, **more: real(*args, **more)[:-1])
        with pytest.raises(StorageCorrupted, match="no files are removed"):
            state.maintain(True)
        assert state.journal.first == first
        monkeypatch.undo()
        assert state.put("log", "next", b"{}") == 1


def test_nothing_is_forgotten_while_a_backup_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "GROWTH_BYTES_MIN", 0)
    with closing(opened(tmp_path)) as state:
        fill(state)
        first = state.journal.first
        state.maintain(False)
        assert state.journal.first == first
        assert state.image.serial == state.journal.head, "but the image follows"


def test_an_image_that_cannot_be_written_follows_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(opened(tmp_path)) as state:

        def refuses(*_: object, **__: object) -> None:
            raise StorageUnavailable("no room")

        with monkeypatch.context() as full:
            full.setattr(SqliteState, "apply", refuses)
            fill(state)
            for _ in range(3):
                state.maintain(True)
            assert [record.message for record in caplog.records] == ["no room; retrying"]
            expected = content_of(state)
        state.maintain(True)
        assert state.image.serial == state.journal.head
        assert content_of(state) == expected


def test_a_write_that_fails_ends_the_process_and_is_never_called_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    with closing(Engine(tmp_path, maintains=False, fatal=ended.append)) as engine:
        engine.state.put("kind", "a", b"1")

        def fails(*_: object) -> None:
            raise OSError(5, "input/output error")

        with monkeypatch.context() as failing:
            failing.setattr(engine._disk, "sync", fails)
            failing.setattr(engine._disk, "write_durably", fails)
            with pytest.raises(EventLogError, match="cannot write the journal"):
                engine.state.put("kind", "a", b"2")
        assert ended and "writing failed" in ended[0]
        assert engine.state.get("kind", "a") == StateEntry(b"1", 1)


def test_an_unfinished_journal_or_image_of_a_killed_opening_is_removed(closed: Path, expected: Content) -> None:
    (closed / UNFINISHED / "log").mkdir(parents=True)
    (closed / module.UNFINISHED_IMAGE).write_bytes(b"half")
    witness_path(closed / module.UNFINISHED_IMAGE).write_bytes(b"half")
    with closing(opened(closed)) as state:
        assert content_of(state) == expected
    assert sorted(path.name for path in closed.iterdir()) == ["LOCK", JOURNAL, STATE_NAME, WITNESS]


def test_an_image_of_a_backup_beside_the_present_journal_is_not_used(tmp_path: Path) -> None:
    """Its number may be that of another change: numbers alone do not tell two histories apart."""
    with closing(Engine(tmp_path / "data", maintains=False)) as engine:
        engine.state.put("log-x", "a", b"1")
        backup(tmp_path / "data", tmp_path / "backup")
        engine.state.put("log-x", "lost", b"1")
        engine.state.put("log-x", "b", b"1")
    for each in (tmp_path / "data").glob("state.sqlite*"):
        each.unlink()
    shutil.copyfile(tmp_path / "backup" / STATE_NAME, tmp_path / "data" / STATE_NAME)
    with closing(opened(tmp_path / "data")) as state:
        assert [key for key, _ in state.items("log-x")] == ["a", "b", "lost"]
        assert "is not the image of this journal" in state.mended[0]


def test_an_image_of_a_backup_does_not_stand_in_for_a_damaged_journal(tmp_path: Path) -> None:
    with closing(Engine(tmp_path / "data", maintains=False)) as engine:
        engine.state.put("log-x", "a", b"1")
        backup(tmp_path / "data", tmp_path / "backup")
        engine.state.put("log-x", "lost", b"1", is_durable=False)
    for each in (tmp_path / "data").glob("state.sqlite*"):
        each.unlink()
    shutil.copyfile(tmp_path / "backup" / STATE_NAME, tmp_path / "data" / STATE_NAME)
    (tmp_path / "data" / JOURNAL / "META.json").write_bytes(b"{")
    with pytest.raises(StorageCorrupted, match="is not the image of any journal"):
        opened(tmp_path / "data")


def test_what_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    wrong: list[Any] = [("k", "b", "text"), (5, "x", b"v"), ("k", None, b"")]
    with closing(opened(tmp_path)) as state:
        state.put("k", "a", b"1")
        for arguments in wrong:
            with pytest.raises(TypeError):
                state.put(*arguments)
    with closing(opened(tmp_path)) as state:
        assert [key for key, _ in state.items("k")] == ["a"]


def test_after_it_is_closed_nothing_is_written_anywhere(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.close()
    state.close()
    for change in (state.flush, lambda: state.put("k", "a", b""), lambda: state.keep_had_users(False)):
        with pytest.raises(Closed):
            change()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_root_makes_belongs_to_whom_the_directory_belongs(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    os.chown(tmp_path / "data", 12345, 12345)
    with closing(opened(tmp_path / "data")) as state:
        for number in range(3):
            state.put("k", str(number), bytes(600_000))  # segments are begun
    made = [path for path in (tmp_path / "data").rglob("*") if path.stat().st_uid != 12345]
    assert [path.name for path in made] == []


def test_a_removed_user_does_not_come_back_from_what_is_left(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as state:
        state.put("user", "alice", b"{}")
        state.put("k", "v", b"old")
        state.put("k", "hurt", b"1")
        state.delete("user", "alice")
        state.put("k", "v", b"new")
    (segment,) = segment_paths(tmp_path / JOURNAL / "log")
    content = segment.read_bytes()
    at = content.rindex(b"new")
    segment.write_bytes(content[: at - 300] + bytes(600) + content[at + 300 :])
    with closing(sqlite3.connect(tmp_path / STATE_NAME, isolation_level=None)) as connection:
        connection.execute("UPDATE entries SET value = x'00' WHERE key = 'hurt'")
    accept_state_loss(tmp_path)
    with closing(opened(tmp_path)) as state:
        assert list(state.items("user")) == []
        assert state.get("k", "v") == StateEntry(b"new", 2)
        assert state.get("k", "hurt") == StateEntry(b"1", 1), "the journal has it"
