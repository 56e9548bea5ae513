"""Commits staged batches: every row exactly once, across crashes and retries at any moment.

A batch that fits one append and is not a segment needs only its mark. Any other batch first gets a durable manifest,
which fixes its files and their order. So a commit that resumes after an interruption, after the rows recorded in the
log's mark, cannot skip rows or append them twice. Only batches that are complete in the log are removed.

Rows staged as a segment become a segment in place, if the log accepts it (`adoption`); otherwise they are appended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain, groupby, islice
from pathlib import Path
from weakref import WeakValueDictionary

from ...core.condition import AppendCondition
from ...core.errors import DuplicateEventId, InvalidInput, StorageCorrupted, StorageUnavailable, TooLarge
from ...core.limits import APPEND_EVENTS_MAX, EventColumns, show
from ...core.local import APPEND_NEW_ATTEMPTS, LocalLog
from ...core.mark import BATCH_MAX, Committed, Mark, WriterState, check_writer
from ..append.append_memory import held_bytes
from ..frames.frame_log import NotAdopted
from ..index.backlog import LogBacklog
from ..segments.meta import read_meta
from . import batches, reader
from .adoption import SegmentColumns, takes_segments
from .home import StagedAtHome

logger = logging.getLogger("headwater.storage")

ADOPTED_BYTES_MIN = 8 * 1024 * 1024
"""A smaller segment does not justify a file in the log: its rows are appended."""
SEGMENTS_MAX = 16_384
"""A log with more segments accepts rows, which fill segments of up to 256 MiB: each segment costs an open file and a
map in this process and in the one that serves Flight. Opening the log needs all of them."""


_NOTHING = nullcontext()


def commit_staged(
    log: LocalLog,
    directory: Path,
    writer: str,
    batch: int,
    stages: Sequence[str],
    *,
    partition: int | None = None,
    condition: AppendCondition | None = None,
    on_duplicate: str = "fail",
    step: Callable[[str], None] = lambda _name: None,
    around_segments: AbstractContextManager[None] = _NOTHING,
) -> Committed:
    """Append the rows of these stages, in that order, exactly once. `directory` is the log's.

    Blocks; one commit of a writer runs at a time, others wait. A batch larger than an append becomes several appends:
    other events may be appended between them, and if one is refused, the earlier ones stay. After that, the same call
    resumes where it stopped, or `discard_staged` gives up the rest. With a condition the batch must fit one append.

    `on_duplicate`: "fail" raises DuplicateEventId if an id is already stored; "skip" leaves such rows out. `step` is
    called after each step, for tests. Batches with segments are committed inside `around_segments`, with others.

    Raises InvalidInput (a missing stage), TooLarge (with a condition), StorageCorrupted (a part is damaged: nothing
    more of the batch is appended), Overloaded (the index does not keep up; repeat the same call later), and the errors
    of `append_columns`.
    """
    check_writer(writer)
    _check_arguments(batch, stages, on_duplicate)
    with _one_at_a_time(directory, writer):
        at_home = StagedAtHome.of(log, directory)
        _finish_older(log, directory, writer, batch, step, at_home)
        folder = batches.batch_directory(directory, writer, batch)
        if (done := _applied(log, writer, batch)) is not None:
            _forget(directory, folder, at_home)
            return done
        if at_home is not None:
            _fetch(log, directory, folder, writer, batch, at_home)
        manifest = batches.read_manifest(folder)
        if manifest is None:
            manifest = batches.BatchManifest(writer, batch, list(stages), partition, on_duplicate)
            batches.check_stages(folder, manifest.stages)
            reader.check_parts(folder, manifest)
            state = log.writer(writer)
            is_begun = state is not None and state.batch == batch
            if not is_begun and (committed := _commit_at_once(log, folder, manifest, condition)) is not None:
                step("appended")
                batches.remove_committed(directory, folder)
                step("removed")
                return committed
            batches.write_manifest(directory, folder, manifest)
            step("manifest")
            if at_home is not None:
                at_home.keep(folder, manifest)
                step("kept")
        else:
            _check_begun(folder, manifest)
        try:
            is_large = any(batches.has_segments(folder, stage) for stage in manifest.stages)
            with around_segments if is_large else _NOTHING:
                return _commit_all(log, directory, manifest, condition, step, at_home)
        except (InvalidInput, DuplicateEventId):
            state = log.writer(writer)
            if state is None or state.batch != batch:  # none of it is in the log: another commit may list other stages
                if at_home is not None:
                    at_home.drop(folder)
                batches.unfreeze(directory, folder)
            raise


def drop_committed(log: LocalLog, directory: Path) -> None:
    """Remove the files of batches that are complete in the log, and orphans."""
    for manifest in sorted(directory.glob(f"{batches.STAGED}/*/*/{batches.MANIFEST_NAME}")):
        try:
            found = batches.read_manifest(manifest.parent)
        except (StorageCorrupted, StorageUnavailable) as error:  # its commit raises it too; others can continue
            logger.error("log %s: a staged batch cannot be read: %s", log.name, error)
            continue
        if found is not None and _applied(log, found.writer, found.batch) is not None:
            batches.remove_committed(directory, manifest.parent)
    batches.drop_orphans(directory)


def discard_staged(log: LocalLog, directory: Path, writer: str, batch: int, *, gives_up: bool = False) -> None:
    """Remove the staged rows of a batch; its rows in the log stay.

    If some of it is in the log and the rest is intact, the rest is kept for a commit to resume, unless the caller
    `gives_up`: then nothing more can be staged for it either.
    """
    check_writer(writer)
    _check_arguments(batch, (), "fail")
    with _one_at_a_time(directory, writer):
        folder = batches.batch_directory(directory, writer, batch)
        at_home = StagedAtHome.of(log, directory)
        if gives_up:
            if at_home is not None:
                at_home.drop(folder)
            batches.give_up_batch(directory, folder)
            return
        if at_home is not None:
            _fetch(log, directory, folder, writer, batch, at_home)
        state = log.writer(writer)
        if state is None or state.batch != batch or state.is_complete or not reader.is_whole(folder):
            if at_home is not None:
                at_home.drop(folder)
            batches.remove_batch(directory, folder)


def _check_arguments(batch: int, stages: Sequence[str], on_duplicate: str) -> None:
    if not isinstance(batch, int) or isinstance(batch, bool) or not 0 <= batch <= BATCH_MAX:
        raise InvalidInput(f"expected 0 to {BATCH_MAX}, got {show(batch)}", "batch")
    if on_duplicate not in ("fail", "skip"):
        raise InvalidInput(f'expected "fail" or "skip", got {show(on_duplicate)}', "on_duplicate")
    if isinstance(stages, str):
        raise InvalidInput(f"expected a list of stages, got {show(stages)}", "stages")


def _applied(log: LocalLog, writer: str, batch: int) -> Committed | None:
    """The log's record of a batch that is complete, or older than the newest."""
    state = log.writer(writer)
    if state is None or state.batch < batch or (state.batch == batch and not state.is_complete):
        return None
    if state.batch > batch:
        return Committed(0, 0, 0, was_applied=True)
    return _committed(state, was_applied=True)


