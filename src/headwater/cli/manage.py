"""`headwater manage`: the operations of management on entities of every type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from . import output
from .consent import ask, when_agreed, yes_option

if TYPE_CHECKING:
    from ..client import Server


class _Operations(click.Group):
    """Operations in any case, as AMQP Management writes them and as commands are written."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name.lower())


@click.group(
    cls=_Operations,
    epilog=output.examples(
        "headwater manage types",
        "headwater manage query link --attributes name,linkName,lag --filter log=orders",
        "headwater manage update consumer orders/spark/archiver acknowledged=4711",
    ),
)
@output.server_options_of_group
def manage() -> None:
    """See and change all that can be managed, by type and name.

    The types and their attributes are in docs/reference/management.md. The operations may be written as there: READ.
    """


@manage.command(epilog=output.examples("headwater manage types --json"))
@output.json_option
@output.server_options
def types(server: Server, as_json: bool) -> None:
    """List the types, with what can be done with their entities."""
    found = server.management.types()
    if as_json:
        output.show_json(found)
        return
    rows = [(type, " ".join(known["operations"]), len(known["attributes"])) for type, known in found.items()]
    output.show_table(["type", "operations", "attributes"], rows)


@manage.command(
    epilog=output.examples("headwater manage query log --attributes name,head --filter problem=null --json")
)
@click.argument("type")
@click.option("--attributes", metavar="NAME,...", help="Only those.  [default: all]")
@click.option("--filter", metavar="NAME=VALUE,...", help="Only entities of which that holds; != for which it does not.")
@click.option("--offset", type=click.IntRange(min=0), help="Pass over so many.")
@click.option("--count", type=click.IntRange(min=0), help="So many at most.")
@output.json_option
@output.server_options
def query(server: Server, type: str, attributes: str | None, as_json: bool, **given: Any) -> None:
    """List the entities of TYPE that you may see: `log`, `connection`, or any other of `headwater manage types`."""
    names = attributes.split(",") if attributes else ()
    found = server.management.query(type, *names, **given)
    if as_json:
        output.show_json(found.entities)
    elif not found.rows:
        output.show_nothing(f"no entities of type {type} that you may see, or that the filter lets through")
    else:
        output.show_table(found.names, [[output.show_value(value) for value in row] for row in found.rows])


@manage.command(epilog=output.examples("headwater manage read connection 7", "headwater manage READ log orders --json"))
@click.argument("type")
@click.argument("name")
@output.json_option
@output.server_options
def read(server: Server, type: str, name: str, as_json: bool) -> None:
    """Show all attributes of the entity NAME of TYPE."""
    _show(server.management.read(type, name), as_json)


@manage.command(epilog=output.examples("headwater manage create log clicks partitions=4 retentionMs=86400000"))
@click.argument("type")
@click.argument("name")
@click.argument("attributes", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@yes_option
@output.json_option
@output.server_options
def create(server: Server, type: str, name: str, attributes: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Make the entity NAME of TYPE, with those attributes. A list is written as JSON: grants='["read:*"]'."""
    create_one, given = server.management.create, _given(attributes)
    _show(when_agreed(lambda drops: create_one(type, name, given, drops_at_most=drops), yes), as_json)


@manage.command(epilog=output.examples("headwater manage update log clicks retentionMs=null"))
@click.argument("type")
@click.argument("name")
@click.argument("attributes", nargs=-1, required=True, metavar="ATTRIBUTE=VALUE...")
@yes_option
@output.json_option
@output.server_options
def update(server: Server, type: str, name: str, attributes: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Change attributes of the entity NAME of TYPE. The value `null` takes one away.

    Where a log would drop events because of it, this says which, and asks; without a terminal, --yes is needed.
    """
    update_one, given = server.management.update, _given(attributes)
    _show(when_agreed(lambda drops: update_one(type, name, given, drops_at_most=drops), yes), as_json)


@manage.command(epilog=output.examples("headwater manage delete durableLink orders/my-container/my-link --yes"))
@click.argument("type")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output.server_options
def delete(server: Server, type: str, name: str, yes: bool) -> None:
    """Delete the entity NAME of TYPE: a log with its events, a user; a connection or a link is closed."""
    if not yes:
        ask(f"{type} {name}", "delete")
    when_agreed(lambda drops: server.management.delete(type, name, drops_at_most=drops), yes)
    click.echo(f"{type} {name} is deleted")


def _given(attributes: tuple[str, ...]) -> dict[str, str | None]:
    """Attributes of a command line; the server makes of each text what its type has there. Raises InvalidInput."""
    pairs = [output.pair(text, "ATTRIBUTE=VALUE") for text in attributes]
    return {name: None if value == "null" else value for name, value in pairs}


def _show(attributes: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.show_json(attributes)
    else:
        rows = [(name, output.show_value(value)) for name, value in attributes.items() if value is not None]
        output.show_table(["attribute", "value"], rows)
