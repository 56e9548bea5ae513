"""Staged batches of a log that has a home: what a commit has begun with is kept there until it is done.

A batch that takes several appends is decided when its commit begins. If the server of that commit is lost in the
middle, whoever is the primary next finishes it, with the very rows: they are in the home before the first one is in the
log. Batches that fit one append are on the server that they were staged at alone, and staged again when that is lost.
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
from .batches import MANIFEST_NAME, BatchManifest, exclusively, manifest_bytes, writer_directory
from .part import PART_SUFFIX
from .reader import make_plain

logger = logging.getLogger("headwater.storage")


class StagedAtHome:
    """What the home has of one log's batches."""

    def __init__(self, home: Home, log: str, key: str, directory: Path) -> None:
        """`directory` is the log's, `key` how it is called at the home."""
        self._home, self._log, self._key, self._directory = home, log, key, directory

    @staticmethod
    def of(log: LocalLog, directory: Path) -> StagedAtHome | None:
        """That of a log; None: it has no home."""
        frames = getattr(log, "frames", None)
        return StagedAtHome(frames.home, log.name, frames.key, directory) if isinstance(frames, ReplicatedLog) else None

    def keep(self, folder: Path, manifest: BatchManifest) -> None:
        """Its parts and then its manifest are in the home, durably, when this returns; a commit can begin.

        They are frozen here, so that what is in the home is what is appended.

        Raises StorageUnavailable, NotPrimary.
        """
        with refusing(folder, "the staged batch cannot be read"):
            for stage in manifest.stages:
                make_plain(self._directory, folder, stage)
        parts = {stage: pieces_of(folder / f"{stage}{PART_SUFFIX}") for stage in manifest.stages}
        with called(self._log):
            self._home.keep_batch(self._key, _name(folder), manifest_bytes(manifest), parts)

    def fetch(self, folder: Path) -> bool:
        """Have a batch here as its commit has begun with it; whether there is such a commit.

        Raises StorageUnavailable, DiskFull.
        """
        found = self._home.batch(self._key, _name(folder))
        if found is None:
            return False
        if (folder / MANIFEST_NAME).exists() and (folder / MANIFEST_NAME).read_bytes() == found.manifest:
            return True
        with refusing(folder, "the staged batch cannot be fetched"), exclusively(self._directory):
            shutil.rmtree(folder, ignore_errors=True)  # what was staged here since is decided already
            folder.mkdir(parents=True)
            for stage, pieces in found.parts():
                with (folder / f"{stage}{PART_SUFFIX}").open("xb") as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
            with (folder / MANIFEST_NAME).open("xb") as file:  # last: without it nothing of it counts
                file.write(found.manifest)
                file.flush()
                os.fsync(file.fileno())
            for each in (folder, *folder.parents[:3]):
                sync_directory(each)
        logger.info("%s: a commit that another server began is gone on with", folder)
        return True

    def begun(self, writer: str) -> list[int]:
        """The batches of a writer of which a commit has begun. Raises StorageUnavailable."""
        prefix = f"{writer_directory(self._directory, writer).name}/"
        return sorted(int(name.removeprefix(prefix)) for name in self._home.batches(self._key, prefix))

    def forget(self, folder: Path) -> None:
        """It is needed no more. What cannot be forgotten now, is when its writer comes with the next one."""
        try:
            self._home.forget_batch(self._key, _name(folder))
        except EventLogError as error:
            logger.warning("%s: its copy in the home stays for now: %s", folder, error)

    def drop(self, folder: Path) -> None:
        """Its commit is given up: nobody is to go on with it. Raises StorageUnavailable, NotPrimary."""
        self._home.forget_batch(self._key, _name(folder))


def _name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"
