"""Online backup, and restore.

A backup copies the state before the logs, so that no consumer's position is above its log's head. It does not need the
server: sealed segments do not change, the newest one is synced and copied up to its last complete frame, and a lock
file keeps segments from being unlinked meanwhile.

The code of `check` verifies the copy of each log, and the manifest has a checksum of each file. Damaged logs are
copied as they are and reported; a restore compares each file with its checksum before the directory can be used.

A restored log is a new incarnation: its numbers continue far above the backup, because the numbers issued after it
are unknown, and readers that saw those numbers get an error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import DiskFull, StorageCorrupted, StorageUnavailable
from ..core.state import StateStore
from ..formats.files.own_directory import LOST_AND_FOUND
from .append.writer_table import WRITERS_NAME, write_writers
from .catalog.backup_lock import backing_up
from .catalog.directories import LOGS, known_logs
from .catalog.identity import identified, known_identity, record_identity
from .catalog.incarnations import renew, renew_floors
from .catalog.trim_point import check_witness, copy_witness, take_over
from .disk.summed_copy import FileSum, Syncs, copy_summed, sum_of
from .disk.system import (
    NO_SPACE,
    free_bytes_at,
    make_directory,
    make_file,
    refusal_of,
    sync_directory,
    tighten,
)
from .frames.crc import extended_crc, shortened_crc
from .index.builder import range_of
from .repair.log_check import check_log
from .repair.manifest import (
    BackupManifest,
    check_paths,
    fault_of,
    files_in,
    read_manifest,
    write_manifest,
)
from .segments.meta import FRAMES, HISTORY, INDEX, META_NAME, CleanStop, Meta, read_meta
from .segments.recovery import SegmentScan, highest_kept, known_durable
from .segments.segment import Segment, segment_name, segment_paths
from .staging.batches import MANIFEST_NAME, PART_SUFFIXES, STAGED
from .staging.owners import OWNERS
from .state.check import looking_at_state
from .state.data_directory import PARTIAL, is_empty, no_data, refuse_partial
from .state.files import PLAIN_SCHEMA_VERSION, STATE_NAME, prove, witness_path
from .state.journal import JOURNAL, read_journal
from .state.journal_snapshot import replay
from .state.last_confirmed import REMEDY, read_witness
from .state.sqlite_state import SqliteState, copy_state

Progress = Callable[[str, int, int], None]
"""Called with the name of the file, the bytes copied so far, and the total."""
_REMEDY = "restore another backup, or restore its intact logs (headwater restore --accept-damage)"


_REBUILT = (
    "nothing is lost: start (or restart) the server of this directory, which rebuilds the damaged file from the other "
    "one, then back up again"
)


@dataclass(frozen=True)
class BackupReport:
    """The result of a backup or restore."""

    logs: dict[str, int]
    """The head of each log."""
    files: int
    bytes: int
    damaged: dict[str, list[str]] = field(default_factory=dict)
    """The damage of each damaged log, with event numbers. Such a log was copied as it is; the others are intact."""
    is_proved: bool = True
    """Whether each file is known to be the one that was verified: False for backups of an earlier version."""


def backup(source: Path, target: Path, progress: Progress | None = None) -> BackupReport:
    """Copy a data directory, served or not, to a directory that is missing or empty, and verify the copy.

    The report and the manifest list the damage of each log. Raises StorageUnavailable, StorageCorrupted (the state,
    which lists the logs, is damaged).
    """
    refuse_partial(source)
    if not (source / STATE_NAME).exists():
        raise no_data(source)
    _make_empty(target, source)
    with _filling(target):
        return _backed_up(source, target, progress)


def _backed_up(source: Path, target: Path, progress: Progress | None) -> BackupReport:
    make_file(target / PARTIAL)
    with Syncs() as syncs:
        copy = _Copy(target, progress, syncs)
        with backing_up(source):
            try:
                _copy_state(source, target)
            except StorageCorrupted as error:
                raise _with_remedy(source, error) from None
            with closing(SqliteState(target / STATE_NAME)) as state:
                logs = {name: entry.directory for name, entry in known_logs(state).items()}
                heads = {name: copy.log(source / LOGS / directory, state) for name, directory in logs.items()}
            _copy_witnesses(source, target)
        damaged = _damage_of(source, target, logs, copy.unreadable)
        syncs.wait()
    for name in files_in(target):
        if name not in copy.sums:
            copy.sums[name] = sum_of(target / name)
    _sync_directories(target)
    write_manifest(target, BackupManifest(time.time_ns() // 1_000_000, heads, dict(copy.sums), damaged))
    (target / PARTIAL).unlink()
    sync_directory(target)
    return BackupReport(heads, copy.files, copy.bytes, damaged)


def restore(
    source: Path, target: Path, progress: Progress | None = None, *, accepts_damage: bool = False
) -> BackupReport:
    """Make a data directory from a backup.

    `target` must be missing or empty; it is usable only after everything is verified. `accepts_damage`: restore damaged
    logs as they are and report them; such a log does not open until its loss is accepted. Raises StorageUnavailable:
    not a complete backup, or the target is not empty; StorageCorrupted: the backup is damaged.
    """
    manifest = read_manifest(source)
    check_paths(source, manifest)
    if manifest.damaged and not accepts_damage:
        name, problems = next(iter(manifest.damaged.items()))
        raise StorageCorrupted(str(source), f"log {name} was damaged when it was backed up: {problems[0]}", _REMEDY)
    _make_empty(target, source)
    with _filling(target):
        return _unpacked(source, target, manifest, progress, accepts_damage=accepts_damage)


def _unpacked(
    source: Path, target: Path, manifest: BackupManifest, progress: Progress | None, *, accepts_damage: bool
) -> BackupReport:
    make_file(target / PARTIAL)
    faults = {}
    with Syncs() as syncs:
        copy = _Copy(target, progress, syncs)
        for name in manifest.files if manifest.has_sums else files_in(source):
            if (fault := _restored(copy, source, name, manifest.files.get(name))) is not None:
                if not accepts_damage or not name.startswith(f"{LOGS}/"):  # the state lists the logs
                    raise StorageCorrupted(str(source / name), fault, _REMEDY)
                faults[name] = f"{name}: {fault}"
        syncs.wait()
    damaged = dict(manifest.damaged)
    with closing(SqliteState(target / STATE_NAME)) as state:
        for name, entry in known_logs(state).items():
            directory = target / LOGS / entry.directory
            found = [fault for path, fault in faults.items() if path.startswith(f"{LOGS}/{entry.directory}/")]
            try:
                for part in (FRAMES, INDEX, HISTORY):
                    make_directory(directory / part)
                _renew(directory, manifest.logs[name], state)
                _check_end(directory, manifest.logs[name], state)
            except StorageCorrupted as error:
                if not accepts_damage:
                    raise
                found.append(str(error))
            if found:
                damaged[name] = [*damaged.get(name, ()), *found]
        renew_floors(state, max(manifest.logs.values(), default=0))
        state.flush()
    _sync_directories(target)
    (target / PARTIAL).unlink()
    sync_directory(target)
    return BackupReport(manifest.logs, copy.files, copy.bytes, damaged, manifest.has_sums)


def _restored(copy: _Copy, source: Path, name: str, expected: FileSum | None) -> str | None:
    """Copy one file of a backup; returns how it differs from the file that was backed up."""
    try:
        found = copy.file(source / name, Path(name))
    except FileNotFoundError:
        return "the file is missing"
    if found is None:
        return "the disk does not return the whole file"
    return None if expected is None else fault_of(found, expected)


def _damage_of(
    source: Path, target: Path, logs: dict[str, str], unreadable: dict[str, list[str]]
) -> dict[str, list[str]]:
    """The damage of each log in the copy, by name."""
    damaged = {}
    with closing(SqliteState(target / STATE_NAME)) as state:
        for name, directory in logs.items():
            found = check_log(target / LOGS / directory, name, state, compares=False)
            problems = unreadable.get(directory, []) + [
                problem.replace(str(target), str(source)) for problem in (*found.problems, *found.newer)
            ]
            if problems:
                damaged[name] = problems
    return damaged


def _with_remedy(source: Path, error: StorageCorrupted) -> StorageCorrupted:
    """The same damage of a state, with a lesser remedy if a start rebuilds the state without loss."""
    with looking_at_state(source) as (_, found):
        is_whole = not (found.problems or found.newer)
    return StorageCorrupted(error.path, error.problem, _REBUILT) if is_whole else error


def _copy_state(source: Path, target: Path) -> None:
    """Copy a snapshot of the state, without a journal: opening the copy creates one.

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
            problem = (
                f"it ends with record {copied.serial}, but record {confirmed} was confirmed: some records are lost"
            )
            raise StorageCorrupted(str(source / JOURNAL), problem, REMEDY)
        copied.belong_to(0)
        copied.flush()


