"""`headwater manage`: the management operations on entities of every type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from . import output
from .consent import ask, when_agreed, yes_option

if TYPE_CHECKING:
    from ..client import Server


class _Operations(click.Group):
    """Accepts operations in upper case, as in AMQP Management, and in lower case, like commands."""

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
    """Show and change any managed entity by type and name.

    docs/reference/management.md lists the types and their attributes. Operations can be in upper case, as on that page:
    READ.
    """


@manage.command(epilog=output.examples("headwater manage types --json"))
@output.json_option
@output.server_options
def types(server: Server, as_json: bool) -> None:
    """List the entity types and their operations."""
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
@click.option("--attributes", metavar="NAME,...", help="Show only these attributes.  [default: all]")
@click.option("--filter", metavar="NAME=VALUE,...", help="Show only entities with this value; != excludes it.")
@click.option("--offset", type=click.IntRange(min=0), help="Number of results to skip.")
@click.option("--count", type=click.IntRange(min=0), help="Maximum number of results.")
@output.json_option
@output.server_options
def query(server: Server, type: str, attributes: str | None, as_json: bool, **given: Any) -> None:
    """List the entities of TYPE that you can see: `log`, `connection`, or any other of `headwater manage types`."""
    names = attributes.split(",") if attributes else ()
    found = server.management.query(type, *names, **given)
    if as_json:
        output.show_json(found.entities)
    elif not found.rows:
        output.show_nothing(f"no entities of type {type} match the filter, or you may not see them")
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
    """Create the entity NAME of TYPE with these attributes. A list is JSON: grants='["read:*"]'."""
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
    """Change attributes of the entity NAME of TYPE. The value `null` clears an attribute.

    Asks for confirmation if a log would drop events; without a terminal, use --yes.
    """
    update_one, given = server.management.update, _given(attributes)
    _show(when_agreed(lambda drops: update_one(type, name, given, drops_at_most=drops), yes), as_json)


@manage.command(epilog=output.examples("headwater manage delete durableLink orders/my-container/my-link --yes"))
@click.argument("type")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output.server_options
def delete(server: Server, type: str, name: str, yes: bool) -> None:
    """Delete the entity NAME of TYPE: a log with its events, or a user; close a connection or a link."""
    if not yes:
        ask(f"{type} {name}", "delete")
    when_agreed(lambda drops: server.management.delete(type, name, drops_at_most=drops), yes)
    click.echo(f"deleted {type} {name}")


def _given(attributes: tuple[str, ...]) -> dict[str, str | None]:
    """The attributes of a command line as texts; the server converts each to the type of the attribute. Raises
    InvalidInput.
    """
    pairs = [output.pair(text, "ATTRIBUTE=VALUE") for text in attributes]
    return {name: None if value == "null" else value for name, value in pairs}


def _show(attributes: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.show_json(attributes)
    else:
        rows = [(name, output.show_value(value)) for name, value in attributes.items() if value is not None]
        output.show_table(["attribute", "value"], rows)
