"""The scrub: periodically reads every file of a data directory from the disk and verifies it.

A frame is verified on the first read, but its page may be read from the disk again at any later time. Without a scrub,
later damage would be served silently. The scrub runs in short steps after the jobs of the index, uses at most
CORE_SHARE of a core, and stores its position, so that a restart does not start it from the beginning."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ...core.errors import Closed, EventLogError, StorageUnavailable
from ...core.state import StateStore
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from ...formats.newer import WrittenByNewer
from ..disk.checked_file import CheckedFile
from ..segments.meta import INDEX
from ..segments.segment import Segment
from .file_proof import NOT_NEXT, STEP_S, FileToProve, Proof
from .mending import Mending
from .scrub_files import ScrubFiles

logger = logging.getLogger("headwater.storage")

PERIOD_MS = 7 * 24 * 60 * 60 * 1000
"""The interval between the starts of passes, unless the previous one takes longer."""
CORE_SHARE = 0.03
"""The share of a core to use, on average."""
SETTLED_S = 60.0
"""The delay after a start, when the server has other work."""
PLACE_S = 10.0
"""The interval at which the position is stored, in s. At most that much work is repeated after a kill."""
STATE_KIND, _ASKED = "scrub", "asked"
RETRY_S = 600.0
"""The delay after a failure to store the position or to mend a segment."""
PLACE_NAME = "scrub.json"
PLACE_FORMAT = 1


class DamagedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A damaged place of a file; for a segment, with the events."""

    path: str
    """The path below the data directory."""
    problem: str
    first: int = 0
    last: int = 0


class ScrubPlace(msgspec.Struct):
    """The progress of the current pass, or the result of the last one. Times in ms since 1970 UTC."""

    format: int = PLACE_FORMAT
    began_at: int = 0
    ended_at: int = 0
    """0 while a pass is running."""
    proved_at: int = 0
    """When the last completed pass began: every file has been verified since then."""
    path: str = ""
    """The last proved file, below the data directory."""
    after: tuple[int, int] = (0, 0)
    """If it is a segment: its last number and checksum."""
    files: int = 0
    bytes: int = 0
    unproved_bytes: int = 0
    """Bytes read through the page cache, without O_DIRECT: they prove nothing about the disk."""
    damaged: list[DamagedFile] = []
    """All known damage, including that of earlier passes."""


_PLACE = CheckedFile(
    PLACE_NAME,
    ScrubPlace,
    newest=PLACE_FORMAT,
    checked_from=PLACE_FORMAT,
    remedy="remove it: the scrub starts again",
)


class Proving(Protocol):
    """Verifies files: see `worker.IndexWorker`."""

    def prove(self, file: FileToProve) -> Proof:
        """Do one step. Raises Closed, StorageUnavailable."""

    def rest(self) -> None:
        """Record that there is nothing to verify for a while."""


