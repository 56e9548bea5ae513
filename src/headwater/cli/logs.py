"""`headwater logs`: the logs of a server."""

from __future__ import annotations

from dataclasses import asdict, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.access import Forbidden
from ..core.errors import StorageCorrupted, StorageUnavailable
from ..core.settings import EARLIEST, LATEST, LogSettings
from . import output
from .consent import ask, when_agreed, yes_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..client import RemoteLog, Server
    from ..core.consumer import Consumer
    from ..core.log import LogInfo

    F = TypeVar("F", bound=Callable[..., Any])

RETENTION = ("retention_ms", "retention_bytes", "retention_until_acknowledged")
"""The settings that determine which events may be trimmed."""


def _changeable(function: F) -> F:
    for option in (
        click.option("--retention-ms", type=click.IntRange(min=1), help="Events older than this may be trimmed."),
        click.option("--retention-bytes", type=click.IntRange(min=1),
                     help="The oldest events above this size may be trimmed."),
        click.option("--until-acknowledged/--not-until-acknowledged", "retention_until_acknowledged", default=None,
                     help="Events that all registered consumers acknowledged may be trimmed."),
        click.option("--event-bytes-max", type=click.IntRange(min=1024), help="Maximum size of an event."),
        click.option("--id-horizon", type=click.IntRange(min=1), help="Ids are unique among this many newest events."),
        click.option("--history/--no-history", "keeps_history", default=None,
                     help="Whether append conditions still consider trimmed events."),
        click.option("--consumer-age-ms-max", type=click.IntRange(min=1),
                     help="Unregister consumers that are inactive for this long."),
        click.option("--default-start", type=click.Choice([LATEST, EARLIEST]),
                     help="Where an AMQP receiver without a position starts."),
    ):  # fmt: skip
        function = option(function)
    return function


@click.group(
    invoke_without_command=True,
    epilog=output.examples(
        "headwater logs list", "headwater logs create orders --partitions 4", "headwater logs show orders"
    ),
)
@output.server_options_of_group
@click.pass_context
def logs(ctx: click.Context) -> None:
    """List, create, change, trim and delete logs.

    Without a command, lists them.
    """
    if ctx.invoked_subcommand is None:
        with list_logs.make_context("list", [], parent=ctx) as inner:
            list_logs.invoke(inner)


@logs.command("list", epilog=output.examples("headwater logs list --json"))
@output.json_option
@output.server_options
def list_logs(server: Server, as_json: bool) -> None:
    """List the logs that you can read. A log that cannot be opened is shown as stopped, with the problem."""
    infos: list[LogInfo] = []
    stopped: dict[str, str] = {}
    for name in server.logs():
        try:
            infos.append(server.log(name).info())
        except (StorageCorrupted, StorageUnavailable) as error:
            stopped[name] = str(error)
    if as_json:
        problems = [{"name": name, "problem": problem} for name, problem in stopped.items()]
        output.show_json(sorted([*map(asdict, infos), *problems], key=itemgetter("name")))
        return
    if not infos and not stopped:
        output.show_nothing("no logs are visible to you; `headwater logs create NAME` creates one")
        return
    rows: list[tuple[object, ...]] = [
        (info.name, info.events, info.first_retained, info.head, info.settings.partitions, info.bytes) for info in infos
    ]
    rows += [(name, "stopped", "-", "-", "-", "-") for name in stopped]
    rows.sort(key=itemgetter(0))
    for name, problem in stopped.items():
        click.echo(f"{name}: {problem}", err=True)
    output.show_table(["log", "events", "first", "head", "partitions", "bytes"], rows)


@logs.command(epilog=output.examples("headwater logs show orders"))
@click.argument("log")
@output.json_option
@output.server_options
def show(server: Server, log: str, as_json: bool) -> None:
    """Show the identity, settings and extent of LOG."""
    _show(server.log(log).info(), as_json)


