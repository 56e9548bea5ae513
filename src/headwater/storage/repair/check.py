"""Verifies a data directory or a backup: the state, every log, the manifest. Also accepts losses, explicitly.

Checking opens nothing for writing, so that a data directory may be on a read-only medium.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from ...core.errors import LogNotFound, StorageCorrupted, StorageUnavailable
from ...formats.newer import WrittenByNewer
from ..append.writer_table import WriterTable, read_writers, write_writers
from ..catalog.directories import LOGS, adopt, give_up, known_logs, stopped_logs, unknown_directories
from ..catalog.identity import accept_identity, record_identity
from ..catalog.trim_point import accept_witness, take_over
from ..disk.locks import unserved
from ..index.builder import frames_of, postings_ranges
from ..segments.meta import FRAMES, HISTORY, INDEX, Meta, read_meta
from ..segments.recovery import SegmentScan, highest_kept, known_durable, scanned_segments
from ..segments.segment import Segment, segment_paths
from ..state.check import StateCheck, looking_at_state
from ..state.data_directory import lock_directory, no_data, open_state, refuse_partial
from ..state.files import STATE_NAME
from .log_check import LogCheck, Progress, check_log
from .manifest import MANIFEST, UNPROVED, faults_of, read_manifest


@dataclass
class CheckReport:
    """The result of checking a data directory."""

    logs: list[LogCheck]
    state: StateCheck = field(default_factory=StateCheck)
    problems: list[str] = field(default_factory=list)
    """Damage of the directory itself."""
    newer: list[str] = field(default_factory=list)
    """Parts of the directory itself written by a newer headwater."""
    notes: list[str] = field(default_factory=list)
    """Remarks on the directory itself, not damage."""

    @property
    def is_damaged(self) -> bool:
        """Whether anything is damaged."""
        return bool(self.problems or self.state.problems or any(log.problems for log in self.logs))

    @property
    def is_newer(self) -> bool:
        """Whether a newer headwater wrote any of it; that part was not checked."""
        return bool(self.newer or self.state.newer or any(log.newer for log in self.logs))

    @property
    def is_sound(self) -> bool:
        """Whether everything was checked and nothing is damaged."""
        return not (self.is_damaged or self.is_newer)


def check_directory(directory: Path, progress: Progress | None = None) -> CheckReport:
    """Check the state and every log of a data directory that is not being served (or of a backup). Changes nothing.

    Raises StorageUnavailable if it is served, or is not a data directory.
    """
    refuse_partial(directory)
    if not (directory / STATE_NAME).exists() and not (directory / LOGS).exists():
        raise no_data(directory)
    found_of_backup = _check_manifest(directory)
    with unserved(directory), looking_at_state(directory) as (state, found):
        logs = []
        if not found.newer:  # otherwise its list of logs is unknown
            stopped = {} if found.problems else stopped_logs(directory, state)
            paths = unknown_directories(directory, state)
            paths |= {name: [directory / LOGS / entry.directory] for name, entry in known_logs(state).items()}
            trusted = None if found.problems else state
            logs = [check_log(path, name, trusted, progress, stopped.get(name))
                    for name in sorted(paths) for path in paths[name]]  # fmt: skip
        return CheckReport(logs, found, *found_of_backup)


def _check_manifest(directory: Path) -> tuple[list[str], list[str], list[str]]:
    """Compare a backup, if it is one, with its manifest; returns problems, files of a newer headwater, and notes."""
    if not (directory / MANIFEST).exists():
        return [], [], []
    try:
        manifest = read_manifest(directory)
    except WrittenByNewer as error:
        return [], [str(error)], []
    except StorageUnavailable as error:
        return [str(error)], [], []
    return list(faults_of(directory, manifest)), [], [] if manifest.has_sums else [UNPROVED]


def accept_loss(directory: Path, name: str) -> list[tuple[int, int]]:
    """Give up the damaged events of a log, so that it opens again: their numbers stay empty permanently.

    Returns the ranges newly given up. Raises LogNotFound, StorageUnavailable.
    """
    with closing(lock_directory(directory)), closing(open_state(directory, is_locked=True)) as state:
        entry = known_logs(state).get(name)
        if entry is None:
            raise LogNotFound(name)
        log_directory = directory / LOGS / entry.directory
        if not log_directory.is_dir():
            return [(1, give_up(state, name))]
        meta = accept_identity(state, log_directory)
        accept_witness(state, meta, log_directory)
        take_over(state, meta)
        given_up = list(_damaged(log_directory, meta, known_durable(state, meta)))
        if given_up:
            for index_file in (log_directory / INDEX).iterdir():
                index_file.unlink()  # derived; rebuilt without the lost events
            meta = meta.changed(lost=[*meta.lost, *given_up], clean=None)
            record_identity(state, log_directory, meta)
            meta.write(log_directory)
        if meta.has_marks:
            _mend_writers(log_directory, read_meta(log_directory))
        return given_up


def adopt_log(directory: Path, name: str) -> Path:
    """Add a log that the state has lost to the state again; returns its directory. See `catalog.directories.adopt`.

    Raises StorageCorrupted, LogExists, StorageUnavailable.
    """
    with closing(lock_directory(directory)), closing(open_state(directory, is_locked=True)) as state:
        path = adopt(directory, state, name)
        accept_witness(state, accept_identity(state, path), path)
        return path


def _mend_writers(directory: Path, meta: Meta) -> None:
    """Rebuild a missing or damaged table of writers, as far as the existing frames allow."""
    try:
        read_writers(directory)
    except StorageCorrupted:
        table, last = WriterTable(), 0
        for segment in scanned_segments(directory / FRAMES, meta):
            for frame in frames_of(segment):
                table.replay(frame)
            last = max(last, segment.last)
        table.landed(last)
        write_writers(directory, *table.snapshot())


def _damaged(directory: Path, meta: Meta, durable: int) -> Iterator[tuple[int, int]]:
    """The ranges of damaged events whose loss is not accepted yet."""
    paths = segment_paths(directory / FRAMES)
    gaps = list(meta.gaps)
    before = highest_kept(gaps, int(paths[0].stem) - 1 if paths else durable)
    if before >= meta.first_retained:  # the oldest segments are missing, with their trimmed events
        gaps.append((min(meta.first_retained, _last_of_history(directory, meta) + 1), before))
        yield gaps[-1]
    before_it: Segment | None = None
    for path, following in zip_longest(paths, paths[1:]):
        ends_at = int(following.stem) - 1 if following else None
        segment = Segment(path, bytes.fromhex(meta.segments_id))
        while True:
            segment.reset()
            scan = SegmentScan(segment, gaps, ends_at=ends_at, before=before_it, clean=meta.clean)
            scan.run()
            last = scan.known_durable(durable) if ends_at is None else highest_kept(gaps, ends_at)
            if last < scan.bad_number:
                break
            gaps.append(scan.lost_range(last))
            yield gaps[-1]
        before_it = segment


def _last_of_history(directory: Path, meta: Meta) -> int:
    """The number up to which the postings of trimmed events have no gap."""
    last = meta.known_from - 1
    for first, its_last in postings_ranges(directory / HISTORY):
        if first <= last + 1:
            last = max(last, its_last)
    return last
