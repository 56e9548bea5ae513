"""The room left on the disk: the single source for refusals of appends, the alarm, and readiness.

An append is accepted while at least the reserve is free, and may use part of it. Below the reserve, appends are
refused; reads, trims and acknowledgements continue and write into the reserve. If the file system refuses space that
should exist (a quota, blocks kept for root), room is also low until that space is available.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...core.errors import DiskFull
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from .ballast import missing_bytes
from .system import NO_SPACE, Disk, has_inodes, refusal_of, refusing

RESERVE_BYTES = 256 * 1024 * 1024
"""The default reserve, unless a tenth of the file system is less."""
RESERVE_SHARE = 10
TRIED_BYTES_MAX = 4 * 1024 * 1024
"""Available space of this size ends a refusal: larger appends are refused one by one."""
BLOCK_BYTES = 4096
TRIAL = "room.tmp"
_CANNOT_TELL = "free space cannot be determined"


class Standing(NamedTuple):
    """The room at one moment."""

    free_bytes: int
    reserve_bytes: int
    withheld_bytes: int
    """The number of bytes that the file system last refused; 0 if none."""
    is_low: bool
    """Whether appends are refused."""

    @property
    def problem(self) -> str | None:
        """Why the server is not ready; None if there is room."""
        if self.free_bytes < self.reserve_bytes:
            return f"the disk is full: {self.free_bytes} bytes are free, {self.reserve_bytes} are kept in reserve"
        if self.withheld_bytes:
            return (
                f"the disk is full: the file system refused {self.withheld_bytes} bytes, though {self.free_bytes} are "
                f"free (a quota, or space that only root may use)"
            )
        return None


class Room:
    """The room for the logs of one data directory. Safe to call from any thread; each check updates the alarm."""

    def __init__(
        self,
        directory: Path,
        disk: Disk | None = None,
        reserve_bytes: int | None = None,
        bus: Bus | None = None,
        *,
        ballast_bytes: int = 0,
    ) -> None:
        """`reserve_bytes` None: RESERVE_BYTES, but at most a tenth of the file system. `bus` gets the alarm.

        `ballast_bytes`: the size of the directory's ballast. At least the space of its missing files is kept free.
        """
        self._ballast_bytes = ballast_bytes
        self._directory, self._disk, self._bus = directory, disk or Disk(), bus or Bus()
        self._given_reserve = reserve_bytes
        self._reserve: int | None = reserve_bytes
        self._changing = threading.Lock()
        self._withheld = 0
        self._is_low = False
        """The last alarm sent."""
        self._seen = Standing(0, 0, 0, is_low=False)
        """The last result of `standing`."""

    @property
    def reserve_bytes(self) -> int:
        """The number of bytes to keep free."""
        if self._reserve is None:
            self._reserve = min(RESERVE_BYTES, self._disk.size_bytes(self._directory) // RESERVE_SHARE)
        return self._reserve

    @property
    def size_bytes(self) -> int:
        """The size of the file system. Raises OSError."""
        return self._disk.size_bytes(self._directory)

    def standing(self) -> Standing:
        """The current room, without an alarm. Raises OSError."""
        free, reserve = self._disk.free_bytes(self._directory), self._reserve or self.reserve_bytes
        if free <= self._ballast_bytes + BLOCK_BYTES:
            reserve = max(reserve, self._for_ballast(free))
        seen, withheld = self._seen, self._withheld
        if free != seen.free_bytes or reserve != seen.reserve_bytes or withheld != seen.withheld_bytes:
            self._seen = seen = Standing(free, reserve, withheld, is_low=free < reserve or withheld > 0)
        return seen

    def _for_ballast(self, free: int) -> int:
        """The bytes that appends must leave for missing ballast; otherwise they would use the space it released."""
        if self.reserve_bytes > self._ballast_bytes or free > self._ballast_bytes + BLOCK_BYTES:
            return 0
        missing = missing_bytes(self._directory, self._disk, self._ballast_bytes)
        return missing + BLOCK_BYTES if missing else 0

    def look(self) -> Standing:
        """The current room. Sends `disk.low` or `disk.recovered` on a change. Raises StorageUnavailable."""
        try:
            standing = self.standing()
        except OSError as error:  # every commit calls this, so without the context manager
            raise refusal_of(error, self._directory, _CANNOT_TELL) from error
        if standing.is_low is not self._is_low:
            self._tell(standing)
        return standing

    def check(self) -> Standing:
        """The current room. Raises DiskFull if appends must be refused."""
        standing = self.look()
        if standing.free_bytes < standing.reserve_bytes:
            raise DiskFull(str(self._directory), standing.free_bytes, standing.reserve_bytes)
        return standing

    def sizes(self, wanted: int, needed: int = 0) -> Iterator[int]:
        """The sizes to request from the file system, best first: `wanted`, halved down to half of the free space.

        Half, because space allocated ahead is no longer free although it is empty: other writes, such as the index,
        must not find the reserve gone. The last one is `needed` (if not 0), however little space that leaves. Raises
        DiskFull.
        """
        standing = self.check()
        size = max(wanted, needed)
        while size > needed:
            if standing.free_bytes - 2 * size >= standing.reserve_bytes:
                yield size
            size = size // 2 // BLOCK_BYTES * BLOCK_BYTES
        if needed:
            kept = self._for_ballast(standing.free_bytes - needed)
            if standing.free_bytes - needed < kept:
                raise DiskFull(str(self._directory), standing.free_bytes, needed + kept)
            yield needed

    def refused(self, needed: int) -> DiskFull:
        """Record that the file system refused that many bytes; returns the error. Room is low until they fit."""
        with self._changing:
            self._withheld = max(self._withheld, min(needed, TRIED_BYTES_MAX), 1)
        standing = self.look()
        return DiskFull(str(self._directory), standing.free_bytes, needed, has_inodes=has_inodes(self._directory))

    def try_again(self) -> None:
        """If space was refused, check whether it is available now; notify of a change. Raises StorageUnavailable."""
        if (withheld := self._withheld) and self._can_have(withheld):
            with self._changing:
                if self._withheld == withheld:
                    self._withheld = 0
        self._reserve = self._given_reserve  # the file system may have grown
        self.look()

    def _can_have(self, size: int) -> bool:
        path = self._directory / TRIAL
        with refusing(self._directory, _CANNOT_TELL):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                self._disk.allocate(fd, size)
            except OSError as error:
                if error.errno in NO_SPACE:
                    return False
                raise
            finally:
                os.close(fd)
                path.unlink(missing_ok=True)
        return True

    def _tell(self, standing: Standing) -> None:
        with self._changing:  # alarms alternate, even with concurrent checks
            if standing.is_low is self._is_low:
                return
            self._is_low = standing.is_low
            type = NotificationType.DISK_LOW if standing.is_low else NotificationType.DISK_RECOVERED
            self._bus.emit(
                type,
                path=str(self._directory),
                freeBytes=standing.free_bytes,
                reserveBytes=standing.reserve_bytes,
                refusedBytes=standing.withheld_bytes or None,
            )
