"""What a stranger is told to do is done here as it is written: shell, Python, JavaScript, configuration, and answers.

Guides that take Spark are done by `tests/spark/test_guides.py`, and one that takes a database by
`tests/homes/test_guide.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .documents import DOCUMENTS, ROOT, check_none, line_of, name_of, text_of, without_blocks
from .stories import Story, blocks

COMPILED = {"go", "java"}
"""What `tests/interop` compiles and runs."""
LANGUAGES = {"sh", "python", "javascript", "toml", "json", "text"} | COMPILED
WITH_SPARK = [
    ROOT / "docs" / "guides" / "archive.md",
    ROOT / "docs" / "guides" / "bulk-import.md",
    ROOT / "docs" / "guides" / "kafka.md",
    ROOT / "docs" / "guides" / "pipelines.md",
    ROOT / "docs" / "guides" / "spark.md",
    ROOT / "docs" / "reference" / "spark.md",
]
WITH_DATABASE = [ROOT / "docs" / "guides" / name for name in ("home-went-back.md", "home-ways.md")]
STORIES = [
    each for each in DOCUMENTS if each not in [*WITH_SPARK, *WITH_DATABASE] and next(blocks(each), None) is not None
]

_COMMAND = re.compile(r"^\s*(?:\$ |headwater |curl |pip |python3? |make |spark-|systemctl |SELECT )", re.MULTILINE)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TRAILING = re.compile(r"\S *(?= # )")
_INDENTED = re.compile(r"(?:^|\n)\n {4}(?! )(.*)")


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """An empty directory, in which everything runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.timeout(900)
@pytest.mark.parametrize("document", STORIES, ids=name_of)
def test_story_can_be_done_as_it_is_told(document, at_home):
    with Story(at_home) as story:
        story.run(document)


def hidden(text: str) -> Iterator[tuple[int, str]]:
    """The blocks of a text that no test sees, each with its line."""
    for block in _FENCE.finditer(text):
        language, code = block.groups()
        if language not in LANGUAGES | {""}:
            yield line_of(text, block.start()), f"no test runs a block of {language}"
        if language == "sh" and (comment := _TRAILING.search(code)):
            yield line_of(text, block.start(2) + comment.start()), "a comment of a shell has a line of its own"
        if not language and _COMMAND.search(code):
            yield line_of(text, block.start()), f"a block of commands without a language:\n{code}"
    for found in _INDENTED.finditer(text := without_blocks(text)):
        yield line_of(text, found.start(1)), f"an example is a fenced block, not an indented one: {found[1]}"


def test_nothing_that_could_be_done_is_hidden_from_these_tests() -> None:
    check_none(f"{name_of(each)}:{line}: {fault}" for each in DOCUMENTS for line, fault in hidden(text_of(each)))


def test_hidden_blocks_are_found() -> None:
    text = "One\n\n```sh\nls\n```\n```ruby\np 1\n```\n```\n$ ls\n```\nTwo\n\n    three\n```sh\n# one\nls  # two\n```\n"
    assert list(hidden(text)) == [
        (6, "no test runs a block of ruby"),
        (9, "a block of commands without a language:\n$ ls\n"),
        (17, "a comment of a shell has a line of its own"),
        (14, "an example is a fenced block, not an indented one: three"),
    ]
