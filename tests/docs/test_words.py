"""Documents and `--help` use the words of the field: banned coinages are here, each with what is said instead."""

from __future__ import annotations

import re

import click
import pytest

from .documents import DOCUMENTS, ROOT, name_of, prose
from .test_commands import COMMANDS

BANNED = {
    r"stop(?:s|ped)? (?:it |them )?in order|a stop in order": "shuts (it) down gracefully; a graceful shutdown",
    r"\bvouch(?:es|ed)?\b": "signs, confirms; authenticated by client certificate",
    r"\bfrom who\b": "from clients that",
    r"\bwhoever\b": "a client that, any user who, the process that",
    r"\b(?:by|to|from|for|seen) who may\b": "users with the right to",
    r"\bcomes? again under\b|\bcome again[.;]": "is retried, is sent again",
    r"\blets? (?:nobody|everybody) in\b|\blet in\b": "refuses every request; accepts requests without credentials",
    r"\btold on (?:stderr|a bus)\b|\bwhich is told\b|\band told[.;,]|\bdamage is told\b": "is logged, is reported",
    r"\b(?:is|are) told (?:as such|once|nowhere|in the server)|\bwindow is told\b": "is reported",
    r"\bmore are told to try again\b": "more are refused, and the client retries",
    r"\ball is through\b": "end after the events that are there now",
    r"\bbuilt only for somebody\b": "built only for listeners",
    r"\bdiary\b": "log output",
}
"""Regular expressions, in any case, and what is said instead."""

OF_USERS = [each for each in DOCUMENTS if each.is_relative_to(ROOT / "docs") and each.parent.name != "decisions"]
GENERATED_FROM_CODE = {"docs/reference/modules.md", "docs/reference/python.md"}
"""What they say is what docstrings say to who changes the code."""


def coinages(text: str) -> list[str]:
    """What is banned of a text, each with what to say instead."""
    plain = " ".join(text.split())
    return [
        f"{found[0]!r}: say {instead!r}"
        for pattern, instead in BANNED.items()
        for found in re.finditer(pattern, plain, re.IGNORECASE)
    ]


def test_a_coinage_is_found_over_the_end_of_a_line():
    assert coinages("Ctrl-C stops it\nin order") == [
        "'stops it in order': say 'shuts (it) down gracefully; a graceful shutdown'"
    ]


@pytest.mark.parametrize("document", [ROOT / "README.md", *OF_USERS], ids=name_of)
def test_documents_use_the_words_of_the_field(document):
    if name_of(document) not in GENERATED_FROM_CODE:
        assert coinages(prose(document)) == []


@pytest.mark.parametrize("path", COMMANDS)
def test_help_uses_the_words_of_the_field(path):
    command = COMMANDS[path]
    assert coinages(command.get_help(click.Context(command, info_name=f"headwater {path}"))) == []
