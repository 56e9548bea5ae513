"""Counts the sockets of outgoing calls, and limits them."""

from __future__ import annotations

import asyncio
import resource

FILES_SHARE = 4
"""Calls may use the process's limit of file descriptors divided by this."""
FILES_AT_LEAST = 32
_UNLIMITED = 1024 * 1024


class Sockets:
    """The number of a caller's sockets, and their limit."""

    def __init__(self, allowed: int | None = None) -> None:
        """`allowed` defaults to a part of the process's limit."""
        self.allowed = _share() if allowed is None else allowed
        self.open = 0
        self.calls = asyncio.Semaphore(max(1, self.allowed // 2))
        """Hold it during a call that opens a connection: half of the sockets are for such calls. Waiters are served in
        order. A call on a kept connection has its socket from the other half.
        """

    @property
    def are_many(self) -> bool:
        """Whether to close a connection after its call: half of the sockets are for kept connections."""
        return self.open > self.allowed // 2


def _share() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(FILES_AT_LEAST, (_UNLIMITED if files == resource.RLIM_INFINITY else files) // FILES_SHARE)
