"""Staged batches of a log with a home: the home stores a batch from the beginning of its commit to the end.

The rows of a batch that takes several appends are fixed when its commit begins. If that server is lost midway, the next
primary finishes the commit with the same rows: they are at the home before the first row is in the log. Batches that
fit one append are only on the server where they were staged, and must be staged again if it is lost.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from ...core.errors import EventLogError
from ...core.local import LocalLog
from ..disk.system import refusing, sync_directory
from ..home.port import Home, called, pieces_of
from ..home.replicated_log import ReplicatedLog
from ..segments.meta import HISTORY
from .batches import (
    MANIFEST_NAME,
    STAGED,
    BatchManifest,
    exclusively,
    manifest_bytes,
    read_manifest,
    writer_directory,
)
from .part import PART_SUFFIX
from .reader import make_plain

logger = logging.getLogger("headwater.storage")


class StagedAtHome:
    """One log's batches at its home."""

    def __init__(self, home: Home, log: str, key: str, directory: Path) -> None:
        """`directory` is the log's; `key` is its key at the home."""
        self._home, self._log, self._key, self._directory = home, log, key, directory

    @staticmethod
    def of(log: LocalLog, directory: Path) -> StagedAtHome | None:
        """The batches of a log at its home; None if it has no home."""
        frames = getattr(log, "frames", None)
        return StagedAtHome(frames.home, log.name, frames.key, directory) if isinstance(frames, ReplicatedLog) else None

    def keep(self, folder: Path, manifest: BatchManifest) -> None:
        """Durably store its parts and then its manifest at the home, so that a commit can begin.

        They are frozen here, so that the appended rows are those at the home.

        Raises StorageUnavailable, NotPrimary.
        """
        with refusing(folder, "the staged batch cannot be read"):
            for stage in manifest.stages:
                make_plain(self._directory, folder, stage)
        parts = {stage: pieces_of(folder / f"{stage}{PART_SUFFIX}") for stage in manifest.stages}
        with called(self._log):
            self._home.keep_batch(self._key, _name(folder), manifest_bytes(manifest), parts)

    def fetch(self, folder: Path) -> bool:
        """Fetch a batch in the form fixed by its begun commit; returns whether there is such a commit.

        Raises StorageUnavailable, DiskFull.
        """
        found = self._home.batch(self._key, _name(folder))
        if found is None:
            return False
        if (folder / MANIFEST_NAME).exists() and (folder / MANIFEST_NAME).read_bytes() == found.manifest:
            return True
        with refusing(folder, "the staged batch cannot be fetched"), exclusively(self._directory):
            shutil.rmtree(folder, ignore_errors=True)  # rows staged here since do not count
            folder.mkdir(parents=True)
            for stage, pieces in found.parts():
                with (folder / f"{stage}{PART_SUFFIX}").open("xb") as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
            with (folder / MANIFEST_NAME).open("xb") as file:  # last, because without it the batch does not count
                file.write(found.manifest)
                file.flush()
                os.fsync(file.fileno())
            for each in (folder, *folder.parents[:3]):
                sync_directory(each)
        logger.info("%s: continuing a commit that another server started", folder)
        return True

    def begun(self, writer: str) -> list[int]:
        """The batches of a writer whose commit has begun. Raises StorageUnavailable."""
        prefix = f"{writer_directory(self._directory, writer).name}/"
        return sorted(int(name.removeprefix(prefix)) for name in self._home.batches(self._key, prefix))

    def folders(self) -> list[Path]:
        """The directories of the batches of all writers whose commit has begun. Raises StorageUnavailable."""
        names = self._home.batches(self._key, "")
        return [self._directory / STAGED / name for name in sorted(names) if not name.startswith(f"{HISTORY}/")]

    def forget(self, folder: Path) -> None:
        """Remove a batch no longer needed. On failure, the writer's next batch retries."""
        try:
            self._home.forget_batch(self._key, _name(folder))
        except EventLogError as error:
            logger.warning("%s: cannot remove its copy from the home yet: %s", folder, error)

    def drop(self, folder: Path) -> None:
        """Give up its commit, so that no server resumes it. Raises StorageUnavailable, NotPrimary."""
        self._home.forget_batch(self._key, _name(folder))


def keep_begun(log: LocalLog, directory: Path) -> None:
    """Store at the home the batches of a log whose commit has begun in its directory and which the home lacks.

    Raises StorageUnavailable, NotPrimary, StorageCorrupted.
    """
    at_home = StagedAtHome.of(log, directory)
    assert at_home is not None, "the log has a home"
    for path in sorted(directory.glob(f"{STAGED}/*/*/{MANIFEST_NAME}")):
        manifest = read_manifest(path.parent)
        if manifest is not None and manifest.batch not in at_home.begun(manifest.writer):
            at_home.keep(path.parent, manifest)


def fetch_begun(log: LocalLog, directory: Path) -> None:
    """Fetch all batches of a log whose commit has begun, so that it can be resumed without the home.

    Raises StorageUnavailable, DiskFull.
    """
    at_home = StagedAtHome.of(log, directory)
    assert at_home is not None, "the log has a home"
    for folder in at_home.folders():
        at_home.fetch(folder)


def _name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"
