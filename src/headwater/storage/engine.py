"""The engine: the logs of one data directory, the state beside them, and the threads that tend them.

DIR/LOCK                 held by the one process that serves the directory
DIR/state.sqlite         settings, consumers, users: the StateStore
DIR/logs/NAME.XXXXXXXX/  one directory per log and incarnation: META.json, log/, idx/, history/
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from ..core.bus import Bus
from ..core.closing import Closing
from ..core.consumer import stored_consumers
from ..core.errors import Closed, EventLogError, LogExists, LogNotFound, StorageCorrupted, StorageUnavailable
from ..core.notification_types import NotificationType
from ..core.settings import LogSettings, check_log_name, is_own, refuse_own
from ..core.state import kinds_of_log
from . import maintenance
from .disk import Disk, make_directory, sync_directory
from .locks import NoBackup
from .log import StoredLog
from .memory import wall_clock_ms
from .meta import META_NAME, Meta, read_meta
from .notifying import notify_changed, notify_created, notify_deleted
from .sealing import FRAMES, HISTORY, INDEX
from .sequencer import WAITING_BYTES_MAX
from .state import SqliteState
from .worker import Worker

logger = logging.getLogger("headwater.storage")

RESERVE_BYTES = 128 * 1024 * 1024
"""Appends fail while less than that is free on the file system."""
STATE_NAME = "state.sqlite"
LOGS = "logs"
PARTIAL_BACKUP = "BACKUP.partial"
"""In a backup that is not finished: nobody may take it for a data directory."""
MAINTENANCE_INTERVAL_S = 1.0
RETENTION_INTERVAL_S = 10.0

LOG_KIND, FLOOR_KIND, TRASH_KIND = "log", "log-floor", "log-trash"
EVERY_LOG = "*"
"""Key of the floor for every log made after a restore: logs lost with the old disk may have issued lower numbers."""


class LogEntry(msgspec.Struct):
    """What the state knows of a log."""

    directory: str
    settings: LogSettings


class Engine(Closing):
    """A LogStore in a data directory."""

    def __init__(
        self,
        directory: Path | str,
        *,
        reserve_bytes: int = RESERVE_BYTES,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        clock: Callable[[], int] = wall_clock_ms,
        disk: Disk | None = None,
        fatal: Callable[[str], None] | None = None,
        maintains: bool = True,
        bus: Bus | None = None,
    ) -> None:
        """Open (or make) a data directory. `fatal` ends the process when a write failed (default: abort).

        `bus` is told what happens to logs, but for those of the server's own.

        `maintains` False leaves sealing, retention and reclaiming to `maintain`.
        Raises StorageUnavailable: locked by another process, not writable, of a newer format.
        """
        self.directory = Path(directory)
        self._reserve_bytes, self._waiting_bytes_max = reserve_bytes, waiting_bytes_max
        self._clock, self._disk, self._fatal = clock, disk or Disk(), fatal
        self.bus = bus or Bus()
        self._is_disk_low = False
        self._lock_file = lock_directory(self.directory)
        try:
            self.state = _open_state(self.directory)
        except BaseException:
            self._lock_file.close()
            raise
        self._logs: dict[str, StoredLog] = {}
        self._opening = threading.RLock()
        self._maintaining = threading.Lock()
        self._worker = Worker()
        self._stopping = threading.Event()
        self._is_closed = False
        (self.directory / LOGS).mkdir(exist_ok=True)
        sync_directory(self.directory)  # whoever made it, and whenever: what is appended below it is durable
        self._empty_trash()
        self._tender: threading.Thread | None = None
        if maintains:
            self._tender = threading.Thread(target=self._tend, name="headwater-maintenance", daemon=True)
            self._tender.start()

    def create(self, name: str, settings: LogSettings | None = None, *, is_own: bool = False) -> StoredLog:
        """See LogStore."""
        check_log_name(name, is_own=is_own)
        with self._opening:
            if self.state.get(LOG_KIND, name) is not None:
                log = self.open(name)
                if settings not in (None, log.settings):
                    raise LogExists(name)
                return log
            floor = max(self._floor(name), self._floor(EVERY_LOG))
            settings = settings or LogSettings()
            meta = _new_meta(name, floor, settings.partitions, self._clock())
            directory = f"{name}.{meta.incarnation[:8]}"
            self.state.put(TRASH_KIND, directory, b"")  # until it is known as a log
            _make_log_directory(self.directory / LOGS / directory, meta)
            entry = LogEntry(directory, settings)
            self.state.put(LOG_KIND, name, msgspec.json.encode(entry), expected_version=0)
            self.state.delete(TRASH_KIND, directory)
            log = self.open(name)
            notify_created(log.bus, log.info())
            return log

    def open(self, name: str) -> StoredLog:
        """See LogStore."""
        log = self._logs.get(name)
        if log is not None:
            return log
        with self._opening:
            if self._is_closed:
                raise Closed(name)
            if name not in self._logs:
                entry = self._entry(name)
                self._logs[name] = self._opened(entry)
            return self._logs[name]

    def names(self) -> list[str]:
        """See LogStore."""
        return [name for name, _ in self.state.items(LOG_KIND)]

    def opened(self) -> list[StoredLog]:
        """The logs that are open now."""
        return [self._logs[name] for name in sorted(self._logs)]

    def change(self, name: str, settings: LogSettings) -> StoredLog:
        """See LogStore."""
        with self._opening:
            log = self.open(name)
            old = log.settings
            old.check_change(settings)
            entry = LogEntry(log.directory.name, settings)
            self.state.put(LOG_KIND, name, msgspec.json.encode(entry))
            log.change(settings)
            notify_changed(log.bus, name, old, settings)
            return log

    def delete(self, name: str) -> None:
        """See LogStore."""
        refuse_own(name)
        with self._opening:
            log = self.open(name)
            info = log.info()
            log.close()
            self.state.put(FLOOR_KIND, name, str(max(log.head(), log.meta.floor)).encode())
            self.state.put(TRASH_KIND, log.directory.name, name.encode())
            self.state.delete(LOG_KIND, name)
            for kind in kinds_of_log(log.meta.incarnation):
                for key, _ in list(self.state.items(kind)):
                    self.state.delete(kind, key)
            del self._logs[name]
            notify_deleted(log.bus, info)
        with NoBackup(self.directory) as may_unlink:
            if may_unlink:
                self._empty_trash()

    def maintain(self, *, retention: bool = True) -> None:
        """One round of what is otherwise done in the background: sealing, merging, retention, reclaiming."""
        with self._maintaining:
            if not self._stopping.is_set():
                self._maintain(retention)

    def _maintain(self, retention: bool) -> None:
        self._look_at_disk()
        for log in self.opened():
            try:
                maintenance.seal_segments(log, self._worker.run)
                maintenance.merge_postings(log, self._worker.run)
                if retention:
                    maintenance.apply_retention(log, self._clock())
                with NoBackup(self.directory) as may_unlink:
                    if may_unlink:
                        maintenance.drop_leftovers(log)
                        maintenance.reclaim(log, self.state.flush)
            except Exception:  # whatever it is, the other logs and the next round must have their turn
                if not log.is_closed and not self._stopping.is_set():
                    logger.exception("log %s: maintenance failed; it will be tried again", log.name)
        with NoBackup(self.directory) as may_unlink:
            if may_unlink:
                self._empty_trash()

    def _look_at_disk(self) -> None:
        """Tell when free space falls below the reserve, which appends need, and when there is enough again."""
        free = self._disk.free_bytes(self.directory)
        if (free < self._reserve_bytes) is not self._is_disk_low:
            self._is_disk_low = not self._is_disk_low
            type = NotificationType.DISK_LOW if self._is_disk_low else NotificationType.DISK_RECOVERED
            self.bus.emit(type, path=str(self.directory), freeBytes=free, reserveBytes=self._reserve_bytes)

    def close(self) -> None:
        """See LogStore."""
        with self._opening:
            if self._is_closed:
                return
            self._is_closed = True
        self._stopping.set()
        self._worker.close()
        if self._tender is not None:
            self._tender.join()
        for log in self.opened():
            log.close()
        with self._maintaining:  # a round that somebody else began still asks the state
            self.state.flush()
            self.state.close()
        fcntl.flock(self._lock_file, fcntl.LOCK_UN)  # a forked child has the file open too
        self._lock_file.close()

    def _opened(self, entry: LogEntry) -> StoredLog:
        directory = self.directory / LOGS / entry.directory
        try:
            return StoredLog(
                directory,
                entry.settings,
                self.state,
                disk=self._disk,
                clock=self._clock,
                reserve_bytes=self._reserve_bytes,
                waiting_bytes_max=self._waiting_bytes_max,
                fatal=self._fatal,
                bus=None if is_own(entry.directory) else self.bus,
            )
        except OSError as error:
            raise StorageUnavailable(f"{directory}: cannot be opened: {error}") from error

    def _floor(self, name: str) -> int:
        entry = self.state.get(FLOOR_KIND, name)
        return int(entry.value) if entry else 0

    def _empty_trash(self) -> None:
        """Remove the directories of deleted logs, and of one whose making was interrupted before it was known."""
        with self._opening:  # no log is being made
            used = {self._entry(name).directory for name in self.names()}
            for directory in {directory for directory, _ in self.state.items(TRASH_KIND)} - used:
                shutil.rmtree(self.directory / LOGS / directory, ignore_errors=True)
                sync_directory(self.directory / LOGS)  # it must not come back when nobody knows it any more
                self.state.delete(TRASH_KIND, directory)

    def _entry(self, name: str) -> LogEntry:
        found = self.state.get(LOG_KIND, name)
        if found is None:
            raise LogNotFound(name)
        return msgspec.json.decode(found.value, type=LogEntry)

    def _tend(self) -> None:
        self._open_those_to_tend()
        since_retention = 0.0
        while not self._stopping.wait(MAINTENANCE_INTERVAL_S):
            since_retention += MAINTENANCE_INTERVAL_S
            is_due = since_retention >= RETENTION_INTERVAL_S
            self.maintain(retention=is_due)
            if is_due:
                since_retention = 0.0

    def _open_those_to_tend(self) -> None:
        """Logs open lazily, but those that must forget things, or have consumers, need tending from the start."""
        for name in self.names():
            if self._stopping.is_set():
                return
            try:
                with self._opening:
                    if self._is_to_tend(self._entry(name)):
                        self.open(name)
            except (LogNotFound, Closed):
                continue  # deleted meanwhile, or all is over
            except (EventLogError, OSError) as error:
                logger.error("log %s cannot be opened for its retention and its consumers: %s", name, error)

    def _is_to_tend(self, entry: LogEntry) -> bool:
        settings = entry.settings
        if settings.retention_ms or settings.retention_bytes or settings.retention_until_acknowledged:
            return True
        meta = read_meta(self.directory / LOGS / entry.directory)
        return bool(stored_consumers(self.state, meta.incarnation))


def _open_state(directory: Path) -> SqliteState:
    """The state of a data directory. Raises StorageUnavailable, StorageCorrupted: it is gone, but its logs are not."""
    path = directory / STATE_NAME
    if not path.exists() and any((directory / LOGS).glob(f"*/{META_NAME}")):
        raise StorageCorrupted(
            str(path), "the file is missing, but there are logs", "put it back, or restore a backup (headwater restore)"
        )
    return SqliteState(path)


def _new_meta(name: str, floor: int, partitions: int, now: int) -> Meta:
    incarnation = uuid.uuid4().hex
    return Meta(
        name=name,
        incarnation=incarnation,
        segments_id=incarnation,
        id_seed=secrets.randbits(64),
        created_at=now,
        partitions=partitions,
        first_retained=floor + 1,
        known_from=floor + 1,
        voids=[(1, floor)] if floor else [],
    )


def _make_log_directory(directory: Path, meta: Meta) -> None:
    for part in (FRAMES, INDEX, HISTORY):
        (directory / part).mkdir(parents=True)
    meta.write(directory)
    sync_directory(directory.parent)


def lock_directory(directory: Path) -> IO[str]:
    """One process per data directory. Raises StorageUnavailable."""
    if (directory / PARTIAL_BACKUP).exists():
        raise StorageUnavailable(f"{directory}: a backup that was interrupted; remove it, and make another")
    try:
        make_directory(directory, 0o700)  # the state holds users' keys
        file = open(directory / "LOCK", "a+", encoding="ascii")  # noqa: SIM115 - open as long as the engine
    except OSError as error:
        problem = f"{directory}: {error.strerror}; the data directory must be writable (choose another with --data)"
        raise StorageUnavailable(problem) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise StorageUnavailable(
            f"{directory}: in use by another process (pid {holder}); stop it, or choose another directory with --data"
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
