"""Ports for servers that a test starts anew at the same address."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 30_000)
"""Not those that the system gives out itself: a client could otherwise connect to itself while the server is away."""
_GIVEN: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports at which nobody listens, each given once in this process: its user may listen later."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            if port not in _GIVEN and probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
                _GIVEN.add(port)
    return found
