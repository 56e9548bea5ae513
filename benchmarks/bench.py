"""What the questions share in one run: the workload, the directory, and the filled stores.

A store is filled once, in batches of 1000, when the first question asks for it; the contenders that are filled together
take turns, slice by slice. `fills` keeps what that took, for the question that asks about it.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from headwater.core import Event

from .measure import Sample, expect, stopwatch
from .stores.headwater_store import HeadwaterStore
from .stores.raw_file import RawFile, frame_bytes
from .stores.sqlite_store import SqliteStore
from .stores.store import Store
from .workload import Workload, chunks

HEADWATER = "headwater"
SQLITE = "sqlite"
SQLITE_OWN_COMMITS = "sqlite, own commits"
RAW = "raw write"
BATCH = 1000
FILL_IN_FLIGHT = 8
FILL_SLICES = 20

OPENERS: dict[str, Callable[[Path], Store]] = {HEADWATER: HeadwaterStore, SQLITE: SqliteStore}


class Bench:
    """One run. `scale` shortens the measured pieces of work (1 = full)."""

    def __init__(
        self,
        directory: Path,
        workload: Workload,
        *,
        scale: float = 1.0,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.directory = directory
        self.workload = workload
        self.note = note
        self.fills: dict[str, list[Sample]] = {}
        """By contender: one sample per slice of the fill."""
        self._scale = scale
        self._stores: dict[str, Store] = {}
        self._numbers = itertools.count(1)

    def count(self, full: int, *, least: int = 1, multiple: int = 1) -> int:
        """So many, or fewer in a short run."""
        return max(least, int(full * self._scale) // multiple * multiple)

    def path(self, name: str) -> Path:
        """The directory of a filled store."""
        return self.directory / name

    def scratch(self, name: str) -> Path:
        """A path that nothing uses yet."""
        return self.directory / f"{name}-{next(self._numbers)}"

    def store(self, name: str) -> Store:
        """The filled store of a contender, open."""
        self.fill()
        if name not in self._stores:
            self._stores[name] = OPENERS[name](self.path(name))
        return self._stores[name]

    def release(self, name: str) -> Path:
        """The directory of a filled store, closed, so that another process can open it."""
        self.fill()
        if name in self._stores:
            self._stores.pop(name).close()
        return self.path(name)

    def raw_file(self, bytes_max: int) -> RawFile:
        """A new preallocated file, gone when it is closed."""
        return RawFile(self.scratch("raw"), bytes_max)

    def fill(self) -> None:
        """Fill the stores, if that is still to be done."""
        if self.fills:
            return
        total = self.workload.total
        for name, opener in OPENERS.items():
            self._stores[name] = opener(self.path(name))
        self.fills = {name: [] for name in (*OPENERS, RAW)}
        slices = list(chunks(total, max(BATCH, total // FILL_SLICES // BATCH * BATCH)))
        batch_room = 2 * len(frame_bytes(self.workload.stored(0, BATCH)))
        with self.raw_file(batch_room * (total // BATCH)) as raw:
            for number, (first, count) in enumerate(slices):
                self.note(f"filling to {total:,} events: slice {number + 1} of {len(slices)}")
                batches = self.workload.batches(first, count, BATCH)
                for name in OPENERS:
                    self._fill_slice(name, batches, first + count)
                self._fill_raw(raw, batches)

    def _fill_raw(self, raw: RawFile, batches: Sequence[Sequence[Event]]) -> None:
        frames = [frame_bytes(events) for events in batches]
        with stopwatch() as watch:
            for at in range(0, len(frames), FILL_IN_FLIGHT):
                raw.write(frames[at : at + FILL_IN_FLIGHT])
        self.fills[RAW].append(watch.rate(sum(map(len, batches))))

    def _fill_slice(self, name: str, batches: Sequence[Sequence[Event]], head: int) -> None:
        store = self._stores[name]
        with stopwatch() as watch:
            last = store.append_all(batches, FILL_IN_FLIGHT)
        expect(f"{name}: last number", head, last)
        expect(f"{name}: head", head, store.head())
        self.fills[name].append(watch.rate(sum(map(len, batches))))

    def close(self) -> None:
        """Close every store and remove every file."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()
        shutil.rmtree(self.directory, ignore_errors=True)
