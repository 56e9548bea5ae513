"""`headwater relay`: copies an outbox table, or FutoIn's own `evt_queue`, into a log."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ..core.errors import EventLogError, InvalidInput
from ..core.limits import show
from ..formats.settings.local_paths import scheme_of
from .output import AGAIN, counted, examples, in_doubt, server_options

if TYPE_CHECKING:
    from ..client import Server
    from ..client.event_queue import QueueRelay
    from ..core.log import EventLog

TABLE = "headwater_outbox"
_PASSWORD = re.compile(r"(://[^/@:]*):[^/]*(?=@)")


class OutboxFailed(EventLogError):
    """The database of the outbox reported an error."""


@click.command(
    epilog=examples(
        "headwater relay app.sqlite orders",
        "headwater relay postgresql://app@db/app orders --once",
        "headwater relay mysql://app:secret@db/app orders --futoin --move --owner 1=alice",
    )
)
@click.argument("database")
@click.argument("log")
@click.option("--table", help=f"The outbox table: {TABLE}, or evt_queue with --futoin.")
@click.option("--futoin", is_flag=True, help="Read the evt_queue table of FutoIn's own implementation.")
@click.option("--move", is_flag=True, help="With --futoin: copy all events and evt_consumers once and delete nothing.")
@click.option(
    "--owner", "owners", multiple=True, metavar="ID=NAME", help="With --move: the Headwater user for a FutoIn user id."
)
@click.option(
    "--source", default="", help="With --futoin: the source of the events, /futoin/DATABASE/TABLE by default."
)
@click.option("--once", is_flag=True, help="Exit when the table is empty; print how many rows were appended.")
@click.option("--interval-s", type=click.FloatRange(min=0.01), default=0.2, show_default=True,
              help="Interval between checks for new rows.")  # fmt: skip
@server_options
def relay(
    server: Server,
    database: str,
    log: str,
    table: str | None,
    futoin: bool,
    move: bool,
    owners: tuple[str, ...],
    source: str,
    once: bool,
    interval_s: float,
) -> None:
    """Append the rows of an outbox table, exactly once.

    DATABASE is an existing SQLite file, postgresql://..., or mysql://USER:PASSWORD@HOST/DATABASE; LOG is the target.
    Creates the table if it does not exist, except FutoIn's. It can be killed and restarted at any time.
    """
    from ..client.event_queue import QUEUE, QueueRelay
    from ..client.outbox import Relay, connect_database, create_table

    if (move or source) and not futoin:
        raise click.UsageError("--move and --source require --futoin")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    if scheme_of(database) is None and not os.path.exists(database):
        problem = "no such file; expected an existing SQLite file, postgresql://... or mysql://..."
        raise InvalidInput(problem, show(database))
    with in_doubt(lambda _: AGAIN), _told(database), contextlib.closing(connect_database(database)) as connection:
        if futoin:
            queue = QueueRelay(connection, server.log(log), table or QUEUE, source)
            if move:
                _move(queue, server.log(log), owners)
                return
            running: Relay = queue
        else:
            create_table(connection, table or TABLE)
            connection.commit()
            running = Relay(connection, server.log(log), table or TABLE)
        if once:
            click.echo(f"{counted(sum(iter(running.run_once, 0)), 'row')} appended")
        else:
            running.run(stopped, interval_s)


def _move(queue: QueueRelay, log: EventLog, owners: tuple[str, ...]) -> None:
    from ..client.event_queue import move

    names = dict(each.partition("=")[::2] for each in owners)
    if not all(names) or not all(names.values()):
        raise click.UsageError(f"--owner: expected ID=NAME such as 1=alice, got {' '.join(owners)}")
    events, positions = move(queue, log, names)
    click.echo(f"{events} events of {queue.source}")
    for each in positions:
        click.echo(f"consumer {each.user} {each.component} after {each.after}")


@contextlib.contextmanager
def _told(database: str) -> Iterator[None]:
    """Convert the database's exceptions into OutboxFailed. The address is shown without its password."""
    try:
        yield
    except Exception as error:
        if isinstance(error, sqlite3.Error) or type(error).__module__.startswith(("psycopg", "pymysql")):
            place = _PASSWORD.sub(r"\1", database)
            raise OutboxFailed(f"{place}: {error}") from None
        raise
