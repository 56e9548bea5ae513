"""The engine over a home: the directory is a copy, which can be lost, spoilt, left behind, or ahead."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest

from headwater.core import AppendRequest, Event, LogSettings
from headwater.core.consumer import Consumer
from headwater.core.errors import (
    AppendConditionFailed,
    DiskFull,
    NotPrimary,
    OutcomeUnknown,
    StorageCorrupted,
    StorageUnavailable,
)
from headwater.core.limits import EventColumns
from headwater.core.mark import BATCH_MAX, Mark
from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.statements import HomeUnavailable
from headwater.storage import Engine
from headwater.storage.backup import backup, restore
from headwater.storage.disk.locks import LOCK
from headwater.storage.disk.system import Disk
from headwater.storage.frames.layout import MAGIC
from headwater.storage.home.copy_file import COPY_NAME
from headwater.storage.home.port import HomeWentBack
from headwater.storage.home.replicated_log import CopyBehind
from headwater.storage.log import StoredLog
from headwater.storage.state.data_directory import open_state

from ..storage.builders import change, columns, crashed, event, log_directory, newest, numbers, unless
from ..waiting import eventually
from .postgres_server import fresh_home
from .proxy import Proxy

PATIENCE_S = 60


class Server:
    """An engine on a home of its own connections, as one server has it."""

    def __init__(self, url: str, directory: Path, *, disk: Disk | None = None, **patience: float) -> None:
        self.home = PostgresHome(url, **patience)
        self.home.begin_term()
        self.lost: list[Exception] = []
        """What it was told of why it can append no more."""
        self.directory = directory
        try:
            self.engine = Engine(
                directory, home=self.home, on_lost=self.lost.append, maintains=False, disk=disk, reserve_bytes=0
            )
        except BaseException:
            self.home.close()
            raise

    @property
    def orders(self) -> StoredLog:
        return self.engine.create("orders")

    def is_impatient(self, overdue_s: float, silence_s: float) -> None:
        """From now on, when what it is made of is there."""
        self.home._statements.overdue_s, self.home._statements.silence_s = overdue_s, silence_s

    def close(self) -> None:
        self.home.give_up()
        self.engine.close()
        self.home.close()


Serve = Callable[..., Server]


@pytest.fixture
def url() -> str:
    return fresh_home()


@pytest.fixture
def serve(url: str, tmp_path: Path) -> Iterator[Serve]:
    """Starts a server: `serve("a")` with its copy in the directory a. All are closed at the end."""
    servers: list[Server] = []

    def started(name: str, **options: Any) -> Server:
        server = Server(options.pop("url", url), tmp_path / name, **options)
        servers.append(server)
        return server

    yield started
    for server in servers:
        server.close()


def add(log: StoredLog, count: int, *, begin: int = 0) -> None:
    for index in range(begin, begin + count):
        log.append([Event("E", data=str(index).encode(), tags=(f"n:{index}",), id=f"id-{index}")])


def contents(log: StoredLog) -> list[bytes]:
    return [each.data for each in log.read()]


def test_appends_of_an_event_loop_go_through_the_committer(serve: Serve) -> None:
    with closing(asyncio.new_event_loop()) as loop:
        assert serve("a").orders.submit_on(loop) is None


def test_a_copy_that_lost_its_lock_commits_nothing_and_makes_room_for_the_next(serve: Serve) -> None:
    one = serve("a")
    add(one.orders, 3)
    log = one.orders
    (one.directory / LOCK).unlink()
    with pytest.raises(StorageUnavailable, match="LOCK was removed"):
        add(log, 1, begin=3)
    with pytest.raises(StorageUnavailable):
        one.engine.create("new")
    again = serve("a")
    assert contents(again.orders) == [b"0", b"1", b"2"] and again.engine.names() == ["orders"]
    one.close()
    add(again.orders, 1, begin=3)
    assert contents(again.orders) == [b"0", b"1", b"2", b"3"] and again.lost == []


def test_a_lost_copy_is_made_again_with_all_that_belongs_to_it(serve: Serve) -> None:
    first = serve("a")
    first.orders.register_consumer("who", "it")
    add(first.orders, 20)
    first.engine.create("other", LogSettings(partitions=4))
    first.engine.create("gone").append([event()])
    first.engine.delete("gone")
    first.orders.acknowledge("who", "it", 7)
    first.orders.trim(4)
    incarnation = first.orders.info().incarnation
    first.close()
    second = serve("b")
    assert second.engine.names() == ["orders", "other"]
    log = second.engine.open("orders")
    assert contents(log) == [str(index).encode() for index in range(3, 20)]
    assert (log.first_retained, log.head(), log.info().incarnation) == (4, 20, incarnation)
    assert [each.acknowledged for each in log.consumers()] == [7]
    assert second.engine.settings_of("other").partitions == 4
    assert second.engine.create("gone").head() == 1  # numbers are not given twice
    with pytest.raises(AppendConditionFailed):
        log.append([event()], unless(tags=["n:1"]))  # of an event that is trimmed
    add(log, 1, begin=20)
    assert log.head() == 21


def test_ids_are_known_in_a_copy_that_was_made_again(serve: Serve) -> None:
    first = serve("a")
    add(first.orders, 3)
    first.close()
    log = serve("b").orders
    again = log.append([Event("E", data=b"1", tags=("n:1",), id="id-1")])
    assert (again.first, again.was_stored) == (2, True)


def test_a_copy_that_was_left_behind_fetches_what_it_lacks(serve: Serve) -> None:
    first = serve("a")
    add(first.orders, 5)
    first.close()
    second = serve("b")
    add(second.orders, 5, begin=5)
    second.engine.create("more")
    second.close()
    third = serve("a")
    assert contents(third.orders) == [str(index).encode() for index in range(10)]
    assert third.engine.names() == ["more", "orders"]


@pytest.mark.parametrize("keeps_history", [True, False])
def test_what_was_trimmed_elsewhere_is_trimmed_in_an_older_copy(serve: Serve, keeps_history: bool) -> None:
    first = serve("a")
    log = first.engine.create("orders", LogSettings(keeps_history=keeps_history))
    add(log, 5)
    first.close()
    second = serve("b")
    second.orders.trim(4)
    known_from = second.orders.known_from
    second.close()
    again = serve("a")
    assert (again.orders.info().first_retained, again.orders.known_from) == (4, known_from)
    assert contents(again.orders) == [b"3", b"4"]
    again.close()
    assert serve("a").orders.info().first_retained == 4


def test_who_lost_the_term_answers_so_and_tells_it(serve: Serve) -> None:
    first = serve("a")
    add(first.orders, 5)
    second = serve("b")
    with pytest.raises(NotPrimary):
        add(first.orders, 1, begin=5)
    with pytest.raises(NotPrimary):  # at once
        add(first.orders, 1, begin=5)
    with pytest.raises(NotPrimary):
        first.engine.state.put("kind", "key", b"value")
    with pytest.raises(NotPrimary, match="no longer the primary of log 'other'"):
        first.engine.create("other")
    assert first.lost
    assert "term 2" in str(first.lost[0])
    add(second.orders, 1, begin=5)
    assert contents(second.orders) == [str(index).encode() for index in range(6)]
    assert numbers(first.orders.read()) == [1, 2, 3, 4, 5]  # what it has can be read
    assert second.engine.state.get("kind", "key") is None


def test_changes_that_were_not_durable_are_not_in_the_image_when_the_term_is_lost(serve: Serve) -> None:
    first = serve("a")
    first.engine.state.put("kind", "kept", b"1")
    first.engine.state.put("kind", "held", b"1", is_durable=False)
    second = serve("b")
    assert second.engine.state.get("kind", "held") is None
    with pytest.raises(NotPrimary):
        first.engine.state.flush()
    second.engine.state.put("kind", "kept", b"2")
    first.close()
    second.close()
    third = serve("a")
    assert third.engine.state.get("kind", "held") is None
    assert (entry := third.engine.state.get("kind", "kept")) is not None
    assert entry.value == b"2"


def test_changes_that_are_not_durable_go_with_the_next_that_are(serve: Serve, tmp_path: Path) -> None:
    first = serve("a")
    for index in range(20):
        first.engine.state.put("kind", str(index), b"x", is_durable=False)
    assert first.engine.state.count() >= 20  # what is asked of the image is committed first
    first.engine.state.put("kind", "a", b"x", is_durable=False)
    first.engine.state.put("kind", "b", b"x")
    second = serve("b")
    assert len(list(second.engine.state.items("kind"))) == 22


def test_what_a_consumer_acknowledged_is_at_the_home_when_it_is_answered(serve: Serve) -> None:
    first = serve("a")
    add(first.orders, 3)
    first.orders.register_consumer("me", "here", after=0)
    assert first.orders.acknowledge("me", "here", 2).acknowledged == 2
    second = serve("b")  # as if the first were killed now
    assert (found := second.orders.consumer("me", "here")) is not None
    assert found.acknowledged == 2


@pytest.mark.parametrize("what", ["frames", "journal", "image", "META.json", "witness", "index", "all frames"])
def test_a_spoilt_copy_is_mended_from_the_home(serve: Serve, tmp_path: Path, what: str) -> None:
    first = serve("a")
    add(first.orders, 50)
    first.engine.state.put("kind", "key", b"value")
    copy = crashed(tmp_path / "a", tmp_path / "b")
    first.close()
    log = log_directory(copy)
    segment = next((log / "log").glob("*.log"))
    journal = next((copy / "journal" / "log").glob("*.log"))
    match what:
        case "frames":
            change(segment, 2_000, b"\0" * 64)
        case "all frames":
            segment.unlink()
        case "journal":
            change(journal, 300, b"\xff" * 64)
        case "image":
            change(copy / "state.sqlite", 5_000, b"\xff" * 300)
        case "META.json":
            (log / "META.json").unlink()
        case "witness":
            (copy / "state.witness").write_bytes(b"")
        case "index":
            shutil.rmtree(log / "index", ignore_errors=True)
    second = serve("b")
    assert contents(second.orders) == [str(index).encode() for index in range(50)]
    assert second.engine.state.get("kind", "key") is not None
    add(second.orders, 1, begin=50)
    assert second.orders.head() == 51


def test_a_hole_between_segments_of_a_copy_is_filled(serve: Serve, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("headwater.storage.segments.segment_log.SEGMENT_EVENTS_MAX", 10)
    first = serve("a")
    add(first.orders, 45)
    assert len(first.orders.frames.segments) == 5
    copy = crashed(tmp_path / "a", tmp_path / "b")
    first.close()
    segments = sorted((log_directory(copy) / "log").glob("*.log"))
    segments[2].unlink()
    change(segments[3], 900, b"\0" * 32)
    second = serve("b")
    assert contents(second.orders) == [str(index).encode() for index in range(45)]


def test_a_copy_of_another_home_or_with_logs_of_its_own_is_refused(serve: Serve, tmp_path: Path, url: str) -> None:
    serve("a").close()
    with Engine(tmp_path / "local") as local:
        local.create("orders").append([event()])
    with pytest.raises(StorageUnavailable, match="is not a copy of this home: it has its own logs"):
        serve("local")
    shutil.rmtree(tmp_path / "local" / "journal")
    with pytest.raises(StorageUnavailable, match="is not a copy of this home: it has its own logs"):
        serve("local")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE headwater.home SET incarnation = %s", ("c" * 32,))
    with pytest.raises(StorageUnavailable, match="not a copy of this home: it belongs to the home"):
        serve("a")


def test_a_copy_that_is_ahead_of_its_home_stops(serve: Serve, url: str) -> None:
    first = serve("a")
    add(first.orders, 5)
    first.engine.state.put("kind", "key", b"value")
    first.close()
    with psycopg.connect(url, autocommit=True) as connection:
        went_back(connection, "orders-log", 3)
    second = serve("a")
    with pytest.raises(HomeWentBack, match="ends with 5, but its home ends with 3"):
        second.engine.open("orders")
    second.close()
    with psycopg.connect(url, autocommit=True) as connection:
        went_back(connection, "$state", 1)
    with pytest.raises(HomeWentBack, match="the home went back"):
        serve("a")


def went_back(connection: psycopg.Connection[tuple[Any, ...]], key: str, number: int) -> None:
    """As if a standby had been promoted that lacked what came behind that number."""
    which = "key = '$state'" if key == "$state" else "key <> '$state'"
    connection.execute(
        f"DELETE FROM headwater.frame USING headwater.log WHERE log = id AND {which} AND last > %s", (number,)
    )
    row = connection.execute(
        f"SELECT content FROM headwater.frame JOIN headwater.log ON log = id WHERE {which} AND last = %s", (number,)
    ).fetchone()
    assert row is not None
    crc = int.from_bytes(row[0][4:8], "little")
    connection.execute(f"UPDATE headwater.log SET head = %s, crc = %s WHERE {which}", (number, crc))


def test_a_home_that_goes_back_under_its_primary_stops_it(serve: Serve, url: str) -> None:
    first = serve("a")
    add(first.orders, 5)
    with psycopg.connect(url, autocommit=True) as connection:
        went_back(connection, "orders-log", 3)
    for _ in range(2):
        with pytest.raises(HomeWentBack, match="the home went back"):
            add(first.orders, 1, begin=5)
    assert isinstance(first.lost[0], HomeWentBack)
    assert first.orders.head() == 5


def test_an_append_without_an_answer_is_told_to_be_unknown_and_can_be_repeated(serve: Serve, url: str) -> None:
    port = url.rpartition(":")[2].partition("/")[0]
    proxy = Proxy(int(port))
    server = serve("a", url=proxy.before(url))
    try:
        add(server.orders, 1)
        log = server.orders
        server.is_impatient(0.3, 1.0)
        proxy.lose_answer_to(lambda sent: MAGIC in sent)
        proxy.is_refusing = True
        with pytest.raises(OutcomeUnknown, match="append them again with the same ids"):
            add(log, 1, begin=1)
        with pytest.raises(StorageUnavailable) as refused:  # nothing more is sent
            add(log, 1, begin=2)
        assert not isinstance(refused.value, OutcomeUnknown)
        proxy.is_refusing = False
        eventually(lambda: log.head() == 2)
        eventually(lambda: server.home.unavailable is None)
        again = log.append([Event("E", data=b"1", tags=("n:1",), id="id-1")])
        assert (again.first, again.was_stored) == (2, True)
        add(log, 1, begin=2)
        assert contents(log) == [b"0", b"1", b"2"]
        assert log.statistics.queued_requests == log.statistics.queued_bytes == 0
    finally:
        server.close()
        proxy.close()


def test_everybody_in_flight_and_behind_it_is_told(serve: Serve, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.homes.postgres.statements.BYTES_PER_S_MIN", 10_000_000)  # large ones may take longer
    port = url.rpartition(":")[2].partition("/")[0]
    proxy = Proxy(int(port))
    server = serve("a", url=proxy.before(url))
    try:
        log = server.orders
        add(log, 1)
        server.is_impatient(1.0, 2.0)
        answers: list[AppendRequest] = []
        proxy.stop()
        count = 40
        for index in range(count):
            checked = columns([Event("E", data=b"x" * 300_000, id=f"n-{index}")])
            log.submit(AppendRequest(checked, None, None, answers.extend))
        eventually(lambda: len(answers) == count)
        kinds = {type(each.error) for each in answers}
        assert kinds <= {OutcomeUnknown, HomeUnavailable}
        assert OutcomeUnknown in kinds
        proxy.go_on()
        eventually(lambda: server.home.unavailable is None)
        add(log, 1, begin=1)
        unknown = [each for each in answers if isinstance(each.error, OutcomeUnknown)]
        there = {each.id for each in log.read()}
        assert {each.columns.ids[0] for each in unknown} <= there
        assert len(there) == len(unknown) + 2
        assert len(answers) == count  # nobody is answered twice
    finally:
        server.close()
        proxy.close()


class FailingDisk(Disk):
    """One that stops taking anything when it is told to."""

    def __init__(self) -> None:
        self.is_failing = threading.Event()

    def writes_durably(self, directory: Path) -> bool:
        return False  # so that each write and each sync is one of its own

    def write(self, fd: int, buffers: Any, offset: int) -> None:
        if self.is_failing.is_set():
            raise OSError(5, "Input/output error")
        super().write(fd, buffers, offset)


def test_what_was_committed_is_answered_though_the_copy_cannot_take_it(serve: Serve) -> None:
    disk = FailingDisk()
    first = serve("a", disk=disk)
    add(first.orders, 3)
    log = first.orders
    disk.is_failing.set()
    add(log, 1, begin=3)  # it is in the log
    with pytest.raises(NotPrimary):
        add(log, 1, begin=4)
    assert isinstance(first.lost[0], OSError)
    assert log.head() == 3
    disk.is_failing.clear()
    second = serve("b")
    assert contents(second.orders) == [b"0", b"1", b"2", b"3"]


def test_a_full_disk_refuses_before_anything_is_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    first = serve("a")
    add(first.orders, 1)
    monkeypatch.setattr(first.engine.room, "check", lambda: (_ for _ in ()).throw(DiskFull("a", 0, 1)))
    with pytest.raises(DiskFull):
        add(first.orders, 1, begin=1)
    monkeypatch.undo()
    add(first.orders, 1, begin=1)
    assert not first.lost
    assert contents(serve("b").orders) == [b"0", b"1"]


def test_marks_with_and_without_events_are_known_in_a_new_copy(serve: Serve) -> None:
    first = serve("a")
    log = first.orders
    log.append_columns(columns([event()]), mark=Mark("w", 1, 1, is_last=True))
    log.append_columns(EventColumns.none(), mark=Mark("w", 2, 0, is_last=True))
    log.append_columns(EventColumns.none(), mark=Mark("silent", 4, 0, is_last=True))
    first.close()
    second = serve("b")
    assert {each.writer: each.batch for each in second.orders.writers()} == {"w": 2, "silent": 4}


def test_a_writer_that_was_forgotten_is_known_in_a_new_copy_as_its_frames_have_it(serve: Serve) -> None:
    first = serve("a")
    log = first.orders
    log.append_columns(columns([event()]), mark=Mark("frames", BATCH_MAX, 1, is_last=True))
    log.append_columns(columns([event()]), mark=Mark("half", 1, 1, is_last=True))
    for name in ("half", "silent"):
        log.append_columns(EventColumns.none(), mark=Mark(name, BATCH_MAX, 0, is_last=True))
    for name in ("frames", "half", "silent"):
        log.forget_writer(name)
    assert log.writers() == []
    first.close()
    second = serve("b")
    assert {each.writer: each.is_ended for each in second.orders.writers()} == {"frames": True, "half": False}
    second.orders.forget_writer("frames")
    assert [each.writer for each in second.orders.writers()] == ["half"]


def test_marks_of_frames_that_the_home_forgot_are_known_in_a_new_copy(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.storage.segments.segment_log.SEGMENT_EVENTS_MAX", 5)
    first = serve("a")
    log = first.engine.create("orders", LogSettings(keeps_history=False))
    log.append_columns(columns([event()]), mark=Mark("w", 1, 1, is_last=True))
    add(log, 29)
    log.trim(21)
    first.engine.maintain()
    assert log.frames.segments[0].first > 15
    with psycopg.connect(fresh_url := first.home.url) as connection:
        row = connection.execute(
            "SELECT min(last) FROM headwater.frame JOIN headwater.log ON log = id WHERE key <> '$state'"
        ).fetchone()
    assert row is not None
    assert row[0] > 15, fresh_url
    first.close()
    second = serve("b")
    again = second.engine.open("orders")
    assert [each.batch for each in again.writers()] == [1]
    assert numbers(again.read()) == list(range(21, 31))
    add(again, 1, begin=50)
    assert again.head() == 31


def test_a_copy_that_was_away_for_longer_than_frames_are_kept_is_made_anew(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.storage.segments.segment_log.SEGMENT_EVENTS_MAX", 5)
    first = serve("a")
    log = first.engine.create("orders", LogSettings(keeps_history=False))
    add(log, 3)
    first.close()
    second = serve("b")
    log = second.engine.open("orders")
    add(log, 27, begin=3)
    log.trim(21)
    second.engine.maintain()
    second.close()
    third = serve("a")
    assert numbers(third.engine.open("orders").read()) == list(range(21, 31))


def test_the_journal_of_a_home_forgets_its_beginning(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.state.journal_snapshot.GROWTH_BYTES_MIN", 1000)
    monkeypatch.setattr("headwater.storage.state.journal.SEGMENT_BYTES", 64 * 1024)
    first = serve("a")
    for index in range(3000):
        first.engine.state.put("kind", f"key-{index % 10}", b"v" * 100, is_durable=index % 100 == 0)
    for _ in range(5):
        first.engine.maintain()
    assert first.engine.state.journal.first > 1000
    first.close()
    second = serve("b")
    assert second.engine.state.journal.first > 1000
    assert len(list(second.engine.state.items("kind"))) == 10
    second.engine.state.put("kind", "key-0", b"new")
    second.close()
    third = serve("a")
    assert (entry := third.engine.state.get("kind", "key-0")) is not None
    assert entry.value == b"new"


def test_a_log_that_is_deleted_elsewhere_is_gone_from_a_copy(serve: Serve, tmp_path: Path) -> None:
    first = serve("a")
    add(first.orders, 3)
    first.close()
    second = serve("b")
    second.engine.delete("orders")
    second.close()
    third = serve("a")
    assert third.engine.names() == []
    third.engine.maintain()
    assert not list((tmp_path / "a" / "logs").iterdir())
    assert third.orders.head() == 3


def test_a_frame_that_is_damaged_in_the_home_is_told(serve: Serve, url: str) -> None:
    first = serve("a")
    add(first.orders, 3)
    first.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "UPDATE headwater.frame SET content = set_byte(content, 200, 1 + get_byte(content, 200)) FROM headwater.log"
            " WHERE log = id AND key <> '$state' AND last = 2"
        )
    with pytest.raises(Exception, match="the frame after event 1 is damaged in the home"):
        serve("b").engine.open("orders")


def test_newest_is_the_segment_that_a_copy_goes_on_with(serve: Serve, tmp_path: Path) -> None:
    first = serve("a")
    add(first.orders, 3)
    first.close()
    again = serve("a")
    add(again.orders, 3, begin=3)
    assert newest(again.orders).name.startswith("0" * 19 + "1")


def test_nobody_takes_a_copy_for_all_that_there_is(serve: Serve, tmp_path: Path) -> None:
    first = serve("a")
    add(first.orders, 3)
    first.close()
    for opening in (lambda: Engine(tmp_path / "a"), lambda: open_state(tmp_path / "a")):
        with pytest.raises(
            StorageUnavailable, match="is the copy of a home and can only change through it: use its primary"
        ):
            opening()
    assert contents(serve("a").orders) == [b"0", b"1", b"2"]


def test_a_mark_of_a_copy_that_is_damaged_is_told_and_nothing_is_guessed(serve: Serve, tmp_path: Path) -> None:
    serve("a").close()
    mark = tmp_path / "a" / COPY_NAME
    content = mark.read_bytes()
    for damaged in (b"", content[:-3], content.replace(b'"home":"', b'"home":"0')):
        mark.write_bytes(damaged)
        for opening in (lambda: Engine(tmp_path / "a"), lambda: serve("a")):
            with pytest.raises(StorageCorrupted, match="use an empty directory for the copy"):
                opening()
    mark.write_bytes(content)
    assert serve("a").engine.names() == []


@pytest.mark.parametrize("what", ["no journal", "journal without META", "journal without frames", "log without frames"])
def test_a_copy_whose_making_was_interrupted_is_made_anew(serve: Serve, tmp_path: Path, what: str) -> None:
    first = serve("a")
    add(first.orders, 3)
    first.close()
    copy = tmp_path / "a"
    match what:
        case "no journal":
            shutil.rmtree(copy / "journal")
        case "journal without META":
            (copy / "journal" / "META.json").unlink()
        case "journal without frames":
            shutil.rmtree(copy / "journal" / "log")
        case _:
            for part in log_directory(copy).iterdir():
                shutil.rmtree(part) if part.is_dir() else part.unlink()
    assert contents(serve("a").orders) == [b"0", b"1", b"2"]


def test_a_directory_that_the_home_does_not_know_is_set_aside(serve: Serve, tmp_path: Path) -> None:
    first = serve("a")
    add(first.orders, 3)
    first.close()
    shutil.copytree(log_directory(tmp_path / "a"), tmp_path / "a" / "logs" / "mine.12345678")
    second = serve("a")
    assert second.engine.names() == ["orders"]
    assert list(tmp_path.glob("a/aside-mine.12345678-*/META.json"))


def test_who_reads_the_state_does_not_wait_for_the_home(serve: Serve, url: str) -> None:
    port = url.rpartition(":")[2].partition("/")[0]
    proxy = Proxy(int(port))
    server = serve("a", url=proxy.before(url), overdue_s=60.0, silence_s=60.0)
    state = server.engine.state
    try:
        state.put("kind", "key", b"1")
        proxy.stop()
        changing = threading.Thread(target=lambda: state.put("kind", "key", b"2"))
        changing.start()
        eventually(lambda: state._changing._is_owned() or changing.is_alive())
        for _ in range(100):
            assert (entry := state.get("kind", "key")) is not None
            assert entry.value == b"1"
            assert len(list(state.items("kind"))) == 1
        assert changing.is_alive()
        proxy.go_on()
        changing.join(PATIENCE_S)
        assert (entry := state.get("kind", "key")) is not None
        assert entry.value == b"2"
    finally:
        server.close()
        proxy.close()


def test_who_stops_does_not_wait_for_an_outcome(serve: Serve, url: str) -> None:
    port = url.rpartition(":")[2].partition("/")[0]
    proxy = Proxy(int(port))
    server = serve("a", url=proxy.before(url), overdue_s=60.0, silence_s=60.0)
    try:
        log = server.orders
        add(log, 1)
        proxy.lose_answer_to(lambda sent: MAGIC in sent)
        proxy.is_refusing = True
        answers: list[AppendRequest] = []
        log.submit(AppendRequest(columns([event()]), None, None, answers.extend))
        eventually(lambda: server.home._statements.failing_since is not None)
        server.close()
        assert [type(each.error) for each in answers] == [OutcomeUnknown]
    finally:
        proxy.close()


def test_who_slept_through_its_turn_trims_nothing(serve: Serve) -> None:
    server = serve("a")
    log = server.engine.create("orders", LogSettings(retention_until_acknowledged=True))
    log.register_consumer("who", "it")
    add(log, 3)
    log.acknowledge("who", "it", 2)
    server.home.may_act = lambda: False
    server.engine.maintain()
    assert log.first_retained == 1
    server.home.may_act = lambda: True
    server.engine.maintain()
    assert log.first_retained == 3


def test_a_primary_whose_lease_has_ended_reads_nothing(serve: Serve) -> None:
    one = serve("a")
    add(one.orders, 3)
    log = one.orders
    one.home.has_lapsed = lambda: True
    for read in (log.read, log.subscribe):
        with pytest.raises(NotPrimary, match="no longer the primary of log 'orders'"):
            next(iter(read()))
    one.home.has_lapsed = lambda: False
    assert numbers(log.read()) == [1, 2, 3]


def test_a_change_without_an_answer_is_told_in_time_to_be_unknown_and_takes_effect_when_it_is_made(
    serve: Serve, url: str
) -> None:
    port = url.rpartition(":")[2].partition("/")[0]
    proxy = Proxy(int(port))
    server = serve("a", url=proxy.before(url))
    engine, log = server.engine, server.orders
    try:
        add(log, 1)
        log.register_consumer("who", "known")
        server.is_impatient(0.5, 2.0)
        proxy.stop()
        with pytest.raises(OutcomeUnknown, match="the outcome of the change is unknown"):
            engine.change("orders", LogSettings(retention_ms=60_000))
        for refused in (
            lambda: log.register_consumer("who", "it"),
            lambda: log.trim(2),
            lambda: engine.create("other"),
            lambda: engine.delete("orders"),
            lambda: engine.state.flush(),
            lambda: log.acknowledge("who", "known", 1),
        ):
            with pytest.raises(StorageUnavailable):  # at once, or when its patience ends; nothing came of it
                refused()
        assert engine.settings_of("orders").retention_ms is None  # who reads does not wait
        server.is_impatient(60, 60)
        proxy.go_on()
        eventually(lambda: engine.settings_of("orders").retention_ms == 60_000)
        engine.maintain(retention=False)
        log = engine.open("orders")
        assert log.settings.retention_ms == 60_000
        assert [each.component for each in log.consumers()] == ["known"]
        assert engine.names() == ["orders"]
        eventually(lambda: server.home.away is None)
        assert log.register_consumer("who", "it").epoch == 1
        assert engine.change("orders", LogSettings()).settings.retention_ms is None
        add(log, 1, begin=1)
    finally:
        server.close()
        proxy.close()


def test_a_consumer_that_was_registered_though_nobody_was_told_is_known(serve: Serve, url: str) -> None:
    port = url.rpartition(":")[2].partition("/")[0]
    proxy = Proxy(int(port))
    server = serve("a", url=proxy.before(url))
    log = server.orders
    try:
        server.is_impatient(0.5, 2.0)
        proxy.stop()
        with pytest.raises(OutcomeUnknown):
            log.register_consumer("who", "it")
        server.is_impatient(60, 60)
        proxy.go_on()
        eventually(lambda: server.engine.state.take_landed())
        server.engine._heed_landed()
        assert log.registry.get("who", "it") is not None
        assert log.register_consumer("who", "it").epoch == 2  # asked again, it is there
    finally:
        server.close()
        proxy.close()


def test_a_late_change_that_could_not_be_heeded_is_heeded_later(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve("a")
    log, engine = server.orders, server.engine
    value = json.dumps(asdict(Consumer("who", "it", 0, 1, 0, 0))).encode()
    engine.state.put(f"consumer/{log.meta.incarnation}", "who\nit", value)
    with monkeypatch.context() as late:
        late.setattr(engine.state, "take_landed", lambda: True)
        late.setattr(StoredLog, "follow_state", no_room)
        engine.maintain(retention=False)
    assert log.consumers() == []
    engine.maintain(retention=False)
    assert [each.component for each in log.consumers()] == ["it"]


def no_room(*_: object, **__: object) -> NoReturn:
    raise DiskFull("DIR", 0, 1)


def test_what_was_committed_without_an_answer_is_no_home_that_went_back(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("a")
    log, state, commit = server.orders, server.engine.state, server.home.commit
    add(log, 1)

    def unheard(key: str, *given: Any) -> None:
        commit(key, *given)
        raise OutcomeUnknown(key)  # as where the turn ends meanwhile

    with monkeypatch.context() as silent:
        silent.setattr(server.home, "commit", unheard)
        with pytest.raises(OutcomeUnknown) as unknown:
            add(log, 1, begin=1)
        assert unknown.value.name == log.name, "not its key at the home"
        with pytest.raises(OutcomeUnknown):
            state.put("kind", "key", b"1")
    for again in (lambda: add(log, 1, begin=2), lambda: state.put("kind", "key", b"2")):
        with pytest.raises(CopyBehind, match="the home has commits whose answer was lost"):
            again()
    assert {type(each) for each in server.lost} == {CopyBehind}
    server.close()
    second = serve("a")
    assert contents(second.orders) == [b"0", b"1"]
    assert (entry := second.engine.state.get("kind", "key")) is not None and entry.value == b"1"
    add(second.orders, 1, begin=2)


@pytest.mark.parametrize("what", ["create", "delete"])
def test_what_is_removed_is_decided_when_it_is_known_which_logs_there_are(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    server = serve("a")
    engine, commit = server.engine, server.home.commit
    if what == "delete":
        engine.create("late").append([event()])
    change: Callable[[str], object] = engine.create if what == "create" else engine.delete
    lands = threading.Event()

    def late(key: str, frames: Any, expected: Any, on_overdue: Any) -> None:
        content = b"".join(buffer for frame in frames for buffer in frame.buffers)
        if b"log\xa4late" in bytes(content):
            assert lands.wait(PATIENCE_S)
        commit(key, frames, expected, on_overdue)

    def impatient(method: Callable[..., object]) -> Callable[..., object]:
        def changed(kind: str, *given: Any, **more: Any) -> object:
            server.is_impatient(0.5 if kind == "log" else 60, 60)
            return method(kind, *given, **more)

        return changed

    with monkeypatch.context() as silent:
        silent.setattr(server.home, "commit", late)
        for name in ("put", "delete"):
            silent.setattr(engine.state, name, impatient(getattr(engine.state, name)))
        with pytest.raises(OutcomeUnknown):
            change("late")
        engine._empty_trash()
        lands.set()
        eventually(lambda: (engine.state.get("log", "late") is None) == (what == "delete"))
    engine.maintain()
    heads = set(server.home.heads())
    server.close()
    again = serve("b")
    again.engine.maintain()
    assert set(again.home.heads()) == heads
    if what == "create":
        assert again.engine.open("late").append([event()]).first == 1
    else:
        assert heads == {"$state"} and again.engine.names() == []


def test_a_backup_of_a_copy_goes_on_without_the_home(serve: Serve, tmp_path: Path) -> None:
    served = serve("a")
    add(served.orders, 3)
    backup(served.directory, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "alone")
    with Engine(tmp_path / "alone") as engine:
        alone = engine.open("orders")
        assert contents(alone) == [b"0", b"1", b"2"]
        assert alone.append([Event("E")]).last > served.orders.head()
