"""Data directories that earlier versions wrote are opened, and have in them what was put there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from headwater.core.errors import DuplicateEventId
from headwater.storage import check_directory

from .builders import engine, event
from .data.make_format_1 import DIRECTORY, EXPECTED, found_in


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy of the kept directory of format version 1."""
    copy = shutil.copytree(DIRECTORY, tmp_path / "format-1")
    for log in (copy / "logs").iterdir():
        for part in ("idx", "history"):  # an empty directory is not kept
            (log / part).mkdir(exist_ok=True)
    return copy


def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return found


def test_format_1_has_what_was_put_in_it(kept: Path) -> None:
    for _ in range(2):
        with engine(kept) as again:
            assert {name: found_in(again.open(name)) for name in again.names()} == expected()


def test_format_1_needs_no_index(kept: Path) -> None:
    for index in kept.glob("logs/*/idx"):
        shutil.rmtree(index)
    with engine(kept) as again:
        assert {name: found_in(again.open(name)) for name in again.names()} == expected()


def test_format_1_is_sound(kept: Path) -> None:
    report = check_directory(kept)
    assert [(log.name, log.problems, log.notes) for log in report.logs] == [
        ("again", [], []), ("flights", [], []), ("orders", [], [])
    ]  # fmt: skip


def test_format_1_is_written_on(kept: Path) -> None:
    with engine(kept) as again:
        for name, was in expected().items():
            assert again.open(name).append([event()]).first == was["head"] + 1
        with pytest.raises(DuplicateEventId):
            again.open("orders").append([event("Other", id="id-100")])
        again.maintain()
    assert check_directory(kept).is_sound
