"""What leads clients to the primary, as a load balancer does: by `/health/ready`, connection by connection."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Mapping, Sequence

from tests.homes.proxy import Proxy
from tests.ports import free_ports

LOOK_S = 0.1
ANSWER_S = 1.0


def is_ready(port: int) -> bool:
    """Whether the server at that port is the primary, and says so."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=ANSWER_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Balancer:
    """A port of its own for each protocol; each leads to the server that is ready, or nowhere."""

    def __init__(self, servers: Sequence[Mapping[str, int]]) -> None:
        """`servers`: of each, its ports by protocol."""
        self._servers = servers
        own_ports = free_ports(len(servers[0]))  # those that the system gives out are those of clients, too
        self._proxies = {
            protocol: Proxy(None, own_port=port) for protocol, port in zip(servers[0], own_ports, strict=True)
        }
        self.keeps_old = False
        """Whether connections to a server that is ready no more are left alone: its clients stay with it."""
        self.primary: int | None = None
        """Which server is ready, by its place."""
        self._ending = threading.Event()
        self._looking = [
            threading.Thread(target=self._look, args=(place,), daemon=True) for place in range(len(servers))
        ]
        for each in self._looking:
            each.start()

    @property
    def ports(self) -> dict[str, int]:
        """Where clients connect, by protocol."""
        return {protocol: proxy.port for protocol, proxy in self._proxies.items()}

    def cut(self) -> None:
        """End all connections."""
        for proxy in self._proxies.values():
            proxy.cut()

    def close(self) -> None:
        """End it all."""
        self._ending.set()
        for each in self._looking:
            each.join()
        for proxy in self._proxies.values():
            proxy.close()

    def _look(self, place: int) -> None:
        """Ask one server, again and again; one that hangs holds up no other."""
        was_ready = False
        while not self._ending.wait(LOOK_S):
            if (ready := is_ready(self._servers[place]["http"])) == was_ready:
                continue
            was_ready = ready
            if ready:
                self._lead(place)
            elif self.primary == place:
                self._lead(None)

    def _lead(self, place: int | None) -> None:
        self.primary = place
        for protocol, proxy in self._proxies.items():
            proxy.target = None if place is None else self._servers[place][protocol]
        if not self.keeps_old:
            self.cut()
