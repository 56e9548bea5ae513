"""The guides to Spark are done as they are written; `tests/docs/stories.py` says how."""

from __future__ import annotations

import pytest

from tests.docs.documents import name_of
from tests.docs.stories import Story
from tests.docs.test_stories import WITH_SPARK


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("document", WITH_SPARK, ids=name_of)
def test_guide_can_be_done_as_it_is_told(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # where Python finds the modules that a guide makes
    with Story(tmp_path) as story:
        story.run(document)
