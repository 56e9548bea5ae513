"""Data directories: opened, read, appended to, backed up."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from headwater.core import Event, LogSettings, Query, QueryItem
from headwater.storage import Engine
from headwater.storage.backup import backup, restore
from headwater.storage.segments import segment_log

from ..measure import expect
from .piece import Piece, Step

LOGS, SEGMENTS = 500, 500
FILLED, BATCH = 100_000, 1000
BACKUPS = 2
BACKED_UP_DATA = 600
"""Bytes of data of an event that is backed up."""
POINTS, SINGLES = 500, 200


def _events(first: int, count: int, data_bytes: int = 100) -> list[Event]:
    drawn = random.Random(first)
    return [
        Event(
            drawn.choice(("Placed", "Paid", "Shipped")),
            drawn.randbytes(data_bytes),
            (f"customer:{drawn.randrange(1000)}", f"order:{number // 4}"),
            id=f"{drawn.getrandbits(128):032x}",
            source="/shop",
        )
        for number in range(first, first + count)
    ]


def _make_logs(directory: Path) -> None:
    with closing(Engine(directory / "data", maintains=False)) as engine:
        for number in range(LOGS):
            engine.create(f"log-{number}").append(_events(1, 3))


def _make_segments(directory: Path) -> None:
    size, segment_log.SEGMENT_BYTES_MIN = segment_log.SEGMENT_BYTES_MIN, 16 * 1024
    largest, segment_log.SEGMENT_BYTES_MAX = segment_log.SEGMENT_BYTES_MAX, 16 * 1024
    try:
        with closing(Engine(directory / "data", maintains=False)) as engine:
            log = engine.create("log")
            for number in range(SEGMENTS):
                log.append(_events(number * 40, 40, 250))
            engine.maintain()
    finally:
        segment_log.SEGMENT_BYTES_MIN, segment_log.SEGMENT_BYTES_MAX = size, largest


def _make_filled(directory: Path, data_bytes: int = 100, logs: int = 1) -> None:
    with closing(Engine(directory / "data", maintains=False)) as engine:
        for number in range(logs):
            log = engine.create(f"log-{number}", LogSettings())
            for first in range(0, FILLED // logs, BATCH):
                log.append(_events(first, BATCH, data_bytes))
        engine.maintain()


@contextmanager
def _opening(directory: Path) -> Iterator[Step]:
    engines: list[Engine] = []

    def close(_: int) -> None:
        while engines:
            engines.pop().close()

    def open_all(_: int) -> None:
        engines.append(Engine(directory / "data", maintains=False))
        for name in engines[0].names():
            engines[0].open(name).head()

    try:
        yield Step(open_all, close)
    finally:
        close(0)


@contextmanager
def _scanning(directory: Path) -> Iterator[Step]:
    with closing(Engine(directory / "data", maintains=False)) as engine:
        log = engine.open("log-0")
        yield Step(lambda _: expect("events", FILLED, sum(1 for _ in log.read())))


@contextmanager
def _scanning_first(directory: Path) -> Iterator[Step]:
    engines: list[Engine] = []

    def before(_: int) -> None:
        while engines:
            engines.pop().close()
        engines.append(Engine(directory / "data", maintains=False))

    try:
        yield Step(lambda _: expect("events", FILLED, sum(1 for _ in engines[0].open("log-0").read())), before)
    finally:
        before(0)
        engines.pop().close()


@contextmanager
def _reading_points(directory: Path) -> Iterator[Step]:
    drawn = random.Random(7)
    queries = [Query((QueryItem(tags=(f"order:{drawn.randrange(FILLED // 4)}",)),)) for _ in range(POINTS)]
    with closing(Engine(directory / "data", maintains=False)) as engine:
        log = engine.open("log-0")
        yield Step(lambda _: expect("events", POINTS * 4, sum(len(list(log.read(query))) for query in queries)))


@contextmanager
def _appending(directory: Path, *, each: int, count: int) -> Iterator[Step]:
    shutil.rmtree(directory / "appended", ignore_errors=True)
    with closing(Engine(directory / "appended", maintains=False)) as engine:
        log = engine.create("log")
        slices: list[list[list[Event]]] = []

        def before(number: int) -> None:
            slices[:] = [[_events((number * count + at) * each, each) for at in range(count)]]

        def append(_: int) -> None:
            for events in slices[0]:
                log.append(events)

        yield Step(append, before)


@contextmanager
def _backing_up(directory: Path) -> Iterator[Step]:
    def before(_: int) -> None:
        shutil.rmtree(directory / "copy", ignore_errors=True)

    yield Step(lambda _: backup(directory / "data", directory / "copy"), before)


def _make_backup(directory: Path) -> None:
    _make_filled(directory, BACKED_UP_DATA, 4)
    backup(directory / "data", directory / "backup")


@contextmanager
def _restoring(directory: Path) -> Iterator[Step]:
    def before(_: int) -> None:
        shutil.rmtree(directory / "copy", ignore_errors=True)

    yield Step(lambda _: restore(directory / "backup", directory / "copy"), before)


_in_memory: Callable[..., Piece] = partial(Piece, is_in_memory=True, repeats=5)
_filled: Callable[..., Piece] = partial(_in_memory, prepare=_make_filled)

PIECES = (
    _in_memory("open-logs", f"a directory with {LOGS} logs, and each of them", _opening, _make_logs),
    _in_memory("open-segments", f"a log of {SEGMENTS} segments", _opening, _make_segments),
    _filled("read-points", f"{POINTS} times four events of a tag", _reading_points),
    _filled("read-all", f"{FILLED:,} events", _scanning),
    _filled("read-first", "the same in a log just opened, with the opening", _scanning_first),
    Piece("append-singles", f"{SINGLES} appends of one event", partial(_appending, each=1, count=SINGLES), repeats=5),
    Piece("append-batches", f"20 appends of {BATCH:,} events", partial(_appending, each=BATCH, count=20), repeats=5),
    Piece(
        "backup",
        "four logs with 80 MB",
        _backing_up,
        partial(_make_filled, data_bytes=BACKED_UP_DATA, logs=4),
        repeats=BACKUPS,
    ),
    Piece("restore", "a backup of them", _restoring, _make_backup, repeats=BACKUPS),
)
