"""Staged batches: durable rows of an exactly-once writer, stored next to the log until the batch is committed.

    LOG/staged/WRITER/BATCH/PART-ATTEMPT.arrow    the rows of one task, checked, as an Arrow file
    LOG/staged/WRITER/BATCH/PART-ATTEMPT.frames   or, for many rows, a table of files that may become segments
    LOG/staged/WRITER/BATCH/MANIFEST.json         the batch is being committed: its files, in order; they are frozen
    LOG/staged/WRITER/BATCH/GIVEN_UP              nothing more of the batch can be staged

WRITER is a hash of the writer's name. Any process may stage; the one that serves the log commits (`commit`). `part` and
`segments` define the layout of a part's files and how they are verified.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ...core.errors import DiskFull, InvalidInput, Overloaded, StorageUnavailable
from ...core.limits import STAGED_BYTES_MAX, show
from ...core.mark import BATCH_MAX, Staged, check_writer
from ...core.settings import LogSettings
from ...core.shared_bytes import SharedBytes
from ...formats.arrow.lazy import pa
from ..catalog.backup_lock import NoBackup
from ..disk.checked_file import CheckedFile, earlier_struct, with_checksum
from ..disk.free_space import Room
from ..disk.locks import locked
from ..disk.system import Disk, refusal_of, sync_directory
from ..home.copy_file import COPY_NAME
from .part import PART_SUFFIX, STAGE_AGAIN, PartFile
from .rows import HELD, StagedRows
from .segments import SEGMENT_SUFFIX, TABLE_SUFFIX, SegmentsPart

STAGED = "staged"
MANIFEST_NAME = "MANIFEST.json"
MANIFEST_FORMAT = 2
GIVEN_UP_NAME = "GIVEN_UP"
PART_SUFFIXES = frozenset({PART_SUFFIX, TABLE_SUFFIX, SEGMENT_SUFFIX})
"""The suffixes of the files of parts."""
ORPHAN_AGE_S = 7 * 24 * 60 * 60
"""Staged rows not committed for this long are removed."""
RELOOK_S = 5.0
"""The interval at which the staged bytes are measured; in between, written bytes are added."""
ORPHANS_LOOK_S = 10 * 60
"""The interval between searches for orphans."""
UNFINISHED_AGE_S = 60 * 60
"""Unfinished files without a writer for this long are removed."""
_STAGE_CHARS_MAX = 2 * len(str(BATCH_MAX)) + 1


class BatchManifest(msgspec.Struct):
    """A commit that has begun. It fixes the rows of the batch for every later commit."""

    writer: str
    batch: int
    stages: list[str]
    partition: int | None = None
    on_duplicate: str = "fail"
    format: int = MANIFEST_FORMAT
    """1: written by 0.1.0, which may have staged the parts without checksums."""


class _FirstManifest(msgspec.Struct):
    """A manifest in the format of 0.1.0."""

    writer: str
    batch: int
    stages: list[str]
    partition: int | None
    on_duplicate: str


class Staging:
    """Stages batches for one log. Keep one instance, because it scans all staged files.

    Safe to call from any thread.
    """

    def __init__(
        self,
        log_directory: Path,
        settings: LogSettings | None = None,
        *,
        bytes_max: int = STAGED_BYTES_MAX,
        reserve_bytes: int | None = None,
        disk: Disk | None = None,
        held: SharedBytes | None = None,
    ) -> None:
        """`held`: the budget for rows gathered in memory (None for the budget of the process).

        Rows are checked against the settings on arrival; a commit checks them again.
        """
        self.directory = log_directory
        self.settings = settings or LogSettings()
        """The log's settings; replaced when they change."""
        self._bytes_max, self._disk = bytes_max, disk or Disk()
        self.held = held or HELD
        """The budget for rows gathered in memory."""
        self._room = Room(log_directory, self._disk, reserve_bytes)
        self._staged_bytes, self._looked_at = 0, -math.inf
        self._looking = threading.Lock()
        self._orphans_looked_at = -math.inf

    def stage(self, writer: str, batch: int, part: int, attempt: int, schema: pa.Schema) -> OpenStage:
        """Begin to stage the rows of one task. A batch is committed in the order of the commit's list.

        If the batch is already being committed, staged rows are counted and dropped: its rows are fixed.
        Raises InvalidInput (for example, the batch was given up), InvalidEvent (the schema), DiskFull, Overloaded (too
        much is staged), StorageUnavailable (for example, the log was deleted).
        """
        check_writer(writer)
        for name, value in (("batch", batch), ("part", part), ("attempt", attempt)):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= BATCH_MAX:
                raise InvalidInput(f"expected 0 to {BATCH_MAX}, got {show(value)}", name)
        from ...formats.arrow.schema import check_schema

        check_schema(schema)
        if time.monotonic() - self._orphans_looked_at > ORPHANS_LOOK_S:
            self._orphans_looked_at = time.monotonic()
            drop_orphans(self.directory)
        self._check_room(0)
        return OpenStage(self, batch_directory(self.directory, writer, batch), f"{part}-{attempt}", writer)

    def _segments(self, directory: Path, id: str, writer: str) -> SegmentsPart | None:
        """The writer for a large part; None if the log cannot adopt segments.

        With several partitions the log assigns one to each event; a log with a home is appended to there.
        """
        if self.settings.partitions > 1 or (self.directory.parent.parent / COPY_NAME).exists():
            return None
        return SegmentsPart(directory, id, writer, self._disk)

    def staged_bytes(self) -> int:
        """The bytes of all staged files of the log."""
        total = 0
        for path in _files(self.directory):
            with contextlib.suppress(FileNotFoundError):  # just committed
                total += path.stat().st_size
        return total

    def _check_room(self, size: int) -> None:
        with self._looking:
            if (now := time.monotonic()) - self._looked_at > RELOOK_S:
                self._staged_bytes, self._looked_at = self.staged_bytes(), now
            self._staged_bytes += size
            staged = self._staged_bytes
        if staged > self._bytes_max:
            raise Overloaded(staged, self._bytes_max)
        with self._telling(size):
            free, reserve, *_ = self._room.standing()
        if free < size + reserve:
            raise DiskFull(str(self.directory), free, size + reserve)

    @contextlib.contextmanager
    def _telling(self, size: int = 0) -> Iterator[None]:
        """Turn errors of the disk into errors of the core."""
        try:
            yield
        except FileNotFoundError as error:
            raise StorageUnavailable(f"{error.filename}: it no longer exists; the log was deleted") from None
        except OSError as error:
            raise refusal_of(error, self.directory, "cannot stage events", size) from error


