"""`headwater import`: loads a file of events into a log.

An import can be interrupted and run again at any time: ids are taken or derived from the file, so the log recognises
events that it already contains (docs/guides/import.md).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.attribute_rules import time_order
from ..core.errors import DuplicateEventId, InvalidInput
from ..core.event import Event
from ..formats.files.detection import BEGINNING_BYTES, FORMATS, guess_format
from ..formats.files.new_file import check_place, new_file
from ..formats.files.tabular import TableMapping
from ..formats.settings.path_argument import LocalPath
from .import_rows import Opened, Quarantine, Row, opened_file, rows_of
from .output import AGAIN, console, counted, examples, in_doubt, json_option, pair, server_options, show_json

if TYPE_CHECKING:
    from ..client import BulkProgress, Server

_EVENT_INDEX = re.compile(r"events\[(\d+)\]\.?")
SMALLER = f"{AGAIN}; if that fails too, use a smaller --batch"
"""What to do if the outcome of an import is unknown: behind a gateway that rejects bodies of this size, a repetition
would fail in the same way.
"""


@click.command(
    "import",
    epilog=examples(
        "headwater import events.ndjson orders",
        "headwater import receipt.csv.gz permits --type-column concept:name --tag case:concept:name=case",
        "headwater import recruiting.jsonocel hiring",
    ),
)
@click.argument("file", type=LocalPath(exists=True, dir_okay=False, path_type=Path))
@click.argument("log")
@click.option("--format", "format", type=click.Choice(FORMATS), help="Format of FILE.  [default: guessed]")
@click.option("--create", is_flag=True, help="Create LOG if it does not exist.")
@click.option("--source", help="The source of events that do not name one.  [default: the file name]")
@click.option("--batch", type=click.IntRange(1, 65_536), default=1000, show_default=True, help="Events per append.")
@click.option("--partition", type=click.IntRange(min=0), help="The partition to append to.")
@click.option("--quarantine", type=LocalPath(dir_okay=False, path_type=Path),
              help="Write invalid rows to this file, with their line numbers, and import the others.  "
                   "[default: stop at the first one]")  # fmt: skip
@click.option("--sort", "is_sorted", is_flag=True, help="Sort the events by time first (in memory).")
@click.option("--type-column", metavar="COLUMN", help="CSV: the event type.  [default: guessed from the names]")
@click.option("--time-column", metavar="COLUMN", help="CSV: the event's time.  [default: guessed from the names]")
@click.option(
    "--time-format",
    metavar="FORMAT",
    help="CSV: strptime format of the time.  [default: ISO 8601 or seconds since 1970]",
)
@click.option("--id-column", metavar="COLUMN", help="CSV: the event's id.  [default: from file, row and position]")
@click.option("--tag", "tags", multiple=True, metavar="COLUMN[=KEY]", help="CSV: a column that becomes a tag.")
@click.option("--delimiter", metavar="CHARACTER", help="CSV: the delimiter.  [default: guessed from the first line]")
@json_option
@server_options
def import_(
    server: Server,
    file: Path,
    log: str,
    format: str | None,
    create: bool,
    source: str | None,
    batch: int,
    partition: int | None,
    quarantine: Path | None,
    is_sorted: bool,
    tags: tuple[str, ...],
    as_json: bool,
    **columns: str | None,
) -> None:
    """Load a file of events into a log.

    Appends in batches, with a progress bar. Files that end in .gz are decompressed. If it is interrupted, run it again:
    it continues without duplicates.
    """
    from ..client import append_all
    from ..client.bulk import BATCHES_AHEAD

    if quarantine is not None:
        check_place(quarantine)
    target = server.create(log) if create and log not in server.logs() else server.log(log)
    started = time.perf_counter()
    with opened_file(file) as opened:
        format = format or guess_format(file.name, opened.peek(BEGINNING_BYTES)[:BEGINNING_BYTES])
        mapping = TableMapping(source or file.name.removesuffix(".gz"), tags=_tag_columns(tags), **columns)
        rows = rows_of(opened, format, mapping)
        if is_sorted:
            rows = _by_time(rows)
        with new_file(quarantine) if quarantine else nullcontext() as kept:
            put = Quarantine(kept, (BATCHES_AHEAD + 3) * batch)
            try:
                with in_doubt(lambda _: SMALLER), _progress_bar(f"{file.name} ({format})", opened) as show:
                    done = append_all(
                        target,
                        put.events(rows),
                        partition=partition,
                        batch_events=batch,
                        on_progress=show,
                        on_refused=put.refused if quarantine else None,
                    )
            except (InvalidInput, DuplicateEventId) as error:
                raise _in_the_file(error, file, put) from None
        _show_import(done, put.rows, quarantine, time.perf_counter() - started, as_json)
        if put.failure is not None:
            raise _in_the_file(put.failure, file, put) if isinstance(put.failure, InvalidInput) else put.failure


def _tag_columns(tags: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple(pair(tag, "--tag") if "=" in tag else (tag, tag) for tag in tags)


def _by_time(rows: Iterable[Row]) -> Iterator[Row]:
    def moment(row: Row) -> tuple[int, str]:
        return time_order(row.found.attributes.get("time", "") if isinstance(row.found, Event) else "")

    yield from sorted(rows, key=moment)


@contextmanager
def _progress_bar(what: str, opened: Opened) -> Iterator[Any]:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[events]:,} events, {task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
    )
    started = time.perf_counter()
    with Progress(*columns, console=console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=opened.size, events=0, rate=0.0)

        def show(done: BulkProgress) -> None:
            rate = done.events / (time.perf_counter() - started)
            bar.update(task, completed=opened.raw.tell(), events=done.events, rate=rate)

        yield show


def _in_the_file(error: InvalidInput | DuplicateEventId, file: Path, put: Quarantine) -> InvalidInput:
    """The error with its place in the file, so that the user can find the row."""
    if isinstance(error, DuplicateEventId):
        problem = f"id {error.id!r} already belongs to event {error.sequence_number}, which differs"
        return InvalidInput(problem, f"{file}: {put.place(error.index)}")
    if (found := _EVENT_INDEX.match(error.where)) is None:
        return InvalidInput(str(error), str(file))
    error.move(error.where[found.end() :])
    return InvalidInput(str(error), f"{file}: {put.place(int(found[1]))}")


def _show_import(done: BulkProgress, kept: int, quarantine: Path | None, seconds: float, as_json: bool) -> None:
    events = done.appended + done.stored
    if as_json:
        counts = {"events": events, "appended": done.appended, "stored": done.stored, "last": done.last}
        show_json(counts | ({"quarantined": kept} if quarantine else {}))
        return
    click.echo(
        f"{counted(events, 'event')}: {done.appended:,} appended, {done.stored:,} already existed; "
        f"{seconds:.1f} s ({events / seconds:,.0f}/s)"
    )
    if kept:
        click.echo(f"{counted(kept, 'row')} that are not valid events were written to {quarantine}")