class Scrub:
    """The scrub of one data directory. One thread takes the steps; any thread may call the other methods."""

    def __init__(
        self,
        directory: Path,
        files: ScrubFiles,
        proving: Proving,
        state: StateStore,
        *,
        period_ms: int,
        clock: Callable[[], int],
        bus: Bus,
        place: ScrubPlace,
        mending: Mending | None = None,
    ) -> None:
        """`period_ms` 0: a pass begins only on request. `clock` gives ms since 1970 UTC.

        `place`: the result of `read_place`. `mending` fetches damaged events from the home, if there is one.
        """
        self._directory, self._files, self._proving = directory, files, proving
        self._state, self._period_ms, self._clock, self._bus = state, period_ms, clock, bus
        self.place = place
        """The progress. Replaced when a pass begins."""
        self._is_asked = False
        self._paths: Iterator[Path] | None = None
        self._again = [directory / path for path in dict.fromkeys(each.path for each in self.place.damaged)]
        """Files that were damaged when the server stopped: they may have been repaired since."""
        self._mending = mending
        self._to_mend: dict[Path, float] = {}
        """Segments that need mending, and the earliest time of the next attempt (monotonic, in s)."""
        self._mended: Path | None = None
        """The damaged segment whose replacement is being proved."""
        self.mended = 0
        """The number of damaged places mended from the home since the start."""
        self._suspected: set[Path] = set()
        self._file: FileToProve | None = None
        """The file being verified."""
        self._is_in_turn = False
        """Whether that file is part of the pass."""
        self._next_at = time.monotonic() + SETTLED_S
        self._stored_at = 0.0

    def begin(self) -> None:
        """Begin a pass with the next step; a running one continues."""
        self._is_asked = not self.is_under_way
        self._next_at = 0.0

    @property
    def is_under_way(self) -> bool:
        """Whether a pass has begun and not ended."""
        return bool(self.place.began_at and not self.place.ended_at)

    def step(self) -> None:
        """Prove for about STEP_S, if it is time. Raises EventLogError."""
        now = time.monotonic()
        if now < self._next_at:
            return
        spent = -time.thread_time()
        while True:
            self._file = self._file or self._next()
            if self._file is None or (proof := self._proved(self._file)) is None:
                break
            spent += proof.cpu_s
            self.place.bytes += proof.bytes
            self.place.unproved_bytes += 0 if proof.is_direct else proof.bytes
            if proof.is_done:
                if self._mended is not None:
                    self._finish_mending(self._mended, proof)
                else:
                    self._finish(self._file, proof)
                self._file = self._mended = None
            if time.monotonic() >= now + STEP_S:
                break
        self._next_at = now + (spent + time.thread_time()) / CORE_SHARE
        if self.is_under_way and now >= self._stored_at + PLACE_S:
            self.store()

    def heed(self, segments: Sequence[Segment]) -> None:
        """Distrust the damaged events in the segments of a newly opened log until a proof finds them intact."""
        by_name = {self._name(segment.path): segment for segment in segments} if self.place.damaged else {}
        for each in self.place.damaged:
            if (segment := by_name.get(each.path)) is not None:
                _distrust_all(segment, [each])
                self._again.append(segment.path)  # it may be another file by now, if a copy was fetched again

    def suspect(self, path: Path) -> None:
        """Prove that segment next, once, because a read found damage in it."""
        if path not in self._suspected:
            self._suspected.add(path)
            self._again.append(path)
            self._next_at = 0.0

    def store(self) -> None:
        """Store the position. Without it, the scrub only starts from the beginning, so a failure is only logged."""
        self._stored_at = time.monotonic()
        try:
            _PLACE.write(self._directory, self.place)
        except OSError as error:
            logger.warning("%s: cannot store the progress of the scrub: %s", self._directory / PLACE_NAME, error)
            self._stored_at += RETRY_S

    def _proved(self, file: FileToProve) -> Proof | None:
        """The result of a step; None if the server is stopping."""
        try:
            return self._proving.prove(file)
        except Closed:
            return None
        except StorageUnavailable as error:
            logger.warning("%s: cannot verify it: %s", file.path, error)
            return Proof(is_done=True, is_known=False)

    def _next(self) -> FileToProve | None:
        """The next file of the pass; None if it is not time for one."""
        self._is_in_turn = False
        while self._again:
            if (file := self._described(self._again.pop())) is not None:
                return file
        if (file := self._next_mended()) is not None:
            return file
        if not self.is_under_way:
            if not self._is_due():
                return None
            self._is_asked = False
            self.place = ScrubPlace(began_at=self._clock(), proved_at=self.place.proved_at, damaged=self.place.damaged)
            self._paths = None
        self._is_in_turn = True
        if self._paths is None:
            self._paths = self._files.behind(self.place.path)
        for path in self._paths:
            if (file := self._described(path)) is not None:
                return file
        self._end_pass()
        return None

    def _next_mended(self) -> FileToProve | None:
        """A replacement for a damaged segment; None if none is needed or possible now."""
        now = time.monotonic()
        for path in [path for path, not_before in self._to_mend.items() if not_before <= now]:
            assert self._mending is not None, "nothing else adds a segment"
            try:
                if (file := self._mending.begin(path)) is not None:
                    self._mended = path
                    return file
                del self._to_mend[path]
            except (EventLogError, OSError) as error:
                self._mend_later(path, str(error))
        return None

    def _finish_mending(self, path: Path, proof: Proof) -> None:
        assert self._mending is not None, "it was begun"
        try:
            is_mended, why = self._mending.finish(proof), "the fetched file is incomplete, or the log was closed"
        except (EventLogError, OSError) as error:
            is_mended, why = False, str(error)
        if not is_mended:
            self._mend_later(path, "; ".join(dict.fromkeys(each.problem for each in proof.damages)) or why)
            return
        del self._to_mend[path]
        self._suspected.discard(path)
        known = [each for each in self.place.damaged if each.path == self._name(path)]
        left = [each for each in known if not each.first]
        self.mended += len(known) - len(left)
        logger.info("%s: its damaged events were fetched from the home", path)
        self._settle(path, known, left, source="home")

    def _mend_later(self, path: Path, why: str) -> None:
        self._to_mend[path] = time.monotonic() + RETRY_S
        logger.warning("%s: cannot repair it from the home now: %s; retrying", path, why)

    def _is_due(self) -> bool:
        began_at = self.place.began_at
        is_time = self._period_ms and not 0 <= self._clock() - began_at < self._period_ms
        return bool(is_time) or self._is_asked or began_at < _asked_at(self._state) <= self._clock()

    def _described(self, path: Path) -> FileToProve | None:
        name = self._name(path)
        follows = self._is_in_turn and name.rpartition("/")[0] == self.place.path.rpartition("/")[0]
        try:
            return self._files.described(path, self.place.after if follows else (0, 0))
        except (EventLogError, FileNotFoundError) as error:
            logger.debug("cannot verify %s: %s", path, error)  # META is damaged, and is proved separately
            return None

    def _finish(self, file: FileToProve, proof: Proof) -> None:
        name = self._name(path := Path(file.path))
        known = [each for each in self.place.damaged if each.path == name]
        found = [DamagedFile(name, each.problem, each.first, each.last) for each in proof.damages]
        if not proof.is_known:
            found = known
        elif not file.before[1]:  # the previous segment was not checked
            found += [each for each in known if each.problem == NOT_NEXT]
        if self._is_in_turn:
            self.place.files += 1
            self.place.path, self.place.after = name, proof.after
        if self._mending is not None and any(each.first for each in found):
            self._to_mend.setdefault(path, 0.0)
        self._settle(path, known, found)

    def _settle(
        self, path: Path, known: Sequence[DamagedFile], found: Sequence[DamagedFile], *, source: str | None = None
    ) -> None:
        """Record the current damage of a file. `source`: where the rest was fetched from, if it was."""
        name, segment = self._name(path), self._files.open_segment(path)
        if found == known:
            if segment is not None:
                _distrust_all(segment, found)  # its log may just have been opened
            return
        self.place.damaged = [*(each for each in self.place.damaged if each.path != name), *found]
        self.store()
        for each in known:
            if each not in found:
                logger.info("%s: it is intact again (%s)", path, each.problem)
                self._tell(NotificationType.SCRUB_MENDED, each, source=source)
                if segment is not None:
                    segment.trust(each.first, each.last)
        for each in found:
            if each not in known:
                logger.error("%s is damaged: %s", path, told(each, has_home=self._mending is not None))
                self._tell(NotificationType.SCRUB_DAMAGED, each)
        if segment is not None:
            _distrust_all(segment, found)

    def _tell(self, type: NotificationType, damaged: DamagedFile, source: str | None = None) -> None:
        first, last = (damaged.first, damaged.last) if damaged.first else (None, None)
        self._bus.emit(type, path=damaged.path, problem=damaged.problem, first=first, last=last, source=source)

    def _end_pass(self) -> None:
        self.place.ended_at, self.place.proved_at = self._clock(), self.place.began_at
        self.place.path, self._paths = "", None
        self.place.damaged = [each for each in self.place.damaged if (self._directory / each.path).exists()]
        self.store()
        self._proving.rest()
        place = self.place
        self._bus.emit(
            NotificationType.SCRUB_ENDED,
            files=place.files,
            bytes=place.bytes,
            unprovedBytes=place.unproved_bytes,
            damaged=len(place.damaged),
            durationMs=place.ended_at - place.began_at,
        )
        logger.info("the scrub pass has finished: %s", shown(place))

    def _name(self, path: Path) -> str:
        return path.relative_to(self._directory).as_posix()