class OpenStage:
    """A stage being written: `write`, then `close` or `abort`. One thread at a time."""

    def __init__(self, staging: Staging, directory: Path, id: str, writer: str) -> None:
        self._staging, self._directory, self.id = staging, directory, id
        self.rows = 0
        self._file: StagedRows | None = None
        with staging._telling(), exclusively(staging.directory):
            if (directory / MANIFEST_NAME).exists():
                return
            if (directory / GIVEN_UP_NAME).exists():
                raise InvalidInput("it was discarded; stage under another number", "batch")
            directory.mkdir(parents=True, exist_ok=True)
            self._temporary = directory / f"{id}.{os.urandom(4).hex()}.tmp"
            parts = staging._segments(directory, id, writer)
            self._file = StagedRows(PartFile(self._temporary), parts, staging.held)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises the same errors as `stage`, and TooLarge (for a single event). After an error, abort it."""
        from ...formats.arrow.events import appends_of

        for columns in appends_of([batch], self._staging.settings):
            if self._file is not None:
                self._staging._check_room(columns.bytes)
                with self._staging._telling(columns.bytes), self._may_be_decided():
                    self._file.write(columns)
            self.rows += columns.count

    def close(self) -> Staged:
        """Make the rows durable. Raises DiskFull, StorageUnavailable; if it does, nothing is left."""
        if self._file is None:
            return Staged(self.id, self.rows, 0)
        try:
            with self._staging._telling():
                return self._close(self._file)
        except BaseException:
            self.abort()
            raise

    def _close(self, file: StagedRows) -> Staged:
        size = 0
        with self._may_be_decided():
            size = file.finish()
        with exclusively(self._staging.directory):
            if (self._directory / MANIFEST_NAME).exists() or not self._temporary.exists():  # fixed, or discarded
                self.abort()
                return Staged(self.id, self.rows, 0)
            path, table = part_path(self._directory, self.id), table_path(self._directory, self.id)
            if file.segments is not None:
                size = file.segments.keep()
                self._temporary.unlink()
                path.unlink(missing_ok=True)
                file.close()
            else:
                os.replace(self._temporary, path)
                table.unlink(missing_ok=True)
            for directory in (self._directory, *self._directory.parents[:3]):
                sync_directory(directory)
        return Staged(self.id, self.rows, size)

    @contextlib.contextmanager
    def _may_be_decided(self) -> Iterator[None]:
        """If the files are gone because the batch was committed or discarded meanwhile, only count further rows."""
        try:
            yield
        except FileNotFoundError:
            if self._temporary.exists() or not self._staging.directory.exists():
                raise
            self.abort()
            self._file = None

    def abort(self) -> None:
        """Drop the rows. Raises nothing."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # buffered rows may not fit on the disk
                self._file.close()
            self._temporary.unlink(missing_ok=True)


