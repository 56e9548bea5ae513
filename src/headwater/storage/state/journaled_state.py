"""The state store over a journal.

Each change is written first to the journal as a frame, and a moment later to its SQLite image. Reads combine the
changes that the image lacks with the image. A durable change takes one write and one sync of a preallocated file; the
image takes many changes in one transaction, only the last one per entry. It is never ahead of the durable part of the
journal, and can be rebuilt from it at any time: `recovery` does so if one of the two is damaged or behind.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from ...core.errors import Closed, EventLogError, NotPrimary, OutcomeUnknown, StateConflict, StorageUnavailable
from ...core.state import USER_KIND, StateEntry, StateStore
from ..disk.locks import HeldLock
from ..disk.system import refusal_of
from ..frames.frame_log import Head
from .change_thread import Patient
from .journal import NAME, EntryRecord, HadUsers, Journal, JournalSnapshot, Record, Written
from .journal_snapshot import Snapshotting, entry_of
from .sqlite_state import SqliteState

logger = logging.getLogger("headwater.storage")

PENDING_MAX = 512
"""The maximum number of entries waiting for the image: applying them takes about 10 ms, and others wait meanwhile."""
PENDING_BYTES_MAX = 4 * 1024 * 1024
"""The maximum number of bytes of values in all waiting changes."""
STEPS_MAX = 256
"""The maximum number of steps of a snapshot in one round of maintenance."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _change(method: Callable[Concatenate[JournalState, _P], _R]) -> Callable[Concatenate[JournalState, _P], _R]:
    """A method that writes the journal.

    After an error that is not an error of the core, the content on disk is unknown.
    """

    @wraps(method)
    def safe(self: JournalState, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._changing:
            if self._is_closed:
                raise Closed(NAME)
            try:
                return method(self, *args, **kwargs)
            except OSError as error:
                where = self.journal.directory
                logger.critical("%s: a write failed and the content of the disk is unknown: %s", where, error)
                self._fatal(f"the state: writing failed: {error}")
                raise refusal_of(error, self.journal.directory, "cannot write the journal") from error

    return safe


def _patient_change(method: Callable[Concatenate[JournalState, _P], _R]) -> Callable[Concatenate[JournalState, _P], _R]:
    """A `_change` whose caller waits: for a journal with a home, at most for the home's patience."""
    change = _change(method)

    @wraps(method)
    def patient(self: JournalState, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        home = self.journal.home
        if self._patient is None or home is None or self.journal.is_following:
            return change(self, *args, **kwargs)
        if kwargs.get("is_durable", True) and (away := home.away) is not None:
            raise away  # send no more to a home that has not answered yet
        try:
            return self._patient.do(lambda: change(self, *args, **kwargs), home.patience_s)
        except Closed as error:  # closed meanwhile, for example by an engine that lost its lock
            raise StorageUnavailable(f"{self.journal.directory}: the state is closed") from error

    return patient


class JournalState(StateStore):
    """A StateStore in a journal, with an image in SQLite. Safe to call from any thread. See `recovery`."""

    def __init__(
        self, journal: Journal, image: SqliteState, fatal: Callable[[str], None], lock: HeldLock | None = None
    ) -> None:
        """Take over the journal and the image, which have equal content. `fatal` ends the process after a failed write.

        `lock` is closed last.
        """
        self.journal, self.image = journal, image
        self._fatal, self._held = fatal, lock
        self._changing = threading.RLock()
        """Held during a change, for as long as the journal takes. Readers do not wait for it."""
        self._patient = None if journal.home is None else Patient(NAME)
        """Makes the changes if the journal has a home."""
        self._lock = threading.Lock()
        """Held briefly; keeps the waiting changes and the image consistent."""
        self._pending: dict[tuple[str, str], EntryRecord] = {}
        self._is_applied = True
        """Whether the image has all changes."""
        self._pending_bytes = 0
        self._had_users = image.had_users()
        self._snapshotting = Snapshotting(journal, image)
        self._has_warned = self._is_closed = False
        self.mended: list[str] = []
        """What was rebuilt at opening, and why."""

    def get(self, kind: str, key: str) -> StateEntry | None:
        """See StateStore. This and the methods below raise StorageCorrupted, StorageUnavailable."""
        with self._lock:
            if (pending := self._pending.get((kind, key))) is None:
                return self.image.get(kind, key)
            return StateEntry(pending.value, pending.version) if pending.version else None

    @_patient_change
    def put(
        self, kind: str, key: str, value: bytes, expected_version: int | None = None, *, is_durable: bool = True
    ) -> int:
        if not (isinstance(kind, str) and isinstance(key, str) and isinstance(value, bytes)):
            raise TypeError(f"expected two strings and bytes, got {kind!r}, {key!r} and {type(value).__name__}")
        version = self._expect(kind, key, expected_version) + 1
        records: list[Record] = [EntryRecord(kind, key, version, value)]
        if kind == USER_KIND and not self._had_users:
            records.append(HadUsers(True))
        self._write(records, is_durable)
        return version

    @_patient_change
    def delete(self, kind: str, key: str, expected_version: int | None = None) -> bool:
        if not self._expect(kind, key, expected_version):
            return False
        self._write([EntryRecord(kind, key, 0, b"")])
        return True

    @_patient_change
    def delete_all(self, kind: str, keys: Iterable[str]) -> int:
        there = [key for key in dict.fromkeys(keys) if self._expect(kind, key, None)]
        if there:
            self._write([EntryRecord(kind, key, 0, b"") for key in there])
        return len(there)

    @_patient_change
    def keep_had_users(self, had_users: bool) -> None:
        self._write([HadUsers(bool(had_users))])

    @_patient_change
    def flush(self) -> None:
        self.journal.check_lock()
        self.journal.sync()
        self.image.confirm(self.journal.head, self._had_users)

    def had_users(self) -> bool:
        return self._had_users

    def items(self, kind: str, prefix: str = "") -> Iterator[tuple[str, StateEntry]]:
        with self._lock:
            found = dict(self.image.items(kind, prefix))
            for (its_kind, key), record in self._pending.items():
                if its_kind == kind and key.startswith(prefix):
                    if record.version:
                        found[key] = StateEntry(record.value, record.version)
                    else:
                        found.pop(key, None)
        return iter(sorted(found.items()))

    def count(self) -> int:
        """The number of entries."""
        self.apply()
        return self.image.count()

    @_change
    def follow(self, head: Head, kinds: set[str]) -> None:
        """Apply the changes of another server, up to `head` of the journal at its home.

        `kinds` receives the kinds of changed entries, even if it fails midway. Raises the errors of
        `ReplicatedLog.follow`.
        """
        has_news = False
        for written in self.journal.follow(head):
            self._take_up(written, kinds)
            has_news = True
        if has_news:
            self.image.confirm(self.journal.head, self._had_users)

    @_change
    def take(self, content: bytes, kinds: set[str]) -> bool:
        """Like `follow`, for one frame committed at the home; False: see `ReplicatedLog.take`."""
        written = self.journal.take(content)
        if written is None:
            return False
        self._take_up(written, kinds)
        return True

    def _take_up(self, written: Iterable[Written], kinds: set[str]) -> None:
        """Apply records that the journal reads only once: each must be added to the state, whatever fails here."""
        records: list[Record] = []
        for number, record in written:
            records.append(record)
            if isinstance(record, EntryRecord):
                kinds.add(record.kind)
            elif isinstance(record, JournalSnapshot):
                self._take(records)
                self._forget_as_elsewhere(record, number)
                records = []
        self._take(records)
        self._apply_if_much()

    @_change
    def begin_term(self) -> None:
        """Begin to make changes here. Raises OSError."""
        self.journal.begin_term()

    @_change
    def apply(self) -> None:
        """Bring the image up to date. Changes that it cannot accept now wait."""
        self._apply(self.journal.head)

    def _apply(self, upto: int) -> None:
        """Apply the waiting changes, all up to that number, to the image."""
        if self._is_applied:
            return
        self.journal.check_lock()  # else another process owns the image
        self.journal.sync()  # the image must not have changes that the journal could still lose
        try:
            with self._lock:
                self.image.apply(map(entry_of, self._pending.values()), upto, self._had_users)
                self._pending.clear()
        except EventLogError as error:  # nothing is lost: the journal has it
            if not self._has_warned:
                logger.error("%s; retrying", error)
            self._has_warned = True
            return
        self._pending_bytes, self._is_applied, self._has_warned = 0, True, False

    def maintain(self, may_unlink: bool) -> None:
        """The work done every second: bring the image up to date and keep the journal short.

        `may_unlink`: no backup is being taken. Raises StorageCorrupted, StorageUnavailable, DiskFull.
        """
        self.apply()
        if not may_unlink or self.journal.is_following:
            return
        for _ in range(STEPS_MAX):
            if not self._step():
                break
        if self._snapshotting.to_prove is not None:
            self._snapshotting.prove()
            self._forget()

    @property
    def is_settled(self) -> bool:
        """Whether the outcome of every change is known."""
        return self._patient is None or self._patient.is_settled

    def take_landed(self) -> bool:
        """Whether a change reported as of unknown outcome was made since the last call."""
        return self._patient is not None and self._patient.take_landed()

    def close(self) -> None:
        """Close both, with all changes applied."""
        if self._patient is not None:
            self._patient.close()
        with self._changing, ExitStack() as closing:
            if self._is_closed:
                return
            if self._held is not None:
                closing.callback(self._held.close)
            closing.callback(self.image.close)
            closing.callback(self.journal.close)
            try:
                self.apply()
            except (StorageUnavailable, OutcomeUnknown):
                pass  # the journal reports it when closed; the image stays as it was
            finally:
                self._is_closed = True

    @_change
    def _step(self) -> bool:
        """Copy some more entries if a snapshot must be taken; returns whether to continue."""
        if not self._snapshotting.is_due:
            return False
        self.apply()
        if not self._is_applied:
            return False  # the image cannot be written, so its content is old
        self._snapshotting.step()
        return True

    @_change
    def _forget(self) -> None:
        self._snapshotting.forget()

    def _expect(self, kind: str, key: str, expected_version: int | None) -> int:
        entry = self.get(kind, key)
        version = entry.version if entry else 0
        if expected_version is not None and expected_version != version:
            raise StateConflict(kind, key, expected_version, version)
        return version

    def _forget_as_elsewhere(self, snapshot: JournalSnapshot, number: int) -> None:
        """Forget the journal before a snapshot in this copy, because the snapshot matches the state here."""
        self._apply(number)
        try:
            if self._is_applied and self.image.digest == snapshot.digest:
                self.journal.forget(snapshot.first)
        except EventLogError as error:  # the old part only stays longer than needed
            logger.warning("%s: its start is kept until the next snapshot: %s", self.journal.directory, error)

    def _write(self, records: Sequence[Record], is_durable: bool = True) -> None:
        if self.journal.is_following:
            raise NotPrimary(NAME)
        self.journal.append(records, is_durable=is_durable)
        self._take(records)
        if is_durable:
            self.image.confirm(self.journal.head, self._had_users)
        self._apply_if_much()

    def _take(self, records: Sequence[Record]) -> None:
        """Make records that are in the journal visible to readers."""
        self._is_applied = False
        with self._lock:
            for record in records:
                if isinstance(record, EntryRecord):
                    self._pending[record.kind, record.key] = record
                    self._pending_bytes += len(record.value)
                elif isinstance(record, HadUsers):
                    self._had_users = record.had_users

    def _apply_if_much(self) -> None:
        """Apply the waiting changes if there are many, to bound their number."""
        is_much = len(self._pending) > PENDING_MAX or self._pending_bytes > PENDING_BYTES_MAX
        if is_much and not self._has_warned:  # otherwise `maintain` tries again, once a second
            self.apply()
