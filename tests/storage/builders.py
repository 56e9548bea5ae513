"""What the storage tests make again and again: events, frames, engines, and the disk as a crash leaves it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from headwater.core import AppendCondition, Event, Query, SequencedEvent
from headwater.core.limits import EventColumns, check_append
from headwater.storage import Engine, StoredLog
from headwater.storage.catalog.identity import IDENTITY_KIND
from headwater.storage.frames.encoding import Chain, EncodedFrame, encode
from headwater.storage.frames.frame import Frame
from headwater.storage.state.data_directory import open_state

SEED = 0x5EED
CHAIN = Chain(crc_seed=SEED, epoch=1, previous_crc=0, durable_upto=0, nonce=7)
LOG_ID = bytes(range(16))


def event(type: str = "E", *tags: str, data: bytes = b"", **fields: Any) -> Event:
    """An event of that type with those tags."""
    return Event(type, data, tags, **fields)


def columns(events: Sequence[Event]) -> EventColumns:
    """Checked events, as the sequencer gets them."""
    return check_append(events, 64 * 1024 * 1024)


def encoded(
    events: Sequence[Event], first: int = 1, *, partitions: Sequence[int] = (), at: int = 1000, chain: Chain = CHAIN
) -> EncodedFrame:
    """One frame of these events."""
    return encode(columns(events), partitions or [0] * len(events), first, at, chain)


def content(frame: EncodedFrame) -> bytes:
    """What is written of a frame."""
    return b"".join(frame.buffers)


def decoded(frame: EncodedFrame) -> Frame:
    """The frame as it is read back."""
    return Frame(memoryview(content(frame)), 0, SEED)


def chained(sizes: Iterable[int], first: int = 1, *, data: bytes = b"x" * 100) -> list[EncodedFrame]:
    """Frames of so many events each, one following the other, each written when the one before it was durable."""
    frames: list[EncodedFrame] = []
    crc = 0
    for size in sizes:
        chain = Chain(SEED, 1, crc, first - 1, 7)
        frames.append(encoded([event(data=data) for _ in range(size)], first, chain=chain))
        first, crc = frames[-1].last + 1, frames[-1].crc
    return frames


def numbers(events: Iterable[SequencedEvent]) -> list[int]:
    """The sequence numbers of events."""
    return [each.sequence_number for each in events]


def unless(*, types: Sequence[str] = (), tags: Sequence[str] = (), after: int = 0, **more: Any) -> AppendCondition:
    """The condition that nothing of these types and tags comes after that number."""
    return AppendCondition(Query.where(types=types, tags=tags), after, **more)


class Fatal:
    """Stands for the end of the process: remembers why it should have ended."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def __call__(self, reason: str) -> None:
        self.reasons.append(reason)


def engine(directory: Path, **options: Any) -> Engine:
    """An engine that tends its logs only when it is told to, and does not mind a full test machine."""
    return Engine(directory, **{"maintains": False, "reserve_bytes": 0, "ballast_bytes": 0, **options})


def crashed(source: Path, target: Path) -> Path:
    """What a crash leaves of a data directory: a copy taken while it was open."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))
    return target


def forked(data: Path, other: Path, *, before: int = 1) -> tuple[Path, Path]:
    """A directory with log `orders`, and the same one with other events from 11 on, as if a second server had written
    them. Both are trimmed to what comes from number `before` on.
    """
    with engine(data) as one:
        fill(one.create("orders"), 10)
        crashed(data, other)
    for directory, payload in ((data, b"a" * 60), (other, b"b" * 60)):
        with engine(directory) as one:
            log = one.open("orders")
            fill(log, 140, data=payload)
            one.maintain()
            log.trim(before)
            one.maintain()
    return data, other


def without_identities(directory: Path) -> Path:
    """A data directory whose state does not know who its logs are: META.json alone does, as before the journal."""
    with closing(open_state(directory)) as state:
        for key, _ in list(state.items(IDENTITY_KIND)):
            state.delete(IDENTITY_KIND, key)
    return directory


def newest(log: StoredLog) -> Path:
    """The segment that is being written."""
    return log.frames.segments[-1].path


def log_directory(directory: Path, name: str = "orders") -> Path:
    """Where a log of a data directory is kept."""
    (found,) = (directory / "logs").glob(f"{name}.????????")
    return found


def change(path: Path, offset: int, content: bytes) -> None:
    """Overwrite some bytes of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(content)


def fill(
    log: StoredLog,
    count: int,
    *,
    per_call: int = 1,
    data: bytes = b"",
    tags: Callable[[int], Sequence[str]] = lambda _: (),
) -> None:
    """Append so many events with ids `1`, `2`, ..., so many per call."""
    start = log.head() + 1
    for first in range(start, start + count, per_call):
        batch = range(first, min(first + per_call, start + count))
        log.append([Event(f"T{n % 3}", data, tuple(tags(n)), id=str(n)) for n in batch])