def _copy_witnesses(source: Path, target: Path) -> None:
    """Copy the trim point and identity of each log from the current state: META must not be ahead of the copy."""
    if prove(source / STATE_NAME, has_journal=(source / JOURNAL).exists()).version == PLAIN_SCHEMA_VERSION:
        return  # 0.1.0 has none; its state is not upgraded, because its server may be using it
    with tempfile.TemporaryDirectory(prefix="headwater-backup-") as place:
        now = Path(place)
        with _filling(now):
            _copy_state(source, now)
        with closing(SqliteState(now / STATE_NAME)) as state, closing(SqliteState(target / STATE_NAME)) as copied:
            _copy_witnesses_of(state, copied, target)


def _copy_witnesses_of(state: SqliteState, copied: SqliteState, target: Path) -> None:
    for entry in known_logs(copied).values():
        try:
            meta = read_meta(target / LOGS / entry.directory)
        except StorageCorrupted:
            continue  # the check of the copy reports it
        copy_witness(state, copied, meta)
        if known_identity(state, target / LOGS / entry.directory) is not None:
            record_identity(copied, target / LOGS / entry.directory, meta)  # of the META copied with its frames


def _renew(directory: Path, head: int, state: SqliteState) -> None:
    """Turn a copied log into a new incarnation, with the consumers and readers of the old one."""
    meta, _ = identified(state, directory)
    check_witness(state, meta, directory)
    take_over(state, meta)
    renew(state, directory, meta, head)


