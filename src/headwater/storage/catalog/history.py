"""The postings of a log's trimmed events, at its home: conditions need them, and no copy can rebuild them.

The home stores them before their frames are removed. A copy that begins later fetches them. Ranges may overlap if the
primaries that stored them had different segments, but the content is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...core.errors import StorageCorrupted, StorageUnavailable
from ..disk.system import refusing, write_whole
from ..home.port import pieces_of
from ..home.replicated_log import ReplicatedLog
from ..index.builder import range_of
from ..index.loader import missing_history
from ..index.postings import FilePostings, postings_name
from ..segments.meta import HISTORY, Meta

_PREFIX = f"{HISTORY}/"
"""The prefix of the name of a postings file at the home; no batch of a writer has it."""
_PART = "postings"


def verify(file: FilePostings) -> None:
    """Raises StorageCorrupted if the file, whose events are about to be removed, is damaged."""
    try:
        file.verify()
    except ValueError as error:
        remedy = "no segment is removed until the log is reopened, which recreates the file"
        raise StorageCorrupted(str(file.path), str(error), remedy) from None


def keep_history(frames: ReplicatedLog, files: Iterable[FilePostings]) -> None:
    """Store the postings of these files at the home, oldest first, above the postings that it has.

    Raises NotPrimary, StorageUnavailable, StorageCorrupted, OSError.
    """
    edge = max((last for _, last in _ranges(frames)), default=0)
    for file in files:
        if file.last > edge:
            verify(file)
            frames.home.keep_batch(frames.key, _name(file.first, file.last), b"", {_PART: pieces_of(file.path)})


def drop_history(frames: ReplicatedLog, below: int) -> None:
    """Let the home drop postings of events below that number. Raises StorageUnavailable."""
    for first, last in _ranges(frames):
        if last < below:
            frames.home.forget_batch(frames.key, _name(first, last))


def fetch_history(directory: Path, frames: ReplicatedLog, meta: Meta) -> None:
    """Fetch the postings of trimmed events that a copy lacks, and at least the frames that these postings cover.

    Postings that the home lacks too are missing when the log is loaded. Raises the errors of `ReplicatedLog.follow`,
    and DiskFull.
    """
    segments = frames.segments
    if not segments or segments[0].first <= meta.known_from or missing_history(directory, segments, meta) is None:
        return
    edge = meta.known_from - 1
    for first, last in sorted(_ranges(frames), key=lambda each: (each[0], -each[1])):
        if last > edge:
            _fetch(directory, frames, first, last)
            edge = last
    if frames.last < edge:
        frames.catch_up(least=edge)


def _fetch(directory: Path, frames: ReplicatedLog, first: int, last: int) -> None:
    path = directory / HISTORY / postings_name(first, last)
    found = frames.home.batch(frames.key, _name(first, last))
    with refusing(directory, "cannot store the postings of trimmed events"):
        for _, pieces in () if found is None else found.parts():
            write_whole(path, *pieces)
        try:
            FilePostings(path).verify()
        except (FileNotFoundError, ValueError):  # pieces were dropped since the home was asked for their batch
            path.unlink(missing_ok=True)
            raise StorageUnavailable(f"{directory}: its home is dropping postings; try again") from None


def _ranges(frames: ReplicatedLog) -> list[tuple[int, int]]:
    """The ranges of the postings at the home."""
    names = frames.home.batches(frames.key, _PREFIX)
    return [each for name in names if (each := range_of(Path(name))) is not None]


def _name(first: int, last: int) -> str:
    return _PREFIX + postings_name(first, last)
