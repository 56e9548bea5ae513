"""What the commands that talk to a server share: how they connect to it, and how they print for people and programs."""

from __future__ import annotations

import codecs
import functools
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ..core.errors import EventLogError, InvalidInput, OutcomeUnknown
from ..core.event import Event, SequencedEvent
from ..core.limits import show
from ..core.query import ALL, Query
from ..formats.querytext import parse_query
from ..formats.settings import client_variables
from ..formats.settings.declaration import InvalidArgument
from ..formats.settings.path_argument import LocalPath


def examples(*commands: str) -> str:
    """An epilog for click that prints each example on its own line, so that it can be copied."""
    return "\n".join(("\b", "Examples:" if len(commands) > 1 else "Example:", *(f"  {line}" for line in commands)))


if TYPE_CHECKING:
    from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound=Callable[..., Any])

AGAIN = "run it again"
DEFAULT_URL = "http://127.0.0.1:8080"
PREVIEW_CHARS = 100
PIPE_COLUMNS = 240
"""The maximum width of a table without a terminal."""
_QUOTED = re.compile(r"[\s'\"\\]")


@contextmanager
def in_doubt(how: Callable[[Sequence[str]], str]) -> Iterator[None]:
    """Explain how to repeat a command whose append has an unknown outcome, because its user cannot read an error's ids:
    the message of OutcomeUnknown ends with the text that `how` returns for the ids. After that repetition, the events
    are stored once.
    """
    try:
        yield
    except OutcomeUnknown as error:
        cause = "" if error.__cause__ is None else f"{error.__cause__}: "
        error.args = (f"{cause}it is unknown whether the events are in log {show(error.name)}; {how(error.ids)}",)
        raise


def how_to_repeat(given: Sequence[Event], ids: Sequence[str]) -> str:
    """How to repeat an append of the given events; events without an id were assigned one."""
    if all(event.id for event in given):
        return f"{AGAIN}; the events are stored only once"
    if len(ids) == 1:
        return f"{AGAIN} with --id {ids[0]}; the event is stored only once"
    return "\n".join(
        (f"{AGAIN} with these ids, one for each line of its input; the events are stored only once:", *ids)
    )


def server_options(function: F) -> F:
    """The options for the server and the credentials; the command gets a `headwater.client.Server` as `server`.

    They can also be given to the command's group (`server_options_of_group`).
    """

    @functools.wraps(function)
    def with_server(*args: Any, **options: Any) -> Any:
        from ..client import connect  # not at the top: the help does not need these imports

        given = {name: _nearest(name, options.pop(name)) for name in _SERVER_OPTIONS}
        is_verified = not given.pop("no_verify")
        try:
            connected = connect(given.pop("url"), **given, is_verified=is_verified, on_waiting=tell_waiting)
        except InvalidInput as error:
            raise InvalidArgument(error.problem, error.where) from None
        with connected as server:
            return function(*args, server=server, **options)

    for option in reversed(list(_SERVER_OPTIONS.values())):
        with_server = option(with_server)
    return with_server  # type: ignore[return-value]


def server_options_of_group(function: F) -> F:
    """The same options for a group: they are given before the name of the command."""

    @functools.wraps(function)
    def without_them(*args: Any, **options: Any) -> Any:
        return function(*args, **{name: value for name, value in options.items() if name not in _SERVER_OPTIONS})

    for option in reversed(list(_SERVER_OPTIONS.values())):
        without_them = option(without_them)
    return without_them  # type: ignore[return-value]


_SERVER_OPTIONS: Mapping[str, Callable[[R], R]] = {
    "url": click.option("--url", metavar="URL", envvar=client_variables.URL, default=DEFAULT_URL, show_default=True,
                        show_envvar=True,
                        help="The server. Several addresses, separated by commas, are tried in turn."),
    "user": click.option("--user", metavar="NAME", envvar=client_variables.USER, show_envvar=True, help="User name."),
    "password": click.option("--password", envvar=client_variables.PASSWORD, show_envvar=True,
                             help="Password; prefer the variable."),
    "token": click.option("--token", envvar=client_variables.TOKEN, show_envvar=True,
                          help="Bearer token; prefer the variable."),
    "ca_file": click.option("--ca-file", metavar="FILE", type=LocalPath(),
                            help="Certificates to trust with https.  [default: the system's]"),
    "no_verify": click.option("--no-verify", is_flag=True, help="With https, do not check the server's certificate."),
    "retry_s": click.option("--retry-s", metavar="SECONDS", type=click.FloatRange(min=0), default=10.0,
                            show_default=True, help="How long to retry while the server is unreachable or overloaded."),
}  # fmt: skip