def ask(state: StateStore, now_ms: int) -> None:
    """Ask every server of this state to begin a pass, unless one is running. Raises StorageUnavailable."""
    state.put(STATE_KIND, _ASKED, str(now_ms).encode())


def _asked_at(state: StateStore) -> int:
    entry = state.get(STATE_KIND, _ASKED)
    return int(entry.value) if entry else 0


def shown(place: ScrubPlace) -> str:
    """Describe the progress or result of a pass."""
    amount = f"{place.files} files and {place.bytes} bytes were read"
    if place.unproved_bytes:
        amount += f", {place.unproved_bytes} of them from the page cache, which does not verify the disk"
    return f"{amount}; {len(place.damaged)} damaged places are known"


def _distrust_all(segment: Segment, damaged: Sequence[DamagedFile]) -> None:
    for each in damaged:
        if each.first and (each.first, each.last) not in segment.distrusted:
            segment.distrust(each.first, each.last, each.problem)


def told(damaged: DamagedFile, *, has_home: bool) -> str:
    """Describe the damage: the events, and how to mend them, or that they are fetched from the home."""
    what = f"events {damaged.first} to {damaged.last} are damaged" if damaged.first else "it is damaged"
    what += " on the disk"
    if f"/{INDEX}/" in damaged.path:
        return f"{what} ({damaged.problem}); the next start rebuilds it"
    if has_home and damaged.first:
        return f"{what} ({damaged.problem}); a running server fetches them from the home"
    return f"{what} ({damaged.problem}); restore a backup (headwater restore)"


def read_place(directory: Path) -> ScrubPlace:
    """The stored position of a data directory; a new one if it is missing or damaged. Raises WrittenByNewer."""
    try:
        return _PLACE.read(directory)
    except FileNotFoundError:
        return ScrubPlace()
    except WrittenByNewer:
        raise
    except (EventLogError, OSError) as error:
        logger.warning("%s; the scrub starts again", error)
        return ScrubPlace()
