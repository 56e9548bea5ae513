"""The state store over a journal: each change is a frame of it first, and in SQLite, its image, a moment later.

What is asked for is answered from the changes that the image does not have yet, and from the image. A durable change
takes one write and one sync of a file whose blocks are there; the image takes many changes in one transaction, of each
entry the last one. It is never ahead of what the journal has durably, and it can be made from the journal at any time:
`recovery` does so where one of the two is damaged or behind.
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
"""So many entries may wait for the image: to apply them takes some 10 ms, and others wait meanwhile."""
PENDING_BYTES_MAX = 4 * 1024 * 1024
"""And so many bytes of values, of all changes."""
STEPS_MAX = 256
"""Of a snapshot, in one round of maintenance."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _change(method: Callable[Concatenate[JournalState, _P], _R]) -> Callable[Concatenate[JournalState, _P], _R]:
    """A method that writes the journal. If that fails as no error of the core says, nobody knows what is on disk."""

    @wraps(method)
    def safe(self: JournalState, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._changing:
            if self._is_closed:
                raise Closed(NAME)
            try:
                return method(self, *args, **kwargs)
            except OSError as error:
                logger.critical("%s: writing failed, what is on the disk is unknown: %s", self.journal.directory, error)
                self._fatal(f"the state: writing failed: {error}")
                raise refusal_of(error, self.journal.directory, "the journal cannot be written") from error

    return safe


def _patient_change(method: Callable[Concatenate[JournalState, _P], _R]) -> Callable[Concatenate[JournalState, _P], _R]:
    """A `_change` that somebody waits for: where the journal has a home, no longer than that says."""
    change = _change(method)

    @wraps(method)
    def patient(self: JournalState, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        home = self.journal.home
        if self._patient is None or home is None or self.journal.is_following:
            return change(self, *args, **kwargs)
        if kwargs.get("is_durable", True) and (away := home.away) is not None:
            raise away  # nothing more is sent to a home that has yet to answer
        try:
            return self._patient.do(lambda: change(self, *args, **kwargs), home.patience_s)
        except Closed as error:  # meanwhile, as an engine does that lost its lock
            raise StorageUnavailable(f"{self.journal.directory}: the state is closed") from error

    return patient


class JournalState(StateStore):
    """A StateStore in a journal, with its image in SQLite. Safe to call from any thread. See `recovery`."""

    def __init__(
        self, journal: Journal, image: SqliteState, fatal: Callable[[str], None], lock: HeldLock | None = None
    ) -> None:
        """Take over both, of the same content. `fatal` ends the process: writing failed. `lock` is closed at last."""
        self.journal, self.image = journal, image
        self._fatal, self._held = fatal, lock
        self._changing = threading.RLock()
        """Held by who changes something, for as long as the journal takes. Who reads does not wait for that."""
        self._patient = None if journal.home is None else Patient(NAME)
        """Makes the changes of a journal that has a home."""
        self._lock = threading.Lock()
        """Held for moments: what waits for the image, and what the image has, are one."""
        self._pending: dict[tuple[str, str], EntryRecord] = {}
        self._is_applied = True
        """Whether the image knows of all changes."""
        self._pending_bytes = 0
        self._had_users = image.had_users()
        self._snapshotting = Snapshotting(journal, image)
        self._has_warned = self._is_closed = False
        self.mended: list[str] = []
        """What was made anew when it was opened, and why."""

    def get(self, kind: str, key: str) -> StateEntry | None:
        """See StateStore. Raises StorageCorrupted, StorageUnavailable, as all that follow do."""
        with self._lock:
            if (pending := self._pending.get((kind, key))) is None:
                return self.image.get(kind, key)
            return StateEntry(pending.value, pending.version) if pending.version else None

    @_patient_change
    def put(
        self, kind: str, key: str, value: bytes, expected_version: int | None = None, *, is_durable: bool = True
    ) -> int:
        if not (isinstance(kind, str) and isinstance(key, str) and isinstance(value, bytes)):
            raise TypeError(f"{kind!r}, {key!r} and {type(value).__name__} given, two texts and bytes are allowed")
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
        """How many entries there are."""
        self.apply()
        return self.image.count()

    @_change
    def follow(self, head: Head, kinds: set[str]) -> None:
        """Take up what another server changed, as far as the journal ends there at its home.

        `kinds` gets those of the entries, also where it ends in the middle. Raises what `ReplicatedLog.follow` does.
        """
        has_news = False
        for written in self.journal.follow(head):
            self._take_up(written, kinds)
            has_news = True
        if has_news:
            self.image.confirm(self.journal.head, self._had_users)

    @_change
    def take(self, content: bytes, kinds: set[str]) -> bool:
        """As `follow`, of one frame that was committed at the home; False: see `ReplicatedLog.take`."""
        written = self.journal.take(content)
        if written is None:
            return False
        self._take_up(written, kinds)
        return True

    def _take_up(self, written: Iterable[Written], kinds: set[str]) -> None:
        """The journal has them, and reads them once: whatever fails here, each must get into the state."""
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
        """From now on it is changed here. Raises OSError."""
        self.journal.begin_term()

    @_change
    def apply(self) -> None:
        """Bring the image up to date. What it cannot take now waits."""
        self._apply(self.journal.head)

    def _apply(self, upto: int) -> None:
        """The image gets what waits for it, which is all up to that number."""
        if self._is_applied:
            return
        self.journal.check_lock()  # else the image is another process's
        self.journal.sync()  # the image must not know of what the journal could still lose
        try:
            with self._lock:
                self.image.apply(map(entry_of, self._pending.values()), upto, self._had_users)
                self._pending.clear()
        except EventLogError as error:  # nothing is lost: the journal has it
            if not self._has_warned:
                logger.error("%s; it follows when it can", error)
            self._has_warned = True
            return
        self._pending_bytes, self._is_applied, self._has_warned = 0, True, False

    def maintain(self, may_unlink: bool) -> None:
        """What is to be done each second: bring the image up to date, keep the journal short.

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
        """Whether it is known of every change whether it is made."""
        return self._patient is None or self._patient.is_settled

    def take_landed(self) -> bool:
        """Whether a change was made since the last call, of which was told that its outcome is not known."""
        return self._patient is not None and self._patient.take_landed()

    def close(self) -> None:
        """Close both, with nothing left to be applied."""
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
                pass  # the journal tells of it when it is closed; the image is what it was
            finally:
                self._is_closed = True

    @_change
    def _step(self) -> bool:
        """Copy some more entries forward, if it is time; whether that is to go on."""
        if not self._snapshotting.is_due:
            return False
        self.apply()
        if not self._is_applied:
            return False  # the image cannot be written: what it says is old
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
        """The journal can be read from a snapshot on, which made what is here: so this copy of it forgets the rest."""
        self._apply(number)
        try:
            if self._is_applied and self.image.digest == snapshot.digest:
                self.journal.forget(snapshot.first)
        except EventLogError as error:  # it is only longer than it need be
            logger.warning("%s: its beginning is kept until the next snapshot: %s", self.journal.directory, error)

    def _write(self, records: Sequence[Record], is_durable: bool = True) -> None:
        if self.journal.is_following:
            raise NotPrimary(NAME)
        self.journal.append(records, is_durable=is_durable)
        self._take(records)
        if is_durable:
            self.image.confirm(self.journal.head, self._had_users)
        self._apply_if_much()

    def _take(self, records: Sequence[Record]) -> None:
        """They are in the journal: whoever asks finds them from now on."""
        self._is_applied = False
        with self._lock:
            for record in records:
                if isinstance(record, EntryRecord):
                    self._pending[record.kind, record.key] = record
                    self._pending_bytes += len(record.value)
                elif isinstance(record, HadUsers):
                    self._had_users = record.had_users

    def _apply_if_much(self) -> None:
        """What waits for the image is bounded."""
        is_much = len(self._pending) > PENDING_MAX or self._pending_bytes > PENDING_BYTES_MAX
        if is_much and not self._has_warned:  # else `maintain` tries again, once a second
            self.apply()
