"""Damages files of a Delta table's log: bits are flipped, blocks and files are cut, swapped and doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

KINDS = ("flip", "cut end", "cut begin", "cut out", "zeros", "swap blocks", "double block", "swap files", "double file")


def outcomes(
    log: Path, read: Callable[[], Any], refused: type[Exception], count: int, seed: int = 0
) -> Counter[tuple[str, str, str]]:
    """Of so many damages of each kind: how often `read` refused, was right, or gave something else ("silent").

    By kind of file, kind of damage and outcome. Each refusal names the table.
    """
    random, before, found = Random(seed), read(), Counter[tuple[str, str, str]]()
    for kind in KINDS:
        for _ in range(count):
            with damaged(log, kind, random) as file:
                try:
                    outcome = "right" if read() == before else "silent"
                except refused as error:
                    assert str(log.parent) in str(error)
                    outcome = "refused"
                found[file, kind, outcome] += 1
    assert read() == before
    return found


@contextmanager
def damaged(log: Path, kind: str, random: Random) -> Iterator[str]:
    """One file of the log has that damage; its kind is answered. All is whole afterwards."""
    whole = {path: path.read_bytes() for path in log.iterdir() if path.is_file()}
    try:
        suffixes = sorted({_kind_of(path) for path in whole})
        chosen = random.choice(suffixes)
        path = random.choice(sorted(path for path in whole if _kind_of(path) == chosen))
        for target, content in _damage(path, whole, kind, random).items():
            target.write_bytes(content)
        yield chosen
    finally:
        for path in log.iterdir():
            if path.is_file() and path not in whole:
                path.unlink()
        for path, content in whole.items():
            path.write_bytes(content)


def _damage(path: Path, whole: dict[Path, bytes], kind: str, random: Random) -> dict[Path, bytes]:
    content = whole[path]
    if kind == "swap files":
        other = random.choice(sorted(other for other in whole if _kind_of(other) == _kind_of(path)))
        return {path: whole[other], other: content}
    if kind == "double file":
        newest = max(int(entry.stem) for entry in whole if entry.suffix == ".json")
        return {path.with_name(f"{newest + 1:020d}{''.join(path.suffixes) or '.json'}"): content}
    return {path: _changed(content, kind, random)}


def _changed(content: bytes, kind: str, random: Random) -> bytes:
    begin, other = sorted(random.randrange(len(content)) for _ in range(2))
    size = min(random.choice((1, 16, 512, 4096)), len(content) - begin)
    if kind == "flip":
        return content[:begin] + bytes([content[begin] ^ 1 << random.randrange(8)]) + content[begin + 1 :]
    if kind == "cut end":
        lines = [at + random.randrange(2) for at, byte in enumerate(content) if byte == 10]  # also between lines
        return content[: random.choice([begin, *lines])]
    if kind == "cut begin":
        lines = [at + 1 for at, byte in enumerate(content) if byte == 10]
        return content[random.choice([begin, *lines]) :]
    if kind == "cut out":
        return content[:begin] + content[other:]
    if kind == "zeros":
        return content[:begin] + bytes(size) + content[begin + size :]
    if kind == "double block":
        return content[: begin + size] + content[begin : begin + size] + content[begin + size :]
    size = min(size, other - begin, len(content) - other)
    first, second = content[begin : begin + size], content[other : other + size]
    return content[:begin] + second + content[begin + size : other] + first + content[other + size :]


def _kind_of(path: Path) -> str:
    return "checkpoint" if path.suffix == ".parquet" else "entry" if path.suffix == ".json" else "pointer"