def _committed(state: WriterState, *, was_applied: bool = False) -> Committed:
    return Committed(state.first, state.last, state.events, state.rows - state.events, was_applied)


def _fetch(log: LocalLog, directory: Path, folder: Path, writer: str, batch: int, at_home: StagedAtHome) -> None:
    """Fetch the home's version of a begun commit: it may have begun at another server, or been given up."""
    if at_home.fetch(folder):
        return
    state = log.writer(writer)
    if (state is None or state.batch != batch) and (folder / batches.MANIFEST_NAME).exists():
        batches.unfreeze(directory, folder)


def _forget(directory: Path, folder: Path, at_home: StagedAtHome | None) -> None:
    """Remove a batch that is in the log."""
    if at_home is not None:
        at_home.forget(folder)
    batches.remove_committed(directory, folder)


def _finish_older(
    log: LocalLog,
    directory: Path,
    writer: str,
    batch: int,
    step: Callable[[str], None],
    at_home: StagedAtHome | None,
) -> None:
    """Finish begun commits of older batches first; other remains of them will never be committed."""
    folder = batches.writer_directory(directory, writer)
    for number in at_home.begun(writer) if at_home is not None else ():
        if number < batch and _applied(log, writer, number) is None:
            assert at_home is not None
            at_home.fetch(folder / str(number))
        elif number < batch:
            assert at_home is not None
            at_home.forget(folder / str(number))
    older = sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal() and int(path.name) < batch)
    for number in older:
        manifest = batches.read_manifest(folder / str(number))
        if manifest is not None and _applied(log, writer, number) is None:
            _check_begun(folder / str(number), manifest)
            _commit_all(log, directory, manifest, None, step, at_home)
        else:
            batches.remove_committed(directory, folder / str(number))