@logs.command(epilog=output.examples("headwater logs create orders --partitions 4 --partition-by tag:customer"))
@click.argument("log")
@click.option(
    "--partitions", type=click.IntRange(1, 1024), help="Number of partitions; fixed at creation.  [default: 1]"
)
@click.option("--partition-by", help="source, subject or tag:KEY; fixed at creation.")
@_changeable
@output.json_option
@output.server_options
def create(server: Server, log: str, as_json: bool, **settings: Any) -> None:
    """Create LOG. Does nothing if it exists with the same settings."""
    is_new = server.ensure(log, LogSettings(**_given(settings)))
    click.echo(f"created {log}" if is_new else f"{log} already exists with these settings", err=True)
    _show(server.log(log).info(), as_json)


@logs.command("set", epilog=output.examples("headwater logs set orders --retention-ms 604800000"))
@click.argument("log")
@_changeable
@yes_option
@output.json_option
@output.server_options
def set_(server: Server, log: str, yes: bool, as_json: bool, **settings: Any) -> None:
    """Change settings of LOG; the others keep their values.

    Asks for confirmation if the settings would drop events within five minutes; without a terminal, use --yes.
    """
    wanted = replace(server.log(log).info().settings, **_given(settings))
    _show(when_agreed(lambda drops: server.change(log, wanted, drops_at_most=drops), yes), as_json)


@logs.command(
    epilog=output.examples("headwater logs trim orders --below 100000", "headwater logs trim orders --below 9 --yes")
)
@click.argument("log")
@click.option("--below", type=click.IntRange(min=0), required=True, help="Drop the events below this number.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output.json_option
@output.server_options
def trim(server: Server, log: str, below: int, yes: bool, as_json: bool) -> None:
    """Drop the oldest events of LOG, as far as its registered consumers allow.

    Asks for confirmation; without a terminal, use --yes.
    """
    target = server.log(log)
    if not yes:
        _ask_to_trim(target, below)
    first = target.trim(below)
    holders = _holders(target, first) if first < below else []
    if as_json:
        output.show_json({"first_retained": first, "held_by": list(map(asdict, holders))})
        return
    click.echo(f"{log} now starts at {first:,}")
    for each in holders:
        click.echo(
            f"held back by the consumer {each.owner} {each.component}, which has acknowledged {each.acknowledged:,}; "
            "`headwater consumers` moves or unregisters it",
            err=True,
        )


def _ask_to_trim(log: RemoteLog, below: int) -> None:
    """Show what would be dropped, and ask. Raises click.UsageError without a terminal, and click.Abort."""
    info = log.info()
    last = min([below - 1, info.head, *(each.acknowledged for each in log.consumers())])
    if last < info.first_retained or below > info.head + 1:
        return  # nothing is dropped, or the call is refused
    ask(f"the events {info.first_retained:,} to {last:,} of {log.name}")


def _holders(log: RemoteLog, first_retained: int) -> list[Consumer]:
    """The consumers that prevent trimming above that number, as far as the user may see them."""
    try:
        return [each for each in log.consumers() if each.acknowledged < first_retained]
    except Forbidden:
        return []


@logs.command(epilog=output.examples("headwater logs delete orders --yes"))
@click.argument("log")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output.server_options
def delete(server: Server, log: str, yes: bool) -> None:
    """Delete LOG with all its events."""
    events = server.log(log).info().events
    if not yes:
        ask(f"{log} with its {output.counted(events, 'event')}", "delete")
    server.delete(log)
    click.echo(f"deleted {log}")


def _show(info: LogInfo, as_json: bool) -> None:
    if as_json:
        output.show_json(asdict(info))
        return
    facts: dict[str, Any] = asdict(info) | {"created_at": output.show_time(info.created_at)}
    facts |= facts.pop("settings")
    facts["partition_events"] = " ".join(map(str, info.partition_events))
    is_kept = not any(facts[name] for name in RETENTION)
    rows = [(name, _readable(value)) for name, value in facts.items() if value is not None]
    rows += [("retention", "none")] * is_kept
    output.show_table(["name", info.name], rows[1:])


def _readable(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else value


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
