"""Host name resolution in a thread: concurrent look-ups of a name share one, and results are cached."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

LIFETIME_S = 30.0
"""How long a name's addresses are cached."""
NAMES_MAX = 10_000

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Resolves a name to its addresses, in the order in which to try them; raises OSError or ValueError."""


async def addresses_of(name: str) -> Sequence[str]:
    """The addresses of a name, each once: IPv4 and IPv6, as far as this machine supports them.

    Raises OSError, UnicodeError.
    """
    flags = socket.AI_ADDRCONFIG
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys(_text(sockaddr) for *_, sockaddr in found))


def _text(sockaddr: Sequence[object]) -> str:
    """The address, with the interface if it is link-local."""
    address, scope = str(sockaddr[0]), sockaddr[3] if len(sockaddr) > 3 else 0
    return f"{address}%{scope}" if scope and "%" not in address else address


class _LookUp(NamedTuple):
    task: asyncio.Task[Sequence[str]]
    until: float


class Names:
    """Cached addresses of names, on one event loop. Failures are not cached."""

    def __init__(self, resolve: Resolve = addresses_of) -> None:
        self._resolve = resolve
        self._known: dict[str, _LookUp] = {}
        self._running: set[asyncio.Task[Sequence[str]]] = set()

    async def addresses(self, name: str) -> Sequence[str]:
        """The addresses of that name. Raises the errors of `resolve`."""
        loop = asyncio.get_running_loop()
        found = self._known.get(name)
        if found is None or found.until <= loop.time():
            found = self._begin(name, loop)
        return await asyncio.shield(found.task)  # a cancelled caller does not cancel it for the others

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()

    async def close(self) -> None:
        """Stop waiting for answers."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _begin(self, name: str, loop: asyncio.AbstractEventLoop) -> _LookUp:
        if len(self._known) >= NAMES_MAX:
            self._known.clear()
        task = loop.create_task(self._looked_up(name))
        self._running.add(task)
        found = self._known[name] = _LookUp(task, loop.time() + LIFETIME_S)

        def ended(task: asyncio.Task[Sequence[str]]) -> None:
            self._running.discard(task)
            if (task.cancelled() or task.exception() is not None) and self._known.get(name) is found:
                del self._known[name]

        task.add_done_callback(ended)
        return found

    async def _looked_up(self, name: str) -> Sequence[str]:
        return await self._resolve(name)
