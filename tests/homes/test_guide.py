"""The guide about a home that went back is done as it is told, with a database that lacks what a copy has."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.documents import ROOT
from tests.docs.stories import Block, Story, blocks

from .test_refill import Scene, ahead, go_on, scene

__all__ = ["ahead", "scene"]
GUIDE = ROOT / "docs" / "guides" / "home-went-back.md"
DATA = "var/lib/headwater"
_CHANGES = re.compile(r"\d+ changes of [^:]*|log \$state ends with [^;]*")
"""What says how many changes of the state there are: a server makes more of them now and then."""


class GuideStory(Story):
    """A story whose commands have the address of the home from the environment."""

    home = ""

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "HEADWATER_HOME": self.home}

    def _compare(self, block: Block, where: str) -> None:
        assert self.said is not None
        self.said = _CHANGES.sub("changes", self.said)
        super()._compare(replace(block, code=_CHANGES.sub("changes", block.code)), where)


def done(scene: Scene, directory: Path, told: list[Block]) -> None:
    """Do these blocks, where the data directory of the server is that of the scene."""
    with GuideStory(directory) as story:
        story.home = scene.url
        for block in told:
            (story._shell if block.language == "sh" else story._compare)(block, f"{GUIDE.name}:{block.line}")


@pytest.mark.parametrize("part", ["refill", "accept the loss"])
def test_the_guide_can_be_done_as_it_is_told(
    ahead: Scene, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list(blocks(GUIDE))
    assert [block.language for block in told] == ["sh", "text", "sh", "text", "sh", "text", "sh"]
    if part == "accept the loss":
        go_on(ahead)
        ahead.home.mark("a copy of orders at a.example:8080 ends with 5, the home with 4")
    place = tmp_path / "story"
    (place / DATA).parent.mkdir(parents=True)
    ahead.copy.rename(place / DATA)
    monkeypatch.chdir(place)
    done(ahead, place, told[:2] if part == "refill" else told[2:])
