"""The steps of an archiver: register, claim the table, commit files, acknowledge.

No Spark here.

1. `open`: register as the log's consumer, which raises the epoch and holds trimming back; claim the table, which fences
   off every older archiver; acknowledge what the table has, in case the last one was killed before it could.
2. The caller writes Parquet files of the events after `archived` into `directory`.
3. `commit`: read the files back, make them durable, add them to the table, in one durable step.
4. `release`: acknowledge. Only now may the log drop these events.

It can be killed at any point: staged files that were not committed are not in the table and are staged again; the next
archiver acknowledges what was committed and not acknowledged.
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
"""The component under which an archiver is registered. It is valid under FutoIn's rule for names."""
OWNER = "spark"
HEARTBEAT_S = 30.0
"""How often an idle archiver acknowledges, so that the server sees that it is alive."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which archived events remain in the log, and how the others are dropped."""

    numbers: int = 0
    """How many of the newest archived numbers are not acknowledged."""
    seconds: float = 0.0
    """How recent events must be to remain unacknowledged."""
    is_trimming: bool = False
    """Whether the archiver trims the acknowledged events itself. If not, the log's retention drops them."""


@dataclass(frozen=True, slots=True)
class _ReadBack:
    """The files of a commit, which are read back and verified before it."""

    after: int
    """They contain the events after this number, up to the newest archived one."""
    version: int
    """The version of the table that contains them."""
    identities: Mapping[Path, tuple[int, int, int]]
    """The inode, size and modification time of each file, which differ if its content does."""

    def holds(self, root: Path, after: int) -> bool:
        """Whether the newest version has all events after that number in these unchanged files."""
        is_newest = not entry(root, self.version + 1).exists()
        return (
            is_newest
            and after >= self.after
            and all(path.exists() and _identity(path) == identity for path, identity in self.identities.items())
        )


class Archiver:
    """The only writer of a log's archive, from `open` until another archiver takes over."""

    def __init__(self, client: BulkClient, log: str, table: ArchiveTable, consumer: Consumer, keeping: Keeping) -> None:
        """Use `open` to make one."""
        self.log, self.keeping = log, keeping
        self._client, self._table, self._consumer = client, table, consumer
        self._releasing = threading.Lock()
        self._acknowledged = consumer.acknowledged
        self.after = table.state.archived
        """The next events are those after this number: `archived`, except after a gap."""
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
        """Step 1. Creates a missing table, which begins at the log's first retained event.

        Raises NotAnArchive, EventsMissing (unless `accepts_gap`), ArchiveFenced, and the errors of the client.
        """
        known = ArchiveTable(path).state if is_archive(path) else None
        if known is not None:
            check_log(path, known.log, log)
        after = 0 if known is None else min(known.archived, client.head(log).head)
        consumer = client.register_consumer(log, owner, component, after=after, drops_at_most=after)  # it has them
        info = client.info(log)  # from here on the log keeps everything unacknowledged
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
        """The table contains the log up to and including this number."""
        return self._table.state.archived

    @property
    def claim(self) -> int:
        """This archiver's claim on the table. It is larger than all earlier claims."""
        return claim_of(self._consumer)

    @property
    def path(self) -> Path:
        """The path of the table."""
        return self._table.path

    @property
    def directory(self) -> Path:
        """Where to stage the next events: files below `date=...`, by the date of recording."""
        return batch_directory(self.path, self.after, self.claim)

    def begin_checkpoint(self, parent: Path | None = None) -> Path:
        """A directory for Spark's query state, used by this archiver alone; earlier ones are removed.

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
        """Wrap staging and `commit`, so that any failure because this archiver was replaced becomes ArchiveFenced. The
        newer archiver has removed the files that this one was staging, so it may fail anywhere."""
        try:
            yield
        except Exception as error:
            newest = self._table.refresh().claim
            if newest != self.claim and not isinstance(error, ArchiveFenced):
                raise ArchiveFenced(str(self.path), self.claim, newest) from error
            raise

    def commit(self) -> Staged | None:
        """Step 3, for the files in `directory`; None if there are no events.

        Raises ArchiveIncomplete, ArchiveFenced; in both cases nothing was added.
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
        """Step 4; returns the number acknowledged. May be called at any time, by any thread.

        Files are read back before their events are acknowledged: from then on they may be the only copy. `commit` has
        read its own; the release that follows does not read them again, unless they or the table have changed. Raises
        ArchiveUnreadable if one of them is damaged; ConsumerFenced if another archiver has registered; and other errors
        of the client."""
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
        """Whether the last acknowledgement is at least one heartbeat ago."""
        return time.monotonic() - self._released_at >= HEARTBEAT_S

    def put_off_release(self) -> None:
        """An acknowledgement failed. Do not retry before the next heartbeat."""
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
        """Where reading begins. A recreated or restored log has no numbers below its start."""
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
    """Larger for each registration than for all earlier ones, even if the consumer was unregistered in between."""
    return (consumer.registered_at << 21) + consumer.epoch


def check_consumer(path: Path, archived: int, info: LogInfo, consumer: Consumer) -> None:
    """Raises ConsumerAhead if acknowledged events are not in this table: the log may trim them at any time."""
    if consumer.acknowledged > max(archived, info.first_retained - 1):
        raise ConsumerAhead(str(path), info.name, consumer.owner, consumer.component, consumer.acknowledged)


def missing(archived: int, incarnation: str, info: LogInfo) -> str | None:
    """The problem if the log cannot provide exactly the events after those in the table; None if it can."""
    if incarnation != info.incarnation:
        return (
            f"log {info.name!r} was replaced: it was deleted and recreated, or restored "
            f"(incarnation {info.incarnation}, the table has {incarnation})"
        )
    if info.first_retained > archived + 1:
        return f"log {info.name!r} starts at {info.first_retained}: the events in between were trimmed"
    return None
