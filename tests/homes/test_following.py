"""A copy that follows its home: it takes up what another server does, changes nothing, and goes on where that ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest

from headwater.core import LogSettings
from headwater.core.errors import (
    AppendConditionFailed,
    DiskFull,
    LogNotFound,
    NotPrimary,
    PositionTrimmed,
    StorageUnavailable,
)
from headwater.core.limits import EventColumns
from headwater.core.mark import Mark
from headwater.core.query import Query
from headwater.core.shared_bytes import MIB, SharedBytes
from headwater.homes.commit_feed import LENGTHS, LISTENERS_MAX, Committed
from headwater.homes.postgres.home import PostgresHome
from headwater.server.replicas.replica import Replica as ServedReplica
from headwater.storage import Engine
from headwater.storage.frames.encoding import EncodedFrame
from headwater.storage.home.port import HomeWentBack
from headwater.storage.log import StoredLog
from headwater.storage.maintenance.follower import Follower
from headwater.storage.maintenance.worker import IndexWorker, do
from headwater.storage.segments.meta import Meta
from headwater.storage.state import journal_snapshot

from ..storage.builders import columns, event, numbers, unless
from .postgres_server import fresh_home
from .test_engine import Server, add, contents


class Replica:
    """An engine that follows, as a server has it that is not the primary."""

    def __init__(self, url: str, directory: Path, **options: Any) -> None:
        self.home = PostgresHome(url)
        self.lost: list[Exception] = []
        try:
            self.engine = Engine(
                directory,
                home=self.home,
                on_lost=self.lost.append,
                maintains=False,
                reserve_bytes=0,
                follows=True,
                **options,
            )
        except BaseException:
            self.home.close()
            raise

    @property
    def follower(self) -> Follower:
        assert self.engine.follower is not None
        return self.engine.follower

    @property
    def orders(self) -> StoredLog:
        return self.engine.open("orders")

    def follow(self) -> Replica:
        self.follower.follow()
        return self

    def take_over(self) -> Replica:
        self.home.begin_term()
        self.engine.begin_term()
        return self

    def close(self) -> None:
        self.home.give_up()
        self.engine.close()
        self.home.close()


@pytest.fixture(autouse=True)
def in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of the index are done at once, in this process."""
    monkeypatch.setattr(IndexWorker, "run", lambda self, job: do(job).problem)


@pytest.fixture
def url() -> str:
    return fresh_home()


@pytest.fixture
def first(url: str, tmp_path: Path) -> Iterator[Server]:
    """The primary."""
    server = Server(url, tmp_path / "first")
    yield server
    server.close()


Join = Callable[..., Replica]


@pytest.fixture
def join(url: str, tmp_path: Path) -> Iterator[Join]:
    """Has a server follow, its copy in the directory of that name."""
    replicas: list[Replica] = []

    def joined(name: str, **options: Any) -> Replica:
        replicas.append(Replica(url, tmp_path / name, **options))
        return replicas[-1]

    yield joined
    for replica in replicas:
        replica.close()


def test_what_the_primary_appends_is_read_from_a_replica(first: Server, join: Join) -> None:
    add(first.orders, 5)
    replica = join("a")
    assert contents(replica.orders) == [b"0", b"1", b"2", b"3", b"4"]
    woken: list[int] = []
    replica.orders.watch(lambda: woken.append(replica.orders.head()))
    add(first.orders, 2, begin=5)
    assert replica.orders.head() == 5
    replica.follow()
    assert woken[-1] == 7
    assert numbers(replica.orders.read(Query.where(tags=["n:6"]))) == [7]
    assert replica.orders.info().events == 7
    assert replica.follower.behind == {}
    assert not replica.lost


def fill_the_backlog(first: Server, replica: Replica) -> None:
    """Have the copy of `orders` take all that may be unindexed there, until it is maintained."""
    add(first.orders, 400)
    replica.follow()
    assert replica.orders.head() == 400 and not replica.orders.backlog.has_room