def batch_directory(log_directory: Path, writer: str, batch: int) -> Path:
    """The directory of a staged batch."""
    return writer_directory(log_directory, writer) / str(batch)


def writer_directory(log_directory: Path, writer: str) -> Path:
    """The directory of a writer's staged batches."""
    return log_directory / STAGED / writer_hash(writer)


def writer_hash(writer: str) -> str:
    """The name of the directory of a writer."""
    return hashlib.sha256(writer.encode()).hexdigest()[:32]


def read_manifest(directory: Path) -> BatchManifest | None:
    """The manifest of a batch, if it is being committed. Raises StorageCorrupted, StorageUnavailable (newer)."""
    try:
        manifest = MANIFEST_FILE.read(directory)
    except FileNotFoundError:
        return None
    if directory.parts[-2:] != (writer_hash(manifest.writer), str(manifest.batch)):
        raise MANIFEST_FILE.damaged(directory / MANIFEST_NAME, "it belongs to another batch")
    return manifest


def write_manifest(log_directory: Path, directory: Path, manifest: BatchManifest) -> None:
    """Durably fix the files of a batch. Raises InvalidInput if one is missing."""
    with exclusively(log_directory):
        check_stages(directory, manifest.stages)
        MANIFEST_FILE.write(directory, manifest)


def manifest_bytes(manifest: BatchManifest) -> bytes:
    """The file content of a manifest."""
    return with_checksum(msgspec.json.encode(manifest))


def check_stages(directory: Path, stages: Sequence[str]) -> None:
    """Raises InvalidInput if a stage is missing or listed twice."""
    seen: set[str] = set()
    for index, stage in enumerate(stages):
        if not _is_stage(stage) or not (part_path(directory, stage).exists() or has_segments(directory, stage)):
            raise InvalidInput(f"that batch has no stage {show(stage)}", f"stages[{index}]")
        if stage in seen:
            raise InvalidInput(f"{show(stage)} occurs twice", f"stages[{index}]")
        seen.add(stage)


def has_segments(directory: Path, stage: str) -> bool:
    """Whether a part consists of files that may become segments."""
    return table_path(directory, stage).exists()


def unfreeze(log_directory: Path, directory: Path) -> None:
    """Give up a commit that has changed nothing."""
    with exclusively(log_directory):
        (directory / MANIFEST_NAME).unlink(missing_ok=True)
        sync_directory(directory)


