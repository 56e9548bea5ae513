"""The commands of `headwater`, each by its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import click


@cache
def commands() -> Mapping[str, click.Command]:
    """All of them; `headwater` itself has an empty path."""
    from headwater.cli.main import headwater  # not at collection: it imports every command

    return dict(_below(headwater, ""))


def help_of(path: str) -> str:
    """What `--help` of a command shows."""
    command = commands()[path]
    return command.get_help(click.Context(command, info_name=f"headwater {path}"))


def options() -> set[str]:
    """The options of all commands."""
    parameters = [each for command in commands().values() for each in command.params]
    return {name for each in parameters for name in (*each.opts, *each.secondary_opts)} | {"--help", "--version"}


def _below(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """The command and all below it, each with its path."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _below(below, f"{path} {name}".strip())