def test_a_log_whose_index_falls_behind_is_passed_over_and_the_others_are_followed(first: Server, join: Join) -> None:
    add(first.engine.create("others"), 1)
    replica = join("a", unindexed_bytes_max=20_000)
    fill_the_backlog(first, replica)
    add(first.orders, 5, begin=400)
    add(first.engine.open("others"), 5, begin=1)
    replica.follow()
    assert (replica.orders.head(), replica.engine.open("others").head()) == (400, 6)
    assert replica.follower.behind == {"orders": 5}
    assert "its index is behind" in replica.follower.stuck["orders"].why
    replica.engine.maintain()
    replica.follow()
    assert replica.orders.head() == 405
    assert replica.follower.behind == {} and not replica.follower.stuck


def test_a_frame_that_is_pushed_waits_for_the_index_too(first: Server, join: Join) -> None:
    pushed: list[tuple[str, bytes]] = []
    first.engine._homed.on_committed = lambda key, frames: pushed.extend(  # type: ignore[union-attr]
        (key, b"".join(frame.buffers)) for frame in frames
    )
    replica = join("a", unindexed_bytes_max=20_000)
    fill_the_backlog(first, replica)
    pushed.clear()
    add(first.orders, 2, begin=400)
    assert all(replica.follower.take(*frame) for frame in pushed)
    assert replica.orders.head() == 400
    replica.engine.maintain()
    assert [replica.follower.take(*frame) for frame in pushed] == [True, True]
    assert replica.orders.head() == 402


def test_a_take_over_does_not_wait_for_the_index(first: Server, join: Join) -> None:
    replica = join("a", unindexed_bytes_max=20_000)
    fill_the_backlog(first, replica)
    add(first.orders, 500, begin=400)
    replica.follow()
    assert replica.orders.head() == 400
    replica.take_over()
    assert replica.orders.head() == 900
    assert contents(replica.orders) == [str(number).encode() for number in range(900)]


def test_a_copy_says_of_frames_what_the_home_says(first: Server, join: Join) -> None:
    add(first.orders, 1)
    first.orders.append_columns(EventColumns.unchecked(*zip(event(id="old"), strict=True), 100))
    add(first.orders, 1, begin=1)
    replica = join("a")
    assert [frame.is_gated for frame in replica.orders.frames.read(0)] == [True, False, True]
    first.orders.append_columns(EventColumns.unchecked(*zip(event(id="older"), strict=True), 100))
    replica.follow()
    assert [frame.is_gated for frame in replica.orders.frames.read(0)] == [True, False, True, False]


def test_a_replica_changes_nothing(first: Server, join: Join) -> None:
    add(first.orders, 2)
    first.orders.register_consumer("who", "it")
    replica = join("a")
    log = replica.orders
    for change in (
        lambda: log.append([event()]),
        lambda: log.trim(2),
        lambda: log.register_consumer("who", "else"),
        lambda: log.acknowledge("who", "it", 2),
        lambda: log.forget_writer("w"),
        lambda: replica.engine.create("other"),
        lambda: replica.engine.change("orders", LogSettings(retention_ms=1000)),
        lambda: replica.engine.delete("orders"),
        lambda: replica.engine.state.put("kind", "key", b""),
        lambda: replica.engine.state.delete("log", "orders"),
    ):
        with pytest.raises(NotPrimary):
            change()
    replica.engine.maintain()
    assert contents(log) == [b"0", b"1"]
    assert replica.engine.names() == ["orders"]


def test_logs_that_are_made_changed_and_deleted_are_so_in_a_replica(first: Server, join: Join, tmp_path: Path) -> None:
    first.engine.create("gone").append([event()])
    replica = join("a")
    gone = replica.engine.open("gone")
    first.engine.create("new", LogSettings(partitions=3)).append([event()])
    first.engine.delete("gone")
    replica.follow()
    assert replica.engine.names() == ["new"]
    assert replica.engine.open("new").head() == 1
    assert gone.is_closed
    with pytest.raises(LogNotFound):
        replica.engine.open("gone")
    assert not [each.name for each in (tmp_path / "a").iterdir() if each.name.startswith("aside")]
    first.engine.create("gone").append([event()])
    first.engine.change("new", LogSettings(partitions=3, event_bytes_max=5000))
    replica.follow()
    assert replica.engine.open("gone").head() == 2
    assert replica.engine.open("new").settings.event_bytes_max == 5000
    assert replica.engine.open("new").is_following