def remove_committed(log_directory: Path, directory: Path) -> None:
    """Remove a batch that is in the log. During a backup it stays: the copy may have only some of its rows."""
    if directory.exists():
        with NoBackup(log_directory.parent.parent) as may_unlink:
            if may_unlink:
                remove_batch(log_directory, directory)


def remove_batch(log_directory: Path, directory: Path) -> None:
    """Remove a batch."""
    with exclusively(log_directory):
        if directory.exists():
            _empty(directory)
            directory.rmdir()
            with contextlib.suppress(OSError):  # there are other batches
                directory.parent.rmdir()


def give_up_batch(log_directory: Path, directory: Path) -> None:
    """Remove a batch and refuse further rows for it: a task of a failed job may still be running.

    The refusal lasts as long as an orphan would, and does not justify a sync.
    """
    with exclusively(log_directory):
        directory.mkdir(parents=True, exist_ok=True)
        _empty(directory)
        (directory / GIVEN_UP_NAME).touch()


def _empty(directory: Path) -> None:
    """Remove the files of a batch: first its manifest, durably, then its tables, then the rest.

    So an interruption or power cut leaves nothing for a commit to resume, and no table without its segments.
    """
    (directory / MANIFEST_NAME).unlink(missing_ok=True)
    sync_directory(directory)
    if tables := list(directory.glob(f"*{TABLE_SUFFIX}")):
        for path in tables:
            path.unlink()
        sync_directory(directory)
    for path in directory.iterdir():
        path.unlink(missing_ok=True)


def drop_orphans(log_directory: Path, now: float | None = None) -> None:
    """Remove old staged rows that are not being committed, and files that were never finished."""
    if not (log_directory / STAGED).exists():
        return
    now = time.time() if now is None else now
    with exclusively(log_directory):
        for path in _files(log_directory):
            with contextlib.suppress(FileNotFoundError):  # it was just aborted
                age = now - path.stat().st_mtime
                is_orphan = age > ORPHAN_AGE_S and not (path.parent / MANIFEST_NAME).exists()
                if path.suffix == SEGMENT_SUFFIX and has_segments(path.parent, path.name.partition(".")[0]):
                    continue  # its table goes first
                if is_orphan or (path.suffix == ".tmp" and age > UNFINISHED_AGE_S):
                    path.unlink()
                    if path.suffix == TABLE_SUFFIX:
                        sync_directory(path.parent)
        for directory in (*log_directory.glob(f"{STAGED}/*/*/"), *log_directory.glob(f"{STAGED}/*/")):
            if not any(directory.iterdir()):
                directory.rmdir()


@contextlib.contextmanager
def exclusively(log_directory: Path) -> Iterator[None]:
    """While held, no other process or thread adds or removes staged files."""
    directory = log_directory / STAGED
    directory.mkdir(exist_ok=True)
    with locked(directory / "LOCK", directory, fcntl.LOCK_EX):
        yield


def part_path(directory: Path, stage: str) -> Path:
    """The path of a part that is an Arrow file."""
    return directory / f"{stage}{PART_SUFFIX}"


def table_path(directory: Path, stage: str) -> Path:
    """The path of the table of any other part."""
    return directory / f"{stage}{TABLE_SUFFIX}"


def _is_stage(stage: object) -> bool:
    if not isinstance(stage, str) or len(stage) > _STAGE_CHARS_MAX:
        return False
    part, dash, attempt = stage.partition("-")
    return bool(dash) and part.isascii() and part.isdecimal() and attempt.isascii() and attempt.isdecimal()


def _files(log_directory: Path) -> Iterator[Path]:
    yield from (log_directory / STAGED).glob("*/*/*")


def _earlier(content: bytes) -> BatchManifest:
    first = earlier_struct(content, _FirstManifest)
    return BatchManifest(first.writer, first.batch, first.stages, first.partition, first.on_duplicate, format=1)


MANIFEST_FILE = CheckedFile(
    MANIFEST_NAME,
    BatchManifest,
    newest=MANIFEST_FORMAT,
    checked_from=MANIFEST_FORMAT,
    earlier=_earlier,
    remedy=STAGE_AGAIN,
)
