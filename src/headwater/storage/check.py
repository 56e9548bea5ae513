"""Verification: every checksum, the chain of frames, the index against the log. And accepting a loss, explicitly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from ..core.errors import EventLogError, LogNotFound, StorageUnavailable
from .consumers import highest_acknowledged
from .engine import LOG_KIND, LOGS, STATE_NAME, LogEntry, lock_directory
from .frame import Frame
from .meta import Meta, Ranges, highest_kept, read_meta
from .places import Places, hash_ids, places_name
from .postings import ActivePostings, FilePostings
from .recovery import Scan
from .sealing import FRAMES, HISTORY, INDEX, frames_of
from .segments import Segment, segment_paths
from .state import SqliteState

Progress = Callable[[str, int, int], None]
"""Told what is looked at, how much of it is done, and how much there is (bytes)."""


@dataclass
class LogCheck:
    """What was found in one log."""

    name: str
    segments: int = 0
    frames: int = 0
    events: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """What is damaged; empty if the log is sound."""
    notes: list[str] = field(default_factory=list)
    """What is worth knowing but mends itself at the next start."""


@dataclass
class CheckReport:
    """What was found in a data directory."""

    logs: list[LogCheck]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged."""
        return not any(log.problems for log in self.logs)


def check_directory(directory: Path, progress: Progress | None = None) -> CheckReport:
    """Check every log of a data directory that is not being served (or of a backup).

    Raises StorageUnavailable if it is served, or no data directory.
    """
    if not (directory / STATE_NAME).exists():
        raise StorageUnavailable(f"{directory}: no data directory (there is no {STATE_NAME})")
    with closing(lock_directory(directory)), closing(SqliteState(directory / STATE_NAME)) as state:
        return CheckReport(
            [
                _check_log(directory / LOGS / entry.directory, name, state, progress or _silent)
                for name, entry in _entries(state)
            ]
        )


def accept_loss(directory: Path, name: str) -> list[tuple[int, int]]:
    """Give up the damaged events of a log, so that it opens again: their numbers stay empty for ever.

    Answers the ranges newly given up. Raises LogNotFound, StorageUnavailable.
    """
    with closing(lock_directory(directory)), closing(SqliteState(directory / STATE_NAME)) as state:
        entry = dict(_entries(state)).get(name)
        if entry is None:
            raise LogNotFound(name)
        log_directory = directory / LOGS / entry.directory
        meta = read_meta(log_directory)
        given_up = list(_damaged(log_directory, meta, _known_durable(state, meta)))
        if given_up:
            for index_file in (log_directory / INDEX).iterdir():
                index_file.unlink()  # derived; made anew without what was lost
            meta.changed(lost=[*meta.lost, *given_up], clean=None).write(log_directory)
        return given_up


def _entries(state: SqliteState) -> list[tuple[str, LogEntry]]:
    return [(name, msgspec.json.decode(entry.value, type=LogEntry)) for name, entry in state.items(LOG_KIND)]


def _known_durable(state: SqliteState, meta: Meta) -> int:
    return meta.known_durable(highest_acknowledged(state, meta.incarnation))


def _damaged(directory: Path, meta: Meta, known_durable: int) -> Iterator[tuple[int, int]]:
    """The ranges of damaged events whose loss was not accepted yet, in order."""
    paths = segment_paths(directory / FRAMES)
    gaps, edge = list(meta.gaps), meta.first_retained - 1
    for path, following in zip(paths, [*paths[1:], None], strict=True):
        before = highest_kept(gaps, int(path.stem) - 1)
        if before > edge:  # segments are missing
            gaps.append((edge + 1, before))
            yield gaps[-1]
        with closing(Segment(path, bytes.fromhex(meta.segments_id))) as segment:
            while (damaged := _first_damaged(segment, gaps, following, known_durable)) is not None:
                gaps.append(damaged)
                yield damaged
            edge = max(edge, segment.last)


def _first_damaged(
    segment: Segment, gaps: Ranges, following: Path | None, known_durable: int
) -> tuple[int, int] | None:
    segment.reset()
    scan = Scan(segment, gaps)
    scan.run()
    last = int(following.stem) - 1 if following else max(known_durable, scan.durable_upto, scan.durable_behind())
    last = highest_kept(gaps, last)
    return scan.lost_range(last) if last >= scan.bad_number else None


def _check_log(directory: Path, name: str, state: SqliteState, progress: Progress) -> LogCheck:
    report = LogCheck(name)
    try:
        meta = read_meta(directory)
        paths = segment_paths(directory / FRAMES)
        total = sum(path.stat().st_size for path in paths)
        known_durable = _known_durable(state, meta)
        crc, last = 0, meta.first_retained - 1
        for number, path in enumerate(paths):
            progress(name, report.bytes, total)
            try:
                segment = Segment(path, bytes.fromhex(meta.segments_id))
            except EventLogError as error:
                report.problems.append(str(error))
                continue
            with closing(segment):
                is_newest = number == len(paths) - 1
                _check_segment(segment, meta, report, known_durable if is_newest else None)
                _check_order(segment, meta, report, last, crc)
                if segment.events:
                    crc, last = segment.last_crc, segment.last
                _check_places(directory, segment, meta, report)
                report.bytes += segment.size
        if not paths and known_durable > last:
            report.problems.append(f"events {last + 1} to {known_durable} are damaged (there is no segment)")
        _check_postings(directory, meta, paths, last, report)
        progress(name, total, total)
    except (EventLogError, OSError) as error:
        report.problems.append(str(error))
    return report