def _nearest(name: str, value: Any) -> Any:
    """The value of an option: the command's own, or otherwise that of its group."""
    context, given = click.get_current_context(), ParameterSource.COMMANDLINE
    group = context.parent
    if context.get_parameter_source(name) is not given and group and group.get_parameter_source(name) is given:
        return group.params[name]
    return value


def tell_waiting(error: EventLogError) -> None:
    """Show on stderr why the command waits."""
    click.echo(f"headwater: {error}; trying again", err=True)


def counted(count: int, what: str) -> str:
    """A number and its noun: `1 event`, `2,000 events`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def show_nothing(text: str) -> None:
    """Show on stderr that a list is empty, and how entries are created."""
    click.echo(text, err=True)


def check_bounds(bounds: Mapping[str, Any]) -> None:
    """Raises click.UsageError if both --from and --after are given."""
    if bounds["from_"] is not None and bounds["after"] is not None:
        raise click.UsageError("use --from (inclusive) or --after (exclusive), not both")


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
partition_option = click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")


def query_options(function: F) -> F:
    """`--type`, `--tag`, `--exact-tag` and `--query`; the command gets a `Query` as `query`."""

    @click.option("--type", "types", multiple=True, metavar="TYPE", help="Only events of this type. Repeatable (any).")
    @click.option(
        "--tag", "tags", multiple=True, metavar="KEY[:VALUE]", help="Only events with this tag. Repeatable (all)."
    )
    @click.option(
        "--exact-tag",
        "exact_tags",
        multiple=True,
        metavar="TAG",
        help="Like --tag, but KEY matches only a tag without a value.",
    )
    @click.option("--query", "text", metavar="QUERY", help="A query; see `headwater query --help`.")
    @functools.wraps(function)
    def with_query(*args: Any, text: str | None, **options: Any) -> Any:
        terms = {name: options.pop(name) for name in ("types", "tags", "exact_tags")}
        return function(*args, query=_query(terms, text), **options)

    return with_query  # type: ignore[return-value]


def _query(terms: dict[str, Sequence[str]], text: str | None) -> Query:
    if text is not None:
        if any(terms.values()):
            raise click.UsageError("use --query, or --type, --tag and --exact-tag, not both")
        return parse_query(text)
    return Query.where(**terms) if any(terms.values()) else ALL


def show_json(value: object) -> None:
    """One JSON document on one line of stdout."""
    click.echo(json.dumps(value, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table on stdout. Columns of numbers are right-aligned."""
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for place, column in enumerate(columns):
        is_number = bool(cells) and all(isinstance(row[place], int) for row in cells)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
    console().print(table)


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr: as wide as the terminal, or PIPE_COLUMNS without one."""
    from rich.console import Console

    class Ending(Console):
        def on_broken_pipe(self) -> None:
            raise  # the command line handles the end of the command

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Ending(stderr=stderr, highlight=False, width=None if is_terminal else PIPE_COLUMNS)


def show_event(event: SequencedEvent) -> None:
    """An event on one line: number, time, type, tags, and the beginning of its data."""
    number = click.style(f"{event.sequence_number:>9}", fg="cyan")
    tags = click.style(" ".join(map(_shown_tag, event.tags)), fg="green")
    type = click.style(event.type, bold=True)
    click.echo(f"{number}  {show_time(event.recorded_at)}  {type}  {tags}  {preview(event.data)}".rstrip())


def _shown_tag(tag: str) -> str:
    """A tag, quoted for a shell and a query if its end would be ambiguous."""
    return shlex.quote(tag) if _QUOTED.search(tag) else tag


def preview(data: bytes) -> str:
    """The beginning of an event's data, on one line."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(
            data[: 4 * PREVIEW_CHARS]
        )  # a truncated character is not an error
    except UnicodeDecodeError:
        return f"<{len(data)} bytes>"
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(shown) <= PREVIEW_CHARS else f"{shown[: PREVIEW_CHARS - 3]}..."


def show_value(value: object) -> object:
    """A value of an entity as text for people; numbers remain numbers, so that they are right-aligned."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(f"{key}={each}" for key, each in value.items()) or "-"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    return value


def show_time(ms: int) -> str:
    """A time in ms since 1970 as text, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def pair(text: str, what: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE. Raises InvalidArgument."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidArgument(f"expected NAME=VALUE, got {text!r}", what)
    return name, value
