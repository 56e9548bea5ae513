"""A way to a server that a test can cut, stop and slow down. Every connection through it has two threads."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable


class Proxy:
    """Leads from a port of its own to another one on this machine."""

    def __init__(self, port: int | None, *, own_port: int = 0) -> None:
        """`port`: where it leads, None for nowhere; `own_port`: where it listens, 0 for one that is free."""
        self.target = port
        """May be changed: for connections that are made from then on."""
        self.delay_s = 0.0
        """So much later comes all that was silent for as long before, in each direction: half a round trip."""
        self._listening = socket.create_server(("127.0.0.1", own_port))
        self.port: int = self._listening.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._cut_after: Callable[[bytes], bool] | None = None
        self._cut_before: Callable[[bytes], bool] | None = None
        self._open: set[socket.socket] = set()
        self._changing = threading.Lock()
        self.is_closed = False
        self.is_refusing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def before(self, url: str) -> str:
        """The address of a database to which this leads, by way of here."""
        return url.replace(f":{self.target}/", f":{self.port}/")

    def lose_answer_to(self, which: Callable[[bytes], bool]) -> None:
        """The next time that a client sends such a thing, the server gets it, and its connection ends unanswered."""
        self._cut_after = which

    def lose(self, which: Callable[[bytes], bool]) -> None:
        """The next time that a client sends such a thing, the server does not get it, and the connection ends."""
        self._cut_before = which

    def stop(self) -> None:
        """Nothing comes through, in neither direction, until `go_on`."""
        self._flows.clear()

    def go_on(self) -> None:
        """See stop."""
        self._flows.set()

    def cut(self) -> None:
        """End all connections."""
        with self._changing:
            ended, self._open = self._open, set()
        for each in ended:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it all."""
        self.is_closed = True
        self._flows.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                target = self.target
                if self.is_refusing or target is None:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", target))
                except OSError:
                    client.close()
                    continue
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._changing:
                    self._open |= {client, server}
                is_lost = threading.Event()
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass_on, args=(*pair, is_lost), daemon=True).start()

    def _pass_on(
        self, source: socket.socket, target: socket.socket, is_from_client: bool, is_lost: threading.Event
    ) -> None:
        with source, target:
            with contextlib.suppress(OSError):
                self._copy(source, target, is_from_client, is_lost)
            for each in (source, target):  # the other thread waits in one of them, which closing would not end
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        with self._changing:
            self._open -= {source, target}

    def _copy(
        self, source: socket.socket, target: socket.socket, is_from_client: bool, is_lost: threading.Event
    ) -> None:
        newest = 0.0
        while content := source.recv(65536):
            self._flows.wait()
            if self.delay_s and time.monotonic() - newest >= self.delay_s:
                time.sleep(self.delay_s)
            newest = time.monotonic()
            if is_from_client and (which := self._cut_before) is not None and which(content):
                self._cut_before = None
                return
            if is_from_client and (which := self._cut_after) is not None and which(content):
                self._cut_after = None
                is_lost.set()
            elif not is_from_client and is_lost.is_set():
                return  # the server has answered
            target.sendall(content)
