"""Documents, `--help` and messages use the words of the field: banned coinages, each with what is said instead."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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
    r"\blog is hurt\b": "is damaged",
    r"\bhas a fault\b|\bfailed at it\b": "internal error; see the server's log",
    r"\blog says (?:more|why)\b": "see the server's log",
    r"\bbegun again\b": "is restarted",
    r"\blie in one another\b": "are nested",
    r"\b(?:a value|set|tuple of symbols) is due\b|\bis due, (?:not|null)\b": "is required, is expected",
    r"\bas things are\b": "in the present state",
    r"\bshared anew\b": "are rebalanced",
    r"\bcounts? for nothing\b": "is ignored",
    r"\bfell silent\b|\bcame in time\b": "timed out",
    r"\b(?:is|are|it is) (?:no|not an?) whole\b|\bno whole (?:gzip|backup)\b": "is incomplete, truncated or damaged",
    r"\btold as\b|\bthat was told\b": "reported",
    r"\bhow it ended\b|\bcannot (?:be written|write) down\b|\bnot be written down\b": "cannot be stored",
    r"\b(?:is|are|was|were) given back\b.*\bopened anew\b|\bgave back \S+ segments\b": "frees, removes (segments)",
    r"\bspeaks (?:no )?TLS there\b": "the server expects TLS, does not use TLS",
    r"\bnothing grows old\b|\byet to come\b": "in the future; retention by age drops nothing",
    r"\bcannot be told; name\b": "cannot be guessed",
    r"\bit is let go\b": "is closed",
}
"""Regular expressions, in any case, and what is said instead."""

OF_USERS = [each for each in DOCUMENTS if each.is_relative_to(ROOT / "docs") and each.parent.name != "decisions"]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
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


def messages(source: str) -> list[tuple[int, str]]:
    """The texts of a module that may reach a user, each with its line: strings of several words that are no docstrings.

    What stands for a value in a text is `{}`.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in joined for part in ast.walk(node) if part is not node}
    inner |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    found = []
    for node in nodes:
        if id(node) not in inner and isinstance(node, ast.Constant | ast.JoinedStr):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
            found.append((node.lineno, text))
    return [(line, text) for line, text in found if text.count(" ") >= 2]


def test_messages_are_found_and_docstrings_are_not():
    source = 'def f(n):\n    """Is let in."""\n    raise ValueError(f"{n} is let" " in, by us") or "x"\n'
    assert messages(source) == [(3, "{} is let in, by us")]


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_messages_use_the_words_of_the_field(source: Path) -> None:
    given = messages(source.read_text(encoding="utf-8"))
    assert [(line, each) for line, text in given for each in coinages(text)] == []
