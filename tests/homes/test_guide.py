"""The guides about homes are done as they are told, with a database that has, or lacks, what they say."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.docs.documents import ROOT, text_of
from tests.docs.stories import Block, Story, blocks

from ..night import night
from ..waiting import eventually
from .postgres.test_upgrade import make_first
from .postgres_server import fresh_home, installed, postgres, programs_of
from .test_migration import emptied, shared, single
from .test_refill import Scene, ahead, go_on, scene
from .test_servers import Member, command, status

__all__ = ["ahead", "scene", "single"]
GUIDE = ROOT / "docs" / "guides" / "home-went-back.md"
WAYS = GUIDE.with_name("home-ways.md")
DATA = "var/lib/headwater"
OF_OWNER = "postgresql://owner@db.example/headwater"
"""The address of the home that guides give to its owner."""
_CHANGES = re.compile(
    r"\d+ changes of [^:]*|log \$state ends with [^;]*"
    r"|\d+ changes up to number \d+, in \d+ frames|the home [0-9a-f]{32}"
)
"""What says how many changes of the state there are, of which a server makes more now and then; and a home's id."""


class GuideStory(Story):
    """A story whose commands have the address of the home from the environment; its owner's is that, too."""

    home = ""

    def _here(self, code: str) -> str:
        return super()._here(code).replace(OF_OWNER, self.home)

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "HEADWATER_HOME": self.home}

    def _compare(self, block: Block, where: str) -> None:
        assert self.said is not None
        self.said = _CHANGES.sub("changes", self.said)
        super()._compare(replace(block, code=_CHANGES.sub("changes", block.code)), where)


def done(url: str, directory: Path, told: list[Block], guide: Path = GUIDE) -> None:
    """Do these blocks, where the data directory of the server is below that directory."""
    with GuideStory(directory) as story:
        story.home = url
        for block in told:
            (story._shell if block.language == "sh" else story._compare)(block, f"{guide.name}:{block.line}")


def told_in(guide: Path, heading: str) -> list[Block]:
    """The blocks below a heading."""
    lines = text_of(guide).splitlines()
    begin = lines.index(f"## {heading}")
    end = next((index for index in range(begin + 1, len(lines)) if lines[index].startswith("## ")), len(lines))
    return [block for block in blocks(guide) if begin < block.line < end]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a story happens; the directory of its data is not there yet."""
    (tmp_path / "story" / DATA).parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "story")
    return tmp_path / "story"


@pytest.mark.parametrize("part", ["refill", "accept the loss"])
def test_the_guide_can_be_done_as_it_is_told(ahead: Scene, place: Path, part: str) -> None:
    told = list(blocks(GUIDE))
    assert [block.language for block in told] == ["sh", "text", "sh", "text", "sh", "text", "sh"]
    if part == "accept the loss":
        go_on(ahead)
        ahead.home.mark("the copy of orders on a.example:8080 ends with 5, but the home ends with 4")
    ahead.copy.rename(place / DATA)
    done(ahead.url, place, told[:2] if part == "refill" else told[2:])


def one_server(single: Path, place: Path) -> str:
    single.rename(place / DATA)
    return emptied()


def three_servers(single: Path, place: Path) -> str:
    shared(url := emptied(), place)
    (place / "b").rename(place / DATA)
    return url


def no_database(single: Path, place: Path) -> str:
    shared(emptied(), place)
    (place / "a").rename(place / DATA)
    return emptied()


def version_before(single: Path, place: Path) -> str:
    with psycopg.connect(url := fresh_home(), autocommit=True) as connection:
        make_first(connection)
    return url


@pytest.mark.parametrize(
    "heading, prepare",
    [
        ("From one server to three", one_server),
        ("From three servers to one", three_servers),
        ("A lost database", no_database),
        ("Upgrade", version_before),
    ],
)
def test_each_way_can_be_done_as_it_is_told(
    single: Path, place: Path, heading: str, prepare: Callable[[Path, Path], str]
) -> None:
    told = told_in(WAYS, heading)
    assert told
    done(prepare(single, place), place, told, WAYS)


@night
@pytest.mark.parametrize("major", [16, 18])
def test_the_database_can_be_moved_as_it_is_told(major: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = told_in(WAYS, "Move the database")
    assert [block.language for block in told] == ["sh", "text"]
    with ExitStack() as closing:
        with programs_of(installed(major)):
            old = closing.enter_context(postgres())
        new = closing.enter_context(postgres())
        command("home", "init", "--home", old.url)
        shared(old.url, place)
        incarnation = status(old.url)["home"]
        monkeypatch.setenv("NEW", new.url)
        monkeypatch.setenv("PATH", f"{installed()}:{os.environ['PATH']}")
        done(old.url, place, told, WAYS)
        old.stop()
        members = [Member(new.url, place / name) for name in ("a", "b")]
        for member in members:
            closing.callback(member.close)
        eventually(lambda: any(member.is_primary() for member in members), lambda: status(new.url))
        assert next(member for member in members if member.is_primary()).append(5) == 6
        assert status(new.url)["home"] == incarnation


def test_a_home_can_be_restored_as_it_is_told(ahead: Scene, place: Path) -> None:
    told = told_in(WAYS, "Back up and restore")
    assert [block.language for block in told] == ["sh", "text", "sh"]
    ahead.copy.rename(place / DATA)
    done(ahead.url, place, told[:2], WAYS)


def test_a_backup_of_a_copy_becomes_a_home_as_it_is_told(place: Path) -> None:
    shared(emptied(), place)
    (place / "b").rename(place / DATA)
    done(emptied(), place, told_in(WAYS, "Back up and restore")[2:], WAYS)