def _check_begun(folder: Path, manifest: batches.BatchManifest) -> None:
    """Check that a commit to resume has all its parts, undamaged. Raises InvalidInput, StorageCorrupted."""
    batches.check_stages(folder, manifest.stages)
    reader.check_parts(folder, manifest)


def _commit_at_once(
    log: LocalLog, folder: Path, manifest: batches.BatchManifest, condition: AppendCondition | None
) -> Committed | None:
    """Commit a batch that fits one append; None if it does not fit or will become segments."""
    if condition is None and any(batches.has_segments(folder, stage) for stage in manifest.stages):
        return None
    if not _is_small(log, folder, manifest.stages):
        if condition is not None:
            raise _too_large(log, folder, manifest.stages)
        return None
    from ...formats.arrow.events import appends_of

    rows = reader.staged_batches(folder, manifest.stages)
    appends = list(islice(appends_of(rows, log.settings, log.append_bytes_max), 2))
    if len(appends) > 1:
        if condition is not None:
            raise _too_large(log, folder, manifest.stages)
        return None
    columns = appends[0] if appends else EventColumns.none()
    _append(log, manifest, columns, Mark(manifest.writer, manifest.batch, columns.count, is_last=True), condition)
    return _newest(log, manifest)


def _is_small(log: LocalLog, folder: Path, stages: Sequence[str]) -> bool:
    """Whether the stages may fit one append."""
    size = reader.staged_size(folder, stages)
    return size <= 2 * log.append_bytes_max and reader.staged_rows(folder, stages) <= APPEND_EVENTS_MAX


def _too_large(log: LocalLog, folder: Path, stages: Sequence[str]) -> TooLarge:
    rows = size = 0
    for batch in reader.staged_batches(folder, stages):
        rows += batch.num_rows
        size += batch.nbytes
    if rows > APPEND_EVENTS_MAX:
        return TooLarge(rows, APPEND_EVENTS_MAX, "events with a condition", "stages")
    return TooLarge(size, log.append_bytes_max, "bytes with a condition", "stages")


def _commit_all(
    log: LocalLog,
    directory: Path,
    manifest: batches.BatchManifest,
    condition: AppendCondition | None,
    step: Callable[[str], None],
    at_home: StagedAtHome | None,
) -> Committed:
    """Append the rows of a frozen batch that are not in the log yet, then remove its files."""
    if condition is not None:
        raise InvalidInput("the commit of that batch started without a condition", "condition")
    folder = batches.batch_directory(directory, manifest.writer, manifest.batch)
    state = log.writer(manifest.writer)
    rows = state.rows if state is not None and state.batch == manifest.batch else 0
    total = reader.staged_rows(folder, manifest.stages)
    for columns in _prepared(log, _appends(log, directory, folder, manifest, rows)):
        rows += columns.count
        if isinstance(columns, SegmentColumns):
            _append_segment(log, manifest, columns, rows, total, step)
        else:
            _append(log, manifest, columns, Mark(manifest.writer, manifest.batch, rows, rows == total), None)
        step("appended")
    state = log.writer(manifest.writer)
    if state is None or state.batch != manifest.batch or not state.is_complete:  # its last rows added nothing
        _append(log, manifest, EventColumns.none(), Mark(manifest.writer, manifest.batch, rows, is_last=True), None)
        step("ended")
    committed = _newest(log, manifest)
    _forget(directory, folder, at_home)
    step("removed")
    return committed


def _newest(log: LocalLog, manifest: batches.BatchManifest) -> Committed:
    state = log.writer(manifest.writer)
    assert state is not None and state.batch == manifest.batch and state.is_complete
    return _committed(state)


def _appends(
    log: LocalLog, directory: Path, folder: Path, manifest: batches.BatchManifest, rows: int
) -> Iterator[EventColumns]:
    """The remaining appends of a batch after that many rows: segments as they are, other rows in the fewest appends."""
    from ...formats.arrow.events import appends_of

    may_adopt = manifest.on_duplicate == "fail"
    id_seed = read_meta(directory).id_seed
    pieces = _behind(reader.staged_pieces(folder, manifest.stages), rows)
    for is_segment, run in groupby(pieces, lambda piece: may_adopt and takes_segments(log) and _is_fit(piece, log)):
        if is_segment:
            for piece in run:
                assert isinstance(piece, reader.SegmentPiece)
                yield SegmentColumns(piece.path, piece.segment, piece.room, id_seed, is_gated=piece.is_gated)
        else:
            rows_of_run = chain.from_iterable(map(reader.batches_of, run))
            yield from appends_of(rows_of_run, log.settings, log.staged_append_bytes_max)


