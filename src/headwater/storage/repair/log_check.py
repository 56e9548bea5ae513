"""Verifies one log: every checksum, the chain of frames, staged batches, and the index against the events.

`check` uses it, and so do backups for their copies, but without comparing the index with the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...core.errors import EventLogError, StorageCorrupted
from ...core.state import StateStore
from ...formats.newer import WrittenByNewer
from ...formats.stubs import event_fault
from ..append.writer_table import read_writers
from ..catalog.identity import identified
from ..catalog.trim_point import check_witness
from ..frames.frame import Frame
from ..index import id_files
from ..index.builder import frames_of
from ..index.ids import hashes_of_frame
from ..index.loader import missing_history
from ..index.postings import ActivePostings, FilePostings
from ..memory import MemoryState
from ..segments.meta import FRAMES, HISTORY, INDEX, Meta, read_meta
from ..segments.places import FramePlaces, places_name
from ..segments.recovery import SegmentScan, highest_kept, known_durable, require_directory
from ..segments.segment import Segment, segment_paths
from ..staging import batches
from ..staging.batches import MANIFEST_FORMAT, STAGED, BatchManifest, check_stages
from ..staging.owners import damaged_owners
from ..staging.part import PART_SUFFIX, check_part, is_plain
from ..staging.segments import TABLE_SUFFIX, check_segments


def check_staged(log_directory: Path, problems: list[str], notes: list[str]) -> None:
    """Check a log's staged batches: add damage to `problems` and remarks to `notes`.

    Raises OSError, WrittenByNewer.
    """
    for directory in sorted(path for path in log_directory.glob(f"{STAGED}/*/*") if path.is_dir()):
        try:
            manifest = batches.read_manifest(directory)
            if manifest is not None:
                check_stages(directory, manifest.stages)
        except WrittenByNewer:
            raise
        except EventLogError as error:
            problems.append(str(error))
            manifest = None
        for path in sorted(directory.glob(f"*{PART_SUFFIX}")):
            _check_part(path, manifest, problems, notes)
        for path in sorted(directory.glob(f"*{TABLE_SUFFIX}")):
            try:
                check_segments(directory, path.stem)
            except WrittenByNewer:
                raise
            except EventLogError as error:
                problems.append(str(error))


def _check_part(path: Path, manifest: BatchManifest | None, problems: list[str], notes: list[str]) -> None:
    may_be_plain = manifest is not None and manifest.format < MANIFEST_FORMAT
    try:
        if manifest is None and is_plain(path):
            notes.append(f"{path}: it has no checksum (0.1.0 wrote none): its writer has to stage it again")
        else:
            check_part(path, may_be_plain=may_be_plain)
    except WrittenByNewer:
        raise
    except EventLogError as error:
        problems.append(str(error))


UNFIT_MAX = 1000
"""The maximum number of unfit events of a log to list; all are counted."""


@dataclass
class UnfitEvent:
    """An event accepted by an earlier version that AMQP, CloudEvents and FutoIn cannot deliver unchanged."""

    sequence_number: int
    reason: str
    is_stub: bool
    """Whether a stub replaces it; otherwise it is delivered without the attribute named in the reason."""


Progress = Callable[[str, int, int], None]
"""Called with the name of the log, the bytes done, and the total bytes."""


@dataclass
class LogCheck:
    """The result of checking one log."""

    name: str
    segments: int = 0
    frames: int = 0
    events: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """The damage; empty if the log is sound."""
    notes: list[str] = field(default_factory=list)
    """Findings that repair themselves at the next start."""
    newer: list[str] = field(default_factory=list)
    """Parts written by a newer headwater: not damaged, and not checked."""
    unfit: list[UnfitEvent] = field(default_factory=list)
    """The first UNFIT_MAX events that would be refused today. They are not damaged."""
    unfit_events: int = 0
    """The number of all unfit events."""


def check_log(
    directory: Path,
    name: str,
    state: StateStore | None,
    progress: Progress | None = None,
    stopped: StorageCorrupted | None = None,
    *,
    compares: bool = True,
) -> LogCheck:
    """Check the log in that directory. `stopped`: why the server does not open it, if known.

    `state` is None if it cannot be used; the log is then checked without it. Without `compares`, only files that cannot
    be rebuilt are verified, by checksums and the order of frames: no index is checked.
    """
    report = LogCheck(name)
    if stopped is not None:
        report.problems.append(str(stopped))
        if not directory.is_dir():
            return report
    with _telling(report):
        meta, told = (read_meta(directory), None) if state is None else identified(state, directory)
        report.notes += [f"{told} at the next start"] if told else []
        if state is not None:
            with _telling(report):
                check_witness(state, meta, directory)
        durable = known_durable(MemoryState() if state is None else state, meta)
        if meta.has_marks:
            with _telling(report):
                durable = max(durable, read_writers(directory)[0])
        with _telling(report):
            _check_frames(directory, meta, durable, report, progress or _silent, compares=compares)
        with _telling(report):
            check_staged(directory, report.problems, report.notes)
            report.problems += damaged_owners(directory)
    return report


@contextmanager
def _telling(report: LogCheck) -> Iterator[None]:
    """Report an error in the block as a problem of the log, or as newer than this headwater; the check continues."""
    try:
        yield
    except WrittenByNewer as error:
        report.newer.append(str(error))
    except (EventLogError, OSError) as error:
        report.problems.append(str(error))


def _check_frames(
    directory: Path, meta: Meta, durable: int, report: LogCheck, progress: Progress, *, compares: bool
) -> None:
    """Check the segments and their derived files. Raises StorageCorrupted if their directory is missing.

    Raises WrittenByNewer if the rest is not checked, because this version could mistake it for damage.
    """
    require_directory(directory / FRAMES)
    paths = segment_paths(directory / FRAMES)
    total = sum(path.stat().st_size for path in paths)
    last = meta.first_retained - 1
    previous: Segment | None = None
    segments: list[Segment] = []
    if (before := highest_kept(meta.gaps, int(paths[0].stem) - 1 if paths else durable)) > last:
        report.problems.append(f"events {last + 1} to {before} are missing; a segment file is gone")
    for number, path in enumerate(paths):
        progress(report.name, report.bytes, total)
        ends_at = int(paths[number + 1].stem) - 1 if number + 1 < len(paths) else None
        segment = _check_segment(path, meta, report, ends_at, durable, previous, compares=compares)
        previous = segment
        if segment is None:
            continue
        segments.append(segment)
        if segment.events:
            last = segment.last
        if compares:
            _check_places(directory, segment, meta, report)
        report.bytes += segment.end
    _check_history(directory, report)
    if compares:
        _check_postings(directory, meta, paths, last, report)
    if not report.problems and (missing := missing_history(directory, segments, meta)) is not None:
        report.problems.append(str(missing))
    if compares:
        _check_ids(directory, report)
    progress(report.name, total, total)


def _check_segment(
    path: Path,
    meta: Meta,
    report: LogCheck,
    ends_at: int | None,
    durable: int,
    before: Segment | None,
    *,
    compares: bool,
) -> Segment | None:
    report.segments += 1
    try:
        segment = Segment(path, bytes.fromhex(meta.segments_id))
    except StorageCorrupted as error:
        report.problems.append(str(error))
        return None
    scan = SegmentScan(segment, meta.gaps, ends_at=ends_at, before=before, clean=meta.clean)
    scan.run()
    durable = scan.known_durable(durable) if ends_at is None else highest_kept(meta.gaps, ends_at)
    if durable >= scan.bad_number:
        report.problems.append(str(scan.damage(durable)))
    elif ends_at is None and (scan.bad is not None or not scan.is_zero_behind()):
        report.notes.append(f"{path.name}: a torn tail after event {segment.last}; the next start truncates it")
    report.frames += len(segment.firsts)
    for frame in frames_of(segment):
        report.events += frame.count
        frame.marks()
        if compares and not frame.is_gated:
            _look_for_unfit(frame, meta, report)
    return segment


def _look_for_unfit(frame: Frame, meta: Meta, report: LogCheck) -> None:
    for event in frame.events(min(max(meta.first_retained - frame.first, 0), frame.count)):
        if (fault := event_fault(event)) is not None:
            report.unfit_events += 1
            if len(report.unfit) < UNFIT_MAX:
                report.unfit.append(UnfitEvent(event.sequence_number, *fault))


def _check_places(directory: Path, segment: Segment, meta: Meta, report: LogCheck) -> None:
    path = directory / INDEX / places_name(segment.first)
    if not path.exists():
        return
    try:
        places = FramePlaces(path)
    except (OSError, ValueError) as error:
        report.notes.append(f"{error}; the next start rebuilds it")
        return
    hashes = np.zeros(segment.last - segment.first + 1, np.uint64)
    for frame in frames_of(segment):
        at = frame.first - segment.first
        hashes[at : at + frame.count] = hashes_of_frame(frame, meta.id_seed)
    if list(places.firsts) != list(segment.firsts) or list(places.offsets) != list(segment.offsets):
        report.problems.append(f"{path.name}: the frame positions do not match the segment")
    if not np.array_equal(places.id_hashes, hashes):
        report.problems.append(f"{path.name}: the id hashes do not match the segment")


def _check_history(directory: Path, report: LogCheck) -> None:
    for path in sorted((directory / HISTORY).glob("*.postings")):
        try:
            FilePostings(path).verify()
        except (OSError, ValueError) as error:
            report.problems.append(f"history: {error}; restore it from a backup")


def _check_postings(directory: Path, meta: Meta, paths: Sequence[Path], last: int, report: LogCheck) -> None:
    first = int(paths[0].stem) if paths else 0
    for path in sorted((directory / INDEX).glob("*.postings")):
        try:
            postings = FilePostings(path)
            postings.verify()
        except (OSError, ValueError) as error:
            report.notes.append(f"{error}; the next start rebuilds it")
            continue
        if postings.first >= first and postings.last <= last:
            expected = _postings_of(paths, meta, postings.first, postings.last)
            if {text: list(numbers) for _, text, numbers in postings.entries()} != expected:
                report.problems.append(f"{path.name}: the postings do not match the events")


def _check_ids(directory: Path, report: LogCheck) -> None:
    for path in sorted((directory / INDEX).glob("*.ids")):
        try:
            id_files.load(path)
        except (OSError, ValueError) as error:
            report.notes.append(f"{error}; the next start rebuilds it")


def _postings_of(paths: Sequence[Path], meta: Meta, first: int, last: int) -> dict[bytes, list[int]]:
    """The postings of a range, computed from its events."""
    merged: dict[bytes, list[int]] = {}
    for path, following in zip(paths, [*paths[1:], None], strict=True):
        if (following is not None and int(following.stem) <= first) or int(path.stem) > last:
            continue
        segment = Segment(path, bytes.fromhex(meta.segments_id))
        SegmentScan(segment, meta.gaps, ends_at=int(following.stem) - 1 if following else None).run()
        postings = ActivePostings(max(first, segment.first), has_partitions=meta.partitions > 1)
        for frame in frames_of(segment):
            start, end = max(first - frame.first, 0), min(last - frame.first + 1, frame.count)
            if start < end:
                columns = (frame.types(start, end), frame.tags(start, end), frame.partitions(start, end))
                postings.apply(frame.first + start, *columns)
        for term, numbers in postings.encoded_terms():
            merged.setdefault(term, []).extend(numbers)
    return merged


def _silent(_name: str, _done: int, _total: int) -> None:
    """Ignore the progress."""
