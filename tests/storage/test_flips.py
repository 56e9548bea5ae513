"""Every bit of every small file of a log: a flip is told or changes nothing. Never a traceback or another content."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core import Event, Mark
from headwater.core.errors import StorageCorrupted
from headwater.core.limits import EventColumns
from headwater.formats.arrow import events
from headwater.storage import Engine, StoredLog, check_directory, log
from headwater.storage.append.writer_table import WRITERS_NAME, read_writers
from headwater.storage.index import id_files, index
from headwater.storage.index.postings import FilePostings
from headwater.storage.maintenance import tasks
from headwater.storage.maintenance.worker import IndexWorker, do
from headwater.storage.segments import segment_log
from headwater.storage.segments.meta import META_NAME, read_meta
from headwater.storage.segments.places import FramePlaces
from headwater.storage.staging.batches import MANIFEST_NAME, STAGED, Staging, read_manifest
from headwater.storage.staging.commit import commit_staged, discard_staged
from headwater.storage.staging.part import check_part
from tests.night import IS_NIGHT

from .builders import engine, event, fill, log_directory, numbers, without_identities

SCHEMA = pa.schema({"type": pa.string(), "data": pa.binary(), "id": pa.string()})
pytestmark = pytest.mark.usefixtures("in_line")


class Stop(Exception):
    """The commit ends here."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory made by the engine: trimmed, with history, marks, a commit that has begun, an index of ids."""
    data = tmp_path_factory.mktemp("flips") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_log, "SEGMENT_EVENTS_MAX", 40)
        patch.setattr(index, "PART_EVENTS_MAX", 40)
        patch.setattr(segment_log, "SEGMENT_BYTES_MIN", 8 * 1024)
        patch.setattr(segment_log, "SEGMENT_BYTES_MAX", 8 * 1024)
        patch.setattr(log, "CLEAN_POSTINGS_MIN", 20)
        patch.setattr(events, "APPEND_EVENTS_MAX", 20)
        patch.setattr(IndexWorker, "run", lambda self, job: do(job).problem)
        with engine(data) as one:
            orders = one.create("orders")
            fill(orders, 90, tags=lambda n: (f"n:{n % 5}",))
            orders.append_columns(EventColumns.none(), mark=Mark("other", 1, 0, True))
            orders.trim(60)  # before the postings of its segments could be merged
            one.maintain()
            one.maintain()
            staged(orders)
            one.create("sound").append([event()])
        yield without_identities(data)


def staged(orders: StoredLog) -> None:
    """A commit that has begun."""
    part = Staging(orders.directory).stage("w", 7, 0, 0, SCHEMA)
    part.write(pa.record_batch([["E"] * 50, [b"x"] * 50, [f"s{n}" for n in range(50)]], schema=SCHEMA))
    stage = part.close().stage

    def stop(step: str) -> None:
        if step == "appended":
            raise Stop

    with pytest.raises(Stop):
        commit_staged(orders, orders.directory, "w", 7, [stage], step=stop)


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A copy, to be hurt."""
    return Path(shutil.copytree(made, tmp_path / "data"))


def flips(path: Path, bits: range = range(8), step: int = 1) -> Iterator[str]:
    """The file with one bit flipped, each in turn; then as it was."""
    was = path.read_bytes()
    try:
        for at in range(0, len(was), step):
            for bit in bits:
                content = bytearray(was)
                content[at] ^= 1 << bit
                path.write_bytes(content)
                yield f"bit {bit} of byte {at} of {path.name}"
    finally:
        path.write_bytes(was)


def each_byte(path: Path, step: int = 1) -> Iterator[str]:
    """As `flips`, of one bit of each byte, not always the same."""
    was = path.read_bytes()
    try:
        for at in range(0, len(was), step):
            content = bytearray(was)
            content[at] ^= 1 << at % 8
            path.write_bytes(content)
            yield f"byte {at} of {path.name}"
    finally:
        path.write_bytes(was)


def only(data: Path, pattern: str) -> Path:
    (found,) = log_directory(data).glob(pattern)
    return found


def refuses(act: Callable[[], object]) -> bool:
    """Whether it says that something is damaged, and what to do. Anything else that it raises is not caught."""
    try:
        act()
    except StorageCorrupted as error:
        return bool(error.remedy)
    return False


def files(data: Path) -> dict[str, bytes]:
    """All of a data directory but its locks and SQLite's own."""
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.suffix not in (".lock", ".sqlite-wal", ".sqlite-shm") and path.name != "LOCK"
    }


