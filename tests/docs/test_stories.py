"""What a stranger is told to do is done here as it is written: shell, Python, JavaScript, configuration, and answers.

Guides that take Spark are done by `tests/spark/test_guides.py`.
"""

from __future__ import annotations

import re

import pytest

from .documents import DOCUMENTS, ROOT, name_of, without_blocks
from .stories import Story, blocks

COMPILED = {"go", "java", "typescript"}
"""What `tests/interop/test_openapi.py` compiles and runs, and looks for in its guide."""
LANGUAGES = {"sh", "python", "javascript", "toml", "json", "text"} | COMPILED
WITH_SPARK = [
    ROOT / "docs" / "guides" / "archive.md",
    ROOT / "docs" / "guides" / "bulk-import.md",
    ROOT / "docs" / "guides" / "kafka.md",
    ROOT / "docs" / "guides" / "pipelines.md",
    ROOT / "docs" / "guides" / "report.md",
    ROOT / "docs" / "guides" / "spark.md",
    ROOT / "docs" / "reference" / "spark.md",
]
STORIES = [each for each in DOCUMENTS if each not in WITH_SPARK and next(blocks(each), None) is not None]

_COMMAND = re.compile(r"^\s*(?:\$ |headwater |curl |pip |python3? |make |spark-|systemctl |SELECT )", re.MULTILINE)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_nothing_that_could_be_done_is_hidden_from_these_tests(document):
    text = document.read_text(encoding="utf-8")
    for language, code in _FENCE.findall(text):
        assert language in LANGUAGES | {""}, f"nobody runs a block of {language}"
        assert language or not _COMMAND.search(code), f"a block of commands without a language:\n{code}"
    assert not _INDENTED.findall(without_blocks(text)), "an example is a fenced block, not an indented one"