def _check_end(directory: Path, head: int, state: SqliteState) -> None:
    """Compare the end of a restored log with the head that its backup had. Raises StorageCorrupted.

    Missing events stay recorded as durable: the log does not open until the loss is accepted.
    """
    meta = read_meta(directory)
    paths, last = segment_paths(directory / FRAMES), 0
    if paths:
        last = int(paths[-1].stem) - 1
        with contextlib.suppress(StorageCorrupted):  # then it cannot be read at all
            segment = Segment(paths[-1], bytes.fromhex(meta.segments_id))
            SegmentScan(segment, meta.gaps).run()
            last = segment.last
    first, kept = max(last + 1, meta.first_retained), highest_kept(meta.gaps, head)
    if kept < first:
        return
    meta = meta.changed(clean=CleanStop(head, segment_name(head + 1), 0, 0))
    record_identity(state, directory, meta)
    meta.write(directory)
    problem = f"events {first} to {kept} are missing: the newest segment ends before them"
    raise StorageCorrupted(str(directory), problem, _REMEDY)


def _sync_directories(target: Path) -> None:
    for path in (target, *target.rglob("*")):
        if path.is_dir() and path.name != LOST_AND_FOUND:  # only root may open it
            sync_directory(path)


@contextlib.contextmanager
def _filling(target: Path) -> Iterator[None]:
    """Report a full disk inside the block as a full target. Raises StorageUnavailable."""
    try:
        yield
    except (DiskFull, OSError) as error:
        if isinstance(error, OSError) and error.errno not in NO_SPACE:
            raise
        problem = f"the disk is full: {free_bytes_at(target)} bytes are free; use a directory with more space"
        raise StorageUnavailable(f"{target}: {problem}") from None