@pytest.mark.parametrize("name", [META_NAME, WRITERS_NAME])
def test_a_log_with_a_flip_in_a_small_file_is_refused_and_nothing_of_it_is_touched(data: Path, name: str) -> None:
    path = log_directory(data) / name
    with engine(data) as one:
        before = files(data)
        for flip in flips(path):
            assert refuses(lambda: one.open("orders")), flip
        one.maintain()
        assert files(data) == before
        assert one.open("sound").head() == 1
        assert numbers(one.open("orders").read(limit=3)) == [60, 61, 62]


@pytest.mark.parametrize("name", [META_NAME, WRITERS_NAME, f"{STAGED}/*/*/{MANIFEST_NAME}"])
def test_check_tells_of_a_flip_in_a_small_file_and_goes_on_with_other_logs(data: Path, name: str) -> None:
    assert check_directory(data).is_sound
    for flip in each_byte(only(data, name), step=1 if IS_NIGHT else 7):
        orders, sound = check_directory(data).logs
        assert orders.problems and not sound.problems, flip
        assert sound.events == 1


def test_nothing_is_unlinked_when_meta_is_hurt_while_the_log_is_open(data: Path) -> None:
    with engine(data) as one:
        orders = one.open("orders")
        one.maintain()
        orders.trim(orders.head())
        before = files(data)
        for flip in flips(log_directory(data) / META_NAME):
            assert refuses(lambda: tasks.reclaim(orders, one.state.flush)), flip
        assert files(data) == before
        tasks.reclaim(orders, one.state.flush)
        assert files(data) != before, "it would have been unlinked"


def test_a_commit_does_not_go_on_by_a_manifest_that_is_hurt(data: Path) -> None:
    path = only(data, f"{STAGED}/*/*/{MANIFEST_NAME}")
    with engine(data) as one:
        orders = one.open("orders")
        head = orders.head()
        for flip in flips(path):
            assert refuses(lambda: read_manifest(path.parent)), flip
        for flip in each_byte(path):
            assert refuses(lambda: commit_staged(orders, orders.directory, "w", 7, ["0-0"])), flip
            assert refuses(lambda: commit_staged(orders, orders.directory, "w", 8, [])), flip
        assert orders.head() == head
        assert commit_staged(orders, orders.directory, "w", 7, ["0-0"]).events == 50


