"""Snapshots, which let the journal forget its beginning. They are taken a few entries at a time while changes continue.

All entries are copied to the journal's end, in key order. After the last one, the copies and all changes since the
first copy are the whole state: each entry was copied in its turn, and any later change follows; an entry created or
removed meanwhile has its change there. So callers wait for at most one step.

Before anything is unlinked, the journal is read again from there: it must yield exactly the entries of the image.
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
"""The journal grows by this and by twice the size of the last snapshot before the next one begins."""
_BUCKETS_OF = 100_000
"""The entries are checked in parts of about this number, because the guards of a part are in memory together."""


class Proof(NamedTuple):
    """The condition for the journal to forget the records below a snapshot."""

    first: int
    """The first record of the snapshot."""
    end: int
    """Its last record."""
    digest: int
    entries: int


class Snapshotting:
    """Takes snapshots of one journal, step by step.

    All methods except `prove` must be called under the lock of its state.
    """

    def __init__(self, journal: Journal, image: SqliteState) -> None:
        """A snapshot interrupted by closing the journal begins again."""
        self._journal, self._image = journal, image
        self._first = 0
        """The first record of the snapshot in progress; 0 if there is none."""
        self._after: tuple[str, str] = ("", "")
        """Kind and key of the last copied entry."""
        self._begin_above = GROWTH_BYTES_MIN + 2 * image.file_bytes
        self.to_prove: Proof | None = None
        """Set after everything is copied: `prove` and `forget` are the next steps."""

    @property
    def is_due(self) -> bool:
        """Whether a step must be taken."""
        return self.to_prove is None and (self._first > 0 or self._journal.bytes > self._begin_above)

    def step(self) -> None:
        """Copy some more entries of the image, which is up to date, or end the snapshot after the last one.

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
        """Verify the snapshot while others continue. Raises StorageCorrupted if it differs from the image."""
        assert self.to_prove is not None
        first, end, digest, entries = self.to_prove
        try:
            if digest_of(self._journal, first, end, entries) != digest:
                problem = f"the records {first} to {end} do not produce the state of its image: no files are removed"
                raise StorageCorrupted(str(self._journal.directory), problem, REMEDY)
        except BaseException:
            self.to_prove = None
            self._begin_above = self._journal.bytes * 2  # do not report it again each second
            raise

    def forget(self) -> None:
        """Forget the records replaced by the verified snapshot. Raises DiskFull, StorageUnavailable."""
        assert self.to_prove is not None
        first, self.to_prove = self.to_prove.first, None
        self._journal.forget(first)
        self._begin_above = self._journal.bytes * 2 + GROWTH_BYTES_MIN
        logger.info("%s: it now starts with record %d", self._journal.directory, first)


def record_of(entry: Entry) -> EntryRecord:
    """The record of an entry of the state."""
    kind, key, value, version = entry
    return EntryRecord(kind, key, version, value)


def entry_of(record: EntryRecord) -> Entry:
    """The entry of the state in a record; version 0 means that it is gone."""
    return record.kind, record.key, record.value, record.version


def digest_of(journal: Journal, first: int, end: int, entries: int) -> int:
    """The digest (see `rows`) of all entries that result from the records `first` to `end`, read from the disk.

    `entries`: their approximate number. Raises StorageCorrupted.
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
    """Apply records to the image of a state; returns their number.

    A snapshot among them has the expected digest of the image. Raises StorageCorrupted if it differs.
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
            problem = f"its entries up to record {last} of the journal differ from the snapshot there"
            raise StorageCorrupted(str(image.path), problem, REMEDY)
    if last != image.serial:
        image.apply(pending.values(), last, had_users)
    return count
