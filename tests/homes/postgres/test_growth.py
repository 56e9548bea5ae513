"""What a home in PostgreSQL takes: trims free it, old transactions show, and commits bear them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.schema import make_tables
from headwater.storage.frames.frame_log import Head, nobody

from ...waiting import eventually
from ..postgres_server import Postgres, fresh_home
from .test_home import KEY, frames

CYCLES = 10
CYCLE_FRAMES = 40
RETAINED_FRAMES = 160
FRAME_BYTES = 20_000


@pytest.fixture
def url() -> str:
    return fresh_home()


@pytest.fixture
def home(url: str) -> Iterator[PostgresHome]:
    home = PostgresHome(url)
    home.begin_term()
    home.create(KEY, 0)
    yield home
    home.close()


def append(home: PostgresHome, count: int, size: int = 10) -> int:
    """Commit so many frames, one by one; answers the number of the last."""
    head = home.head(KEY)
    assert head is not None
    for made in frames(head, count, data=b"x" * size):
        home.commit(KEY, [made], head, nobody)
        head = Head(made.last, made.crc, head.term)
    return head.number


def retained(url: str) -> int:
    with psycopg.connect(url) as connection:
        [[size]] = connection.execute("SELECT sum(octet_length(content)) FROM headwater.frame").fetchall()
        return int(size)


def test_the_table_of_frames_stays_as_large_as_what_is_retained(home: PostgresHome, url: str) -> None:
    last = append(home, RETAINED_FRAMES, FRAME_BYTES)
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(CYCLES):
            last = append(home, CYCLE_FRAMES, FRAME_BYTES)
            home.forget(KEY, last - RETAINED_FRAMES + 1)
            connection.execute("VACUUM headwater.frame")  # as autovacuum does
            assert home.growth().sizes["frame"] <= 1.5 * retained(url)


def test_a_vacuum_is_due_when_little_is_dead(url: str) -> None:
    with psycopg.connect(url) as connection:
        options = "SELECT reloptions FROM pg_class WHERE oid = {}"
        main = "'headwater.frame'::regclass"
        for table in (main, f"(SELECT reltoastrelid FROM pg_class WHERE oid = {main})"):
            assert connection.execute(options.format(table)).fetchone() == (["autovacuum_vacuum_scale_factor=0.05"],)


def test_an_old_transaction_is_told_with_the_rows_that_it_keeps(home: PostgresHome, url: str) -> None:
    assert home.growth().snapshot_s == 0
    with psycopg.connect(url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT FROM headwater.log")
        append(home, 20)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM headwater.log")
        eventually(lambda: home.growth().dead_rows["log"] >= 20)  # its session tells that at its end
        told = home.growth()
        assert told.snapshot_s > 0 and told.snapshot_transactions >= 20
        assert set(told.sizes) == {"frame", "log", "staged"}


KEPT = {"": "SELECT count(backend_xmin) FROM pg_stat_replication",
        "db_1": "SELECT count(xmin) FROM pg_replication_slots"}  # fmt: skip
"""How many standbys keep something, by the slot that they have."""


@pytest.mark.parametrize("slot", KEPT)
def test_what_a_standby_keeps_is_told(slot: str) -> None:
    with ExitStack() as closing:
        primary, home = primary_home(closing)
        asking = closing.enter_context(psycopg.connect(primary.url, autocommit=True))
        if slot:
            asking.execute("SELECT pg_create_physical_replication_slot(%s)", (slot,))
        feedback = f"hot_standby_feedback = on\nwal_receiver_status_interval = 1s\nprimary_slot_name = '{slot}'"
        standby = Postgres(feedback, standby_of=primary)
        closing.callback(standby.close)
        with psycopg.connect(standby.url) as old:
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT 1")
            eventually(lambda: asking.execute(KEPT[slot]).fetchone() == (1,))
            append(home, 20)
            assert home.growth().snapshot_transactions >= 20


def test_what_a_prepared_transaction_keeps_is_told() -> None:
    with ExitStack() as closing:
        primary, home = primary_home(closing, "max_prepared_transactions = 1")
        asking = closing.enter_context(psycopg.connect(primary.url, autocommit=True))
        for statement in ("BEGIN", "CREATE TABLE prepared ()", "PREPARE TRANSACTION 'old'"):
            asking.execute(statement)
        append(home, 20)
        told = home.growth()
        assert told.snapshot_s > 0 and told.snapshot_transactions >= 20


def primary_home(closing: ExitStack, further: str = "") -> tuple[Postgres, PostgresHome]:
    """A home on a database server of its own."""
    primary = Postgres(further)
    closing.callback(primary.close)
    with psycopg.connect(primary.url, autocommit=True) as connection:
        make_tables(connection)
    home = PostgresHome(primary.url)
    closing.callback(home.close)
    home.begin_term()
    home.create(KEY, 0)
    return primary, home


def test_a_commit_goes_on_where_another_statement_moved_the_row_of_the_head(home: PostgresHome, url: str) -> None:
    append(home, 3)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE headwater.log SET head = head")
        assert append(home, 2) == 5
        connection.execute("VACUUM FULL headwater.log")
        assert append(home, 2) == 7


def test_commits_do_not_look_for_the_row_of_the_head(home: PostgresHome, url: str) -> None:
    append(home, 200)
    home.close()  # then its sessions have told what they did
    with psycopg.connect(url, autocommit=True) as connection:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'headwater %'"
        eventually(lambda: connection.execute(sessions).fetchone() == (0,))
        query = "SELECT idx_scan + seq_scan FROM pg_stat_user_tables WHERE relid = 'headwater.log'::regclass"
        [[looks]] = connection.execute(query).fetchall()
    assert looks < 100