def _check_segment(segment: Segment, meta: Meta, report: LogCheck, known_durable: int | None) -> None:
    """Every frame of a segment. `known_durable` is given for the newest one, which may have a torn tail."""
    scan = Scan(segment, meta.gaps)
    scan.run()
    durable = highest_kept(meta.gaps, max(known_durable or 0, scan.durable_upto, scan.durable_behind()))
    if durable >= scan.bad_number or (known_durable is None and scan.bad is not None):
        report.problems.append(str(scan.damage(durable)))
    elif known_durable is not None and (scan.bad is not None or not scan.is_zero_behind()):
        name = segment.path.name
        report.notes.append(f"{name}: a torn tail behind event {segment.last}; the next start cuts it")
    report.segments += 1
    report.frames += len(segment.firsts)
    report.events += sum(frame.count for frame in frames_of(segment))


def _check_order(segment: Segment, meta: Meta, report: LogCheck, last: int, crc: int) -> None:
    """A segment begins where the one before it ended (at `last`, with `crc`), but for known gaps."""
    name = segment.path.name
    if (upto := highest_kept(meta.gaps, segment.first - 1)) > last:
        report.problems.append(f"{name}: events {last + 1} to {upto} are damaged (they should come before it)")
    elif segment.events and crc and last + 1 == segment.firsts[0] and _previous_crc(segment) != crc:
        report.problems.append(f"{name}: does not follow the segment before it")


def _previous_crc(segment: Segment) -> int:
    return int(Frame(segment.buffer, segment.offsets[0]).previous_crc)


def _check_places(directory: Path, segment: Segment, meta: Meta, report: LogCheck) -> None:
    path = directory / INDEX / places_name(segment.first)
    if not path.exists():
        return
    try:
        places = Places(path)
    except (OSError, ValueError) as error:
        report.notes.append(f"{error}; the next start makes it anew")
        return
    hashes = np.zeros(segment.last - segment.first + 1, np.uint64)
    for frame in frames_of(segment):
        at = frame.first - segment.first
        hashes[at : at + frame.count] = hash_ids(frame.sources(), frame.ids(), meta.id_seed)
    if list(places.firsts) != list(segment.firsts) or list(places.offsets) != list(segment.offsets):
        report.problems.append(f"{path.name}: the places of frames are not those of the segment")
    if not np.array_equal(places.id_hashes, hashes):
        report.problems.append(f"{path.name}: the hashes of ids are not those of the segment")


def _check_postings(directory: Path, meta: Meta, paths: Sequence[Path], last: int, report: LogCheck) -> None:
    for path in sorted((directory / HISTORY).glob("*.postings")):
        try:
            FilePostings(path).verify()
        except (OSError, ValueError) as error:
            report.problems.append(f"history: {error}; restore it from a backup")
    first = int(paths[0].stem) if paths else 0
    for path in sorted((directory / INDEX).glob("*.postings")):
        try:
            postings = FilePostings(path)
            postings.verify()
        except (OSError, ValueError) as error:
            report.notes.append(f"{error}; the next start makes it anew")
            continue
        if postings.first >= first and postings.last <= last:
            expected = _postings_of(paths, meta, postings.first, postings.last)
            if dict(postings.terms()) != expected:
                report.problems.append(f"{path.name}: the postings are not those of the events")


def _postings_of(paths: Sequence[Path], meta: Meta, first: int, last: int) -> dict[bytes, Sequence[int]]:
    """The postings of a range, from its events."""
    merged: dict[bytes, Sequence[int]] = {}
    for path, following in zip(paths, [*paths[1:], None], strict=True):
        if (following is not None and int(following.stem) <= first) or int(path.stem) > last:
            continue
        with closing(Segment(path, bytes.fromhex(meta.segments_id))) as segment:
            Scan(segment, meta.gaps).run()
            postings = ActivePostings(max(first, segment.first), has_partitions=True)
            for frame in frames_of(segment):
                start, end = max(first - frame.first, 0), min(last - frame.first + 1, frame.count)
                if start < end:
                    columns = (frame.types(start, end), frame.tags(start, end), frame.partitions(start, end))
                    postings.apply(frame.first + start, *columns)
        for term, numbers in postings.encoded_terms():
            merged[term] = [*merged.get(term, ()), *numbers]
    return merged


def _silent(_name: str, _done: int, _total: int) -> None:
    """No progress wanted."""
