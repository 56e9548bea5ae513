"""Random harm to a data directory and to a backup: each reader refuses, or gives the events that were appended."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headwater.core import SequencedEvent
from headwater.core.errors import StorageCorrupted, StorageUnavailable
from headwater.storage import backup, check_directory, restore
from tests.night import IS_NIGHT
from tests.seeds import seed

from .builders import engine, forked, log_directory

pytestmark = pytest.mark.usefixtures("small_segments", "in_line")
ROUNDS = 300 if IS_NIGHT else 5
BLOCK = 512


@pytest.fixture
def made(data: Path, tmp_path: Path) -> tuple[Path, Path, list[SequencedEvent]]:
    """A directory, the same one as another server went on with it, and the events of the first."""
    forked(data, other := tmp_path / "other", before=30)
    with engine(data) as one:
        return data, other, list(one.open("orders").read())


def flip(content: bytearray, random: Random, _: bytes) -> None:
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def cut(content: bytearray, random: Random, _: bytes) -> None:
    del content[random.randrange(len(content)) :]


def double(content: bytearray, random: Random, _: bytes) -> None:
    at, to = (random.randrange(max(len(content) // BLOCK, 1)) * BLOCK for _ in range(2))
    content[to : to + BLOCK] = content[at : at + BLOCK]


def swap(content: bytearray, random: Random, _: bytes) -> None:
    at, to = (random.randrange(max(len(content) // BLOCK, 1)) * BLOCK for _ in range(2))
    content[at : at + BLOCK], content[to : to + BLOCK] = content[to : to + BLOCK], content[at : at + BLOCK]


def foreign_block(content: bytearray, random: Random, other: bytes) -> None:
    at = random.randrange(max(len(content) // BLOCK, 1)) * BLOCK
    content[at : at + BLOCK] = other[at : at + BLOCK]


def sibling(content: bytearray, random: Random, other: bytes) -> None:
    content[:] = other


KINDS: list[Callable[[bytearray, Random, bytes], None]] = [flip, cut, double, swap, foreign_block, sibling]


def harmed(directory: Path, other: Path, random: Random, kind: Callable[[bytearray, Random, bytes], None]) -> str:
    """Harm one file of the log; answers which."""
    files = sorted(path for path in log_directory(directory).rglob("*") if path.is_file() and path.stat().st_size)
    path = random.choice(files)
    content = bytearray(path.read_bytes())
    if kind is sibling:
        others = [each for each in files if each.parent == path.parent and each != path] or files
    else:
        others = [each for each in log_directory(other).rglob(path.name) if each.is_file()] or files
    kind(content, random, random.choice(others).read_bytes())
    path.write_bytes(content)
    return str(path.relative_to(directory))


def outcome(directory: Path, expected: list[SequencedEvent]) -> str:
    """Whether a server refuses, or gives these events, each as it was."""
    try:
        with engine(directory) as one:
            found = list(one.open("orders").read())
    except (StorageCorrupted, StorageUnavailable):
        return "refused"
    return "right" if found == expected else "WRONG"


@pytest.mark.parametrize("kind", KINDS)
def test_a_harmed_directory_is_refused_or_right(
    made: tuple[Path, Path, list[SequencedEvent]], tmp_path: Path, kind: Callable[[bytearray, Random, bytes], None]
) -> None:
    data, other, expected = made
    random, counts = Random(f"{seed()}-{kind.__name__}"), Counter[str]()
    for number in range(ROUNDS):
        harm = Path(shutil.copytree(data, tmp_path / f"harm-{number}", ignore=shutil.ignore_patterns("*.sock")))
        name = harmed(harm, other, random, kind)
        is_sound = check_directory(harm).is_sound
        found = outcome(harm, expected)
        counts[found] += 1
        assert found != "WRONG", name
        assert found == "right" or not is_sound, f"{name}: check calls it sound, the server refuses"
        shutil.rmtree(harm)
    print(kind.__name__, dict(counts))


@pytest.mark.parametrize("kind", KINDS)
def test_a_harmed_backup_is_refused_or_right(
    made: tuple[Path, Path, list[SequencedEvent]], tmp_path: Path, kind: Callable[[bytearray, Random, bytes], None]
) -> None:
    data, other, expected = made
    backup(data, tmp_path / "backup")
    random, counts = Random(f"{seed()}-{kind.__name__}"), Counter[str]()
    for number in range(ROUNDS):
        harm = Path(shutil.copytree(tmp_path / "backup", tmp_path / f"harm-{number}"))
        name = harmed(harm, other, random, kind)
        is_changed = (harm / name).read_bytes() != (tmp_path / "backup" / name).read_bytes()
        assert check_directory(harm).is_sound != is_changed, name
        restored = tmp_path / f"restored-{number}"
        try:
            restore(harm, restored)
        except StorageCorrupted:
            counts["refused"] += 1
            assert is_changed and outcome(restored, expected) == "refused", name
        else:
            counts["right"] += 1
            assert not is_changed and outcome(restored, expected) == "right", name
        shutil.rmtree(harm)
    print(kind.__name__, dict(counts))
