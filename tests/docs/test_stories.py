"""The first things that a stranger does are done here as they are written: shell, Python, JavaScript, and answers."""

from __future__ import annotations

import pytest

from .documents import ROOT, name_of
from .stories import Story, blocks

STORIES = [
    ROOT / "README.md",
    ROOT / "docs" / "start.md",
    ROOT / "docs" / "guides" / "event-sourcing.md",
    ROOT / "docs" / "guides" / "futoin.md",
    ROOT / "docs" / "guides" / "import.md",
    ROOT / "docs" / "guides" / "notifications.md",
    ROOT / "docs" / "guides" / "operations.md",
    ROOT / "docs" / "guides" / "spark.md",
]


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


@pytest.mark.parametrize("document", STORIES, ids=name_of)
def test_story_does_something(document):
    assert [block for block in blocks(document) if block.language == "sh"]
