"""`check` finds each kind of damage, names it, and is silent on what is sound."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.core import LogSettings
from headwater.core.errors import EventLogError, LogNotFound, StorageUnavailable
from headwater.storage import accept_loss, check_directory
from headwater.storage import log as log_module
from headwater.storage.index.postings import write_postings
from headwater.storage.staging.owners import claim

from ..builders import change, crashed, engine, event, log_directory

pytestmark = pytest.mark.usefixtures("small_segments", "in_line")


@pytest.fixture
def sound(data: Path) -> Path:
    """A directory with sealed segments, history, an unsealed rest."""
    with engine(data) as one:
        log = one.create("orders")
        for number in range(150):
            log.append([event("A", f"n:{number}", id=str(number))])
        log.trim(60)  # before the postings of its segments could be merged
        one.maintain()
        one.maintain()
        log.append([event()])
    return data


def problems(data: Path) -> list[str]:
    (found,) = check_directory(data).logs
    return found.problems


def notes(data: Path) -> list[str]:
    (found,) = check_directory(data).logs
    return found.notes


def files(data: Path, pattern: str) -> list[Path]:
    return sorted(log_directory(data).glob(pattern))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("clean_min", [1, 2000])
def test_a_sound_directory_is_silent_after_every_kind_of_stop(
    data: Path, tmp_path: Path, partitions: int, clean_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "CLEAN_POSTINGS_MIN", clean_min)
    with engine(data) as one:
        log = one.create("orders", LogSettings(partitions=partitions))
        one.create("empty")
        for number in range(100):
            log.append([event("A", f"n:{number}")])
        one.maintain()
        log.append([event() for _ in range(30)])
        image = crashed(data, tmp_path / "crashed")
    for directory in (data, image):
        report = check_directory(directory)
        assert report.is_sound
        assert [(log.name, log.events, log.problems, log.notes) for log in report.logs] == [
            ("empty", 0, [], []), ("orders", 130, [], [])
        ]  # fmt: skip


def test_history_and_trimmed_logs_are_sound(sound: Path) -> None:
    report = check_directory(sound)
    assert report.is_sound
    assert files(sound, "history/*.postings")
    (log,) = report.logs
    assert log.segments == len(files(sound, "log/*.log"))
    assert 0 < log.bytes < sum(path.stat().st_size for path in files(sound, "log/*.log"))


def test_progress_is_told(sound: Path) -> None:
    told: list[tuple[str, int, int]] = []
    check_directory(sound, lambda *each: told.append(each))
    assert told[-1][1] == told[-1][2] > 0


@pytest.mark.parametrize("which", [0, -1])
def test_a_flipped_bit_in_a_segment_is_found(sound: Path, which: int) -> None:
    change(files(sound, "log/*.log")[which], 300, b"\xa5")
    problem = problems(sound)[0]
    assert "are damaged" in problem
    assert "headwater restore" in problem


def test_a_damaged_header_of_a_segment_is_found(sound: Path) -> None:
    change(files(sound, "log/*.log")[0], 4, b"\xa5")
    assert any("header of the segment is damaged" in problem for problem in problems(sound))


def test_a_missing_segment_is_found(sound: Path) -> None:
    files(sound, "log/*.log")[1].unlink()
    assert problems(sound)


def test_a_missing_oldest_segment_is_found_and_can_be_given_up(sound: Path) -> None:
    oldest, second = files(sound, "log/*.log")[:2]
    oldest.unlink()
    assert any("are missing" in problem for problem in problems(sound))
    known = int(files(sound, "history/*.postings")[-1].stem.split("-")[1])
    assert accept_loss(sound, "orders") == [(known + 1, int(second.stem) - 1)]
    assert problems(sound) == []
    with engine(sound) as again:
        assert next(again.open("orders").read()).sequence_number == int(second.stem)


def test_a_torn_tail_is_no_damage_but_worth_a_note(sound: Path, tmp_path: Path) -> None:
    with engine(sound) as one:
        one.open("orders").append([event()])
        image = crashed(sound, tmp_path / "crashed")
        end = one.open("orders").frames.segments[-1].end
    change(files(image, "log/*.log")[-1], end, b"HWF1torn")
    assert problems(image) == []
    assert "a torn tail" in notes(image)[0]


@pytest.mark.parametrize("pattern", ["idx/*.postings", "idx/*.places"])
def test_damaged_index_files_are_a_note(sound: Path, pattern: str) -> None:
    path = files(sound, pattern)[0]
    change(path, path.stat().st_size - 3, b"\xff\xff\xff")
    assert problems(sound) == []
    assert "the next start rebuilds it" in notes(sound)[0]
    with engine(sound) as again:
        again.open("orders")
    assert notes(sound) == []


def test_an_index_that_is_whole_but_wrong_is_found(sound: Path) -> None:
    path = files(sound, "idx/*.postings")[-1]
    first, last = map(int, path.stem.split("-"))
    write_postings(path.parent, first, last, [(b"tA", [first])])
    assert any("the postings do not match the events" in problem for problem in problems(sound))


def test_damaged_history_is_found(sound: Path) -> None:
    path = files(sound, "history/*.postings")[0]
    change(path, path.stat().st_size - 3, b"\xff\xff\xff")
    assert any(problem.startswith("history:") for problem in problems(sound))


def test_a_served_directory_is_not_checked(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        one.create("orders")
        with pytest.raises(StorageUnavailable, match="in use"):
            check_directory(data)
        with pytest.raises(StorageUnavailable, match="in use"):
            accept_loss(data, "orders")
    with pytest.raises(StorageUnavailable, match="not a data directory"):
        check_directory(tmp_path)
    with pytest.raises(LogNotFound):
        accept_loss(data, "flights")


def test_checking_leaves_no_file_open(sound: Path, open_files: Callable[[], int]) -> None:
    before = open_files()
    for _ in range(3):
        check_directory(sound)
        accept_loss(sound, "orders")
    assert open_files() <= before


def paths_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.name != "lock")


def opens(data: Path) -> str | None:
    """None if a server opens the directory and reads and appends; else why not."""
    try:
        with engine(data) as one:
            log = one.open("orders")
            log.append([event()])
            assert len(list(log.read())) > 0
    except EventLogError as error:
        return str(error)
    return None


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_whatever_is_missing_that_a_server_needs_is_found(how: str, data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        for number in range(100):
            log.append([event("A", f"n:{number}", id=str(number))])
        log.trim(60)  # before the postings of its segments could be merged
        one.maintain()
        one.maintain()
        log.append([event()])
        source = crashed(data, tmp_path / "killed") if how == "killed" else data
    assert check_directory(source).is_sound
    refused = []
    for name in paths_below(source):
        image = tmp_path / "image"
        shutil.copytree(source, image, ignore=shutil.ignore_patterns("*.sock"))
        path = image / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        try:
            is_sound = check_directory(image).is_sound
        except StorageUnavailable:
            is_sound = False
        reason = opens(image)
        if reason is not None:
            refused.append(name)
            assert not is_sound, (name, reason)
        shutil.rmtree(image)
    assert any(name.endswith("/history") for name in refused)
    assert any(name.endswith(".postings") and "/history/" in name for name in refused)


def test_a_writers_name_that_was_not_written_to_its_end_is_no_damage(sound: Path) -> None:
    writers = next(sound.glob("logs/*")) / "writers"
    writers.mkdir(exist_ok=True)
    (writers / "abc.123.tmp").touch()
    assert problems(sound) == []


def test_a_writers_name_whose_owner_cannot_be_read_is_told(sound: Path) -> None:
    claim(log_directory(sound), "w", "alice")
    assert problems(sound) == []
    (owner,) = files(sound, "writers/*")
    change(owner, 3, b"X")
    assert "writers" in problems(sound)[0] and "unreadable" in problems(sound)[0]


@pytest.mark.parametrize(
    ("name", "offset", "said"),
    [
        ("journal/log", -100, "journal/log/00000000000000000002.log: truncating a torn tail after event "),
        ("state.sqlite", 5, "state.sqlite: file is not a database: rebuilding it from the journal, which has every "
                            "confirmed change"),
    ],
)  # fmt: skip
def test_findings_about_the_state_name_the_files_of_the_directory(
    sound: Path, capfd: pytest.CaptureFixture[str], name: str, offset: int, said: str
) -> None:
    path = sound / name
    path = next(path.glob("*.log")) if path.is_dir() else path
    change(path, offset % path.stat().st_size, b"garbage")
    before = sorted(sound.rglob("*"))
    report = check_directory(sound)
    assert report.is_sound and sorted(sound.rglob("*")) == before
    (note,) = [each for each in report.state.notes if each.startswith(f"{sound}/{said}")]
    assert "damaged-" not in note and "headwater-check" not in "".join(report.state.notes)
    assert "headwater-check" not in capfd.readouterr().err


def test_a_state_whose_schema_is_not_text_is_damaged(sound: Path) -> None:
    path = sound / "state.sqlite"
    content = bytearray(path.read_bytes())
    content[content.rindex(b"NULL")] ^= 0xFF  # SQLite quotes it in its error: near "?ULL": syntax error
    path.write_bytes(content)
    report = check_directory(sound)
    assert any("rebuilding it from the journal" in each for each in report.state.notes), report.state
