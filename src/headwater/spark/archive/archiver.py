"""The steps of an archiver, in order: register, claim the table, commit files, acknowledge.

No Spark here.

1. `open`: register as the log's consumer, which raises the epoch and holds trimming back; claim the table, which
   fences off every older archiver; acknowledge what the table has, in case that one was killed before it could.
2. Somebody writes Parquet files of the events after `archived` into `directory`.
3. `commit`: read the files back, make them durable, add them to the table, in one durable step.
4. `release`: acknowledge. Only now may the log forget these events.

It can be killed between any two of these, and in them: what was staged and not committed is not in the table and is
staged again; what was committed and not acknowledged is acknowledged by the next one.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import PositionOfOtherIncarnation
from ...flight.wire import Ticket
from ..delta.log import entry
from ..durable import sync
from .errors import ArchiveFenced, ConsumerAhead, EventsMissing
from .snapshot import check_file, snapshot
from .staging import Staged, batch_directory, drop_abandoned, drop_sidecars, inspect
from .state import check_log, is_archive
from .table import ArchiveTable

if TYPE_CHECKING:
    from ...core.consumer import Consumer
    from ...core.log import LogInfo
    from ...flight.client import BulkClient

COMPONENT = "ARCHIVER"
"""The component under which an archiver is registered. FutoIn's rule for names allows it."""
OWNER = "spark"
HEARTBEAT_S = 30.0
"""An archiver that has nothing to do acknowledges so often all the same: the server sees that it is there."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """What of the archived events stays in the log, and what becomes of the rest."""

    numbers: int = 0
    """So many of the newest archived numbers are not acknowledged yet."""
    seconds: float = 0.0
    """Nor are events that were recorded so short a time ago."""
    is_trimming: bool = False
    """Whether the archiver asks the log to forget what is acknowledged, instead of leaving that to its retention."""


@dataclass(frozen=True, slots=True)
class _ReadBack:
    """The files of a commit, which were read back and verified before it."""

    after: int
    """They have the events after this number, up to the newest that is archived."""
    version: int
    """Of the table, with them in it."""
    identities: Mapping[Path, tuple[int, int, int]]
    """Of each: inode, size and time of change, which differ when its content does."""

    def holds(self, root: Path, after: int) -> bool:
        """Whether the newest version has all events after that number in these files, as they were."""
        is_newest = not entry(root, self.version + 1).exists()
        return (
            is_newest
            and after >= self.after
            and all(path.exists() and _identity(path) == identity for path, identity in self.identities.items())
        )


class Archiver:
    """The one writer of a log's archive, from `open` until another one takes over."""

    def __init__(self, client: BulkClient, log: str, table: ArchiveTable, consumer: Consumer, keeping: Keeping) -> None:
        """See `open`, which makes one."""
        self.log, self.keeping = log, keeping
        self._client, self._table, self._consumer = client, table, consumer
        self._releasing = threading.Lock()
        self._acknowledged = consumer.acknowledged
        self.after = table.state.archived
        """The next events are those after this number: `archived`, but after a gap."""
        self._released_at = 0.0
        self._read_back: _ReadBack | None = None

    @staticmethod
    def open(
        client: BulkClient,
        log: str,
        path: Path,
        *,
        owner: str = OWNER,
        component: str = COMPONENT,
        keeping: Keeping = Keeping(),
        accepts_gap: bool = False,
    ) -> Archiver:
        """Step 1. A table that is not there yet is made, and begins at the log's first retained event.

        Raises NotAnArchive, EventsMissing (unless `accepts_gap`), ArchiveFenced, and what the client raises.
        """
        known = ArchiveTable(path).state if is_archive(path) else None
        if known is not None:
            check_log(path, known.log, log)
        after = 0 if known is None else min(known.archived, client.head(log).head)
        consumer = client.register_consumer(log, owner, component, after=after, drops_at_most=after)  # it has them
        info = client.info(log)  # from here on the log keeps what is not acknowledged
        table = ArchiveTable.create(path, log, info.incarnation, info.first_retained)
        check_consumer(path, table.state.archived, info, consumer)
        if problem := missing(table.state.archived, table.state.incarnation, info):
            if not accepts_gap:
                raise EventsMissing(str(path), table.state.archived, problem)
            table.follow_log(info.incarnation)
        table.claim(claim_of(consumer))
        archiver = Archiver(client, log, table, consumer, keeping)
        archiver.after = archiver._next_after(info)
        drop_abandoned(path, table.state.archived, archiver.claim)
        archiver.release()
        return archiver

    @property
    def archived(self) -> int:
        """The number up to which the log is in the table."""
        return self._table.state.archived

    @property
    def claim(self) -> int:
        """What this archiver holds against others; larger than all before."""
        return claim_of(self._consumer)

    @property
    def path(self) -> Path:
        """Of the table."""
        return self._table.path

    @property
    def directory(self) -> Path:
        """Where the next events are staged: files below `date=...`, by the date on which they were recorded."""
        return batch_directory(self.path, self.after, self.claim)

    def begin_checkpoint(self, parent: Path | None = None) -> Path:
        """A directory that is this archiver's alone, for what Spark remembers of a query; those before it are removed.

        It is below the table, unless a parent is given.
        """
        parent = self.path / "_checkpoints" if parent is None else parent.absolute()
        if parent.exists():
            for other in parent.iterdir():
                if re.fullmatch(r"[0-9a-f]{8,16}", other.name) and int(other.name, 16) < self.claim:
                    shutil.rmtree(other, ignore_errors=True)
        return parent / f"{self.claim:x}"

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """Around staging and `commit`: whatever fails because this archiver was replaced is ArchiveFenced.

        The newer one has removed what this one was staging, so that it may fail anywhere.
        """
        try:
            yield
        except Exception as error:
            newest = self._table.refresh().claim
            if newest != self.claim and not isinstance(error, ArchiveFenced):
                raise ArchiveFenced(str(self.path), self.claim, newest) from error
            raise

    def commit(self) -> Staged | None:
        """Step 3, for what lies in `directory`; None if there are no events.

        Raises ArchiveIncomplete, ArchiveFenced: then nothing was added.
        """
        directory = self.directory
        drop_sidecars(directory)
        staged = inspect(self.path, directory, self.after, self._count)
        if staged is None:
            shutil.rmtree(directory, ignore_errors=True)
            return None
        paths = [self.path / file.path for file in staged.files]
        identities = {path: _identity(path) for path in paths}
        sync(paths, self.path)
        after = self.archived
        version = self._table.commit(staged.files, after, staged.last, self.claim)
        self._read_back = _ReadBack(after, version, identities)
        self.after = staged.last
        return staged

    def release(self) -> int:
        """Step 4; answers up to which number. May be called at any time, by any thread.

        Files are read back before their events are acknowledged: from then on they may be the only copy. `commit` has
        read its own; the release that follows it does not read them again, unless they, or the table, have changed.
        Raises ArchiveUnreadable, if one of them is damaged; ConsumerFenced, if another archiver has registered; and
        what else the client raises.
        """
        with self._releasing:
            number = self._releasable()
            if number > self._acknowledged and not self._has_read_back():
                for file in snapshot(self.path).select(self._acknowledged, number):
                    check_file(file.path)
            epoch = self._consumer.epoch
            acknowledged = self._client.acknowledge(
                self.log, self._consumer.owner, self._consumer.component, number, epoch=epoch
            ).acknowledged
            self._acknowledged, self._read_back = acknowledged, None
            if self.keeping.is_trimming:
                self._client.trim(self.log, acknowledged + 1)
            self._released_at = time.monotonic()
            return acknowledged

    @property
    def is_release_due(self) -> bool:
        """Whether the last acknowledgement was a heartbeat ago."""
        return time.monotonic() - self._released_at >= HEARTBEAT_S

    def put_off_release(self) -> None:
        """It was tried in vain: not before the next heartbeat again."""
        self._released_at = time.monotonic()

    def _has_read_back(self) -> bool:
        return self._read_back is not None and self._read_back.holds(self.path, self._acknowledged)

    def _releasable(self) -> int:
        number = self.archived - self.keeping.numbers
        if self.keeping.seconds:
            then_ms = int((time.time() - self.keeping.seconds) * 1000)
            number = min(number, self._client.sequence_number_at(self.log, then_ms) - 1)
        return max(0, min(number, self._client.head(self.log).head))  # a restored log may end before its archive does

    def _count(self, after: int, upto: int) -> int:
        return self._client.count(self.log, after, upto)

    def _next_after(self, info: LogInfo) -> int:
        """Where reading begins. A log that was made again, or restored, knows no numbers up to where it begins."""
        after = max(self.archived, info.first_retained - 1)
        try:
            self._client.plan(Ticket(self.log, after=after))
        except PositionOfOtherIncarnation as error:
            return error.first - 1
        return after


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def claim_of(consumer: Consumer) -> int:
    """Larger for each registration than for those before, also where the consumer was unregistered in between."""
    return (consumer.registered_at << 21) + consumer.epoch


def check_consumer(path: Path, archived: int, info: LogInfo, consumer: Consumer) -> None:
    """Raises ConsumerAhead if events were acknowledged that are not in this table: the log may trim them any time."""
    if consumer.acknowledged > max(archived, info.first_retained - 1):
        raise ConsumerAhead(str(path), info.name, consumer.owner, consumer.component, consumer.acknowledged)


def missing(archived: int, incarnation: str, info: LogInfo) -> str | None:
    """What is wrong if the log cannot give just the events that follow those in the table; None if it can."""
    if incarnation != info.incarnation:
        return (
            f"log {info.name!r} is another one now: it was deleted and made again, or restored "
            f"(incarnation {info.incarnation}, the table's is {incarnation})"
        )
    if info.first_retained > archived + 1:
        return f"log {info.name!r} begins at {info.first_retained}: what was between is trimmed"
    return None
