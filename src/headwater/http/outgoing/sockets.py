"""How many sockets calls to others have, of those that they may have."""

from __future__ import annotations

import asyncio
import resource

FILES_SHARE = 4
"""Calls have one in so many of the files that the process may open."""
FILES_AT_LEAST = 32
_UNLIMITED = 1024 * 1024


class Sockets:
    """How many sockets a caller has, of those that it may have."""

    def __init__(self, allowed: int | None = None) -> None:
        """`allowed` is, where it is not given, a part of what the process may have."""
        self.allowed = _share() if allowed is None else allowed
        self.open = 0
        self.calls = asyncio.Semaphore(max(1, self.allowed // 2))
        """To be held during a call that makes a connection: half of the sockets are for those. Who waits is served in
        order. A call on a kept connection has its socket: one of the other half.
        """

    @property
    def are_many(self) -> bool:
        """Whether a connection whose call is over is to be closed: half of the sockets are for those that are kept."""
        return self.open > self.allowed // 2


def _share() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(FILES_AT_LEAST, (_UNLIMITED if files == resource.RLIM_INFINITY else files) // FILES_SHARE)
