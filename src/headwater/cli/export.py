"""`headwater export`: writes the events of a log to a file."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ..core.errors import InvalidInput
from ..core.event import SequencedEvent
from ..core.query import Query
from ..formats.envelope import encode_event
from ..formats.files.cloudevent_lines import exported_line
from ..formats.files.csv_rows import COLUMNS, row_of
from ..formats.files.new_file import check_place, new_file
from ..formats.settings.path_argument import LocalPath
from . import output

if TYPE_CHECKING:
    from ..client import Server

FORMATS = {"ndjson": "ndjson", "jsonl": "ndjson", "csv": "csv", "cloudevents": "cloudevents", "parquet": "parquet"}
"""Formats by file extension."""
STDOUT = "-"
PARQUET_ROWS = 10_000

Write = Callable[[list[SequencedEvent]], object]


@click.command(
    epilog=output.examples(
        "headwater export orders orders.ndjson.gz",
        "headwater export orders orders.parquet --tag vip",
        "headwater export orders - --format csv | head",
    )
)
@click.argument("log")
@click.argument("file", type=LocalPath(dir_okay=False, path_type=Path))
@click.option("--format", "format", type=click.Choice(sorted(set(FORMATS.values()))),
              help="Format of FILE.  [default: from its extension]")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@output.query_options
@click.option("--from", "from_", type=click.IntRange(min=1), help="Start at this number.")
@click.option("--after", type=click.IntRange(min=0), help="Start after this number.")
@click.option("--upto", type=click.IntRange(min=0), help="Stop at this number (inclusive).  [default: the current end]")
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of events.")
@output.partition_option
@output.json_option
@output.server_options
def export(
    server: Server,
    log: str,
    file: Path,
    format: str | None,
    overwrite: bool,
    query: Query,
    as_json: bool,
    **bounds: Any,
) -> None:
    """Write the events of a log to a file.

    Exports matching events up to the current end of the log; use - for standard output. FILE appears when it is
    complete; an existing file is only replaced with --overwrite. If its name ends in .gz, it is compressed.
    """
    output.check_bounds(bounds)
    if str(file) != STDOUT:
        check_place(file, overwrite=overwrite)
    format = format or _format_of(file)
    started = time.perf_counter()
    reading = server.log(log).read(query, **bounds)
    count = 0
    with _written(file, overwrite) as out, WRITERS[format](out, f"/logs/{log}") as write, _progress_bar(file) as show:
        while events := list(reading.next_page()):
            write(events)
            count += len(events)
            show(count)
    seconds = time.perf_counter() - started
    if as_json:
        output.show_json({"events": count, "head": reading.head})
    elif str(file) != STDOUT:
        rate = f"{seconds:.1f} s ({count / seconds:,.0f}/s)"
        click.echo(f"{output.counted(count, 'event')}; {file.stat().st_size:,} bytes; {rate}")


@contextmanager
def _ndjson(out: IO[bytes], source: str) -> Iterator[Write]:
    yield lambda events: out.writelines(encode_event(event) + b"\n" for event in events)


@contextmanager
def _cloudevents(out: IO[bytes], source: str) -> Iterator[Write]:
    yield lambda events: out.writelines(exported_line(event, source) + b"\n" for event in events)


@contextmanager
def _table(out: IO[bytes], source: str) -> Iterator[Write]:
    text = io.TextIOWrapper(out, "utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    yield lambda events: writer.writerows(map(row_of, events))
    text.detach()


@contextmanager
def _parquet(out: IO[bytes], source: str) -> Iterator[Write]:
    from ..formats.arrow.tables import SCHEMA, record_batch
    from ..formats.files.parquet import parquet_writer

    waiting: list[SequencedEvent] = []

    def write(events: list[SequencedEvent]) -> None:
        waiting.extend(events)
        if len(waiting) >= PARQUET_ROWS:
            writer.write_batch(record_batch(waiting))
            waiting.clear()

    with parquet_writer(out, SCHEMA) as writer:
        yield write
        if waiting:
            writer.write_batch(record_batch(waiting))


WRITERS = {"ndjson": _ndjson, "csv": _table, "cloudevents": _cloudevents, "parquet": _parquet}


def _format_of(file: Path) -> str:
    ending = file.name.removesuffix(".gz").rpartition(".")[2].lower()
    if ending not in FORMATS:
        raise InvalidInput(
            f"the extension of {file.name!r} does not name a known format; use one of {', '.join(FORMATS)}", "--format"
        )
    return FORMATS[ending]


@contextmanager
def _written(file: Path, overwrite: bool) -> Iterator[IO[bytes]]:
    """The file to write, compressed if its name says so; or standard output."""
    if str(file) == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with new_file(file, overwrite=overwrite) as raw:
        if file.name.endswith(".gz"):
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield raw


@contextmanager
def _progress_bar(file: Path) -> Iterator[Callable[[int], object]]:
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns: tuple[Any, ...] = (SpinnerColumn(), TextColumn(f"{file.name}: {{task.completed:,}} events"))
    stderr = output.console(stderr=True)
    with Progress(*columns, console=stderr, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        yield lambda count: bar.update(task, completed=count)
