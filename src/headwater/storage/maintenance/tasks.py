"""Background tasks of a log: sealing, merging postings, retention, freeing disk space.

Each function is one step for one log, called repeatedly by the engine; a step that fails is retried next time. A
failing step raises EventLogError or OSError: StorageUnavailable if the worker could not do it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TypeVar

from ...core.errors import StorageUnavailable
from ...core.watch.notification_types import NotificationType
from ..catalog.history import drop_history, keep_history, verify
from ..catalog.retention import kept_from, silent
from ..catalog.trim_point import unused_segments
from ..disk.system import sync_directory
from ..home.port import called
from ..home.replicated_log import ReplicatedLog
from ..index import id_files
from ..index.builder import postings_ranges, range_of
from ..index.id_files import IdFile
from ..index.merge import are_small
from ..index.postings import FilePostings, postings_name
from ..log import StoredLog
from ..segments.meta import HISTORY, INDEX
from ..segments.places import places_name
from ..segments.segment import Segment
from .worker import Job

logger = logging.getLogger("headwater.storage")

MERGE_FACTOR = 8
"""The number of adjacent postings files of similar size that are merged into one."""
MERGED_NUMBERS_MAX = 50_000_000
"""The maximum number of postings in a merged file (200 MB), which bounds the time and memory of merging."""
FILES_MAX = 24
"""The maximum number of postings files before they are merged."""
ID_MERGE_FACTOR = 4
ID_FILES_MAX = 6
"""The same limit for files of ids. It is lower, because each append searches each file."""
MERGED_IDS_MAX = 10_000_000

RunJob = Callable[[Job], str]
_Ranged = TypeVar("_Ranged", FilePostings, IdFile)


def seal_segments(log: StoredLog, run: RunJob) -> None:
    """Index the segments that are no longer written, then release their part of the index in memory."""
    for segment in log.frames.segments[:-1]:
        if segment.is_indexed:  # there may be thousands
            continue
        covered = any(file.first <= segment.first and segment.last <= file.last for file in log.index.files)
        if covered and (log.directory / INDEX / places_name(segment.first)).exists():
            segment.is_indexed = True
            continue
        parts = _parts_of(log, segment)
        if problem := run(Job(str(log.directory), segment.path.name, segment.last, parts=parts)):
            raise StorageUnavailable(f"{segment.path}: indexing failed: {problem}")
        name = postings_name(segment.first, segment.last)
        log.index.replace(FilePostings(log.directory / INDEX / name))
        segment.is_indexed = True
        log.writer_table.save()  # so that opening need not search it for marks
        log.bus.emit(
            NotificationType.SEGMENT_SEALED, log=log.name, first=segment.first, last=segment.last, bytes=segment.end
        )


def _parts_of(log: StoredLog, segment: Segment) -> list[tuple[int, int]]:
    """The adjacent ranges, from the first number of a segment on, with postings made while it was written."""
    parts: list[tuple[int, int]] = []
    for file in log.index.files:
        first = parts[-1][1] + 1 if parts else segment.first
        if file.first == first and file.last <= segment.last and file.path.parent.name == INDEX:
            parts.append((file.first, file.last))
    return parts


def index_newest(log: StoredLog, run: RunJob) -> None:
    """Index the newest segment, except the newest part in memory: a file replaces the other parts.

    If indexing is urgent, index the newest part too: many logs may have a little each, without a full part.
    """
    if log.backlog.is_urgent:
        log.index.end_part()
    segments, files, head = log.frames.segments, log.index.files, log.head()
    full = [active for active in log.index.actives[:-1] if active.first <= active.last <= head]
    if not segments or not full:
        return
    newest, edge = segments[-1], files[-1].last if files else 0
    first = max(edge + 1, newest.first)
    if full[-1].last < first or (len(segments) > 1 and edge < segments[-2].last):  # earlier segments come first
        return
    frame = newest.frame(newest.index_of(full[-1].last))
    if frame.last > head:
        return
    if problem := run(Job(str(log.directory), newest.path.name, frame.last, first)):
        raise StorageUnavailable(f"{newest.path}: indexing a part failed: {problem}")
    log.index.replace(FilePostings(log.directory / INDEX / postings_name(first, frame.last)))


def move_ids(log: StoredLog, run: RunJob) -> None:
    """Replace full generations of ids by files, and keep the number of files small."""
    ids, directory = log.index.ids, log.directory / INDEX
    for generation in ids.generations[:-1]:
        if generation.last <= log.head():
            ids.replace(id_files.load(id_files.save(generation, directory)))
    sizes = [file.count for file in ids.files]
    if chosen := _cheapest_to_merge(ids.files, sizes, ID_FILES_MAX, ID_MERGE_FACTOR, MERGED_IDS_MAX):
        if problem := run(Job(str(directory), merge_ids=[(file.first, file.last) for file in chosen])):
            raise StorageUnavailable(f"{directory}: merging ids failed: {problem}")
        ids.replace(id_files.load(directory / id_files.ids_name(chosen[0].first, chosen[-1].last)))
        for file in chosen:
            file.path.unlink(missing_ok=True)


def merge_postings(log: StoredLog, run: RunJob) -> None:
    """Keep the number of postings files small, because a look-up searches each of them.

    Parts of a segment that is not indexed as a whole are merged only with each other: sealing uses no file that begins
    before its segment.
    Files that are partly trimmed wait, because they will be dropped.
    """
    unsealed = next((segment.first for segment in log.frames.segments if not segment.is_indexed), 0)
    sealed = [file for file in log.index.files if file.last < unsealed]
    parts = [file for file in log.index.files if file.first >= unsealed]
    for part, there in ((HISTORY, sealed), (INDEX, sealed), (INDEX, parts)):
        files = [file for file in there if file.path.parent.name == part]
        chosen = _small_to_merge([file for file in files if file.first >= log.first_retained and there is sealed])
        if not chosen:
            numbers = [len(file.values) for file in files]
            chosen = _cheapest_to_merge(files, numbers, FILES_MAX, MERGE_FACTOR, MERGED_NUMBERS_MAX)
        if not chosen:
            continue
        directory = log.directory / part
        if problem := run(Job(str(directory), merge=[(file.first, file.last) for file in chosen])):
            raise StorageUnavailable(f"{directory}: merging postings failed: {problem}")
        log.index.replace(FilePostings(directory / postings_name(chosen[0].first, chosen[-1].last)), chosen)
        for file in chosen:
            file.path.unlink(missing_ok=True)


def _small_to_merge(files: Sequence[FilePostings]) -> Sequence[FilePostings]:
    """The oldest adjacent small files whose first one is no larger than the later ones together, if any.

    So each small file is larger than all later ones together. A file's contents are written again once when it is the
    newest, and after that only into files at least twice as large: less than twice in a log whose segments grow.
    """
    for start in range(len(files) - 1):
        end = start + 1
        while end < len(files) and files[end].first == files[end - 1].last + 1 and are_small(files[start : end + 1]):
            end += 1
        later = sum(len(file.values) for file in files[start + 1 : end])
        if 0 < len(files[start].values) <= later:
            return files[start:end]
    return ()


def _cheapest_to_merge(
    files: Sequence[_Ranged], sizes: Sequence[int], files_max: int, factor: int, size_max: int
) -> Sequence[_Ranged]:
    """The adjacent files with the smallest total size, if there are too many files; none if they are too large."""
    if len(files) <= files_max:
        return ()
    candidates = []
    for start in range(len(files) - factor + 1):
        size = sum(sizes[start : start + factor])
        if size <= size_max and all(b.first == a.last + 1 for a, b in pairwise(files[start : start + factor])):
            candidates.append((size, start))
    if not candidates:
        return ()
    _, start = min(candidates)
    return files[start : start + factor]


def drop_leftovers(log: StoredLog) -> None:
    """Unlink unused postings files (of clean stops and interrupted merges)."""
    files = log.index.files
    used = {file.path.name for file in files}
    for path in (log.directory / INDEX).glob("*.postings"):
        each = range_of(path)
        if each is not None and path.name not in used and files and each[1] <= files[-1].last:
            path.unlink(missing_ok=True)


def apply_retention(log: StoredLog, now: int) -> None:
    """Trim events as the settings allow; unregister consumers that were silent for too long."""
    for consumer in silent(log.settings, log.consumers(), now):
        log.registry.unregister(consumer.owner, consumer.component, silent_ms=now - consumer.seen_at)
    below = kept_from(log, log.frames.segments, log.settings, log.consumers(), now)
    if below > log.first_retained:
        log.trim(below)


def reclaim(log: StoredLog, flush_state: Callable[[], None]) -> None:
    """Unlink wholly trimmed segments. First their postings are kept as history, if the log keeps it.

    `flush_state` makes acknowledgements durable, so that no event is removed to which a consumer could return.
    """
    with log.changing():
        if gone := _unused_segments(log):
            flush_state()
            if log.settings.keeps_history:
                _keep_history(log, gone[-1].last)
            log.writer_table.save()  # the marks in these frames must outlive them
            if isinstance(log.frames, ReplicatedLog) and not log.is_following:
                _forget_at_home(log, log.frames, gone[-1].last + 1, flush_state)
            log.frames.trim(gone[-1].last + 1)
            for segment in gone:
                (log.directory / INDEX / places_name(segment.first)).unlink(missing_ok=True)
            _drop_postings_below(log, gone[-1].last + 1)
            logger.info("log %s: removed %d segments", log.name, len(gone))
        log.index.ids.drop(log.first_retained)
        if log.known_from > 1:
            log.index.drop(log.known_from)
            _drop_history(log)


def _forget_at_home(log: StoredLog, frames: ReplicatedLog, below: int, flush_state: Callable[[], None]) -> None:
    """Let the home drop frames after it has the data that must outlive them: their marks and any kept postings."""
    takes_postings = frames.home.takes_postings()
    if log.known_from < below:
        if not takes_postings:
            return
        with called(log.name):
            keep_history(frames, [file for file in log.index.files if file.path.parent.name == HISTORY])
    log.writer_table.keep_all()
    flush_state()
    frames.forget_at_home(below)
    if takes_postings:
        drop_history(frames, log.known_from)


def _unused_segments(log: StoredLog) -> list[Segment]:
    """The segments that may be removed. Raises StorageCorrupted if the witnesses disagree, so that none may be removed.

    Index files on disk are not enough: the log must use them, because it keeps the ones in use as history.
    """
    if not unused_segments(log.directory, log.frames.segments, log.meta, log.first_retained):
        return []
    found = unused_segments(log.directory, log.frames.segments, log.meta, log.agreed_trim().first_retained)
    return list(takewhile(lambda segment: segment.is_indexed, found))


def _keep_history(log: StoredLog, upto: int) -> None:
    """Keep the postings of dropped events, which cannot be rebuilt later. Raises StorageCorrupted if one is damaged."""
    history = log.directory / HISTORY
    for file in log.index.files:
        if file.first <= upto and file.path.parent != history:
            _keep(file, history / file.path.name)
    sync_directory(history)


def _keep(file: FilePostings, target: Path) -> None:
    verify(file)
    if not target.exists():
        os.link(file.path, target)
    file.path = target


def _drop_postings_below(log: StoredLog, below: int) -> None:
    _unlink_below(log.directory / INDEX, "*.postings", below)
    _unlink_below(log.directory / INDEX, "*.ids", below)


def _drop_history(log: StoredLog) -> None:
    """Unlink the history that conditions no longer need, if the witnesses agree."""
    if any(last < log.known_from for _, last in postings_ranges(log.directory / HISTORY)):
        _unlink_below(log.directory / HISTORY, "*.postings", log.agreed_trim().known_from)


def _unlink_below(directory: Path, pattern: str, below: int) -> None:
    for path in directory.glob(pattern):
        each = range_of(path)
        if each is not None and each[1] < below:
            path.unlink(missing_ok=True)