def test_trims_and_consumers_are_followed_and_stay_after_a_restart(first: Server, join: Join) -> None:
    add(first.orders, 10)
    first.orders.register_consumer("who", "it", after=0)
    replica = join("a")
    assert [each.acknowledged for each in replica.orders.consumers()] == [0]
    first.orders.acknowledge("who", "it", 6)
    first.orders.trim(5)
    replica.follow()
    assert [each.acknowledged for each in replica.orders.consumers()] == [6]
    assert numbers(replica.orders.read()) == [5, 6, 7, 8, 9, 10]
    with pytest.raises(PositionTrimmed):
        replica.orders.read(from_=4)
    replica.close()
    first.orders.trim(7)
    again = join("a")
    assert numbers(again.orders.read()) == [7, 8, 9, 10]


def test_a_primary_forgets_what_is_too_old_also_in_a_log_that_it_never_had_to_open(first: Server, join: Join) -> None:
    add(first.engine.create("quiet"), 3)
    join("a").close()
    replica = join("a")  # which has all of it
    first.engine.change("quiet", LogSettings(retention_until_acknowledged=True))
    first.engine.open("quiet").register_consumer("who", "it", after=0)
    first.engine.open("quiet").acknowledge("who", "it", 3)
    first.engine.state.flush()
    replica.follow()
    assert replica.engine.opened() == []
    replica.take_over().engine.maintain()
    assert [(log.name, log.first_retained) for log in replica.engine.opened()] == [("quiet", 4)]


