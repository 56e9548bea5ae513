"""The bare disk: the very frames that Headwater writes, pwritev + fdatasync into a preallocated file.

It encodes nothing, checks nothing and keeps no index: it is the limit, not a store.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headwater.core import Event, LogSettings
from headwater.core.limits import check_append
from headwater.storage.frames.encoding import Chain, encode


class RawFile:
    """A preallocated file, written from its beginning to its end."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._bytes_max = bytes_max
        self._at = 0
        os.posix_fallocate(self._file, 0, bytes_max)
        os.fsync(self._file)

    def write(self, pieces: Sequence[bytes]) -> None:
        """All pieces in one call and one fdatasync."""
        size = sum(map(len, pieces))
        assert self._at + size <= self._bytes_max, "written extents are cheaper to write again"
        written = os.pwritev(self._file, pieces, self._at)
        assert written == size, "a short write would make the bare disk look better than it is"
        os.fdatasync(self._file)
        self._at += size

    def __enter__(self) -> RawFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close and remove it."""
        os.close(self._file)
        self._path.unlink()


def frame_bytes(events: Sequence[Event]) -> bytes:
    """What Headwater writes for a group of events."""
    columns = check_append(events, LogSettings().event_bytes_max)
    return b"".join(encode(columns, [0] * len(events), 1, 0, Chain(0, 1, 0, 0, 0)).buffers)
