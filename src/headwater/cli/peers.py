"""`headwater connections`, `links` and `groups`: lists AMQP connections, links and groups, and closes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from . import output

if TYPE_CHECKING:
    from ..client import Server


@click.group(epilog=output.examples("headwater connections list", "headwater connections close 7"))
@output.server_options_of_group
def connections() -> None:
    """List and close AMQP connections.

    Requires `manage` on `*`.
    """


@connections.command("list", epilog=output.examples("headwater connections list --json"))
@output.json_option
@output.server_options
def list_connections(server: Server, as_json: bool) -> None:
    """List the AMQP connections."""
    columns = {"name": "connection", "peer": "peer", "port": "port", "user": "user", "containerId": "container",
               "product": "product", "links": "links", "openedAt": "opened"}  # fmt: skip
    nothing = "no AMQP connections are open (on a server with users, those of others are listed with `manage` on `*`)"
    _list(server, "connection", columns, as_json, nothing)


@connections.command("close", epilog=output.examples("headwater connections close 7 8"))
@click.argument("names", nargs=-1, required=True, metavar="CONNECTION...")
@output.server_options
def close_connections(server: Server, names: tuple[str, ...]) -> None:
    """Close connections by their names in the list. Clients may reconnect."""
    _close(server, "connection", names)


@click.group(epilog=output.examples("headwater links list --log orders", "headwater links close 7/1/3"))
@output.server_options_of_group
def links() -> None:
    """List and close AMQP links.

    Shows who sends to a log or receives from it, and how far behind receivers are. You see your own links; seeing all
    and closing any requires `manage` on `*`.
    """


@links.command("list", epilog=output.examples("headwater links list --log orders --json"))
@click.option("--log", help="Only links of this log.")
@output.json_option
@output.server_options
def list_links(server: Server, log: str | None, as_json: bool) -> None:
    """List the AMQP links."""
    columns = {"name": "link", "log": "log", "role": "role", "containerId": "container", "linkName": "name",
               "group": "group", "partition": "partition", "position": "position", "lag": "behind",
               "deliveries": "messages"}  # fmt: skip
    nothing = "no AMQP links are visible to you; AMQP senders and receivers create them"
    _list(server, "link", columns, as_json, nothing, _terms(log=log))


@links.command("close", epilog=output.examples("headwater links close 7/1/3"))
@click.argument("names", nargs=-1, required=True, metavar="LINK...")
@output.server_options
def close_links(server: Server, names: tuple[str, ...]) -> None:
    """Detach links by their names in the list. Clients may attach again."""
    _close(server, "link", names)


@click.group(epilog=output.examples("headwater groups list", "headwater groups close orders/workers"))
@output.server_options_of_group
def groups() -> None:
    """List and move AMQP consumer groups, and close their members' links."""


@groups.command("list", epilog=output.examples("headwater groups list --log orders --json"))
@click.option("--log", help="Only groups of this log.")
@output.json_option
@output.server_options
def list_groups(server: Server, log: str | None, as_json: bool) -> None:
    """List the consumer groups of logs that you can read or manage, and how far behind they are."""
    columns = {"name": "group", "members": "members", "positions": "positions", "lags": "behind", "owners": "owners"}
    nothing = "no consumer groups are visible to you; AMQP receivers create them by naming a group"
    _list(server, "consumerGroup", columns, as_json, nothing, _terms(log=log))


@groups.command("close", epilog=output.examples("headwater groups close orders/workers"))
@click.argument("names", nargs=-1, required=True, metavar="LOG/GROUP...")
@output.server_options
def close_groups(server: Server, names: tuple[str, ...]) -> None:
    """Detach the links of all members of groups, by the names in the list. The groups keep their positions;
    `headwater manage delete consumerGroup LOG/GROUP` deletes those of a group without members.
    """
    for name in names:
        group = server.management.read("consumerGroup", name)
        terms = _terms(log=group["log"], group=group["group"])
        members = [row[0] for row in server.management.query("link", "name", filter=terms).rows]
        for member in members:
            server.management.delete("link", member)
        click.echo(f"{output.counted(len(members), 'member')} of {name} closed")


@groups.command("reset", epilog=output.examples("headwater groups reset orders/workers --after 4711"))
@click.argument("name", metavar="LOG/GROUP")
@click.option(
    "--after", type=click.IntRange(min=0), required=True, help="Mark everything up to this number as processed."
)
@click.option("--partition", type=click.IntRange(min=0), help="Only in this partition.  [default: all]")
@output.server_options
def reset_group(server: Server, name: str, after: int, partition: int | None) -> None:
    """Set the position of a consumer group without members, forward or back."""
    group = server.management.read("consumerGroup", name)
    there = range(server.management.read("log", group["log"])["partitions"])
    positions = {str(number): after for number in (there if partition is None else [partition])}
    server.management.update("consumerGroup", name, {"positions": positions})
    place = "" if partition is None else f" in partition {partition}"
    click.echo(f"{name} continues after {after:,}{place}")


def _list(
    server: Server, type: str, columns: dict[str, str], as_json: bool, nothing: str, terms: str | None = None
) -> None:
    """List the entities of a type: with --json all attributes, otherwise those in `columns`, by their headings."""
    if as_json:
        output.show_json(server.management.query(type, filter=terms).entities)
        return
    found = server.management.query(type, *columns, filter=terms)
    if not found.rows:
        output.show_nothing(nothing)
        return
    shown: dict[str, Callable[[Any], object]] = {"openedAt": output.show_time}
    rows = [
        [shown.get(name, output.show_value)(value) for name, value in zip(found.names, row, strict=True)]
        for row in found.rows
    ]
    output.show_table([columns[name] for name in found.names], rows)


def _close(server: Server, type: str, names: tuple[str, ...]) -> None:
    for name in names:
        server.management.delete(type, name)
        click.echo(f"closed {type} {name}")


def _terms(**values: str | None) -> str | None:
    """A filter for these values; None if there are none."""
    terms = [f"{name}={_escaped(value)}" for name, value in values.items() if value is not None]
    return ",".join(terms) or None


def _escaped(value: str) -> str:
    return "".join(f"\\{char}" if char in "\\,=" else char for char in value)