def test_what_could_not_be_taken_up_for_want_of_room_is_taken_up_later(
    first: Server, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(first.orders, 10)
    replica = join("a")
    told = Told(first)
    orders = replica.orders
    first.engine.create("new").append([event()])
    first.orders.register_consumer("who", "it", after=0)
    first.orders.acknowledge("who", "it", 6)
    first.orders.trim(5)
    first.engine.change("orders", LogSettings(event_bytes_max=5000))
    with monkeypatch.context() as full:
        full.setattr(Meta, "write", no_room)
        with pytest.raises(DiskFull):
            for key, content in told.frames():
                replica.follower.take(key, content)
        with pytest.raises(DiskFull):
            replica.follow()
    replica.follow()
    assert replica.engine.open("new").head() == 1
    assert [each.acknowledged for each in orders.consumers()] == [6]
    assert (orders.first_retained, orders.settings.event_bytes_max) == (5, 5000)
    replica.take_over()
    assert [each.acknowledged for each in replica.orders.consumers()] == [6]


def test_what_follows_a_snapshot_is_taken_up_though_nothing_can_be_forgotten(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_snapshot, "GROWTH_BYTES_MIN", 1000)
    replica, primary = join("a"), join("b").take_over()
    primary.engine.state.put("kind", "large", bytes(100_000))
    primary.engine.maintain()
    primary.engine.state.put("kind", "later", b"value")
    with monkeypatch.context() as full:
        full.setattr(Meta, "write", no_room)
        replica.follow()
    entry = replica.engine.state.get("kind", "later")
    assert entry is not None and entry.value == b"value"
    assert primary.engine.state.journal.first > replica.engine.state.journal.first


def no_room(*_: object) -> NoReturn:
    raise DiskFull("DIR", 0, 1)


def test_a_replica_takes_over_with_all_that_was_done(first: Server, join: Join) -> None:
    add(first.orders, 3)
    replica = join("a")
    assert replica.orders.head() == 3
    add(first.orders, 2, begin=3)
    first.orders.append_columns(columns([event(), event()]), mark=Mark("w", 1, 2, is_last=True))
    first.engine.create("late")
    first.engine.state.put("kind", "key", b"value")
    replica.take_over()  # what it did not follow yet too
    with pytest.raises(NotPrimary):
        add(first.orders, 1, begin=5)
    add(replica.orders, 1, begin=7)
    assert replica.orders.head() == 8
    writer = replica.orders.writer("w")
    assert writer is not None and writer.rows == 2
    with pytest.raises(AppendConditionFailed):
        replica.orders.append([event()], unless(tags=["n:1"]))
    again = replica.orders.append_columns(columns([event(), event()]), mark=Mark("w", 1, 2, is_last=True))
    assert (again.first, again.was_stored) == (6, True)
    assert replica.engine.create("late").append([event()]).first == 1
    replica.engine.state.put("kind", "key", b"other", expected_version=1)
    replica.engine.delete("late")
    replica.engine.maintain()
    assert not replica.lost


def test_who_took_over_is_followed_and_hands_on(first: Server, join: Join) -> None:
    add(first.orders, 1)
    second, third = join("a"), join("b")
    second.take_over()
    add(second.orders, 1, begin=1)
    assert contents(third.follow().orders) == [b"0", b"1"]
    third.take_over()
    add(third.orders, 1, begin=2)
    second.close()
    again = join("a")
    assert contents(again.orders) == [b"0", b"1", b"2"]


def test_a_copy_that_outlived_its_home_is_fetched_anew_while_it_follows(
    first: Server, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.storage.segments.segment_log.SEGMENT_EVENTS_MAX", 5)
    log = first.engine.create("orders", LogSettings(keeps_history=False))
    add(log, 3)
    replica = join("a")
    add(log, 8, begin=3)
    first.engine.maintain()
    log.trim(11)
    first.engine.maintain()
    replica.follow()
    assert contents(replica.orders) == [b"10"]


def test_the_journal_of_a_replica_forgets_what_its_primary_forgot(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_snapshot, "GROWTH_BYTES_MIN", 1000)
    replica, primary = join("a"), join("b").take_over()
    for index in range(2000):
        primary.engine.state.put("kind", f"key-{index % 10}", b"v" * 100, is_durable=index % 100 == 0)
    for _ in range(5):
        primary.engine.maintain()
    primary.engine.state.put("kind", "key-10", b"v" * 100)
    replica.follow()
    assert replica.engine.state.journal.first == primary.engine.state.journal.first > 1000
    assert {key for key, _ in replica.engine.state.items("kind")} == {f"key-{index}" for index in range(11)}
    assert len({entry.value for _, entry in replica.engine.state.items("kind")}) == 1
    replica.take_over().engine.state.put("kind", "key-0", b"", expected_version=200)


def test_a_replica_that_is_ahead_of_its_home_says_so_and_takes_nothing_up(first: Server, join: Join, url: str) -> None:
    add(first.orders, 3)
    replica = join("a")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE headwater.log SET head = 2 WHERE key <> '$state'")
    with pytest.raises(HomeWentBack):
        replica.follow()
    assert isinstance(replica.lost[0], HomeWentBack)
    assert contents(replica.orders) == [b"0", b"1", b"2"]


def test_a_copy_whose_home_went_away_while_it_was_opened_can_be_opened_again(
    first: Server, join: Join, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(first.orders, 3)
    with monkeypatch.context() as without:

        def away(follower: Follower) -> NoReturn:
            raise StorageUnavailable("the home does not answer")

        without.setattr(Follower, "follow", away)  # the journal was caught up with before
        with pytest.raises(StorageUnavailable, match="the home does not answer") as failure:
            Replica(url, tmp_path / "a")
    assert contents(join("a").orders) == [b"0", b"1", b"2"]
    assert failure.traceback  # it has the engine in it all the while, as where a server tries again


def test_logs_without_news_are_not_opened(first: Server, join: Join) -> None:
    for index in range(5):
        add(first.engine.create(f"log-{index}"), 1)
    replica = join("a")
    assert len(replica.engine.opened()) == 5  # the copies were made just now
    replica.close()
    add(first.engine.open("log-3"), 1, begin=1)
    again = join("a")
    assert [log.name for log in again.engine.opened()] == ["log-3"]
    again.take_over()
    assert [log.name for log in again.engine.opened()] == ["log-3"]
    assert again.engine.open("log-1").append([event()]).first == 2


def test_a_replica_without_its_home_reads_on_and_says_since_when(first: Server, join: Join) -> None:
    add(first.orders, 2)
    replica = join("a")
    asked_at = replica.follower.asked_at
    assert asked_at is not None
    replica.home.close()
    with pytest.raises(StorageUnavailable):
        replica.follow()
    assert replica.follower.asked_at == asked_at
    assert contents(replica.orders) == [b"0", b"1"]


def test_a_log_that_is_damaged_at_the_home_is_named_and_the_others_are_followed(
    first: Server, join: Join, url: str
) -> None:
    replica = join("a")
    others, told = first.engine.create("others"), Told(first)
    damage = (
        "UPDATE headwater.frame SET content = set_byte(content, 200, get_byte(content, 200) # 1) FROM headwater.log"
        " WHERE log = id AND key = %s AND last = 1"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        add(first.orders, 1)
        connection.execute(damage, [first.orders.meta.segments_id])
        before = replica.follow().follower.asked_at
        add(first.orders, 1, begin=1)
        others.append([event()])
        replica.follow()
        after = replica.follower.asked_at
        assert before is not None and after is not None and after > before  # what is not damaged is there
        assert replica.engine.open("others").head() == 1 and replica.orders.head() == 0
        [(name, stuck)] = replica.follower.stuck.items()
        assert name == "orders"
        assert "the frame after event 0 is damaged in the home" in stuck.why
        assert "restore the database from its backup" in stuck.why
        assert any("log orders cannot be followed" in trouble for trouble in replica.engine.troubles())
        for key, content in told.frames():  # what the primary tells of it does not ask the home each time
            assert replica.follower.take(key, content)
        now = stuck.since
        served = ServedReplica(replica.follower, 5.0, lambda: True, lambda: now)
        assert served.stale("orders") is None and served.stuck == 1
        replica.follower.asked_at = now = stuck.since + 6  # the home answered all the while
        assert served.stale() is None and served.stale("others") is None
        told_of_it = served.stale("orders")
        assert told_of_it is not None
        for part in (
            "log orders",
            "for 6 s",
            "is damaged in the home",
            "restore the database",
            "other logs are served",
        ):
            assert part in told_of_it
        connection.execute(damage, [first.orders.meta.segments_id])
    assert not replica.follow().follower.stuck
    assert contents(replica.orders) == [b"0", b"1"]


class Told:
    """What a primary tells of what it commits."""

    def __init__(self, server: Server) -> None:
        committed = Committed()
        assert server.engine._homed is not None
        server.engine._homed.on_committed = committed.tell
        listener = committed.listen(lambda: None)
        assert listener is not None
        self.listener = listener

    def frames(self) -> list[tuple[str, bytes]]:
        """Key and content of each frame that was told since."""
        text, found = b"", []
        while messages := self.listener.take():
            text += b"".join(messages)
        while text:
            key, size = LENGTHS.unpack_from(text)
            begin = LENGTHS.size + key
            found.append((text[LENGTHS.size : begin].decode(), text[begin : begin + size]))
            text = text[begin + size :]
        return found


def test_frames_that_are_told_are_taken_up_without_the_home(first: Server, join: Join) -> None:
    add(first.orders, 2)
    replica, told = join("a"), Told(first)
    add(first.orders, 2, begin=2)
    first.engine.create("new").append([event()])
    first.engine.state.put("kind", "key", b"value")
    replica.home.close()
    for key, content in told.frames():
        assert replica.follower.take(key, content)
        assert replica.follower.take(key, content)  # once more is no news
    assert contents(replica.orders) == [b"0", b"1", b"2", b"3"]
    assert replica.engine.open("new").head() == 1
    assert replica.engine.state.get("kind", "key") is not None


def test_a_frame_that_does_not_follow_or_is_damaged_is_not_taken(first: Server, join: Join) -> None:
    add(first.orders, 1)
    replica, told = join("a"), Told(first)
    add(first.orders, 2, begin=1)
    (_, second), (key, third) = told.frames()
    assert not replica.follower.take(key, third)
    assert not replica.follower.take(key, second[:-1] + bytes([second[-1] ^ 1]))
    assert not replica.follower.take(key, second[:50])
    assert not replica.follower.take("f" * 32, second)
    assert replica.orders.head() == 1
    replica.follow()
    assert replica.follower.take(key, third)
    assert replica.orders.head() == 3
    replica.take_over()
    assert replica.follower.take(key, b"nonsense")  # it appends itself


def of_size(size: int) -> EncodedFrame:
    return EncodedFrame(1, 1, 0, 0, size, [bytes(size)])


def test_who_does_not_take_in_time_loses_all_and_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.homes.commit_feed.WAITING_BYTES_MAX", 100)
    committed = Committed()
    slow, quick = committed.listen(lambda: None), committed.listen(lambda: None)
    assert slow is not None and quick is not None
    committed.tell("key", [of_size(60)])
    assert not slow.is_overrun
    assert len(quick.take()) == 1 and quick.take() == []
    committed.tell("key", [of_size(60)])
    assert slow.is_overrun and not quick.is_overrun
    assert slow.take() == [] and len(quick.take()) == 1
    committed.tell("key", [of_size(200)])
    assert quick.is_overrun and committed.waiting_bytes == 0, "what can never fit is lost to all"
    committed.leave(slow)
    committed.leave(quick)
    others = [committed.listen(lambda: None) for _ in range(LISTENERS_MAX + 1)]
    assert others[-1] is None and None not in others[:-1]


def test_sixteen_replicas_that_take_nothing_hold_one_window_of_what_threads_may_hold() -> None:
    waiting = SharedBytes(64 * MIB)
    committed = Committed(waiting=waiting)
    listeners = [committed.listen(lambda: None) for _ in range(LISTENERS_MAX)]
    for _ in range(100):
        committed.tell("key", [of_size(MIB)])
        assert committed.waiting_bytes <= 8 * MIB
        assert waiting.bytes <= 8 * MIB
    assert all(each is not None and each.is_overrun for each in listeners)
    for each in listeners:
        assert each is not None
        committed.leave(each)
    assert waiting.bytes == committed.waiting_bytes == 0


def test_what_a_replica_is_being_sent_counts_until_it_takes_more() -> None:
    committed = Committed()
    listener = committed.listen(lambda: None)
    assert listener is not None
    for _ in range(10):
        committed.tell("key", [of_size(100 * 1024)])
    taken = [len(listener.take()) for _ in range(2)]
    assert taken == [2, 2], "up to 256 KiB at once"
    assert committed.waiting_bytes > 800 * 1024
    while listener.take():
        pass
    assert committed.waiting_bytes == 0


def test_a_frame_whose_marks_were_not_taken_up_at_once_counts_once(
    first: Server, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(first.orders, 2)
    replica = join("a")
    assert numbers(replica.orders.read(Query.where(types=["E"]))) == [1, 2]
    add(first.orders, 2, begin=2)

    def fails(*_: object) -> NoReturn:
        raise StorageUnavailable("META.json cannot be written")

    with monkeypatch.context() as failing:
        failing.setattr(replica.orders.writer_table, "replay", fails)
        with pytest.raises(StorageUnavailable):
            replica.follow()
    assert numbers(replica.follow().orders.read(Query.where(types=["E"]))) == [1, 2, 3, 4]
