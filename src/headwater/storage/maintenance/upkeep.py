"""Maintenance of open logs: the choice of logs in a round, and the order of tasks.

A log is skipped while it is unchanged since a round found nothing to do. So an idle log opens and locks no file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from ...core.errors import Closed, EventLogError
from ..catalog.backup_lock import NoBackup
from ..disk.locks import LockLost
from ..index.backlog import Backlog
from ..index.id_files import IdFile
from ..index.ids import Generation
from ..index.postings import FilePostings
from ..log import StoredLog
from ..segments.segment import Segment
from . import tasks
from .worker import IndexWorker

logger = logging.getLogger("headwater.storage")


class Seen(NamedTuple):
    """The inputs of the tasks. While they are unchanged, only retention has work to do."""

    head: int
    first_retained: int
    known_from: int
    segments: tuple[Segment, ...]
    files: tuple[FilePostings, ...]
    id_files: tuple[IdFile, ...]
    generations: tuple[Generation, ...]

    @staticmethod
    def of(log: StoredLog) -> Seen:
        """The current values of a log."""
        ids, index = log.index.ids, log.index
        return Seen(
            log.head(),
            log.first_retained,
            log.known_from,
            tuple(log.frames.segments),
            index.files,
            tuple(ids.files),
            tuple(ids.generations),
        )


class Attempt(Protocol):
    """Runs a step of maintenance, and logs any failure."""

    def __call__(self, what: str, step: Callable[[], None], log: StoredLog) -> bool:
        """Whether it succeeded."""


class Upkeep:
    """Maintains the open logs of one data directory. One thread at a time."""

    def __init__(self, directory: Path, attempt: Attempt, worker: IndexWorker, flush_state: Callable[[], None]) -> None:
        """`flush_state`: see `tasks.reclaim`."""
        self._directory, self._attempt, self._worker, self._flush_state = directory, attempt, worker, flush_state

    def tend(self, log: StoredLog, now: int | None) -> None:
        """Run a round for one log. `now`: the present time in ms if retention must run, or None."""
        if now is not None:
            self._try(log, "retention", lambda: tasks.apply_retention(log, now))
            self._try(log, "names of writers", log.release_names)
        self._tell_of_writers(log)
        seen = Seen.of(log)
        if seen == log.tended:
            return
        steps: dict[str, Callable[[], None]] = {
            "indexing": partial(self._index, log),
            "merging postings": partial(tasks.merge_postings, log, self._worker.run),
            "merging ids": partial(tasks.move_ids, log, self._worker.run),
        }
        is_done = [self._try(log, what, step) for what, step in steps.items()]
        if all([*is_done, self._give_space_back(log)]):
            log.tended = seen  # if a task changed something, the next round sees it

    def _tell_of_writers(self, log: StoredLog) -> None:
        """Warn once if a log's number of writers is near the limit."""
        trouble = log.writer_table.trouble()
        if trouble is not None and not log.has_told_of_writers:
            logger.warning("log %s: too many writers: %s", log.name, trouble)
        log.has_told_of_writers = trouble is not None

    def index_urgently(self, logs: Sequence[StoredLog], backlog: Backlog, goes_on: Callable[[], bool]) -> bool:
        """Index the logs with the most events until it is no longer urgent; returns whether an index file was made.

        A log whose indexing failed is retried in the next round of maintenance.
        """
        has_made = False
        for log in sorted(logs, key=lambda each: each.backlog.unindexed, reverse=True):
            if not backlog.is_urgent or not goes_on():
                break
            if not log.backlog.is_failing:
                files = log.index.files
                self._try(log, "indexing", partial(self._index, log))
                has_made = has_made or log.index.files is not files
        return has_made

    def _index(self, log: StoredLog) -> None:
        """Index the unindexed events of a log, and count failures, which end the waiting of appends."""
        try:
            tasks.seal_segments(log, self._worker.run)
            tasks.index_newest(log, self._worker.run)
        except (EventLogError, OSError) as error:
            log.tended = None  # the next round retries it even without a change
            if not (isinstance(error, Closed | LockLost) or log.is_closed):
                log.backlog.failed(error)
            raise
        log.backlog.succeeded()

    def _give_space_back(self, log: StoredLog) -> bool:
        """Unlink files no longer used; False if that failed."""
        with NoBackup(self._directory) as may_unlink:
            return may_unlink and self._try(log, "giving space back", partial(self._unlink, log))

    def _unlink(self, log: StoredLog) -> None:
        tasks.drop_leftovers(log)
        tasks.reclaim(log, self._flush_state)

    def _try(self, log: StoredLog, what: str, step: Callable[[], None]) -> bool:
        return self._attempt(f"log {log.name}: {what}", step, log)
