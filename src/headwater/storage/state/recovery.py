"""Opens the state of a data directory: a journal and an image in SQLite, each of which can be rebuilt from the other.

The witness records the last confirmed change. A copy that is intact up to that change is the state, and the other one
is updated, or rebuilt if it is damaged, missing or behind; its old files are set aside. If neither reaches that change,
the state is refused, without guessing.

A directory of an earlier version and a backup have no journal: it is made from the image, completely or not at all.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from ...core.errors import StorageCorrupted, StorageUnavailable
from ..append.clock import shown_ms
from ..catalog.directories import LOGS
from ..disk.locks import HeldLock
from ..disk.system import Disk, make_directory, refusing, sync_directory
from ..home.copy_file import home_of
from ..home.port import HomeWentBack
from ..home.replicated_log import CopyOutlived, Homed
from .files import STATE_NAME, Proven, files_of, make_state, prove, witness_path
from .journal import JOURNAL, UNFINISHED, HadUsers, Journal, JournalSnapshot, Record, make_copy, make_journal, name_of
from .journal_snapshot import STEP_BYTES, STEP_ENTRIES, record_of, replay
from .journaled_state import JournalState
from .last_confirmed import REMEDY, make_witness, read_witness
from .rows import GUARDED_VERSION
from .sqlite_state import SqliteState

logger = logging.getLogger("headwater.storage")

UNFINISHED_IMAGE = "state-new.sqlite"
_CANNOT_MAKE = "cannot open the state"


def open_journaled(
    directory: Path,
    *,
    fatal: Callable[[str], None],
    disk: Disk | None = None,
    clock: Callable[[], int] | None = None,
    lock: HeldLock | None = None,
    homed: Homed | None = None,
) -> JournalState:
    """Open, or create, the state of a data directory that this process has locked.

    `fatal` ends the process after a failed write. `clock` gives ms since 1970 UTC. `lock` is closed with the state.
    With `homed`, the directory is a copy of that home, and catches up with it.
    Raises StorageUnavailable, DiskFull, StorageCorrupted: nothing was changed.
    """
    if homed is None and home_of(directory) is not None:
        raise StorageUnavailable(
            f"{directory} is the copy of a home and can only change through it: use its primary, or start with --home",
            reason="this is a copy; ask the primary",
        )
    opening = _Opening(directory, disk or Disk(), clock or shown_ms)
    with refusing(directory, _CANNOT_MAKE):
        journal, image = opening.both() if homed is None else opening.copied(homed)
    state = JournalState(journal, image, fatal, lock)
    state.mended = opening.mended
    return state


class _Opening:
    """The opening of the two copies of one state."""

    def __init__(self, directory: Path, disk: Disk, clock: Callable[[], int]) -> None:
        self._directory, self._disk, self._clock = directory, disk, clock
        self._image_path, self._journal_path = directory / STATE_NAME, directory / JOURNAL
        self.mended: list[str] = []
        """What was rebuilt, and why."""

    def both(self) -> tuple[Journal, SqliteState]:
        """Journal and image, with the same content."""
        shutil.rmtree(self._directory / UNFINISHED, ignore_errors=True)
        self._remove_unfinished_image()
        if not self._journal_path.exists():
            return self._journal_from(SqliteState(self._image_path))
        confirmed = read_witness(witness_path(self._image_path)).serial
        proven, problems = self._proven()
        try:
            journal = Journal(self._journal_path, confirmed=confirmed, disk=self._disk, clock=self._clock)
        except StorageCorrupted as error:
            problems.append(f"{error.path}: {error.problem}")
            if proven is None or proven.serial < confirmed or not proven.journal:
                if proven is not None and not proven.journal:
                    problems.append(f"{self._image_path} is not the image of any journal")
                elif proven is not None:
                    problem = f"ends with {proven.serial}, but change {confirmed} was confirmed: some changes are lost"
                    problems.append(f"{self._image_path} {problem}")
                raise StorageCorrupted(str(self._directory), "; ".join(problems), REMEDY) from None
            return self._journal_anew(proven, problems)
        is_image = proven is not None and proven.journal == name_of(journal.meta.incarnation)
        if proven is not None and is_image and proven.serial > journal.head:
            problems.append(f"{journal.directory} ends with {journal.head}, but {STATE_NAME} with {proven.serial}")
            journal.close()
            return self._journal_anew(proven, problems)
        return journal, self._followed(journal, proven, problems)

    def copied(self, homed: Homed) -> tuple[Journal, SqliteState]:
        """Journal and image of a copy: the home is authoritative, and damaged or outdated parts are rebuilt."""
        shutil.rmtree(self._directory / UNFINISHED, ignore_errors=True)
        self._remove_unfinished_image()
        self._refuse_other(homed)
        if not self._journal_path.exists():
            make_copy(self._journal_path, homed.home, self._clock)
        try:
            journal = self._copied_journal(homed)
        except (CopyOutlived, StorageCorrupted) as error:
            homed.give_up(self._journal_path, str(error))
            logger.warning("%s; fetching the whole journal", error)
            self._aside([self._journal_path])
            make_copy(self._journal_path, homed.home, self._clock)
            journal = self._copied_journal(homed)
        is_new = not self._image_path.exists()
        self._renew_witness()
        proven, problems = self._proven()
        if proven is not None and proven.serial > journal.head:
            went_back = HomeWentBack(str(self._image_path), proven.serial, journal.head)
            homed.on_lost(went_back)
            journal.close()
            raise went_back
        image = self._followed(journal, proven, problems)
        image.confirm(journal.head, image.had_users())
        if is_new:
            self.mended.clear()
        return journal, image

    def _renew_witness(self) -> None:
        """Make the witness of a copy readable; its content does not matter, because the home is the real witness."""
        try:
            read_witness(witness_path(self._image_path))
        except StorageCorrupted:
            witness_path(self._image_path).unlink(missing_ok=True)
            make_witness(witness_path(self._image_path), 0, had_users=False)

    def _copied_journal(self, homed: Homed) -> Journal:
        return Journal(self._journal_path, confirmed=0, disk=self._disk, clock=self._clock, homed=homed)

    def _refuse_other(self, homed: Homed) -> None:
        """Raises StorageUnavailable if the directory is anything but a copy of that home."""
        problem, home = None, home_of(self._directory)
        if home is not None:
            if home != homed.home.incarnation:
                problem = f"it belongs to the home {home[:64]!r}, but this home is {homed.home.incarnation}"
        elif self._journal_path.exists() or self._image_path.exists() or any((self._directory / LOGS).glob("*")):
            problem = "it has its own logs"
        if problem is not None:
            raise StorageUnavailable(
                f"{self._directory} is not a copy of this home: {problem}; use an empty directory for the copy"
            )

    def _proven(self) -> tuple[Proven | None, list[str]]:
        """The verified image, or its problems. It is not changed."""
        try:
            proven = prove(self._image_path, has_journal=True)
        except StorageCorrupted as error:
            return None, [f"{error.path}: {error.problem}"]
        if proven.version < GUARDED_VERSION:
            return None, [f"{self._image_path} is missing"]
        return proven, []

    def _followed(self, journal: Journal, proven: Proven | None, problems: list[str]) -> SqliteState:
        """The image, caught up with the journal, which is the state."""
        try:
            if proven is not None and proven.journal != name_of(journal.meta.incarnation):
                problems.append(f"{self._image_path} is not the image of this journal")
            elif proven is not None and proven.serial >= journal.first - 1:
                image = SqliteState(self._image_path, has_journal=True, proven=proven)
                try:
                    replay(image, journal.read(image.serial))
                    return image
                except StorageCorrupted as error:
                    image.close()
                    problems.append(f"{error.path}: {error.problem}")
            elif proven is not None:
                problems.append(f"{self._image_path} ends before the journal starts")
            return self._image_from(journal, problems)
        except BaseException:
            journal.close()
            raise

    def _image_from(self, journal: Journal, problems: Sequence[str]) -> SqliteState:
        """An image rebuilt from the journal, which contains everything."""
        unfinished = self._directory / UNFINISHED_IMAGE
        make_state(unfinished, (), journal.first - 1, had_users=False)
        with closing(SqliteState(unfinished, has_journal=True)) as image:
            replay(image, journal.read(journal.first - 1))
            image.belong_to(name_of(journal.meta.incarnation))
        aside = self._aside([each for each in files_of(self._image_path)[:4] if each.exists()])
        os.replace(unfinished, self._image_path)
        sync_directory(self._directory)
        self._remove_unfinished_image()
        self.mended.append(
            f"{'; '.join(problems)}: rebuilding it from the journal, which has every confirmed change{aside}"
        )
        return SqliteState(self._image_path, has_journal=True)

    def _journal_anew(self, proven: Proven, problems: Sequence[str]) -> tuple[Journal, SqliteState]:
        """A journal rebuilt from the image, which contains everything confirmed."""
        aside = self._aside([self._journal_path])
        self.mended.append(
            f"{'; '.join(problems)}: rebuilding it from {STATE_NAME}, which has every confirmed change{aside}"
        )
        return self._journal_from(SqliteState(self._image_path, has_journal=True, proven=proven))

    def _journal_from(self, image: SqliteState) -> tuple[Journal, SqliteState]:
        with ExitStack() as opened:
            opened.callback(image.close)
            incarnation = uuid.uuid4().hex
            image.belong_to(name_of(incarnation))  # first: an earlier version must not write it once there is a journal
            image.apply((), image.serial, image.had_users(), is_durable=True)
            make_journal(self._journal_path, image.serial, _all_of(image), self._clock, incarnation)
            journal = Journal(self._journal_path, confirmed=image.serial, disk=self._disk, clock=self._clock)
            opened.callback(journal.close)
            image.apply((), journal.head, image.had_users(), is_durable=True)
            opened.pop_all()
        return journal, image

    def _aside(self, paths: Sequence[Path]) -> str:
        """Move useless files out of the way; returns a description."""
        if not paths:
            return ""
        aside = self._directory / f"state.damaged-{self._clock()}"
        make_directory(aside)
        for path in reversed(paths):  # the image last: its companions are useless without it
            os.rename(path, aside / path.name)
        sync_directory(aside)
        sync_directory(self._directory)
        return f"; the old files are in {aside}"

    def _remove_unfinished_image(self) -> None:
        for each in files_of(self._directory / UNFINISHED_IMAGE):
            each.unlink(missing_ok=True)


def _all_of(image: SqliteState) -> Iterator[Sequence[Record]]:
    """The records of a snapshot with the whole state of an image."""
    first, after = image.serial + 1, ("", "")
    while entries := image.after(*after, count=STEP_ENTRIES, size=STEP_BYTES):
        yield [record_of(entry) for entry in entries]
        after = entries[-1][:2]
    yield [HadUsers(image.had_users()), JournalSnapshot(first, image.digest)]
