"""Documents, `--help` and messages use the words of the field: banned coinages, each with what is said instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .commands import commands, help_of
from .documents import DOCUMENTS, GENERATED_FROM_CODE, ROOT, check_none, name_of, prose
from .sources import SOURCES, parsed, texts_of

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
    r"\ball is through\b": "stop after the current events",
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


def coinages(text: str) -> list[tuple[int, str]]:
    """What is banned of a text, each with the number of its line in the text and what to say instead."""
    plain = " ".join(text.split())
    return [
        (_line_of_word(text, plain.count(" ", 0, found.start())), f"{found[0]!r}: say {instead!r}")
        for pattern, instead in BANNED.items()
        for found in re.finditer(pattern, plain, re.IGNORECASE)
    ]


def _line_of_word(text: str, index: int) -> int:
    """The number of the line that a word is in."""
    lines = [number for number, line in enumerate(text.split("\n"), start=1) for _ in line.split()]
    return lines[index]


def _in_messages(place: str, messages: Iterable[tuple[int, str]]) -> Iterator[str]:
    """What is banned of the messages of a module."""
    return (f"{place}:{line}: {fault}" for line, text in messages for _, fault in coinages(text))


def test_a_coinage_is_found_over_the_end_of_a_line() -> None:
    assert coinages("Wait.\nCtrl-C stops it\nin order\n\nIt was told as such") == [
        (2, "'stops it in order': say 'shuts (it) down gracefully; a graceful shutdown'"),
        (5, "'told as': say 'reported'"),
    ]


def test_documents_use_the_words_of_the_field() -> None:
    documents = [each for each in [ROOT / "README.md", *OF_USERS] if name_of(each) not in GENERATED_FROM_CODE]
    check_none(f"{name_of(each)}:{line}: {fault}" for each in documents for line, fault in coinages(prose(each)))


def test_help_uses_the_words_of_the_field() -> None:
    check_none(
        f"headwater {path} --help, line {line}: {fault}"
        for path in commands()
        for line, fault in coinages(help_of(path))
    )


def test_messages_use_the_words_of_the_field() -> None:
    check_none(fault for source in SOURCES for fault in _in_messages(name_of(source), texts_of(source).messages))


def test_messages_are_found_and_docstrings_are_not() -> None:
    source = 'def f(n):\n    """Is let in."""\n    raise ValueError(f"{n} is let" " in, by us") or "x"\n'
    assert parsed(source).messages == [(3, "{} is let in, by us")]
    assert list(_in_messages("a.py", parsed(source).messages)) == [
        "a.py:3: 'let in': say 'refuses every request; accepts requests without credentials'"
    ]
