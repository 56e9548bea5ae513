"""`headwater append`, `read`, `tail`, `query`: append, show and count events on a server."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

import click

from ..core.condition import AppendCondition
from ..core.event import Event, SequencedEvent
from ..core.query import Query
from ..formats.envelope import encode_event, ndjson_events
from ..formats.querytext import parse_query
from . import output

if TYPE_CHECKING:
    from ..client import Server

STDIN = "-"


@click.command(
    epilog=output.examples(
        "headwater append orders --type OrderPlaced --tag order:17 --data '{\"total\":3}'",
        "headwater append orders --type OrderPaid --tag order:17 --fail-if-match 'type=OrderPaid tag=order:17'",
        "headwater append orders --events - < events.ndjson",
    )
)
@click.argument("log")
@click.option("--type", "type", metavar="TYPE", help="The event type.")
@click.option("--tag", "tags", multiple=True, metavar="KEY[:VALUE]", help="A tag. Repeatable.")
@click.option("--data", default="", metavar="TEXT", help="The payload; - reads it from standard input.")
@click.option("--id", "id", default="", help="The event's id.  [default: a UUIDv7]")
@click.option("--source", default="", help="The CloudEvents source.")
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="A CloudEvents attribute.")
@click.option("--group-key", default="", help="Events with the same key share a partition.")
@click.option("--events", type=click.File("rb"), help="An NDJSON file with any number of events; - for standard input.")
@click.option("--fail-if-match", metavar="QUERY", help="Append only if no event matches.")
@click.option("--after", type=click.IntRange(min=0), help="With --fail-if-match: only check events after this number.")
@click.option("--partition", type=click.IntRange(min=0), help="The partition to append to.")
@output.json_option
@output.server_options
def append(
    server: Server,
    log: str,
    type: str | None,
    tags: tuple[str, ...],
    data: str,
    id: str,
    source: str,
    attributes: tuple[str, ...],
    group_key: str,
    events: IO[bytes] | None,
    fail_if_match: str | None,
    after: int | None,
    partition: int | None,
    as_json: bool,
) -> None:
    """Append events to a log.

    Appends one event, or all events of a file atomically, and prints their numbers once they are durable. A line of the
    file is an event as printed by `headwater read --json`, or only the event: {"type": "OrderPlaced", "tags":
    ["order:17"], "data": "..."}.
    """
    if (type is None) == (events is None):
        raise click.UsageError("use --type and the other options for one event, or --events FILE")
    if after is not None and fail_if_match is None:
        raise click.UsageError("--after requires --fail-if-match QUERY")
    if events is not None:
        given = list(ndjson_events(events))
    else:
        assert type is not None
        payload = sys.stdin.buffer.read() if data == STDIN else data.encode()
        named = dict(output.pair(attribute, "--attribute") for attribute in attributes)
        given = [Event(type, payload, tuple(tags), id, source, named, group_key)]
    condition = AppendCondition(parse_query(fail_if_match), after or 0) if fail_if_match is not None else None
    with output.in_doubt(lambda ids: output.how_to_repeat(given, ids)):
        result = server.log(log).append(given, condition, partition=partition)
    if as_json:
        output.show_json(result._asdict())
    else:
        numbers = f"event {result.first}" if len(given) == 1 else f"events {result.first} to {result.last}"
        click.echo(f"{numbers} {'already existed' if result.was_stored else 'appended'}")


@click.command(
    epilog=output.examples(
        "headwater read orders --tag order:17",
        "headwater read orders --backwards --limit 5",
        "headwater read orders --query 'type=OrderPlaced or tag=vip' --json > events.ndjson",
    )
)
@click.argument("log")
@output.query_options
@click.option("--from", "from_", type=click.IntRange(min=1), help="Start at this number.")
@click.option("--after", type=click.IntRange(min=0), help="Start after this number.")
@click.option("--upto", type=click.IntRange(min=0), help="Stop at this number (inclusive), in either direction.")
@click.option("--backwards", is_flag=True, help="Newest first.")
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of events.")
@output.partition_option
@output.json_option
@output.server_options
def read(server: Server, log: str, query: Query, as_json: bool, **bounds: Any) -> None:
    """Read the events of a log.

    Prints matching events up to the current end of the log, one per line.
    """
    output.check_bounds(bounds)
    _show_all(server.log(log).read(query, **bounds), as_json)


@click.command(
    epilog=output.examples("headwater tail orders -f", "headwater tail orders -n 3 --type OrderPlaced --json")
)
@click.argument("log")
@click.option(
    "-n", "--number", type=click.IntRange(min=0), default=10, show_default=True, help="Number of newest events."
)
@click.option("-f", "--follow", is_flag=True, help="Continue with new events until interrupted.")
@output.query_options
@output.partition_option
@output.json_option
@output.server_options
def tail(
    server: Server, log: str, number: int, follow: bool, query: Query, partition: int | None, as_json: bool
) -> None:
    """Show the newest events, and follow new ones with -f.

    Prints the newest matching events in log order; with -f, also new ones.
    """
    target = server.log(log)
    reading = target.read(query, backwards=True, limit=number, partition=partition)
    _show_all(list(reading)[::-1], as_json)
    if follow:
        with target.subscribe(query, after=reading.head, partition=partition) as subscription:
            _show_all(subscription, as_json, follows=True)


@click.command(
    epilog=output.examples(
        "headwater query orders all", "headwater query orders 'type=OrderPlaced tag=order:17 or tag=vip'"
    )
)
@click.argument("log")
@click.argument("text", metavar="QUERY")
@output.partition_option
@output.json_option
@output.server_options
def query(server: Server, log: str, text: str, partition: int | None, as_json: bool) -> None:
    """Count matching events, with their types and times.

    \b
    A query is "all", or alternatives joined by "or". In an alternative:
      type=TYPE      repeated: any of these types
      tag=TAG        repeated: all of these tags; a bare KEY also matches KEY:anything
      exact_tag=TAG  the same, but a bare KEY matches only that tag
    Quote words with spaces: "tag='city:New York'". The JSON form of the HTTP API is also accepted.
    """
    summary = _Summary(server.log(log).read(parse_query(text), partition=partition))
    if as_json:
        output.show_json(summary.as_json())
        return
    click.echo(f"{output.counted(summary.count, 'event')} {'matches' if summary.count == 1 else 'match'}")
    for word, event in (("first", summary.first), ("last", summary.last)):
        if event is not None:
            click.echo(f"{word:>5}: {event.sequence_number:,}, recorded {output.show_time(event.recorded_at)}")
    if summary.count:
        click.echo()
        output.show_table(["type", "events", "first", "last"], summary.rows())


class _Summary:
    """Counts matching events while they are read."""

    def __init__(self, events: Iterable[SequencedEvent]) -> None:
        self.first: SequencedEvent | None = None
        self.last: SequencedEvent | None = None
        self._counts: Counter[str] = Counter()
        self._firsts: dict[str, int] = {}
        self._lasts: dict[str, int] = {}
        for event in events:
            self.first = self.first or event
            self.last = event
            self._counts[event.type] += 1
            self._firsts.setdefault(event.type, event.sequence_number)
            self._lasts[event.type] = event.sequence_number

    @property
    def count(self) -> int:
        """The number of all events."""
        return self._counts.total()

    def rows(self) -> list[tuple[str, int, int, int]]:
        """Type, count, first and last number; the most frequent first."""
        return [(type, count, self._firsts[type], self._lasts[type]) for type, count in self._counts.most_common()]

    def as_json(self) -> dict[str, object]:
        """The same as JSON, for programs."""
        types = [dict(zip(("type", "events", "first", "last"), row, strict=True)) for row in self.rows()]
        first, last = (event and event.sequence_number for event in (self.first, self.last))
        return {"events": self.count, "first": first, "last": last, "types": types}


def _show_all(events: Iterable[SequencedEvent], as_json: bool, *, follows: bool = False) -> None:
    out = sys.stdout.buffer
    for event in events:
        if not as_json:
            output.show_event(event)
            continue
        out.write(encode_event(event) + b"\n")
        if follows:
            out.flush()
    out.flush()
