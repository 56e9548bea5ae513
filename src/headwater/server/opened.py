"""What is known of a connection of HTTP or a WebSocket from its beginning."""

from __future__ import annotations

import asyncio
import time


def opened_now(transport: asyncio.BaseTransport) -> tuple[int, str | None]:
    """When it was made (now, in ms since 1970), and the version of TLS, if that is used."""
    tls = transport.get_extra_info("ssl_object")
    return time.time_ns() // 1_000_000, tls.version() if tls is not None else None
