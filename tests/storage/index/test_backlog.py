"""The index keeps up, or pushes back: what may be unindexed has a ceiling, and who waits is woken when there is room.

Nothing is indexed here until a test says so, so that no test depends on how fast anything is. The sentences of the
reports that others got: throttled recoveries (elasticsearch 9394), a limit that one way of writing never met
(elasticsearch 8405), writers who waited for work that was never done (rocksdb 10257, 1235, 8643), an alarm that one of
several cleared (rabbitmq-server 379), a health check that saw nothing (rabbitmq-server 23), starts that read more than
what ran (prometheus 6934, 16942), indexing that failed behind everybody's back (prometheus 8219), and slow starts after
unclean stops (automq 525).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core import Event, Query, local
from headwater.core.errors import Overloaded, StorageUnavailable
from headwater.core.loop.async_log import AsyncLog
from headwater.http.errors import headers_of
from headwater.storage import Engine, StoredLog
from headwater.storage import log as log_module
from headwater.storage.index import backlog as backlog_module
from headwater.storage.index.backlog import EXPECTED_EVENT_BYTES, PAUSE_S_MAX, Backlog, LogBacklog
from headwater.storage.maintenance.worker import IndexWorker
from tests.waiting import eventually

from ..builders import columns, crashed, engine, numbers

pytestmark = pytest.mark.usefixtures("in_line")
CEILING = 100_000


def given(number: int) -> Event:
    return Event("T", b"", (f"n:{number}", f"mod:{number % 5}"))


def fill(log: StoredLog, bytes_min: int, *, is_bulk: bool = True) -> None:
    """Append until the logs have so much unindexed."""
    while log.backlog.backlog.unindexed < bytes_min:
        append(log, 20, is_bulk=is_bulk)


def append(log: StoredLog, count: int, *, is_bulk: bool) -> None:
    start = log.head()
    log.append_columns(columns([given(number) for number in range(start, start + count)]), is_bulk=is_bulk)


@pytest.fixture
def store(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine whose appends from threads do not wait for the index."""
    monkeypatch.setattr(local, "INDEX_WAIT_S", 0.0)
    monkeypatch.setattr(backlog_module, "ROOM_S_MAX", 0.0)
    with engine(data, unindexed_bytes_max=CEILING) as opened:
        yield opened


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the worker fail for the log of that name."""
    run = IndexWorker.run

    def fails(name: str) -> None:
        def failing(self: IndexWorker, job: object) -> str:
            return "OSError: no space" if f"/{name}." in job.directory else run(self, job)  # type: ignore[attr-defined,arg-type]

        monkeypatch.setattr(IndexWorker, "run", failing)

    return fails


def test_a_bulk_append_at_the_ceiling_is_refused_and_passes_when_there_is_room(store: Engine) -> None:
    log = store.create("orders")
    with pytest.raises(Overloaded) as refused:
        fill(log, 2 * CEILING)
    assert refused.value.allowed_bytes == CEILING and refused.value.retry_after_s > 0
    assert store.backlog.bytes <= CEILING
    head = log.head()
    store.maintain()
    append(log, 20, is_bulk=True)
    assert numbers(log.read()) == list(range(1, head + 21))
    assert numbers(log.read(Query.where(tags=["n:7"]))) == [8]


def test_single_appends_pass_to_a_quarter_above_the_ceiling_and_are_refused_then(store: Engine) -> None:
    log = store.create("orders")
    with pytest.raises(Overloaded):
        fill(log, 2 * CEILING)
    with pytest.raises(Overloaded) as refused:
        fill(log, 2 * CEILING, is_bulk=False)
    assert refused.value.allowed_bytes == CEILING * 5 // 4
    assert CEILING < store.backlog.bytes <= CEILING * 5 // 4
    assert log.statistics.refused == 2


def test_batches_of_arrow_meet_the_same_ceiling(store: Engine) -> None:
    log = store.create("orders")

    def batch(first: int) -> pa.RecordBatch:
        tags = [[f"n:{number}", "all"] for number in range(first, first + 200)]
        return pa.record_batch({"type": pa.array(["T"] * 200), "data": pa.array([b""] * 200), "tags": pa.array(tags)})

    with pytest.raises(Overloaded):
        for _ in range(100):
            log.append_batch(batch(log.head()))
    head = log.head()
    store.maintain()
    log.append_batch(batch(head))
    assert log.head() == head + 200


def test_the_ceiling_is_for_all_logs_of_the_engine(store: Engine) -> None:
    one, other = store.create("one"), store.create("other")
    fill(one, CEILING * 9 // 10)
    with pytest.raises(Overloaded):
        append(other, 200, is_bulk=True)
    store.maintain()
    append(other, 200, is_bulk=True)


def test_many_logs_with_a_little_each_get_room_too(store: Engine) -> None:
    """None has a full part, and none takes an append that would fill one."""
    logs = [store.create(f"log{number}") for number in range(12)]
    with pytest.raises(Overloaded):
        for _ in range(1000):
            for log in logs:
                append(log, 5, is_bulk=True)
    before = {log.name: log.head() for log in logs}
    store.maintain()
    assert store.backlog.bytes < CEILING / 2
    for log in logs:
        append(log, 5, is_bulk=True)
        assert numbers(log.read(Query.where(tags=["mod:1"])))[-1] > before[log.name] - 5


def test_an_append_that_is_larger_than_the_ceiling_passes_when_little_is_unindexed(store: Engine) -> None:
    log = store.create("orders")
    append(log, 3000, is_bulk=True)
    with pytest.raises(Overloaded):
        append(log, 3000, is_bulk=False)
    store.maintain()
    append(log, 3000, is_bulk=True)


def test_who_waits_is_woken_by_the_index(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "INDEX_WAIT_S", 60.0)
    monkeypatch.setattr(StoredLog, "_await_room", lambda log: asleep.append(log) or woken.wait(60) or None)
    asleep: list[StoredLog] = []
    woken = threading.Event()
    log, other = store.create("orders"), store.create("others")
    fill(log, CEILING * 6 // 5, is_bulk=False)
    other.watch(woken.set)
    thread = threading.Thread(target=lambda: append(other, 200, is_bulk=False))
    thread.start()
    eventually(lambda: asleep)
    assert not woken.is_set() and other.head() == 0
    store.maintain()
    thread.join(60)
    assert woken.is_set() and other.head() == 200 and len(asleep) == 1


def test_an_event_loop_does_not_wait_for_the_index(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets Overloaded, and its client 503 with Retry-After."""
    log = store.create("orders")
    fill(log, CEILING * 6 // 5, is_bulk=False)
    monkeypatch.setattr(local, "INDEX_WAIT_S", 60.0)

    async def scenario() -> None:
        face = AsyncLog(log)
        with pytest.raises(Overloaded) as refused:
            await face.append([given(number) for number in range(200)])
        assert (b"retry-after", b"1") in headers_of(refused.value)
        await asyncio.to_thread(store.maintain)
        assert (await face.append([given(number) for number in range(200)])).last == log.head()
        face.close()

    asyncio.run(scenario())


def test_an_append_that_waits_does_not_wait_for_ever(store: Engine) -> None:
    log = store.create("orders")
    fill(log, CEILING * 6 // 5, is_bulk=False)
    with pytest.raises(Overloaded, match="bytes are waiting to be written or indexed"):
        append(log, 200, is_bulk=False)


def test_trims_acknowledgements_settings_and_marks_go_on_at_the_ceiling(store: Engine) -> None:
    log = store.create("orders")
    fill(log, CEILING * 6 // 5, is_bulk=False)
    log.register_consumer("who", "it", after=0)
    assert log.acknowledge("who", "it", 10).acknowledged == 10
    assert log.trim(5) == 5
    store.create("more")
    store.delete("more")
    store.state.put("kind", "key", b"value")
    assert len(numbers(log.read())) == log.head() - 4


def test_indexing_that_fails_three_times_ends_the_waiting_with_an_error(
    store: Engine, broken: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = store.create("orders")
    fill(log, CEILING * 6 // 5, is_bulk=False)
    broken("orders")
    for _ in range(2):
        store.maintain()
        with pytest.raises(Overloaded):
            append(log, 200, is_bulk=False)
    assert not any("indexed" in trouble for trouble in store.troubles())
    store.maintain()
    for is_bulk in (True, False):
        with pytest.raises(
            StorageUnavailable, match=r"could not be indexed 3 times in a row .*no space.*headwater check"
        ):
            append(log, 200, is_bulk=is_bulk)
    assert any("log orders: its events could not be indexed" in trouble for trouble in store.troubles())
    monkeypatch.undo()
    monkeypatch.setattr(IndexWorker, "run", lambda self, job: "")


def test_other_logs_go_on_when_the_index_of_one_cannot_be_made(store: Engine, broken: Callable[[str], None]) -> None:
    log, other = store.create("orders"), store.create("others")
    fill(log, CEILING * 6 // 5, is_bulk=False)
    broken("orders")
    for _ in range(3):
        store.maintain()
    append(other, 200, is_bulk=True)
    assert log.backlog.problem is not None and other.backlog.problem is None


def test_indexing_that_succeeds_again_is_as_if_nothing_had_been(store: Engine, broken: Callable[[str], None]) -> None:
    log = store.create("orders")
    fill(log, CEILING * 6 // 5, is_bulk=False)
    broken("orders")
    for _ in range(3):
        store.maintain()
    broken("nothing")
    store.maintain()
    append(log, 200, is_bulk=True)
    assert log.backlog.problem is None and not any("indexed" in trouble for trouble in store.troubles())


def test_a_start_waits_for_nothing_whatever_is_unindexed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "INDEX_WAIT_S", 0.0)
    with engine(data, unindexed_bytes_max=10 * CEILING) as store:
        fill(store.create("orders"), 3 * CEILING)
        copy = crashed(data, tmp_path / "copy")
    with engine(copy, unindexed_bytes_max=CEILING) as store:
        log = store.open("orders")
        assert store.backlog.unindexed > CEILING
        with pytest.raises(Overloaded):
            append(log, 1, is_bulk=True)
        store.maintain()
        append(log, 1, is_bulk=True)


def test_a_start_reads_no_more_than_the_ceiling(store: Engine, data: Path, tmp_path: Path) -> None:
    log = store.create("orders")
    for _ in range(5):
        with pytest.raises(Overloaded):
            fill(log, 2 * CEILING)
        copy = crashed(data, tmp_path / f"copy{log.head()}")
        with engine(copy) as again:
            again.open("orders")
            assert again.backlog.unindexed <= CEILING
        store.maintain()


def test_a_stop_writes_no_large_file_and_loses_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "CLEAN_BYTES_MAX", CEILING // 2)
    monkeypatch.setattr(log_module, "CLEAN_POSTINGS_MIN", 1)
    with engine(data, unindexed_bytes_max=CEILING) as store:
        log = store.create("orders")
        fill(log, CEILING * 9 // 10)
        head, directory = log.head(), log.directory
    assert not list(directory.glob("idx/*.postings"))
    with engine(data, unindexed_bytes_max=CEILING) as store:
        log = store.open("orders")
        assert log.head() == head and numbers(log.read(Query.where(tags=["n:3"]))) == [4]
        store.maintain()
        append(log, 1, is_bulk=True)
    assert list(directory.glob("idx/*.postings"))


def test_an_engine_that_tends_its_logs_takes_any_number_of_events(data: Path) -> None:
    """Its maintenance is called when it is urgent: no append waits for ever, though there is room for a few only."""
    with engine(data, unindexed_bytes_max=20_000, maintains=True) as store:
        one, other = store.create("one"), store.create("other")
        for _ in range(100):
            append(one, 40, is_bulk=False)
            append(other, 10, is_bulk=False)
        assert numbers(one.read(Query.where(tags=["n:3999"]))) == [4000]
        assert len(numbers(other.read(Query.where(tags=["mod:1"])))) == 200


def test_what_is_unindexed_is_forgotten_with_the_log(store: Engine) -> None:
    fill(store.create("orders"), CEILING * 9 // 10)
    store.delete("orders")
    assert store.backlog.bytes == 0


def test_a_part_that_ends_while_appends_go_on_loses_no_posting(data: Path, small_segments: None) -> None:
    """The committer adds to the newest part while the index ends it."""
    with engine(data, unindexed_bytes_max=2_000) as store:
        log = store.create("orders")
        thread = threading.Thread(target=lambda: [append(log, 3, is_bulk=False) for _ in range(300)])
        thread.start()
        while thread.is_alive():
            store.maintain()
        store.maintain()
        assert log.head() == 900
        for number in range(0, 900, 7):
            assert numbers(log.read(Query.where(tags=[f"n:{number}"]))) == [number + 1]
        assert len(numbers(log.read(Query.where(tags=["mod:2"])))) == 180


# The account alone


def share_with(unindexed: int, backlog: Backlog | None = None) -> LogBacklog:
    share = (backlog or Backlog(1000)).share("orders")
    share.count(unindexed)
    return share


@pytest.mark.parametrize(
    ("unindexed", "pause_s"), [(0, 0), (500, 0), (750, PAUSE_S_MAX / 2), (1000, PAUSE_S_MAX), (5000, PAUSE_S_MAX)]
)
def test_bulk_loads_slow_down_from_half_of_the_ceiling_on(unindexed: int, pause_s: float) -> None:
    assert share_with(unindexed).pause_s() == pytest.approx(pause_s)


def test_a_pause_ends_when_the_index_has_made_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.index.backlog.PAUSE_S_MAX", 60.0)
    share = share_with(900)
    pausing = threading.Thread(target=share.pause, args=(0,))
    pausing.start()
    while pausing.is_alive():
        share.count(share.unindexed - 1)
        pausing.join(0.01)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bulk loads wait for room, not for a time."""
    monkeypatch.setattr(backlog_module, "PAUSE_S_MAX", 0.0)
    monkeypatch.setattr(backlog_module, "ROOM_S_MAX", 60.0)


@pytest.mark.usefixtures("patient")
def test_a_bulk_load_waits_until_there_is_room_for_its_events() -> None:
    share = share_with(1000)
    waiting = threading.Thread(target=share.pause, args=(2,))
    waiting.start()
    for unindexed in (950, 900, 1000 - 2 * EXPECTED_EVENT_BYTES + 1):
        share.count(unindexed)
        waiting.join(0.02)
        assert waiting.is_alive(), f"it was admitted at {unindexed}"
    share.count(1000 - 2 * EXPECTED_EVENT_BYTES)
    waiting.join(10)
    assert not waiting.is_alive()
    share.reserve(2, is_bulk=True)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("end", [lambda share: share.backlog.interrupt(), lambda share: share.failed(OSError("full"))])
def test_a_wait_for_room_ends_with_the_server_and_with_a_failed_index(end: Callable[[LogBacklog], None]) -> None:
    share = share_with(1000)
    waiting = threading.Thread(target=share.pause, args=(1,))
    waiting.start()
    while waiting.is_alive():
        end(share)
        waiting.join(0.01)
    with pytest.raises(Overloaded):
        share.reserve(1, is_bulk=True)


def test_a_wait_for_room_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "ROOM_S_MAX", 0.01)
    share = share_with(1000)
    share.pause(1)
    with pytest.raises(Overloaded):
        share.reserve(1, is_bulk=True)


def test_what_is_on_its_way_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    share = share_with(500)
    share.reserve(3, is_bulk=True)
    with pytest.raises(Overloaded):
        share.reserve(1, is_bulk=True)
    share.give_back(3)
    share.reserve(1, is_bulk=True)
    assert share.backlog.bytes == 500 + EXPECTED_EVENT_BYTES


def test_nobody_is_woken_while_another_log_fills_the_backlog() -> None:
    backlog, woken = Backlog(1000), []
    full, share = backlog.share("full"), backlog.share("waiting", lambda: woken.append(1))
    full.count(1200)
    share.count(100)
    with pytest.raises(Overloaded):
        share.reserve(1, is_bulk=True)
    share.count(0)
    assert not woken
    full.count(900)
    full.count(800)
    assert woken == [1], "once"


def test_the_index_is_called_when_half_of_the_ceiling_is_reached() -> None:
    backlog = Backlog(1000)
    waiting = threading.Thread(target=lambda: backlog.wait_until_urgent(60))
    waiting.start()
    share = share_with(400, backlog)
    assert not backlog.is_urgent
    share.count(500)
    waiting.join(60)
    assert not waiting.is_alive()


def test_what_is_on_its_way_does_not_make_indexing_urgent() -> None:
    """There is nothing to index yet."""
    share = share_with(0)
    share.reserve(100, is_bulk=False)
    assert share.backlog.bytes > share.backlog.bytes_max and not share.backlog.is_urgent


def test_an_answer_after_the_log_was_closed_counts_nothing() -> None:
    share = share_with(100)
    share.reserve(2, is_bulk=False)
    share.close()
    share.give_back(2)
    assert share.backlog.bytes == share.backlog.unindexed == 0
