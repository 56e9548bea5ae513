"""Online backup, and restore.

A backup copies the state first and the logs after it, so that no consumer's position is above its log's head. It
needs nothing of the server: sealed segments do not change, the newest one is synced and copied up to its last whole
frame, and a lock file keeps segments from being unlinked meanwhile.

A restored log is a new incarnation: its numbers go on far above the backup, because what was issued after it is not
known, and readers that saw those numbers are told so.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..core.errors import StorageCorrupted, StorageUnavailable
from .append.writer_table import WRITERS_NAME, write_writers
from .catalog.directories import LOGS, known_logs
from .catalog.identity import identified, known_identity, record_identity
from .catalog.incarnations import renew, renew_floors
from .catalog.trim_point import check_witness, copy_witness, take_over
from .disk.checked_file import CheckedFile, earlier_struct
from .disk.locks import BACKUP_LOCK
from .disk.system import make_directory, make_file, private_opener, refusal_of, sync_directory, tighten
from .index.builder import range_of
from .segments.meta import FRAMES, HISTORY, INDEX, META_NAME, Meta, read_meta
from .segments.recovery import SegmentScan
from .segments.segment import Segment, segment_paths
from .staging.batches import MANIFEST_NAME, PART_SUFFIXES, STAGED
from .staging.owners import OWNERS
from .state.data_directory import LOST_AND_FOUND, PARTIAL_BACKUP, is_empty
from .state.files import PLAIN_SCHEMA_VERSION, SHARED_MEMORY, STATE_NAME, files_of, prove, witness_path
from .state.journal import JOURNAL, read_journal
from .state.journal_snapshot import replay
from .state.last_confirmed import REMEDY, read_witness
from .state.sqlite_state import SqliteState, copy_state

Progress = Callable[[str, int, int], None]
"""Told what is copied, how many bytes are done, and how many there are."""
MANIFEST = "BACKUP.json"
MANIFEST_FORMAT = 2


@dataclass(frozen=True)
class BackupReport:
    """What was copied."""

    logs: dict[str, int]
    """The head of each log."""
    files: int
    bytes: int


class BackupManifest(msgspec.Struct):
    """The last file of a backup: it is whole if this is there."""

    created_at: int
    logs: dict[str, int]
    format: int = MANIFEST_FORMAT


_MANIFEST = CheckedFile(
    MANIFEST,
    BackupManifest,
    newest=MANIFEST_FORMAT,
    checked_from=MANIFEST_FORMAT,
    earlier=lambda content: earlier_struct(content, BackupManifest),
    remedy="take another backup",
)


def backup(source: Path, target: Path, progress: Progress | None = None) -> BackupReport:
    """Copy a data directory, served or not, to a directory that must not exist or be empty.

    Raises StorageUnavailable, StorageCorrupted.
    """
    if not (source / STATE_NAME).exists():
        raise StorageUnavailable(f"{source}: no data directory (there is no {STATE_NAME})")
    _make_empty(target)
    make_file(target / PARTIAL_BACKUP)
    with open(source / BACKUP_LOCK, "a", encoding="ascii", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        _copy_state(source, target)
        copy = _Copy(target, progress)
        heads = {name: copy.log(source / LOGS / directory) for name, directory in _log_directories(target)}
        _copy_witnesses(source, target)
    _sync_directories(target)
    _MANIFEST.write(target, BackupManifest(time.time_ns() // 1_000_000, heads))
    (target / PARTIAL_BACKUP).unlink()
    sync_directory(target)
    return BackupReport(heads, copy.files, copy.bytes)


def restore(source: Path, target: Path, progress: Progress | None = None) -> BackupReport:
    """Make a data directory from a backup; `target` must not exist or be empty.

    Raises StorageUnavailable: not a complete backup, or the target is not empty.
    """
    manifest = read_manifest(source)
    _make_empty(target)
    copy = _Copy(target, progress)
    for path in files_of(Path(STATE_NAME)):
        if (source / path).exists() and path.suffix != SHARED_MEMORY:
            copy.file(source / path, path)
    for _, directory in _log_directories(target):
        copy.tree(source / LOGS / directory)
    state = SqliteState(target / STATE_NAME)
    try:
        for name, directory in _log_directories(target):
            _renew(target / LOGS / directory, manifest.logs[name], state)
        renew_floors(state, max(manifest.logs.values(), default=0))
        state.flush()
    finally:
        state.close()
    _sync_directories(target)
    return BackupReport(manifest.logs, copy.files, copy.bytes)


def read_manifest(directory: Path) -> BackupManifest:
    """The manifest of a backup. Raises StorageUnavailable: there is none, or it is not whole."""
    try:
        return _MANIFEST.read(directory)
    except (OSError, StorageCorrupted) as error:
        raise StorageUnavailable(f"{directory}: not a complete backup ({error})") from None


def _copy_state(source: Path, target: Path) -> None:
    """The state of one moment, without a journal: whoever opens the copy makes one.

    Raises StorageUnavailable, StorageCorrupted: it ends before what was confirmed.
    """
    path, has_journal = source / STATE_NAME, (source / JOURNAL).exists()
    confirmed = read_witness(witness_path(path)).serial if has_journal else 0
    copy_state(path, target / STATE_NAME, has_journal=has_journal)
    if not has_journal:
        return
    with closing(SqliteState(target / STATE_NAME)) as copied:
        replay(copied, read_journal(source / JOURNAL, copied.serial))
        if copied.serial < confirmed:
            problem = f"it ends with record {copied.serial}, but {confirmed} was confirmed: some are lost"
            raise StorageCorrupted(str(source / JOURNAL), problem, REMEDY)
        copied.belong_to(0)
        copied.flush()


def _copy_witnesses(source: Path, target: Path) -> None:
    """How far each log is trimmed, and who it is, by the state as it is now: META must not be ahead of the copy."""
    if prove(source / STATE_NAME, has_journal=(source / JOURNAL).exists()).version == PLAIN_SCHEMA_VERSION:
        return  # 0.1.0 has none; and its state is not brought up to date, for its server may run on it
    with tempfile.TemporaryDirectory(prefix="headwater-backup-") as place:
        now = Path(place)
        _copy_state(source, now)
        with closing(SqliteState(now / STATE_NAME)) as state, closing(SqliteState(target / STATE_NAME)) as copied:
            _copy_witnesses_of(state, copied, target)


def _copy_witnesses_of(state: SqliteState, copied: SqliteState, target: Path) -> None:
    for entry in known_logs(copied).values():
        meta = read_meta(target / LOGS / entry.directory)
        copy_witness(state, copied, meta)
        if known_identity(state, target / LOGS / entry.directory) is not None:
            record_identity(copied, target / LOGS / entry.directory, meta)  # as of its frames: they were copied with it
        check_witness(copied, meta, target / LOGS / entry.directory)


def _renew(directory: Path, head: int, state: SqliteState) -> None:
    """Make a copied log a new incarnation, with the consumers and readers of the old one."""
    meta, _ = identified(state, directory)
    check_witness(state, meta, directory)
    take_over(state, meta)
    renew(state, directory, meta, head)


def _log_directories(target: Path) -> list[tuple[str, str]]:
    with closing(SqliteState(target / STATE_NAME)) as state:
        return [(name, entry.directory) for name, entry in known_logs(state).items()]


def _sync_directories(target: Path) -> None:
    for path in (target, *target.rglob("*")):
        if path.is_dir() and path.name != LOST_AND_FOUND:  # which is root's alone
            sync_directory(path)


def _make_empty(target: Path) -> None:
    """Make a new directory, or take an empty one: nothing changes in any other. Raises StorageUnavailable."""
    try:
        if not is_empty(target):
            raise StorageUnavailable(f"{target}: not empty; name a new directory, or an empty one")
        make_directory(target)
        tighten(target)
    except OSError as error:
        raise refusal_of(error, target, "the directory cannot be made") from None


class _Copy:
    """Copies files durably under a target directory, and counts them."""

    def __init__(self, target: Path, progress: Progress | None) -> None:
        self._target, self._progress = target, progress
        self.files = self.bytes = 0

    def log(self, source: Path) -> int:
        """One log of a running or stopped server; answers its head in the copy."""
        relative = Path(LOGS) / source.name
        self.file(source / META_NAME, relative / META_NAME)
        meta = read_meta(self._target / relative)
        if meta.has_marks:  # before the frames: those that come on top of it are all in the copy then
            self.file(source / WRITERS_NAME, relative / WRITERS_NAME)
        for part in (FRAMES, INDEX, HISTORY):
            make_directory(self._target / relative / part)
        last = 0
        paths = segment_paths(source / FRAMES)
        for path in paths[:-1]:
            self.file(path, relative / FRAMES / path.name)
        if paths:
            last = self._newest(paths[-1], relative / FRAMES / paths[-1].name, meta)
        if not meta.has_marks and read_meta(source).has_marks:  # it took its first since: the frames tell of all
            write_writers(self._target / relative, 0, [])
            meta.changed(has_marks=True).write(self._target / relative)
        for path in sorted((source / HISTORY).glob("*.postings")):
            self.file(path, relative / HISTORY / path.name, may_vanish=True)
        for path in sorted((source / INDEX).iterdir()):
            covered = range_of(path)
            if path.suffix != ".tmp" and (
                covered is None or covered[1] <= last
            ):  # an index of what came after the copy would be a lie in it
                self.file(path, relative / INDEX / path.name, may_vanish=True)
        for manifest in sorted((source / STAGED).glob(f"*/*/{MANIFEST_NAME}")):  # commits that have begun
            self._begun_commit(manifest, relative / manifest.parent.relative_to(source))
        for owner in sorted((source / OWNERS).glob("*")):
            if owner.suffix != ".tmp":
                self.file(owner, relative / OWNERS / owner.name, may_vanish=True)
        return max(last, meta.floor)

    def _begun_commit(self, manifest: Path, relative: Path) -> None:
        """A batch that is being committed; none of it if it is discarded meanwhile: then its manifest goes first."""
        for path in sorted(manifest.parent.glob("*")):
            if path.suffix in PART_SUFFIXES:
                self.file(path, relative / path.name, may_vanish=True)
        self.file(manifest, relative / manifest.name, may_vanish=True)
        if not (self._target / relative / manifest.name).exists():
            shutil.rmtree(self._target / relative)

    def tree(self, source: Path) -> None:
        """One log of a backup, as it is."""
        for path in sorted(source.rglob("*")):
            relative = Path(LOGS) / source.name / path.relative_to(source)
            if path.is_dir():
                make_directory(self._target / relative)
            else:
                self.file(path, relative)

    def file(self, source: Path, relative: Path, *, may_vanish: bool = False) -> None:
        """One file, whole."""
        target = self._target / relative
        make_directory(target.parent)
        make_file(target)
        try:
            shutil.copyfile(source, target)
        except FileNotFoundError:
            if may_vanish:  # index files are replaced by others at any time; what is missing is made anew
                target.unlink(missing_ok=True)
                return
            raise
        self._done(target)

    def _newest(self, source: Path, relative: Path, meta: Meta) -> int:
        """The segment that may be being written: everything that is whole in it, made durable first."""
        with open(source, "rb") as file:
            os.fdatasync(file.fileno())
        segment = Segment(source, bytes.fromhex(meta.segments_id))
        SegmentScan(segment, meta.gaps).run()
        with open(self._target / relative, "wb", opener=private_opener) as file:
            file.write(segment.buffer[: segment.end])
        self._done(self._target / relative)
        return segment.last

    def _done(self, target: Path) -> None:
        with open(target, "rb") as file:
            os.fsync(file.fileno())
        self.files += 1
        self.bytes += target.stat().st_size
        if self._progress is not None:
            self._progress(target.name, self.bytes, self.bytes)
