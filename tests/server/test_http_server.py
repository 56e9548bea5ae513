"""The HTTP server's own life."""

from __future__ import annotations

import asyncio
import socket

import pytest

from headwater.server.config import Http
from headwater.server.http_server import HttpServer


def test_a_listener_that_dies_is_told_and_ends_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        died = asyncio.Event()
        with socket.create_server(("127.0.0.1", 0)) as bound:
            http = HttpServer(None, [bound], Http(), None, died=died.set)  # type: ignore[arg-type]

            async def fails() -> None:
                await asyncio.sleep(0.05)  # until it has begun
                raise OSError(24, "Too many open files")

            http._server.main_loop = fails  # type: ignore[method-assign]
            await http.start()
            await died.wait()
            await http.stop()

    asyncio.run(scenario())
    assert "HTTP is not served any more" in caplog.text
