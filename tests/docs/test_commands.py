"""Every command and every option that a document names is one of `headwater`'s."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from headwater.server.cli import headwater

from .documents import DOCUMENTS, name_of

OF_USERS = [document for document in DOCUMENTS if not document.name.startswith("benchmarks")]
"""The others name the options of the benchmarks."""


def commands(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """The command and all below it, each with its path."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, f"{path} {name}".strip())


COMMANDS = dict(commands(headwater))
OPTIONS = {
    name for command in COMMANDS.values() for each in command.params for name in (*each.opts, *each.secondary_opts)
} | {"--help", "--version"}


@pytest.mark.parametrize("document", OF_USERS, ids=name_of)
def test_commands_and_options_that_a_document_names_are_there(document):
    text = document.read_text(encoding="utf-8")
    for first, second in re.findall(r"(?:`|^)headwater ([a-z]+)(?: ([a-z-]+))?", text, re.MULTILINE):
        assert first in COMMANDS
        if isinstance(COMMANDS[first], click.Group) and second:
            assert f"{first} {second}" in COMMANDS
    unknown = set(re.findall(r"`(--[a-z][a-z-]*)", text)) - OPTIONS
    assert not unknown