def _behind(pieces: Iterator[reader.Piece], rows: int) -> Iterator[reader.Piece]:
    """The pieces after that many rows; a segment that is only partly after them is returned as rows."""
    for piece in pieces:
        count = piece.segment.count if isinstance(piece, reader.SegmentPiece) else piece.num_rows
        if rows >= count:
            rows -= count
        elif rows:
            for batch in reader.batches_of(piece):
                if rows < batch.num_rows:
                    yield batch.slice(rows)
                rows = max(rows - batch.num_rows, 0)
        else:
            yield piece


def _is_fit(piece: reader.Piece, log: LocalLog) -> bool:
    """Whether a piece is a segment large enough for a file in the log, with events that the log accepts now."""
    if not isinstance(piece, reader.SegmentPiece) or piece.segment.end < ADOPTED_BYTES_MIN:
        return False
    if log.statistics.segments >= SEGMENTS_MAX:
        return False
    return max(frame.payload_max for frame in piece.segment.frames) <= log.settings.event_bytes_max


def _prepared(log: LocalLog, appends: Iterator[EventColumns]) -> Iterator[EventColumns]:
    """The same, but the next piece is prepared while one is written. Both count as waiting appends."""
    ahead = log.waiting.part()

    def prepare() -> EventColumns | None:
        if (made := next(appends, None)) is not None:
            ahead.hold(held_bytes(made))
        return made

    with ThreadPoolExecutor(1, "headwater-commit") as pool:
        try:
            columns = prepare()
            while columns is not None:
                ahead.give(held_bytes(columns))  # from here on, the log counts it
                following = pool.submit(prepare)
                yield columns
                columns = following.result()
        finally:
            pool.shutdown()
            ahead.give(ahead.bytes)


def _append(
    log: LocalLog, manifest: batches.BatchManifest, columns: EventColumns, mark: Mark, condition: AppendCondition | None
) -> None:
    """Append the rows of one mark. Raises the errors of the log."""
    for attempt in range(APPEND_NEW_ATTEMPTS):
        new = columns
        if manifest.on_duplicate == "skip" and columns.count:
            kept = log.new_ones(columns)
            new = columns if len(kept) == columns.count else columns.take(kept)
        if not new.count and not mark.is_last:
            return  # the next mark covers these rows too
        try:
            _pause(log, new.count)
            result = log.append_columns(new, condition, partition=manifest.partition, mark=mark, is_bulk=True)
        except DuplicateEventId:
            if manifest.on_duplicate == "fail" or attempt == APPEND_NEW_ATTEMPTS - 1:
                raise
            continue  # another append intervened
        if result.was_stored and mark.is_last:  # the events were stored, by their ids, but the mark was not
            log.append_columns(EventColumns.none(), mark=mark)
        return


def _pause(log: LocalLog, events: int) -> None:
    """Slow down if the index falls behind: see `index.backlog`. A log in memory has none."""
    if isinstance(backlog := getattr(log, "backlog", None), LogBacklog):
        backlog.pause(events)


def _append_segment(
    log: LocalLog,
    manifest: batches.BatchManifest,
    segment: SegmentColumns,
    rows: int,
    total: int,
    step: Callable[[str], None],
) -> None:
    """Add a segment to the log, up to that many rows of the batch; as rows if it is refused.

    Raises the same errors as `_append`.
    """
    from ...formats.arrow.events import appends_of

    mark = Mark(manifest.writer, manifest.batch, rows, rows == total)
    try:
        _pause(log, segment.count)
        log.append_columns(segment, partition=manifest.partition, mark=mark, is_bulk=True)
    except NotAdopted as refusal:
        logger.info("%s", refusal)
        rows -= segment.count
        for columns in appends_of(segment.batches, log.settings, log.staged_append_bytes_max):
            rows += columns.count
            _append(log, manifest, columns, Mark(manifest.writer, manifest.batch, rows, rows == total), None)
            step("appended")


class _Turn:
    """Held by the running commit of a writer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_turns: WeakValueDictionary[tuple[Path, str], _Turn] = WeakValueDictionary()
_turns_lock = threading.Lock()


@contextmanager
def _one_at_a_time(directory: Path, writer: str) -> Iterator[None]:
    """Exclude other threads. Other processes never commit: only the process that serves the log does."""
    with _turns_lock:
        turn = _turns.setdefault((directory, writer), _Turn())
    with turn.lock:
        yield
