"""An archiver's work in addition to batches: timely acknowledgements, and daily compaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from ...core.access import LoginNotChecked
from ...core.errors import EventLogError, Overloaded
from ...flight.errors import Busy
from ...formats.clients.retry import ServerUnreachable
from .compaction import compact, vacuum
from .errors import CompactionOvertaken

if TYPE_CHECKING:
    from ..pipeline.run import Run
    from .archiver import Archiver

TICK_S = 1.0
PASSING = (ServerUnreachable, Overloaded, LoginNotChecked, Busy)
"""Retried at the next heartbeat; a batch that needs the server reports the error itself."""


@dataclass(slots=True)
class Compacting:
    """Compaction of an archive, after each date."""

    vacuum_hours: int | None = None
    """After compaction, remove files that no version within this many hours needs. None keeps all files."""
    done_on: date | None = None

    @property
    def is_due(self) -> bool:
        """Whether a date has ended since the last compaction."""
        return self.done_on != datetime.now(UTC).date()

    def compact(self, path: Path, say: Callable[[str], object]) -> None:
        """Compact, and report the result."""
        self.done_on = datetime.now(UTC).date()
        try:
            done = compact(path)
        except CompactionOvertaken as error:
            say(str(error))
            return
        if done.dates:
            say(f"compacted {done.dates:,} dates: {done.files_before:,} files became {done.files_after:,}")
        if self.vacuum_hours is not None and (removed := vacuum(path, self.vacuum_hours)):
            say(f"removed {removed:,} files that no version of the last {self.vacuum_hours} hours needs")


class Tended(NamedTuple):
    """One archiver with its compaction."""

    archiver: Archiver
    compacting: Compacting | None


class Tending:
    """A context that runs a thread alongside a run. It ends the run if an archiver was replaced. `__exit__` raises the
    error that caused this."""

    def __init__(self, run: Run, *tended: Tended) -> None:
        self._run, self._tended = run, tended
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._tend, name="archive-tending", daemon=True)
        self._error: EventLogError | None = None

    def add(self, tended: Tended) -> None:
        """Also maintain this archiver from now on."""
        self._tended = (*self._tended, tended)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ending.set()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _tend(self) -> None:
        while not self._ending.wait(TICK_S):
            try:
                for archiver, compacting in self._tended:
                    if archiver.is_release_due:
                        self._release(archiver)
                    if compacting is not None and compacting.is_due:
                        compacting.compact(archiver.path, self._run.say)
            except EventLogError as error:
                self._error = error
                self._run.stop.ask()
                return

    def _release(self, archiver: Archiver) -> None:
        try:
            archiver.release()
        except PASSING as error:
            archiver.put_off_release()
            self._run.say(f"log {archiver.log!r}: not acknowledged: {error}; trying again")
