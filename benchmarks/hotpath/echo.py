"""A server that answers every request with the same bytes: what an exchange costs on this machine that means nothing.

Run as `python -m benchmarks.hotpath.echo`; it prints its port, and serves until its standard input ends. It has the
event loop that `headwater serve` has, and reads no request: one that came in one piece is one.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n" + b'{"head": 10}'


class Echo(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._transport.write(_ANSWER)  # type: ignore[attr-defined]


async def main() -> None:
    """Serve."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