def test_a_log_opens_beside_a_manifest_that_is_hurt(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    for flip in each_byte(only(data, f"{STAGED}/*/*/{MANIFEST_NAME}"), step=23):
        caplog.clear()
        with engine(data) as one:
            assert one.open("orders").head() > 90, flip
        assert MANIFEST_NAME in caplog.text


def test_rows_that_are_not_as_they_were_staged_are_never_appended(data: Path) -> None:
    path = only(data, f"{STAGED}/*/*/*.arrow")
    for flip in flips(path):
        assert refuses(lambda: check_part(path)), flip
    with engine(data) as one:
        orders = one.open("orders")
        head = orders.head()
        for flip in each_byte(path, step=61):
            assert refuses(lambda: commit_staged(orders, orders.directory, "w", 7, ["0-0"])), flip
        assert orders.head() == head
    for flip in each_byte(path, step=97):
        assert check_directory(data).logs[0].problems, flip


def test_a_hurt_part_of_a_commit_that_began_can_be_staged_again(data: Path) -> None:
    path = only(data, f"{STAGED}/*/*/*.arrow")
    path.write_bytes(b"hurt")
    with engine(data) as one:
        orders = one.open("orders")
        head = orders.head()
        discard_staged(orders, orders.directory, "w", 7)
        part = Staging(orders.directory).stage("w", 7, 0, 1, SCHEMA)
        part.write(pa.record_batch([["E"] * 50, [b"x"] * 50, [f"s{n}" for n in range(50)]], schema=SCHEMA))
        commit_staged(orders, orders.directory, "w", 7, [part.close().stage])
        assert [each.id for each in orders.read() if each.id[0] == "s"] == [f"s{n}" for n in range(50)]
        assert orders.head() > head


def content_of(path: Path) -> object:
    """All that is read of a file of the index or of the history."""
    if path.suffix == ".postings":
        postings = FilePostings(path)
        postings.verify()
        return postings.first, postings.last, list(postings.entries())
    if path.suffix == ".places":
        places = FramePlaces(path)
        return places.first, places.end, list(places.firsts), list(places.offsets), places.id_hashes.tolist()
    file = id_files.load(path)
    hashes, offsets = file.between(0, None)
    return file.first, file.last, hashes.tolist(), offsets.tolist(), file.has_any(hashes)


@pytest.mark.parametrize("pattern", ["history/*.postings", "idx/*.places", "idx/*.ids"])
def test_a_file_of_index_or_history_is_unusable_or_says_the_same(data: Path, pattern: str) -> None:
    path = sorted(log_directory(data).glob(pattern))[-1]
    was = content_of(path)
    without_effect = 0
    for flip in flips(path):
        try:
            assert content_of(path) == was, flip
            without_effect += 1
        except ValueError:
            continue
    assert without_effect == 32, "the spare field of the header"


def test_hurt_history_is_told_and_nothing_is_unlinked_by_it(data: Path) -> None:
    path = sorted(log_directory(data).glob("history/*.postings"))[0]
    before = files(data).keys()
    for flip in each_byte(path, step=37):
        try:
            content_of(path)
            continue  # without effect
        except ValueError:
            assert check_directory(data).logs[0].problems, flip
        with engine(data) as one:
            assert refuses(lambda: one.open("orders")), flip
            one.maintain()
        assert files(data).keys() >= before


def test_eight_hundred_events_are_not_hidden_by_a_bit(tmp_path: Path) -> None:
    with engine(tmp_path) as one:
        orders = one.create("orders")
        orders.append([Event("E", id=str(n)) for n in range(1, 1001)])
        orders.trim(101)
    without_identities(tmp_path)
    path = log_directory(tmp_path) / META_NAME
    sound = path.read_bytes()
    at = sound.index(b'"first_retained": 101') + len(b'"first_retained": ')
    path.write_bytes(sound[:at] + b"9" + sound[at + 1 :])  # one bit
    assert refuses(lambda: read_meta(path.parent))
    assert "the checksum does not match" in check_directory(tmp_path).logs[0].problems[0]
    with engine(tmp_path) as one:
        with pytest.raises(StorageCorrupted, match="headwater restore"):
            one.open("orders")
        one.maintain()
    path.write_bytes(sound)
    with engine(tmp_path) as one:
        assert numbers(one.open("orders").read()) == list(range(101, 1001))


def test_trimmed_events_do_not_come_back_by_a_bit_in_the_name_of_a_field(tmp_path: Path) -> None:
    with Engine(tmp_path, maintains=False) as one:
        orders = one.create("orders")
        orders.append([Event("E") for _ in range(10)])
        orders.trim(8)
    without_identities(tmp_path)
    path = log_directory(tmp_path) / META_NAME
    path.write_bytes(path.read_bytes().replace(b"first_retained", b"first_retainee"))
    with Engine(tmp_path, maintains=False) as one, pytest.raises(StorageCorrupted):
        one.open("orders")
    assert not check_directory(tmp_path).is_sound


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"name": "\xff"}', b"[" * 5000, b"null", b"3", b'{"format": "1"}'])
def test_what_is_no_meta_at_all_is_told(data: Path, content: bytes) -> None:
    (log_directory(data) / META_NAME).write_bytes(content)
    with engine(data) as one:
        assert refuses(lambda: one.open("orders"))
    assert check_directory(data).logs[0].problems
    assert not check_directory(data).logs[1].problems


def test_what_is_read_back_is_what_was_written(data: Path) -> None:
    directory = log_directory(data)
    meta = read_meta(directory)
    meta.write(directory)
    assert read_meta(directory) == meta
    assert [state.writer for state, _ in read_writers(directory)[1]] == ["other", "w"]
