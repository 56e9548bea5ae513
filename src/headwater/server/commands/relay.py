"""`headwater relay`: from an outbox table into a log."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import threading
from typing import TYPE_CHECKING

import click

from ...core.errors import EventLogError
from .examples import examples
from .output import server_options

if TYPE_CHECKING:
    from ...client import Server

TABLE = "headwater_outbox"


class OutboxFailed(EventLogError):
    """The database of the outbox refuses."""


@click.command(
    epilog=examples("headwater relay app.sqlite orders", "headwater relay postgresql://app@db/app orders --once")
)
@click.argument("database")
@click.argument("log")
@click.option("--table", default=TABLE, show_default=True, help="The outbox table.")
@click.option("--once", is_flag=True, help="End when the table is empty.")
@click.option("--interval-s", type=click.FloatRange(min=0.01), default=0.2, show_default=True,
              help="How often to look for new rows.")  # fmt: skip
@server_options
def relay(server: Server, database: str, log: str, table: str, once: bool, interval_s: float) -> None:
    """Append what an outbox table holds, exactly once.

    DATABASE is a SQLite file, or postgresql://...; LOG gets the events. The table is made where it is missing. May be
    stopped or killed at any time, and started again.
    """
    from ...client.outbox import Relay, connect_database, create_table

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with contextlib.closing(connect_database(database)) as connection:
        try:
            create_table(connection, table)
            connection.commit()
            running = Relay(connection, server.log(log), table)
            if once:
                while running.run_once():
                    pass
            else:
                running.run(stopped, interval_s)
        except Exception as error:
            if isinstance(error, sqlite3.Error) or type(error).__module__.startswith("psycopg"):
                raise OutboxFailed(f"{database}: {error}") from None
            raise
