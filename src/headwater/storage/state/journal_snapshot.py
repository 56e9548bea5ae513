"""How the journal can forget its beginning: a snapshot, taken a few entries at a time while changes go on.

All entries are copied to the journal's end, in the order of their keys. When the last one is, the copies and all
changes since the first of them are the whole state: an entry was copied when its turn came, and changed after that or
not at all; one that was made or removed meanwhile has its change there. So nobody waits for more than one step.

Before anything is unlinked, the journal is read again from there: it must make the very entries that the image has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from ...core.errors import StorageCorrupted
from .journal import EntryRecord, HadUsers, Journal, JournalSnapshot, Written
from .last_confirmed import REMEDY
from .rows import Entry, guard_of, summary_of
from .sqlite_state import SqliteState

logger = logging.getLogger("headwater.storage")

STEP_ENTRIES = 256
STEP_BYTES = 256 * 1024
GROWTH_BYTES_MIN = 4 * 1024 * 1024
"""The journal grows by that, and by twice what the last snapshot took, before the next one begins."""
_BUCKETS_OF = 100_000
"""The entries are looked at in so many parts that each has about that number: their guards are in memory together."""


class Proof(NamedTuple):
    """What must hold before the journal forgets what is below a snapshot."""

    first: int
    """Where the snapshot begins."""
    end: int
    """Its last record."""
    digest: int
    entries: int


class Snapshotting:
    """Takes snapshots of one journal, step by step. To be called under the lock of its state, but for `prove`."""

    def __init__(self, journal: Journal, image: SqliteState) -> None:
        """Where the journal was in the middle of a snapshot when it was closed, that one is begun anew."""
        self._journal, self._image = journal, image
        self._first = 0
        """Where the one begins that is being taken; 0 if none is."""
        self._after: tuple[str, str] = ("", "")
        """Kind and key of the entry that was copied last."""
        self._begin_above = GROWTH_BYTES_MIN + 2 * image.file_bytes
        self.to_prove: Proof | None = None
        """Set when all is copied: next come `prove` and `forget`."""

    @property
    def is_due(self) -> bool:
        """Whether there is a step to be taken now."""
        return self.to_prove is None and (self._first > 0 or self._journal.bytes > self._begin_above)

    def step(self) -> None:
        """Copy some more entries of the image, which is up to date; or end the snapshot, if that were all.

        Raises StorageCorrupted, StorageUnavailable, DiskFull; OSError: writing the journal failed.
        """
        if not self._first:
            self._first, self._after = self._journal.head + 1, ("", "")
        entries = self._image.after(*self._after, count=STEP_ENTRIES, size=STEP_BYTES)
        if entries:
            self._journal.append([record_of(entry) for entry in entries], is_durable=False, are_copies=True)
            self._after = entries[-1][:2]
            return
        digest, had_users = self._image.digest, self._image.had_users()
        end = self._journal.append([HadUsers(had_users), JournalSnapshot(self._first, digest)], is_durable=True)
        self._image.apply((), end, had_users, is_durable=True)
        self.to_prove = Proof(self._first, end, digest, self._image.count())
        self._first = 0

    def prove(self) -> None:
        """Read the snapshot again, while others go on. Raises StorageCorrupted if it is not what the image had."""
        assert self.to_prove is not None
        first, end, digest, entries = self.to_prove
        try:
            if digest_of(self._journal, first, end, entries) != digest:
                problem = f"the records {first} to {end} do not make the state that its image has: nothing is unlinked"
                raise StorageCorrupted(str(self._journal.directory), problem, REMEDY)
        except BaseException:
            self.to_prove = None
            self._begin_above = self._journal.bytes * 2  # what is told, is not told again each second
            raise

    def forget(self) -> None:
        """What the snapshot was proved to replace. Raises DiskFull, StorageUnavailable."""
        assert self.to_prove is not None
        first, self.to_prove = self.to_prove.first, None
        self._journal.forget(first)
        self._begin_above = self._journal.bytes * 2 + GROWTH_BYTES_MIN
        logger.info("%s: it begins with record %d now", self._journal.directory, first)


def record_of(entry: Entry) -> EntryRecord:
    """The record of an entry as the state has it."""
    kind, key, value, version = entry
    return EntryRecord(kind, key, version, value)


def entry_of(record: EntryRecord) -> Entry:
    """The entry as the state has it; version 0: it is gone."""
    return record.kind, record.key, record.value, record.version


def digest_of(journal: Journal, first: int, end: int, entries: int) -> int:
    """The digest (see `rows`) of all entries that the records from `first` to `end` make, read from the disk.

    `entries`: about how many there are. Raises StorageCorrupted.
    """
    parts = entries // _BUCKETS_OF + 1
    total = 0
    for part in range(parts):
        guards: dict[tuple[str, str], int] = {}
        for number, record in journal.read(first - 1):
            if number > end:
                break
            if isinstance(record, EntryRecord) and hash((record.kind, record.key)) % parts == part:
                if record.version:
                    guards[record.kind, record.key] = guard_of(record.kind, record.key, record.value, record.version)
                else:
                    guards.pop((record.kind, record.key), None)
        total += sum(guards.values())
    return summary_of(0, total, 0).digest


def replay(image: SqliteState, written: Iterable[Written]) -> int:
    """Apply records to the image of a state; answers how many there were.

    A snapshot among them says what the image must be by then. Raises StorageCorrupted: it is not.
    """
    pending: dict[tuple[str, str], Entry] = {}
    had_users, last, count = image.had_users(), image.serial, 0
    for last, record in written:
        count += 1
        if isinstance(record, EntryRecord):
            pending[record.kind, record.key] = entry_of(record)
        elif isinstance(record, HadUsers):
            had_users = record.had_users
        if isinstance(record, JournalSnapshot) or len(pending) >= STEP_ENTRIES:
            image.apply(pending.values(), last, had_users)
            pending.clear()
        if isinstance(record, JournalSnapshot) and record.digest != image.digest:
            problem = f"up to record {last} of the journal it makes other entries than those that were there then"
            raise StorageCorrupted(str(image.path), problem, REMEDY)
    if last != image.serial:
        image.apply(pending.values(), last, had_users)
    return count
