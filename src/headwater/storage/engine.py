"""The engine: the logs of one data directory, their shared state, and the maintenance threads.

DIR/LOCK                 held by the one process that serves the directory
DIR/journal/             every change of settings, consumers and users: the StateStore
DIR/state.sqlite         their current values, built from the journal
DIR/state.witness        the last confirmed change of the state
DIR/state.sock           where commands reach the state while the engine is open
DIR/logs/NAME.XXXXXXXX/  one directory per log and incarnation: META.json, log/, idx/, history/
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from ..core import errors as core
from ..core.closing import Closing
from ..core.consumer import Consumer, stored_consumers
from ..core.local import WAITING_BYTES_MAX
from ..core.settings import LogSettings, check_log_name, is_own, refuse_own
from ..core.shared_bytes import SharedBytes
from ..core.state import kinds_of_log
from ..core.store import LogStore
from ..core.watch.bus import Bus
from ..core.watch.threads import Threads
from ..formats.decoders import json_decoder
from ..formats.newer import WrittenByNewer
from .append.clock import PATIENCE_MS, ClockMemory, TrustedClock, poisoned, shown_ms
from .append.sequencer import end_process
from .append.writer_table import WriterLimits
from .catalog.backup_lock import BACKUP_LOCK, NoBackup
from .catalog.creation import begin_anew, make_copies, make_log_directory, new_meta
from .catalog.directories import (
    EVERY_LOG,
    FLOOR_KIND,
    LOG_KIND,
    LOGS,
    TRASH_KIND,
    LogEntry,
    known_logs,
    left_over,
    missing_directory,
    stopped_logs,
    unknown_directories,
)
from .catalog.identity import identified, known_identity, record_identity
from .catalog.incarnations import losses_to_heed, renew_after_loss
from .catalog.location import ServedIdentity
from .disk.ballast import BALLAST, BALLAST_BYTES, fill
from .disk.free_space import Room
from .disk.locks import LockLost, OwnedDisk
from .disk.system import Disk, make_directory, refusal_of, refusing, sync_directory, tighten
from .frames.encoding import EncodedFrame
from .home.identifier import record_identifier, refuse_moved
from .home.port import Home, HomeWentBack, called
from .home.replicated_log import CopyOutlived, Homed, ReplicatedLog
from .home.witness import Witness
from .index.backlog import UNINDEXED_BYTES_MAX, Backlog
from .log import StoredLog
from .maintenance.follower import Follower
from .maintenance.mending import HomedFrames, Mending
from .maintenance.scrub import PERIOD_MS, Scrub, read_place
from .maintenance.scrub_files import OpenFrames, ScrubFiles
from .maintenance.trash import Trash
from .maintenance.upkeep import Upkeep
from .maintenance.worker import IndexWorker
from .notifications import notify_changed, notify_created, notify_deleted
from .read.frame_cache import DecodedFrames
from .state.data_directory import lock_directory, refuse_missing
from .state.journaled_state import JournalState
from .state.recovery import open_journaled
from .state.remote import StateSocket

logger = logging.getLogger("headwater.storage")

MAINTENANCE_INTERVAL_S = 1.0
RETENTION_INTERVAL_S = 10.0
NOT_DURABLE_YET_S = 0.02
"""Urgent indexing retries after this delay if the newest events were not durable yet."""


class Engine(LogStore, Closing):
    """A LogStore in a data directory."""

    def __init__(
        self,
        directory: Path | str,
        *,
        reserve_bytes: int | None = None,
        waiting: SharedBytes | None = None,
        unindexed_bytes_max: int = UNINDEXED_BYTES_MAX,
        clock: Callable[[], int] = shown_ms,
        clock_patience_ms: int = PATIENCE_MS,
        disk: Disk | None = None,
        fatal: Callable[[str], None] | None = None,
        maintains: bool = True,
        bus: Bus | None = None,
        threads: Threads | None = None,
        home: Home | None = None,
        on_lost: Callable[[Exception], None] = logger.error,
        on_committed: Callable[[str, Sequence[EncodedFrame]], None] = lambda key, frames: None,
        follows: bool = False,
        on_lock_lost: Callable[[LockLost], None] | None = None,
        scrub_ms: int = PERIOD_MS,
        ballast_bytes: int = BALLAST_BYTES,
        writers: WriterLimits | None = None,
        witness: Witness | None = None,
        keeps_all: bool = False,
    ) -> None:
        """Open or create a data directory. `fatal` ends the process after a failed write (default: abort).

        `waiting` is the memory budget for waiting appends of all logs together: an append counts twice its bytes, and
        one log uses at most half of what the others leave. An append that can never fit gets TooLarge; one that does
        not fit now gets Overloaded (`append` and other blocking calls wait instead). None: 512 MiB.

        `unindexed_bytes_max`: the bytes of index entries that all logs together may hold in memory only. Above it,
        appends wait for the index or get Overloaded (see `index.backlog`).

        `bus` gets notifications about logs, except the server's own. `reserve_bytes`: the bytes to keep free on the
        file system (None: see `Room`).

        `clock_patience_ms`: the time that a clock must stay ahead after a jump before it is trusted (see
        `TrustedClock`).

        `threads` keeps maintenance running.

        With a `home`, in which this server has begun a term, the directory is a copy of the home and catches up with
        it. `on_lost` gets, perhaps more than once, the reason why appends stopped; `on_committed` gets the committed
        frames: see `Homed`. If it `follows`, another server has the term: the copy keeps up with it, can be read, and
        refuses changes (NotPrimary) until `begin_term`. `witness`: the proof of this copy; None for a separate one.
        `keeps_all`: a copy that cannot follow stays as it is, and raises StorageUnavailable; otherwise it is set aside
        and fetched again.

        `on_lock_lost` is called once, by the thread that notices, if LOCK is removed or replaced while the engine is
        open. From then on nothing can be written (LockLost); close the engine. If None, the engine closes itself.

        `scrub_ms`: the interval at which all files are read from the disk and verified (see `maintenance.scrub`); 0:
        never.

        `ballast_bytes`: the size of the files to give up when the disk is full (see `disk.ballast`); 0: none.

        `writers`: the number of exactly-once writers that each log remembers; None for the usual limits.

        `maintains` False leaves sealing, retention and reclaiming to `maintain`.
        Raises StorageUnavailable if it is locked by another process, not writable or of a newer format.
        """
        self.directory = Path(directory)
        self.waiting = waiting or SharedBytes(WAITING_BYTES_MAX)
        """The memory budget for waiting appends of all logs."""
        self.backlog = Backlog(unindexed_bytes_max)
        """The unindexed bytes of all logs."""
        self._fatal = fatal
        self._ballast_bytes, self._writer_limits = ballast_bytes, writers
        self.bus = bus or Bus()
        self.clock = TrustedClock(clock, patience_ms=clock_patience_ms, bus=self.bus)
        if isinstance(clock, TrustedClock):
            self.clock = clock
        disk = disk or Disk()
        self.room = Room(self.directory, disk, reserve_bytes, self.bus, ballast_bytes=ballast_bytes)
        """Reports whether there is room for appends."""
        self._witness = witness or Witness(self.directory)
        self._homed = (
            None if home is None else Homed(home, on_lost, on_committed, follows, self._witness.end, keeps_all)
        )
        self._lock = lock_directory(self.directory)
        self._disk = OwnedDisk(disk, self._lock)
        try:
            place = read_place(self.directory)
            self._state = self._open_state()
        except BaseException:
            self._lock.close()
            raise
        try:
            self._identity = self._served_identity()
        except BaseException:
            self._state.close()
            self._lock.close()
            raise
        self._logs: dict[str, StoredLog] = {}
        self._opening = threading.RLock()
        self._maintaining = threading.Lock()
        self._worker = IndexWorker()
        self._upkeep = Upkeep(self.directory, self._one_by_one, self._worker, self.state.flush)
        mending = Mending(self._homed_frames, self._opening, disk=self._disk, room=self.room)
        self.scrub = Scrub(
            self.directory,
            ScrubFiles(self.directory, self.state, self._open_frames),
            self._worker,
            self.state,
            period_ms=scrub_ms,
            clock=clock,
            bus=self.bus,
            place=place,
            mending=None if home is None else mending,
        )
        """Searches the disk for damage."""
        self._decoded = DecodedFrames()
        self._stopping = threading.Event()
        self._is_closed = False
        self._trash = Trash(self.directory, self.state, None if home is None else home.delete)
        self._is_to_tend_anew = False
        """Whether this server has just begun to append: logs that it has not opened may need maintenance."""
        self._failures: dict[str, str] = {}
        """Maintenance errors already logged, by what failed; removed when it succeeds."""
        self._has_landed = False
        """Whether a change was confirmed late and not all open logs have applied it."""
        self._clock_memory: ClockMemory | None = None
        """Set once this server appends."""
        self._stopped: dict[str, core.StorageCorrupted] = {}
        """Logs about which the directory and the state disagree: by name, what is wrong and what to do."""
        self._unopened: dict[str, str] = {}
        """Logs that could not be opened because they are damaged or newer than this headwater: by name, why."""
        self.follower: Follower | None = None
        """Keeps the copy up to date with its home while another server appends."""
        self._following: threading.Thread | None = None
        self._ends_following = threading.Event()
        self._tender: threading.Thread | None = None
        self._socket: StateSocket | None = None
        self._closer: threading.Thread | None = None
        """Closes the engine after its lock was lost."""
        try:
            self._start(threads or Threads(self.bus), on_lost if follows else None, maintains=maintains)
        except BaseException:
            self._let_go()
            raise
        self._lock.when_lost(on_lock_lost or self._close_soon)

    @property
    def state(self) -> JournalState:
        return self._state

    def create(self, name: str, settings: LogSettings | None = None, *, is_own: bool = False) -> StoredLog:
        check_log_name(name, is_own=is_own)
        with self._opening:
            if self.state.get(LOG_KIND, name) is not None or name in self._stopped:
                log = self.open(name)
                if settings not in (None, log.settings):
                    raise core.LogExists(name)
                return log
            self._refuse_following(name)
            floor = max(self._floor(name), self._floor(EVERY_LOG))
            settings = settings or LogSettings()
            meta = new_meta(name, floor, settings.partitions, self.clock())
            directory = f"{name}.{meta.incarnation[:8]}"
            if self._homed is not None:
                with called(name):
                    self._homed.home.create(meta.segments_id, meta.floor)
            self.state.put(TRASH_KIND, directory, b"")  # until it is known as a log
            record_identity(self.state, self.directory / LOGS / directory, meta)
            with refusing(self.directory, "cannot create the log"):
                make_log_directory(self.directory / LOGS / directory, meta)
            entry = LogEntry(directory, settings)
            self.state.put(LOG_KIND, name, msgspec.json.encode(entry), expected_version=0)
            self.state.delete(TRASH_KIND, directory)
            log = self.open(name)
            notify_created(log.bus, log.info())
            return log

    def open(self, name: str) -> StoredLog:
        log = self._logs.get(name)
        if log is not None:
            return log
        with self._opening:
            if self._is_closed:
                raise self._lock.lost or core.Closed(name)
            if name not in self._logs:
                entry = self._entry(name)
                try:
                    self._logs[name] = self._opened(name, entry)
                except (core.StorageCorrupted, WrittenByNewer) as error:
                    if name not in self._stopped and name not in self._unopened:
                        logger.error("log %s is stopped: %s", name, error)
                    self._unopened[name] = str(error)
                    raise
                self._unopened.pop(name, None)
            return self._logs[name]

    def names(self) -> list[str]:
        return sorted({name for name, _ in self.state.items(LOG_KIND)} | set(self._stopped))

    def opened(self) -> list[StoredLog]:
        """The open logs, sorted by name."""
        return [self._logs[name] for name in sorted(self._logs)]

    def settings_of(self, name: str) -> LogSettings:
        return self._entry(name).settings

    def incarnation_of(self, name: str) -> str:
        if (log := self._logs.get(name)) is not None:
            return log.meta.incarnation
        return identified(self.state, self.directory / LOGS / self._entry(name).directory)[0].incarnation

    def consumers_of(self, name: str) -> list[Consumer]:
        if (log := self._logs.get(name)) is not None:
            return log.consumers()
        return stored_consumers(self.state, self.incarnation_of(name))

    def change(self, name: str, settings: LogSettings, *, drops_at_most: int | None = 0) -> StoredLog:
        with self._opening:
            log = self.open(name)
            self._refuse_following(name)
            old = log.settings
            old.check_change(settings)
            log.check_drop(settings, log.consumers(), drops_at_most)
            entry = LogEntry(log.directory.name, settings)
            self.state.put(LOG_KIND, name, msgspec.json.encode(entry))
            log.change(settings)
            notify_changed(log.bus, name, old, settings)
            return log

    def delete(self, name: str, incarnation: str | None = None) -> None:
        refuse_own(name)
        with self._opening:
            log = self.open(name)
            self._refuse_following(name)
            info = log.info()
            if incarnation not in (None, info.incarnation):
                raise core.LogNotFound(name, incarnation)
            log.close()
            del self._logs[name]  # if the outcome of the deletion is unknown, the next caller reopens it
            self.state.put(FLOOR_KIND, name, str(max(log.head(), log.meta.floor)).encode())
            self.state.put(TRASH_KIND, log.directory.name, name.encode())  # as in its META: else it is not removed
            self.state.delete(LOG_KIND, name)
            for kind in kinds_of_log(log.meta.incarnation):
                for key, _ in list(self.state.items(kind)):
                    self.state.delete(kind, key)
            notify_deleted(log.bus, info)
        self._empty_trash_unless_backup()

    @property
    def is_following(self) -> bool:
        """Whether another server appends and this one follows it."""
        return self._homed is not None and self._homed.is_following

    def begin_term(self) -> None:
        """Append from now on: the home has begun a term for this server. Everything is caught up when this returns.

        Raises StorageUnavailable, HomeWentBack, HomeMoved, CopyOutlived.
        """
        assert self._homed is not None and self.follower is not None
        self._end_following()
        with self.follower.taking, self._opening:
            self.follower.follow(takes_over=True)
            self._refuse_moved_home()
            for name in self.follower.behind:  # damaged at the home: opening it raises
                if (log := self._logs.pop(name, None)) is not None:
                    log.close()
            self.follower.end()
            self._homed.is_following = False
            self.state.begin_term()
            self._renew_after_loss()
            for log in self.opened():
                log.begin_term()
            self._begin()
            self._hold_term()
            self._is_to_tend_anew = True

    def _refuse_moved_home(self) -> None:
        """Raises HomeMoved, unless an operator accepted the home and its logs are about to be renewed."""
        assert self._homed is not None
        if losses_to_heed(self.state, self._homed.home) is None:
            refuse_moved(self.state, self._homed.home)

    def _renew_after_loss(self) -> None:
        """Give all logs new incarnations if an operator accepted that the home lost data."""
        assert self._homed is not None
        if (losses := losses_to_heed(self.state, self._homed.home)) is not None:
            heads = {name: self._end_of(name, entry) for name, entry in known_logs(self.state).items()}
            while self._logs:
                self._logs.popitem()[1].close()
            renew_after_loss(self.directory, self.state, self._homed.home, losses, heads)
        else:
            record_identifier(self.state, self._homed.home)

    def _hold_term(self) -> None:
        """Record that the copy has everything the home has, and gets every later commit."""
        assert self._homed is not None
        try:
            self._witness.hold(self._homed.home.term)
        except OSError as error:
            logger.warning("%s: cannot mark this copy as complete: %s", self.directory, error)

    def _end_of(self, name: str, entry: LogEntry) -> int:
        """The number of its last event; for a damaged log, the number that the home reports."""
        assert self._homed is not None
        try:
            return self.open(name).head()
        except core.StorageCorrupted:
            identity = known_identity(self.state, self.directory / LOGS / entry.directory)
            head = None if identity is None else self._homed.home.head(identity.segments_id)
            return 0 if head is None else head.number

    def follow_logs(self, gone: Mapping[str, str]) -> None:
        """Follow another server that created and deleted logs. `gone`: the directories of deleted logs, by name.

        Logs with a new incarnation are closed; the next reader reopens them.
        """
        assert self._homed is not None
        with self._opening:
            self._lock.check()
            for log in self.opened():
                identity = known_identity(self.state, log.directory)
                if identity is not None and identity.incarnation != log.meta.incarnation:
                    del self._logs[log.name]
                    log.close()
            for name, directory in gone.items():
                if (gone_log := self._logs.pop(name, None)) is not None:
                    gone_log.close()
                self._trash.is_gone(directory, name.encode())
            make_copies(self.directory, self.state, self._homed.give_up)

    def fetch_anew(self, name: str, why: str) -> StoredLog:
        """Set aside the copy of a log that cannot be followed, and begin a new copy."""
        with self._opening:
            self._lock.check()
            if (log := self._logs.pop(name, None)) is not None:
                log.close()
            directory = self.directory / LOGS / self._entry(name).directory
            self._begin_anew(directory, why)
            return self.open(name)

    def maintain(self, *, retention: bool = True) -> None:
        """Run one round of background maintenance: sealing, merging, retention, reclaiming."""
        with self._maintaining:
            if not self._stopping.is_set() and self._lock.is_held():
                self._maintain(retention)

    def _maintain(self, retention: bool) -> None:
        if self._is_to_tend_anew:
            self._is_to_tend_anew = False
            self._open_those_to_tend()
        self._one_by_one("the disk", self.room.try_again)
        self._one_by_one("the ballast", self._fill_ballast)
        if self._clock_memory is not None:
            self._one_by_one("the clock", self._clock_memory.look)
        self._has_landed = self._has_landed or self.state.take_landed()
        if self._has_landed:
            self._one_by_one("late changes", self._heed_landed)
        now = self.clock() if retention and self.may_act() else None
        for log in self.opened():
            self._upkeep.tend(log, now)
        if self.may_act():
            self._one_by_one("deleted logs", self._empty_trash_unless_backup)
        self._one_by_one("the state", self._maintain_state)
        self._one_by_one("the scrub", self._scrub)

    def _scrub(self) -> None:
        if self._homed is not None:  # damage that a read found is mended like damage that the scrub found
            for segment in [each for log in self.opened() for each in log.frames.segments if each.damage is not None]:
                if not segment.distrusted:
                    self.scrub.suspect(segment.path)
        self.scrub.step()

    def _one_by_one(self, what: str, step: Callable[[], None], log: StoredLog | None = None) -> bool:
        """Whether a step succeeded. Its error does not stop the other steps or the next round.

        A repeated error is logged once.
        """
        try:
            step()
            self._failures.pop(what, None)
            return True
        except Exception as error:
            if isinstance(error, LockLost) or (log is not None and (log.is_closed or self._stopping.is_set())):
                return False  # no retry; whatever closes the engine reports a lost lock
            if isinstance(error, OSError):
                error = refusal_of(error, self.directory, "cannot write a file")
            is_known = isinstance(error, core.EventLogError)
            if self._failures.get(what) == (told := repr(error)):
                return False
            self._failures[what] = told
            logger.error("%s: maintenance failed; retrying: %s", what, error, exc_info=None if is_known else error)
            return False

    def _fill_ballast(self) -> None:
        fill(self.directory, self._disk, self.room.reserve_bytes, self._ballast_bytes)

    def _heed_landed(self) -> None:
        """Apply to the open logs changes that were confirmed after their outcome was reported as unknown."""
        with self._opening:
            known = known_logs(self.state)
            for log in self.opened():
                entry = known.get(log.name)
                if entry is None or entry.directory != log.directory.name:
                    del self._logs[log.name]
                    log.close()
                else:
                    log.follow_state(entry.settings, consumers=True)
        self._has_landed = False

    def _keep_up(self, until: float) -> None:
        """Wait until that time (monotonic, in s); index as soon as indexing is urgent."""
        pause_s = NOT_DURABLE_YET_S
        while not self._stopping.is_set() and (left_s := until - time.monotonic()) > 0:
            self.backlog.wait_until_urgent(left_s)
            if self.backlog.is_urgent and not self._index_urgently():
                self._stopping.wait(min(max(until - time.monotonic(), 0), pause_s))
                pause_s *= 2

    def _index_urgently(self) -> bool:
        with self._maintaining:
            return self._upkeep.index_urgently(
                self.opened(), self.backlog, lambda: self._lock.is_held() and not self._stopping.is_set()
            )

    def _maintain_state(self) -> None:
        with NoBackup(self.directory) as may_unlink:
            self.state.maintain(may_unlink)

    def _empty_trash_unless_backup(self) -> None:
        with NoBackup(self.directory) as may_unlink:
            if may_unlink:
                self._empty_trash()

    def _empty_trash(self) -> None:
        with self._opening:  # no log is being created
            if self.state.is_settled:  # else one may be about to appear or vanish
                self._trash.empty()

    def unready(self) -> str | None:
        try:
            return self.room.look().problem
        except core.StorageUnavailable as error:
            return error.reason

    def may_act(self) -> bool:
        return self._homed is None or (not self._homed.is_following and self._homed.home.may_act())

    def has_lapsed(self) -> bool:
        return self._homed is not None and self._homed.home.has_lapsed()

    def unavailable(self) -> dict[str, str]:
        found = {log.name: damage for log in self.opened() if (damage := log.damage) is not None}
        if self.is_following and self.follower is not None:
            found |= {name: each.why for name, each in self.follower.stuck.copy().items()}
        return found | self._not_opened()

    def _not_opened(self) -> dict[str, str]:
        """Logs that cannot be opened: by name, why."""
        unopened = self._unopened.copy()
        there = {name: why for name, why in unopened.items() if self.state.get(LOG_KIND, name) is not None}
        return there | {name: str(error) for name, error in self._stopped.items()}

    def troubles(self) -> list[str]:
        troubles = [trouble] if (trouble := self.clock.trouble()) else []
        stopped = self._not_opened()
        troubles += [
            f"log {name} is stopped; see the log line on stderr, or stop the server, then run headwater check"
            for name in sorted(stopped)
        ]
        if damaged := len(self.scrub.place.damaged):
            troubles.append(
                f"the scrub found damage on the disk, in {damaged} places; run headwater scrub to list them"
            )
        troubles += [
            f"log {log.name} has damaged events; see the notification io.headwater.log.unavailable"
            for log in self.opened()
            if log.damage is not None and log.name not in stopped
        ]
        troubles += [f"log {log.name}: {each}" for log in self.opened() if (each := log.writer_table.trouble())]
        if self.is_following and self.follower is not None:
            troubles += [
                f"log {name} cannot be followed; the others are followed: {each.why}"
                for name, each in sorted(self.follower.stuck.items())
            ]
        troubles += [problem for log in self.opened() if (problem := log.backlog.problem) is not None]
        now = self.clock()
        return troubles + [trouble for log in self.opened() if (trouble := poisoned(log.name, log.recorded_at, now))]

    def close(self) -> None:
        closer = self._closer
        if closer is not None and closer is not threading.current_thread():
            closer.join()
        with self._opening:
            if self._is_closed:
                return
            self._is_closed = True
        self._stopping.set()
        self.backlog.interrupt()
        self._end_following()
        if self._socket is not None:
            self._socket.close()
        self._worker.close()
        if self._tender is not None:
            self._tender.join()
        if self.scrub.is_under_way and self._lock.is_held():
            self.scrub.store()
        logs = self.opened()
        for log in logs:
            log.close()
        try:
            with self._maintaining:  # a round begun by another thread still reads the state
                if self._clock_memory is not None:
                    self._one_by_one("the clock", self._clock_memory.save)
                self.state.close()
            if self._homed is not None and self.state.journal.is_ended and all(log.is_ended for log in logs):
                self._one_by_one("the evidence of the copy", self._witness.close)
        finally:
            if self._identity is not None:
                self._identity.close()
            self._lock.close()

    def _open_state(self) -> JournalState:
        """Deny other users access to the directory, then open the state.

        Raises StorageUnavailable, StorageCorrupted.
        """
        if mode := tighten(self.directory):
            problem = "%s: others had access to it (mode %04o), which contains secrets; removed their access"
            logger.warning(problem, self.directory, mode)
        for each in (LOGS, BALLAST, BACKUP_LOCK):
            tighten(self.directory / each)
        if self._homed is None:  # a copy is fetched
            refuse_missing(self.directory)
        else:
            with refusing(self.directory, "cannot store the evidence of the copy"):
                self._witness.open()
        state = open_journaled(
            self.directory, fatal=self._fatal or end_process, disk=self._disk, clock=shown_ms, homed=self._homed
        )
        for problem in state.mended:
            logger.error("the state was repaired: %s", problem)
        return state

    def _served_identity(self) -> ServedIdentity | None:
        """The identity visible to other processes; None for the copy of a home. Raises StorageUnavailable."""
        if self._homed is not None:
            return None
        with refusing(self.directory, "cannot read the data directory"):
            return ServedIdentity(self.directory, self._state.journal.meta.incarnation)

    def _start(self, threads: Threads, on_lost: Callable[[Exception], None] | None, *, maintains: bool) -> None:
        """Finish opening after the state is open; with `on_lost`, another server appends. Raises StorageUnavailable."""
        make_directory(self.directory / LOGS)
        sync_directory(self.directory)  # whichever process made it, so that appends below it are durable
        if on_lost is None:
            if self._homed is not None:
                self._refuse_moved_home()
            self._begin()
        if self._homed is not None:
            make_copies(self.directory, self.state, self._homed.give_up, self._homed.on_gap)
            if on_lost is None:
                self._renew_after_loss()
                self._hold_term()
        self._stopped = stopped_logs(self.directory, self.state)
        self._tell_of_directories()
        if on_lost is not None:
            self._follow(threads, on_lost, in_background=maintains)
        if maintains:
            self._tender = threads.start("maintenance", self._tend, self._stopping)
        self._socket = self._listen(threads)

    def _let_go(self) -> None:
        """Close after a partial opening, so that this process too can open the directory again."""
        try:
            self.close()
        except (core.EventLogError, OSError) as error:
            logger.warning("%s: it was not closed cleanly: %s", self.directory, error)

    def _close_soon(self, _: LockLost) -> None:
        """Close in another thread: closing may wait for the thread that found the lock lost."""
        self._closer = threading.Thread(target=self._let_go, name="headwater-closing", daemon=True)
        self._closer.start()

    def _begin(self) -> None:
        """Begin what only an appending server does."""
        self._clock_memory = ClockMemory(self.state, self.clock, self.directory / LOGS)
        self._empty_trash()

    def _follow(self, threads: Threads, on_lost: Callable[[Exception], None], *, in_background: bool) -> None:
        """Follow the home; everything it has now is fetched when this returns. Raises StorageUnavailable."""
        assert self._homed is not None
        self.follower = follower = Follower(self._homed, self)
        with suppress(HomeWentBack):  # already reported: the copy stays readable
            follower.follow()
        if in_background:
            run = partial(follower.run, self._ends_following, on_lost)
            self._following = threads.start("following", run, self._ends_following)

    def _end_following(self) -> None:
        self._ends_following.set()
        if self._following is not None:
            self._following.join()

    def _refuse_following(self, name: str) -> None:
        if self.is_following:
            raise core.NotPrimary(name)

    def _listen(self, threads: Threads) -> StateSocket | None:
        """The socket for commands from other processes. Without it they are refused, and everything else continues."""
        try:
            return StateSocket(self.state, self.directory, threads)
        except OSError as error:
            logger.warning("%s: commands cannot change the state while the server runs: %s", self.directory, error)
            return None

    def _opened(self, name: str, entry: LogEntry) -> StoredLog:
        self._lock.check()
        directory = self.directory / LOGS / entry.directory
        if not directory.is_dir():
            raise missing_directory(self.directory, name, entry, unknown_directories(self.directory, self.state))
        tighten(directory)
        try:
            log = self._stored(directory, entry)
        except CopyOutlived as error:
            self._begin_anew(directory, str(error))
            log = self._stored(directory, entry)
        self.scrub.heed(log.frames.segments)
        return log

    def _begin_anew(self, directory: Path, why: str) -> None:
        assert self._homed is not None
        self._homed.give_up(directory, why)
        begin_anew(directory, self.state, why)

    def _stored(self, directory: Path, entry: LogEntry) -> StoredLog:
        try:
            return StoredLog(
                directory,
                entry.settings,
                self.state,
                disk=self._disk,
                clock=self.clock,
                room=self.room,
                waiting=self.waiting,
                backlog=self.backlog,
                fatal=self._fatal,
                bus=None if is_own(entry.directory) else self.bus,
                decoded=self._decoded,
                homed=self._homed,
                writers=self._writer_limits,
            )
        except OSError as error:
            raise refusal_of(error, directory, "cannot open the log") from error

    def _open_frames(self, directory: Path) -> OpenFrames | None:
        """The frames of an open log, or of the journal, by directory."""
        if directory == (journal := self.state.journal).directory:
            return OpenFrames(journal.meta, journal.frames.segments)
        logs = (log for log in self.opened() if log.directory == directory)
        return next((OpenFrames(log.meta, log.frames.segments) for log in logs), None)

    def _homed_frames(self, directory: Path) -> HomedFrames | None:
        """Open the frames of a log, or of the journal, by directory; None if it is gone."""
        journal = self.state.journal
        if directory == journal.directory:
            frames, meta = journal.frames, journal.meta
        else:
            known = known_logs(self.state).items()
            name = next((name for name, entry in known if entry.directory == directory.name), None)
            if name is None:
                return None
            log = self.open(name)
            frames, meta = log.frames, log.meta
        assert isinstance(frames, ReplicatedLog), "a mended log has a home"
        return HomedFrames(meta, frames)

    def _floor(self, name: str) -> int:
        entry = self.state.get(FLOOR_KIND, name)
        return int(entry.value) if entry else 0

    def _tell_of_directories(self) -> None:
        for name, error in self._stopped.items():
            logger.error("log %s is stopped: %s", name, error)
        for path in left_over(self.directory, self.state):
            logger.warning(
                "%s: this directory is unknown to the state; remove it if you do not need its contents", path
            )

    def _entry(self, name: str) -> LogEntry:
        found = self.state.get(LOG_KIND, name)
        if found is None:
            if (stopped := self._stopped.get(name)) is not None:
                raise core.StorageCorrupted(stopped.path, stopped.problem, stopped.remedy)
            raise core.LogNotFound(name)
        return json_decoder(LogEntry).decode(found.value)

    def _tend(self) -> None:
        self._open_those_to_tend()
        since_retention = 0.0
        while True:
            self._keep_up(time.monotonic() + MAINTENANCE_INTERVAL_S)
            if self._stopping.is_set():
                return
            since_retention += MAINTENANCE_INTERVAL_S
            is_due = since_retention >= RETENTION_INTERVAL_S
            self.maintain(retention=is_due)
            if is_due:
                since_retention = 0.0

    def _open_those_to_tend(self) -> None:
        """Open the logs that have retention or consumers: they need maintenance from the start; others open lazily."""
        for name in known_logs(self.state):
            if self._stopping.is_set():
                return
            try:
                with self._opening:
                    if self._is_to_tend(self._entry(name)):
                        self.open(name)
            except (core.LogNotFound, core.Closed):
                continue  # deleted meanwhile, or the engine is closed
            except (core.EventLogError, OSError) as error:
                logger.error("log %s cannot be opened for retention and consumers: %s", name, error)

    def _is_to_tend(self, entry: LogEntry) -> bool:
        settings = entry.settings
        if settings.retention_ms or settings.retention_bytes or settings.retention_until_acknowledged:
            return True
        meta, _ = identified(self.state, self.directory / LOGS / entry.directory)
        return bool(stored_consumers(self.state, meta.incarnation))
