"""Every command and every option that a document names is one of `headwater`'s."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from .commands import commands, options
from .documents import DOCUMENTS, check_none, line_of, name_of, text_of

OF_USERS = [document for document in DOCUMENTS if not document.name.startswith("benchmarks")]
"""The others name the options of the benchmarks."""
_COMMAND = re.compile(r"(?:`|^)headwater ([a-z]+)(?: ([a-z-]+))?", re.MULTILINE)
_OPTION = re.compile(r"`(--[a-z][a-z-]*)")


def unknown(text: str) -> Iterator[tuple[int, str]]:
    """Commands and options of a text that are not there, each with its line."""
    there = commands()
    for found in _COMMAND.finditer(text):
        first, second = found.groups()
        if first not in there:
            yield line_of(text, found.start()), f"there is no command `headwater {first}`"
        elif isinstance(there[first], click.Group) and second and f"{first} {second}" not in there:
            yield line_of(text, found.start()), f"there is no command `headwater {first} {second}`"
    for found in _OPTION.finditer(text):
        if found[1] not in options():
            yield line_of(text, found.start()), f"there is no option `{found[1]}`"


def _of_document(document: Path) -> Iterator[str]:
    return (f"{name_of(document)}:{line}: {what}" for line, what in unknown(text_of(document)))


def test_commands_and_options_that_documents_name_are_there() -> None:
    check_none(fault for document in OF_USERS for fault in _of_document(document))


def test_all_that_are_unknown_are_found() -> None:
    text = "`headwater serve --no-such`\n`headwater sarve`\nheadwater logs shew\n`--http-port`, `--http-prot`"
    assert list(unknown(text)) == [
        (2, "there is no command `headwater sarve`"),
        (3, "there is no command `headwater logs shew`"),
        (4, "there is no option `--http-prot`"),
    ]