def _make_empty(target: Path, source: Path) -> None:
    """Create the directory, or accept an empty one; any other is left unchanged. Raises StorageUnavailable."""
    if source.resolve() in target.resolve().parents:
        raise StorageUnavailable(f"{target}: it is inside {source}; use a directory outside of it")
    try:
        if not is_empty(target):
            raise StorageUnavailable(f"{target}: not empty; use a new or empty directory")
        make_directory(target)
        tighten(target)
    except OSError as error:
        raise refusal_of(error, target, "cannot create the directory") from None


class _Copy:
    """Copies files to a target directory and counts them. They are durable once `syncs` has waited for them."""

    def __init__(self, target: Path, progress: Progress | None, syncs: Syncs) -> None:
        self._target, self._progress, self._syncs = target, progress, syncs
        self.files = self.bytes = 0
        self.sums: dict[str, FileSum] = {}
        """The checksum of each copied file that no longer changes, by path."""
        self.unreadable: dict[str, list[str]] = {}
        """Files that cannot be read, by the directory of their log."""

    def log(self, source: Path, state: StateStore) -> int:
        """Copy one log of a running or stopped server; returns its head in the copy. `state` is the copied state."""
        relative = Path(LOGS) / source.name
        for part in (FRAMES, INDEX, HISTORY):
            make_directory(self._target / relative / part)
        self.file(source / META_NAME, relative / META_NAME, may_vanish=True)
        meta = self._meta(relative, state)
        if meta is not None and meta.has_marks:  # before the frames: the copy then contains all later ones
            self.file(source / WRITERS_NAME, relative / WRITERS_NAME, may_vanish=True)
        last = 0
        paths = segment_paths(source / FRAMES)
        for path in paths[:-1]:
            self.file(path, relative / FRAMES / path.name, may_vanish=True)
        if paths:
            last = self._newest(paths[-1], relative / FRAMES / paths[-1].name, meta, state)
        if meta is not None:
            self._take_marks(source, relative, meta)
        self._history(source, relative)
        for path in sorted((source / INDEX).glob("*")):
            covered = range_of(path)
            if path.suffix != ".tmp" and (
                covered is None or covered[1] <= last
            ):  # the copy must not have an index of later events
                self.file(path, relative / INDEX / path.name, may_vanish=True)
        for manifest in sorted((source / STAGED).glob(f"*/*/{MANIFEST_NAME}")):  # only commits that have begun
            self._begun_commit(manifest, relative / manifest.parent.relative_to(source))
        for owner in sorted((source / OWNERS).glob("*")):
            if owner.suffix != ".tmp":
                self.file(owner, relative / OWNERS / owner.name, may_vanish=True)
        return max(last, meta.floor if meta is not None else 0)

    def _history(self, source: Path, relative: Path) -> None:
        """Copy the postings of trimmed events. Files merged meanwhile are replaced by the merged one."""
        while True:
            has_vanished = False
            for path in sorted((source / HISTORY).glob("*.postings")):
                if not (self._target / relative / HISTORY / path.name).exists():
                    self.file(path, relative / HISTORY / path.name, may_vanish=True)
                    has_vanished |= not path.exists()
            if not has_vanished:
                return

    def _meta(self, relative: Path, state: StateStore) -> Meta | None:
        """The META of a copied log; if it is damaged, the META in the state; None if the state has none either."""
        try:
            return read_meta(self._target / relative)
        except StorageCorrupted:
            try:
                return identified(state, self._target / relative)[0]
            except StorageCorrupted:
                return None  # the check of the copy reports it

    def _take_marks(self, source: Path, relative: Path, meta: Meta) -> None:
        """If the log took its first mark after META was copied, take all marks from the frames."""
        try:
            if meta.has_marks or not read_meta(source).has_marks:
                return
        except StorageCorrupted:
            return
        write_writers(self._target / relative, 0, [])
        meta.changed(has_marks=True).write(self._target / relative)
        self.sums.pop((relative / META_NAME).as_posix())

    def _begun_commit(self, manifest: Path, relative: Path) -> None:
        """Copy a batch that is being committed; nothing if it is discarded meanwhile: its manifest is removed first."""
        for path in sorted(manifest.parent.glob("*")):
            if path.suffix in PART_SUFFIXES:
                self.file(path, relative / path.name, may_vanish=True)
        self.file(manifest, relative / manifest.name, may_vanish=True)
        if not (self._target / relative / manifest.name).exists():
            shutil.rmtree(self._target / relative)
            prefix = f"{relative.as_posix()}/"
            self.sums = {name: each for name, each in self.sums.items() if not name.startswith(prefix)}

    def file(
        self, source: Path, relative: Path, *, may_vanish: bool = False, without_hole: bool = False
    ) -> FileSum | None:
        """Copy one whole file; returns its checksum, or None if the file is gone or part of it cannot be read.

        `without_hole`: see `copy_summed`.
        """
        target = self._target / relative
        make_directory(target.parent)
        try:
            found = copy_summed(source, target, without_hole=without_hole, sync=self._syncs.soon)
        except FileNotFoundError:
            if may_vanish:  # index files may be replaced at any time; a missing one is rebuilt
                return None
            raise
        except OSError as error:
            if error.errno != errno.EIO or relative.parts[0] != LOGS:
                raise
            problem = f"{source}: {error.strerror} after {target.stat().st_size} bytes; the disk is failing"
            self.unreadable.setdefault(relative.parts[1], []).append(problem)
            return None
        self.sums[relative.as_posix()] = found
        self.files += 1
        self.bytes += found.bytes
        if self._progress is not None:
            self._progress(target.name, self.bytes, self.bytes)
        return found

    def _newest(self, source: Path, relative: Path, meta: Meta | None, state: StateStore) -> int:
        """Sync and copy the newest segment up to its last complete frame; returns the last number.

        A frame written during the copy may be incomplete, followed by later frames. The next copy contains all of it,
        unless it is damaged. The first copy leaves out the space behind the last written block; if that block ends
        within a frame, the frame ends in a hole of zeros, and the next copies are complete."""
        with open(source, "rb") as file:
            os.fdatasync(file.fileno())
        target, bad_before, before = self._target / relative, -1, int(source.stem) - 1
        without_hole = True
        while True:
            copied = self.file(source, relative, without_hole=without_hole)
            if meta is None:
                return before
            durable = max(before, known_durable(state, meta))
            try:
                segment = Segment(target, bytes.fromhex(meta.segments_id))
            except StorageCorrupted:  # the check of the copy reports it
                return durable
            scan = SegmentScan(segment, meta.gaps)
            scan.run()
            if without_hole and (scan.bad is not None or not scan.is_zero_behind()):
                without_hole = False
                continue
            if (known := scan.known_durable(durable)) < scan.bad_number:
                if copied is not None:
                    self._cut(segment, relative, copied)
                return segment.last
            if scan.bad_number == bad_before:
                return max([known, *(frame.last for frame in scan.good_frames())])
            bad_before = scan.bad_number

    def _cut(self, segment: Segment, relative: Path, copied: FileSum) -> None:
        """Truncate a copied segment after its last complete frame."""
        behind = segment.size - segment.end
        crc = shortened_crc(copied.crc32c, extended_crc(0, segment.buffer[segment.end :]), behind)
        with open(segment.path, "r+b") as file:
            file.truncate(segment.end)
            self._syncs.soon(file.fileno())
        self.bytes -= behind
        self.sums[relative.as_posix()] = FileSum(segment.end, crc)
