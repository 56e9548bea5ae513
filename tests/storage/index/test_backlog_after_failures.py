"""What fails or ends in the middle leaves the account of unindexed bytes right, and wakes whoever waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.core import Query, local
from headwater.core.errors import AppendConditionFailed, Overloaded, StorageCorrupted
from headwater.storage import Engine, StoredLog
from headwater.storage.catalog.backup_lock import backing_up
from headwater.storage.index.backlog import FAILURES_MAX, Backlog, LogBacklog
from headwater.storage.maintenance.tasks import FILES_MAX
from headwater.storage.maintenance.worker import IndexWorker, Job, do

from ..builders import engine, event, numbers, unless

pytestmark = pytest.mark.usefixtures("in_line")
CEILING = 100_000


@pytest.fixture
def store(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine whose appends from threads do not wait for the index."""
    monkeypatch.setattr(local, "INDEX_WAIT_S", 0.0)
    with engine(data, unindexed_bytes_max=CEILING) as opened:
        yield opened


def append(log: StoredLog, bytes_min: int) -> None:
    """Append until this log has so much unindexed."""
    while log.backlog.unindexed < bytes_min:
        start = log.head()
        log.append([event("T", f"n:{start + number}") for number in range(20)])


def index_urgently(store: Engine) -> None:
    """What maintenance does between two rounds."""
    store._upkeep.index_urgently(store.opened(), store.backlog, lambda: True)


def test_an_idle_log_whose_urgent_indexing_failed_is_tried_in_the_next_round(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = [store.create(f"idle{number}") for number in range(4)]
    for log in idle:
        append(log, CEILING // 9)
    for _ in range(3):
        store.maintain()
    busy = store.create("busy")
    append(busy, CEILING // 2)
    with monkeypatch.context() as patch:
        patch.setattr(IndexWorker, "run", lambda self, job: "OSError: no space")
        index_urgently(store)
    assert all(log.backlog.is_failing for log in idle)
    store.maintain()
    assert not any(log.backlog.is_failing for log in store.opened())


def test_a_log_that_is_deleted_while_it_is_indexed_counts_no_more(
    store: Engine, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are still there: a backup goes on."""
    log = store.create("orders")
    append(log, CEILING * 3 // 4)

    def run(self: IndexWorker, job: Job) -> str:
        if log.is_closed:
            return "the worker process died repeatedly"
        problem = do(job).problem
        append(log, CEILING)
        store.delete("orders")
        return problem

    monkeypatch.setattr(IndexWorker, "run", run)
    with backing_up(data):
        store.maintain()
    assert store.backlog.unindexed == store.backlog.bytes == 0


def test_a_log_that_cannot_be_opened_has_no_share(data: Path) -> None:
    with engine(data) as store:
        directory = store.create("orders").directory
        append(store.open("orders"), 1000)
    for path in directory.glob("log/*"):
        path.write_bytes(b"damaged" + path.read_bytes()[7:])
    with engine(data) as store:
        for _ in range(3):
            with pytest.raises(StorageCorrupted):
                store.open("orders")
        assert not store.backlog._shares


def stuck(backlog: Backlog, unindexed: int) -> LogBacklog:
    """A log whose indexing fails again and again."""
    share = backlog.share("stuck")
    share.count(unindexed)
    for _ in range(FAILURES_MAX):
        share.failed(OSError("no space"))
    return share


def test_who_waits_is_woken_though_another_log_cannot_be_indexed() -> None:
    backlog, woken = Backlog(1000), []
    stuck(backlog, 1200)
    share = backlog.share("orders", lambda: woken.append(1))
    share.count(1000)
    with pytest.raises(Overloaded):
        share.reserve(1, is_bulk=True)
    share.count(0)
    assert woken


def test_a_log_that_cannot_be_indexed_does_not_make_the_indexing_of_others_urgent() -> None:
    backlog = Backlog(1000)
    failing = stuck(backlog, 1200)
    assert not backlog.is_urgent
    failing.succeeded()
    assert backlog.is_urgent


def test_many_small_parts_of_the_newest_segment_are_merged(store: Engine) -> None:
    """They come where many logs have a little each, and each is a file, a map and a look-up."""
    log = store.create("orders")
    for _ in range(75):
        append(log, CEILING // 2)
        store.maintain()
    newest = log.frames.segments[-1].first
    assert len([file for file in log.index.files if file.first >= newest]) <= FILES_MAX + 1
    for number in range(0, log.head(), 97):
        assert numbers(log.read(Query.where(tags=[f"n:{number}"]))) == [number + 1]


def test_small_logs_stay_refused_until_something_of_them_is_indexed(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that finds no full part to index is no success."""
    logs = [store.create(f"log{number}") for number in range(12)]
    for log in logs:
        append(log, CEILING // 13)
    with monkeypatch.context() as patch:
        patch.setattr(IndexWorker, "run", lambda self, job: "OSError: no space")
        for rounds in range(2 * FAILURES_MAX):
            store.maintain()
            assert all((log.backlog.problem is not None) == (rounds + 1 >= FAILURES_MAX) for log in logs)
    store.maintain()
    assert not any(log.backlog.is_failing for log in logs)
    assert store.backlog.unindexed == 0


def test_what_the_index_does_not_know_is_not_removed_though_the_worker_made_its_files(
    data: Path, small_segments: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed between the files and the answer: what is trimmed is kept as history by those that are known."""

    def dies_afterwards(self: IndexWorker, job: Job) -> str:
        do(job)
        return "the worker process died repeatedly"

    with engine(data) as store:
        log = store.create("orders")
        for number in range(300):
            log.append([event("T", f"n:{number}")])
        log.trim(log.head() + 1)
        with monkeypatch.context() as patch:
            patch.setattr(IndexWorker, "run", dies_afterwards)
            for _ in range(2):
                store.maintain()
    with engine(data) as store:
        log = store.open("orders")
        for _ in range(2):
            store.maintain()
        assert len(log.frames.segments) == 1
    with engine(data) as store, pytest.raises(AppendConditionFailed):
        store.open("orders").append([event()], unless(tags=["n:7"]))
