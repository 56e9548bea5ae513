"""Trimmed events at a home: their frames go, their postings stay, and every copy judges by them."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headwater.core import LogSettings
from headwater.core.errors import AppendConditionFailed, ConditionNeedsTrimmedEvents, StorageUnavailable
from headwater.homes.postgres import staged
from headwater.homes.postgres.home import PostgresHome
from headwater.storage.home import port
from headwater.storage.log import StoredLog
from headwater.storage.segments import segment_log
from headwater.storage.segments.meta import HISTORY

from ..storage.builders import event, numbers, unless
from .test_engine import Serve, Server, add, contents, serve
from .test_following import Join, Replica, first, in_line, join, url

__all__ = ["first", "in_line", "join", "serve", "url"]
TRIMMED_TO = 21
LOG_FRAMES = "headwater.frame JOIN headwater.log ON log = id AND key <> '$state'"


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_log, "SEGMENT_EVENTS_MAX", 5)


def asked(url: str, query: str) -> object:
    """The one value that a query of the home's database answers."""
    with psycopg.connect(url, autocommit=True) as connection:
        [[value]] = connection.execute(query).fetchall()
        return value


def oldest(url: str) -> object:
    """The last number of the oldest frame of the log that the home has."""
    return asked(url, f"SELECT min(last) FROM {LOG_FRAMES}")


def postings(url: str) -> object:
    """How many files of postings the home has."""
    return asked(url, "SELECT count(*) FROM headwater.batch WHERE starts_with(name, 'history/')")


def trimmed(server: Server | Replica, settings: LogSettings | None = None, *, upto: int = 30) -> StoredLog:
    """A log of that server whose beginning is trimmed, and given back."""
    log = server.engine.create("orders", settings)
    add(log, upto - log.head(), begin=log.head())
    server.engine.maintain()
    log.trim(upto - 30 + TRIMMED_TO)
    server.engine.maintain()
    return log


def check_exact(log: StoredLog) -> None:
    """Conditions over trimmed events are judged as if these were there."""
    for index in (0, 7, 19, 25):
        with pytest.raises(AppendConditionFailed):
            log.append([event()], unless(tags=[f"n:{index}"]))
    log.append([event()], unless(tags=["n:none"]))


def test_a_trim_frees_the_home_and_a_new_copy_knows_what_was_trimmed(first: Server, serve: Serve, url: str) -> None:
    log = trimmed(first)
    assert log.known_from == 1
    assert oldest(url) == TRIMMED_TO
    first.close()
    second = serve("b")
    log = second.engine.open("orders")
    assert numbers(log.read()) == list(range(TRIMMED_TO, 31))
    check_exact(log)


def test_a_replica_that_begins_later_knows_what_was_trimmed_and_takes_over(first: Server, join: Join, url: str) -> None:
    trimmed(first)
    replica = join("a")
    assert numbers(replica.orders.read()) == list(range(TRIMMED_TO, 31))
    replica.take_over()
    check_exact(replica.orders)
    trimmed(replica, upto=60)
    assert oldest(url) == 51
    later = join("b").take_over()
    check_exact(later.orders)


def test_primaries_with_other_segments_bring_what_the_home_lacks(
    first: Server, join: Join, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(first.orders, 30)
    monkeypatch.setattr(segment_log, "SEGMENT_EVENTS_MAX", 7)
    replica = join("a").follow()
    trimmed(first)
    replica.follow()
    replica.engine.maintain()
    trimmed(replica.take_over(), upto=60)
    later = join("b").take_over()
    assert later.orders.known_from == 1
    check_exact(later.orders)


def test_a_copy_that_was_away_for_too_long_begins_again_with_the_postings(first: Server, join: Join) -> None:
    add(first.engine.create("orders"), 3)
    replica = join("a")
    trimmed(first)
    replica.follow()
    assert numbers(replica.orders.read()) == list(range(TRIMMED_TO, 31))
    check_exact(replica.take_over().orders)


def test_an_empty_copy_that_missed_the_first_events_of_a_log_begins_again(first: Server, join: Join) -> None:
    first.engine.create("orders")
    replica = join("a")
    assert contents(replica.orders) == []
    trimmed(first)
    replica.follow()
    check_exact(replica.take_over().orders)


def test_postings_that_a_copy_lost_are_fetched(first: Server, serve: Serve) -> None:
    log = trimmed(first)
    first.close()
    for file in (log.directory / HISTORY).iterdir():
        file.unlink()
    again = serve("first")
    check_exact(again.engine.open("orders"))


def test_frames_stay_while_the_home_has_no_place_for_their_postings(
    first: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresHome, "takes_postings", lambda self: False)
    trimmed(first)
    assert oldest(url) == 1


def test_frames_stay_while_their_postings_cannot_be_brought(
    first: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StorageUnavailable("away", reason="away")

    with monkeypatch.context() as context:
        context.setattr(PostgresHome, "keep_batch", fails)
        log = trimmed(first)
        assert oldest(url) == 1
        assert log.frames.segments[0].first == 1
    first.engine.maintain()
    assert oldest(url) == TRIMMED_TO


@pytest.mark.parametrize("pieces", [0, 1])
def test_postings_that_the_home_drops_while_they_are_fetched_leave_no_file(
    first: Server, join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(port, "PIECE_BYTES", 64)
    trimmed(first)
    with monkeypatch.context() as context:
        read = staged.piece
        context.setattr(staged, "piece", lambda *asked: read(*asked) if asked[-1] < pieces else None)
        with pytest.raises(StorageUnavailable, match="is dropping postings; try again"):
            numbers(join("a").orders.read())
    assert not list((tmp_path / "a").rglob("*.postings"))
    check_exact(join("a").take_over().orders)


def test_postings_go_at_the_home_when_the_log_keeps_none(first: Server, serve: Serve, url: str) -> None:
    trimmed(first)
    assert postings(url) != 0
    first.engine.change("orders", LogSettings(keeps_history=False), drops_at_most=None)
    trimmed(first, LogSettings(keeps_history=False), upto=60)
    assert postings(url) == 0
    first.close()
    log = serve("b").engine.open("orders")
    assert numbers(log.read()) == list(range(51, 61))
    with pytest.raises(ConditionNeedsTrimmedEvents):
        log.append([event()], unless(tags=["n:1"], after=5))


def test_the_postings_of_a_deleted_log_go_with_it(first: Server, url: str) -> None:
    trimmed(first)
    first.engine.delete("orders")
    first.engine.maintain()
    assert postings(url) == 0
    assert asked(url, "SELECT count(*) FROM headwater.staged") == 0
