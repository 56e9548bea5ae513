"""The provable files of a data directory, in order, with the facts that each proof needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...core.state import StateStore
from ...formats.newer import WrittenByNewer
from ..catalog.directories import LOGS, known_logs
from ..catalog.identity import identified
from ..segments.meta import FRAMES, Meta, read_meta
from ..segments.recovery import known_durable
from ..segments.segment import Segment, segment_paths
from ..state.files import STATE_NAME, witness_path
from ..state.journal import JOURNAL
from .checksums import CHECKS
from .file_proof import FileToProve

_SEGMENT = ".log"
_SUFFIXES = frozenset({_SEGMENT, *CHECKS})


class OpenFrames(NamedTuple):
    """The frames of an open log, or of the journal."""

    meta: Meta
    segments: Sequence[Segment]


class ScrubFiles:
    """The files of one data directory."""

    def __init__(self, directory: Path, state: StateStore, opened: Callable[[Path], OpenFrames | None]) -> None:
        """`opened` returns the frames of a log, or of the journal, by directory; None: closed."""
        self._directory, self._state, self._opened = directory, state, opened

    def behind(self, passed: str) -> Iterator[Path]:
        """The files after that one (a path below the data directory), in order.

        A directory is listed when its turn comes, so a file may already be gone.
        """
        parts = Path(passed).parts
        logs = sorted(entry.directory for entry in known_logs(self._state).values())
        for root in (Path(JOURNAL), *(Path(LOGS, name) for name in logs)):
            if root.parts >= parts[: len(root.parts)]:
                folders = os.walk(self._directory / root)  # it skips folders that vanish
                found = (Path(folder, name) for folder, _, files in folders for name in files)
                names = [path.relative_to(self._directory).parts for path in found if path.suffix in _SUFFIXES]
                yield from (self._directory.joinpath(*each) for each in sorted(names) if each > parts)
        state = self._directory / STATE_NAME
        yield from (path for path in (state, witness_path(state)) if (path.name,) > parts and path.exists())

    def described(self, path: Path, before: tuple[int, int]) -> FileToProve | None:
        """The facts needed to verify a file; None if none of it can be verified. `before`: see `FileToProve`.

        Raises StorageCorrupted if META, which the proof of a segment needs, is damaged.
        """
        if path.suffix != _SEGMENT:
            return FileToProve(str(path))
        if path.parent.name != FRAMES or not path.stem.isdecimal():
            return None
        directory = path.parent.parent
        opened = self._opened(directory)
        try:
            if opened is None:
                return self._of_closed(directory, path, before)
        except WrittenByNewer:
            return None
        if (segment := self.open_segment(path)) is None:  # just trimmed
            return None
        meta = opened.meta
        return FileToProve(str(path), meta.segments_id, tuple(meta.gaps), segment.last, before=before)

    def open_segment(self, path: Path) -> Segment | None:
        """The segment at that path, if its log is open."""
        opened = self._opened(path.parent.parent)
        return None if opened is None else next((each for each in opened.segments if each.path == path), None)

    def _of_closed(self, directory: Path, path: Path, before: tuple[int, int]) -> FileToProve:
        meta = read_meta(directory) if directory.name == JOURNAL else identified(self._state, directory)[0]
        ends_at = next((int(each.stem) - 1 for each in segment_paths(path.parent) if each > path), None)
        durable = known_durable(self._state, meta)
        return FileToProve(str(path), meta.segments_id, tuple(meta.gaps), ends_at, durable, before)
