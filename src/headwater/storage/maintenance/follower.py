"""Keeps a copy up to date with its home while another server appends: new frames are fetched once a second.

The journal comes first, because it lists the logs. One thread follows; it applies frames in the role of the committer
of a log with appends. Only frames that the home cannot lose are fetched: see `Home.kept_heads`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from ...core.clocks import boot_time_s
from ...core.errors import DiskFull, EventLogError, LogNotFound, StorageCorrupted, StorageUnavailable
from ...core.state import kinds_of_log
from ..catalog.directories import LOG_KIND, LOGS, LogEntry, known_logs
from ..catalog.identity import IDENTITY_KIND, known_identity
from ..frames.frame_log import Head, Term
from ..home.port import JOURNAL_KEY, NO_HISTORY, HomeWentBack
from ..home.replicated_log import CopyOutlived, Homed
from ..log import StoredLog
from ..segments.meta import FRAMES, read_meta
from ..segments.segment import segment_paths
from ..state.journaled_state import JournalState

logger = logging.getLogger("headwater.storage")

FOLLOW_S = 1.0
"""The interval between queries to the home for new events, for all logs at once."""
_LOG_KINDS = frozenset({LOG_KIND, IDENTITY_KIND})


class Stuck(NamedTuple):
    """The reason why one log cannot be followed while the others can."""

    since: float
    """Monotonic time, in s."""
    why: str
    """The reason with the remedy. It names no path."""


class Copies(Protocol):
    """The logs of a data directory that follows a home."""

    directory: Path

    @property
    def state(self) -> JournalState:
        """The shared state of the logs."""

    def open(self, name: str) -> StoredLog:
        """See LogStore."""

    def opened(self) -> list[StoredLog]:
        """The open logs."""

    def follow_logs(self, gone: Mapping[str, str]) -> None:
        """Release deleted logs (`gone`: their directories, by name); create directories for new ones."""

    def fetch_anew(self, name: str, why: str) -> StoredLog:
        """Set aside the copy of a log, and begin a new one."""


class Follower:
    """Follows one home. Safe to call from any thread."""

    def __init__(self, homed: Homed, copies: Copies) -> None:
        self._homed, self._copies = homed, copies
        self._entries: Mapping[str, LogEntry] = {}
        self._names: dict[str, str] = {}
        """The name of each log, by its key at the home."""
        self._ends: dict[str, tuple[int, int]] = {}
        """The end of each copy, by key."""
        self.asked_at: float | None = None
        """The time (by `boot_time_s`) of the last query whose content all copies now have, except `stuck` logs; None if
        they lack some of it."""
        self.compared = NO_HISTORY
        """The history of the home in the last comparison of all copies in which none was ahead."""
        self.seen = Term(0, 0)
        """The newest term of the home at the last query."""
        self.ahead = ""
        """The copies that were ahead of the home at the last query; empty if none was."""
        self.failure: str | None = None
        """Why the last attempt to follow failed; None if it succeeded."""
        self.stuck: dict[str, Stuck] = {}
        """Logs that cannot be followed, by name: damaged here or at the home, or with an index that falls behind."""
        self.behind: dict[str, int] = {}
        """The count of numbers that each log lacks, by name, at the last query."""
        self._unheeded: set[str] = set()
        """Kinds of entries changed in the state but not yet applied to the logs."""
        self._told = ""
        self._has_ended = False
        self.taking = threading.RLock()
        """Held while anything is applied, taken before any lock of the engine: the home's answer is compared with the
        content of the copies at the time of the query."""
        self._learn()

    def follow(self, *, takes_over: bool = False) -> None:
        """Fetch and apply new frames. Raises StorageUnavailable, CopyOutlived (of the journal), HomeWentBack.

        A log is skipped while its index has no room (see `index.backlog`), unless this server `takes_over`.
        """
        with self.taking:
            try:
                self._follow(takes_over)
                self.failure = None
            except (EventLogError, OSError) as error:
                self.failure = shown(error)
                if isinstance(error, HomeWentBack):
                    self.ahead = error.problem
                raise

    def take(self, key: str, content: bytes) -> bool:
        """Apply a frame that the primary has committed at the home; False if earlier frames must be fetched first.

        Raises EventLogError, OSError.
        """
        with self.taking:
            if self._has_ended:
                return True
            if key == JOURNAL_KEY:
                is_next = self._copies.state.take(content, self._unheeded)
                self._heed()
                return is_next
            name = self._names.get(key)
            if name in self.stuck:
                return True  # the query of each second fetches it, not one per frame
            if name is None:
                return False
            if not (log := self._copies.open(name)).backlog.has_room:
                return True  # as above
            if not log.take(content):
                return False
            self._ends[key] = self._copies.open(name).end
            return True

    def end(self) -> None:
        """Apply no more frames, because this server appends from now on."""
        with self.taking:
            self._has_ended = True

    def _follow(self, takes_over: bool) -> None:
        asked_at = boot_time_s()
        history, heads = self._homed.home.kept_heads()
        heads = dict(heads)
        if JOURNAL_KEY not in heads:
            raise StorageUnavailable("the home no longer has a journal")
        self.seen = max(head.term for head in heads.values())
        self._copies.state.follow(heads.pop(JOURNAL_KEY), self._unheeded)
        self._heed()
        self._ends.update((log.meta.segments_id, log.end) for log in self._copies.opened())
        lacking = {key: head for key, head in heads.items() if key in self._names and self._ends[key] != head[:2]}
        self.behind = {self._names[key]: head.number - self._ends[key][0] for key, head in lacking.items()}
        for key, head in lacking.items():
            self._follow_log(key, head, takes_over)
        self.stuck = {name: each for name, each in self.stuck.items() if name in self.behind}
        if self.behind.keys() <= self.stuck.keys():
            self.asked_at = asked_at
        if not self.behind:
            self.compared, self.ahead = history, ""

    def _heed(self) -> None:
        """Apply changes of the state to the logs. On failure it is retried with the next changes."""
        kinds = frozenset(self._unheeded)
        if not kinds.isdisjoint(_LOG_KINDS):
            self._follow_logs()
        if kinds:
            self._tell_logs(kinds)
        self._unheeded.clear()

    def run(self, stopping: threading.Event, on_lost: Callable[[Exception], None]) -> None:
        """Follow repeatedly until `stopping`. `on_lost`: called when the copy cannot continue and must be reopened."""
        while not stopping.wait(FOLLOW_S):
            try:
                self.follow()
                self._told = ""
            except CopyOutlived as error:
                on_lost(error)
                return
            except (EventLogError, OSError) as error:  # retried
                if (told := str(error)) != self._told:
                    logger.warning("cannot follow the home: %s", told)
                self._told = told

    def _follow_log(self, key: str, head: Head, takes_over: bool) -> None:
        name = self._names[key]
        try:
            log = self._copies.open(name)
            if not takes_over and not log.backlog.has_room:
                self._pass_over(name, log)
                return
            try:
                log.follow(head, waits_for_index=not takes_over)
            except CopyOutlived as error:
                log = self._copies.fetch_anew(name, str(error))
                with suppress(CopyOutlived):  # trimmed since the state was followed: the next round handles it
                    log.follow(head, waits_for_index=not takes_over)
        except LogNotFound:
            return  # just deleted
        except StorageCorrupted as error:  # the others continue
            self._stick(name, error)
            return
        self._ends[key] = log.end
        if log.end[0] < head.number:
            self._pass_over(name, log)
        else:
            del self.behind[name]

    def _pass_over(self, name: str, log: StoredLog) -> None:
        """Skip a log until its index has room again; the others continue."""
        known = self.stuck.get(name)
        why = log.backlog.problem or "its index is behind; the log continues when it has caught up"
        self.stuck[name] = Stuck(boot_time_s() if known is None else known.since, why)

    def _stick(self, name: str, error: StorageCorrupted) -> None:
        why = f"{error.problem}; {error.remedy}"
        known = self.stuck.get(name)
        if known is None or known.why != why:
            logger.error("cannot follow log %s; the others are followed: %s", name, error)
        self.stuck[name] = Stuck(boot_time_s() if known is None else known.since, why)

    def _tell_logs(self, kinds: frozenset[str]) -> None:
        for log in self._copies.opened():
            entry = self._entries.get(log.name)
            own = kinds_of_log(log.meta.incarnation)
            if entry is not None and not kinds.isdisjoint({*_LOG_KINDS, *own}):
                log.follow_state(entry.settings, consumers=not kinds.isdisjoint(own))

    def _follow_logs(self) -> None:
        known = known_logs(self._copies.state)
        gone = {
            name: entry.directory
            for name, entry in self._entries.items()
            if name not in known or known[name].directory != entry.directory
        }
        self._copies.follow_logs(gone)
        self._learn()

    def _learn(self) -> None:
        """List the logs and the ends of their copies."""
        self._entries = known_logs(self._copies.state)
        names: dict[str, str] = {}
        for name, entry in self._entries.items():
            directory = self._copies.directory / LOGS / entry.directory
            identity = known_identity(self._copies.state, directory)
            if identity is not None:
                names[identity.segments_id] = name
                if identity.segments_id not in self._ends:
                    self._ends[identity.segments_id] = self._end_of(name, directory)
        self._ends = {key: self._ends[key] for key in names}
        self._names = names

    def _end_of(self, name: str, directory: Path) -> tuple[int, int]:
        """The end of a copy: as recorded if it was closed cleanly; else it is opened."""
        try:
            meta = read_meta(directory)
            if meta.clean is not None:
                return meta.clean.head, meta.clean.crc
            if not segment_paths(directory / FRAMES):
                return meta.floor, 0
            return self._copies.open(name).end
        except (StorageCorrupted, OSError) as error:
            logger.warning("log %s: its copy cannot be read: %s", name, error)
            return -1, 0  # following it opens it and reports the error


def shown(error: Exception) -> str:
    """Why the home cannot be followed. The text is safe to show to any client: it names no path."""
    if isinstance(error, DiskFull):
        return f"the disk is full: {error.free_bytes} bytes are free, and {error.needed_bytes} are needed"
    if isinstance(error, StorageUnavailable):
        return error.reason
    return error.strerror or "a file cannot be used" if isinstance(error, OSError) else str(error)
