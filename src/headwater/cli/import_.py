"""`headwater import`: a file of events into a log.

An import may be interrupted and run again at any time: ids are those of the file, or derived from it, so the log
recognises what it has (docs/guides/import.md).
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ..core.errors import DuplicateEventId, InvalidInput
from ..core.event import Event
from ..core.limits import APPEND_BYTES_MAX
from ..formats import cloudevents
from ..formats.envelope import ndjson_events
from ..formats.files.detection import BEGINNING_BYTES, FORMATS, guess_format
from ..formats.files.ocel import ocel_events
from ..formats.files.tabular import TableMapping, table_events
from ..formats.settings.path_argument import LocalPath
from .output import console, counted, examples, json_option, pair, server_options, show_json

if TYPE_CHECKING:
    from ..client import BulkProgress, Server


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
@click.option("--format", "format", type=click.Choice(FORMATS), help="What FILE holds.  [default: guessed]")
@click.option("--create", is_flag=True, help="Create LOG if it is not there.")
@click.option("--source", help="The source of events that name none.  [default: the file's name]")
@click.option("--batch", type=click.IntRange(1, 65_536), default=1000, show_default=True, help="Events of one append.")
@click.option("--partition", type=click.IntRange(min=0), help="The partition to append to.")
@click.option("--sort", "is_sorted", is_flag=True, help="Order the events by their time first (in memory).")
@click.option("--type-column", metavar="COLUMN", help="CSV: the event type.  [default: guessed by name]")
@click.option("--time-column", metavar="COLUMN", help="CSV: the event's time.  [default: guessed by name]")
@click.option("--time-format", metavar="FORMAT", help="CSV: as of strptime.  [default: ISO 8601 or seconds since 1970]")
@click.option("--id-column", metavar="COLUMN", help="CSV: the event's id.  [default: derived from file, row and place]")
@click.option("--tag", "tags", multiple=True, metavar="COLUMN[=KEY]", help="CSV: a column that becomes a tag.")
@click.option("--delimiter", metavar="CHARACTER", help="CSV.  [default: guessed from the first line]")
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
    is_sorted: bool,
    tags: tuple[str, ...],
    as_json: bool,
    **columns: str | None,
) -> None:
    """Load a file of events into a log.

    In batches, with a progress bar. Files that end in .gz are unpacked. If it is interrupted, run it again: it goes on
    where it was, and adds no event twice.
    """
    from ..client import append_all

    target = server.create(log) if create and log not in server.logs() else server.log(log)
    started = time.perf_counter()
    with _reading(file) as opened:
        format = format or guess_format(file.name, opened.peek(BEGINNING_BYTES)[:BEGINNING_BYTES])
        mapping = TableMapping(source or file.name.removesuffix(".gz"), tags=_tag_columns(tags), **columns)
        events = _events(opened, format, mapping)
        if is_sorted:
            events = iter(sorted(events, key=_moment))
        try:
            with _progress_bar(f"{file.name} ({format})", opened) as show:
                done = append_all(target, events, partition=partition, batch_events=batch, on_progress=show)
        except (InvalidInput, DuplicateEventId) as error:
            raise _in_the_file(error, file) from None
    _show_import(done, time.perf_counter() - started, as_json)


class _Opened:
    """A file being read: its bytes, unpacked, and how far it is, packed."""

    def __init__(self, raw: IO[bytes], unpacked: io.BufferedReader, size: int) -> None:
        self.raw, self.unpacked, self.size = raw, unpacked, size
        self.text: io.TextIOWrapper | None = None

    def lines(self) -> Iterable[str]:
        """The lines of a text; kept here, because the wrapper closes the file when it is collected."""
        self.text = io.TextIOWrapper(self.unpacked, "utf-8-sig", newline="")
        return self.text

    def peek(self, count: int) -> bytes:
        """The beginning, without consuming it."""
        return self.unpacked.peek(count)


@contextmanager
def _reading(file: Path) -> Iterator[_Opened]:
    with file.open("rb") as raw:
        unpacked: Any = gzip.GzipFile(fileobj=raw) if file.name.endswith(".gz") else raw
        buffered = io.BufferedReader(unpacked, BEGINNING_BYTES)
        try:
            yield _Opened(raw, buffered, file.stat().st_size)
        except (gzip.BadGzipFile, EOFError) as error:
            raise InvalidInput(f"the gzip file is truncated or damaged: {error}", str(file)) from None
        except UnicodeDecodeError as error:
            raise InvalidInput(f"it is not UTF-8: {error.reason} at byte {error.start}", str(file)) from None


def _events(opened: _Opened, format: str, mapping: TableMapping) -> Iterator[Event]:
    if format == "csv":
        csv.field_size_limit(APPEND_BYTES_MAX)  # as large as an event may be, not 128 KiB
        return table_events(opened.lines(), mapping)
    if format == "ocel":
        return iter(ocel_events(opened.unpacked.read(), mapping.source))
    if format == "cloudevents":
        return _cloudevents(opened)
    return ndjson_events(opened.unpacked, mapping.source)


def _cloudevents(opened: _Opened) -> Iterator[Event]:
    """A batch (one JSON array), or one event per line."""
    if opened.peek(BEGINNING_BYTES).lstrip().startswith(b"["):
        yield from cloudevents.events_from_json_batch(opened.unpacked.read())
        return
    for number, line in enumerate(opened.unpacked, 1):
        if line.strip():
            try:
                yield cloudevents.event_from_json(line)
            except InvalidInput as error:
                raise InvalidInput(str(error), f"line {number}") from None


def _tag_columns(tags: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple(pair(tag, "--tag") if "=" in tag else (tag, tag) for tag in tags)


def _moment(event: Event) -> tuple[bool, float]:
    from datetime import datetime

    time = event.attributes.get("time")
    return (True, datetime.fromisoformat(time).timestamp()) if time else (False, 0.0)


@contextmanager
def _progress_bar(what: str, opened: _Opened) -> Iterator[Any]:
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


def _in_the_file(error: InvalidInput | DuplicateEventId, file: Path) -> InvalidInput:
    """The error with the place in the file, so that the culprit can be found."""
    if isinstance(error, InvalidInput):
        return InvalidInput(str(error), str(file))
    stored = "twice in the file" if error.sequence_number is None else f"that of event {error.sequence_number}"
    problem = f"id {error.id!r} is {stored}, which is a different one"
    return InvalidInput(problem, f"{file}: events[{error.index}]")


def _show_import(done: BulkProgress, seconds: float, as_json: bool) -> None:
    if as_json:
        show_json({"events": done.events, "appended": done.appended, "stored": done.stored, "last": done.last})
        return
    click.echo(
        f"{counted(done.events, 'event')}: {done.appended:,} appended, {done.stored:,} were there already; "
        f"{seconds:.1f} s ({done.events / seconds:,.0f}/s)"
    )
