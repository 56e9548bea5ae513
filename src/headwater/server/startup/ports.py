"""The server's ports, bound before anything is opened, so that the start fails at once if an address is in use."""

from __future__ import annotations

import socket
import ssl
from contextlib import AsyncExitStack

from ...formats.settings.declaration import InvalidConfiguration
from ..bulk.plane import BulkPlane
from ..bulk.supervisor import Reservation
from ..config.settings import Config
from ..process.sockets import CannotListen, UnixSocket, certificates, close_all, listen, url


class BoundPorts:
    """Sockets that stay bound between the runs of a server, so that clients wait and are not refused."""

    def __init__(self) -> None:
        self._sockets: dict[str, list[socket.socket]] = {}
        """By the flag of their port."""
        self._reservation: Reservation | None = None
        """The port of Arrow Flight."""

    def listen(self, host: str, port: int, flag: str) -> list[socket.socket]:
        """Like `sockets.listen`, but on the same port each time. The caller closes the sockets. Raises CannotListen."""
        if flag not in self._sockets:
            self._sockets[flag] = listen(host, port, flag)
        return [bound.dup() for bound in self._sockets[flag]]

    def reserve(self, host: str, port: int, flag: str) -> Reservation:
        """The same reservation each time. Raises CannotListen."""
        if self._reservation is None:
            self._reservation = Reservation(host, port, flag)
        return self._reservation

    def close(self) -> None:
        """Leave the sockets to the current run, if any. May be called again."""
        while self._sockets:
            close_all(self._sockets.popitem()[1])
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            reservation.close()


class Ports:
    """Bound sockets, which accept nothing before their servers start."""

    def __init__(self, config: Config, bound: BoundPorts | None = None) -> None:
        """Bind all, or none. `bound`: ports that stay open for the next run.

        Raises CannotListen, InvalidConfiguration (the TLS of all of them).
        """
        bind = listen if bound is None else bound.listen
        if config.amqp.read_port is not None and config.home is None:
            raise InvalidConfiguration("requires `home`, which is not set", "amqp.read_port")
        self.certificates = certificates(config.tls)
        self.tls: ssl.SSLContext | None = None if self.certificates is None else self.certificates.context
        self.http = bind(config.host, config.http.port, "--http-port")
        self.amqp: list[socket.socket] = []
        self.amqp_read: list[socket.socket] = []
        """For receivers only, on a server that shares a home."""
        self.local: UnixSocket | None = None
        """HTTP for programs on this machine."""
        try:
            self.local = UnixSocket(config.http.unix, "--http-unix") if config.http.unix is not None else None
            self.amqp = bind(config.host, config.amqp.port, "--amqp-port")
            if config.amqp.read_port is not None:
                self.amqp_read = bind(config.host, config.amqp.read_port, "--amqp-read-port")
            self.bulk = BulkPlane.reserved(config, None if bound is None else bound.reserve)
        except CannotListen:
            close_all([*self.http, *self.amqp, *self.amqp_read])
            if self.local is not None:
                self.local.close()
            raise
        self.lines = self._lines()
        """The lines announced when the server is ready."""
        if self.local is not None:
            self.http.append(self.local.bound)

    @property
    def by_protocol(self) -> dict[str, int]:
        """The ports other than HTTP: `amqp`, and `flight` if it is served."""
        found = {"amqp": int(self.amqp[0].getsockname()[1])}
        return found if self.bulk is None else {**found, "flight": self.bulk.port}

    def give_back(self, ending: AsyncExitStack) -> None:
        """Let that stack close the sockets, served or not; the HTTP server closes its own."""
        ending.callback(close_all, [*self.amqp, *self.amqp_read])
        if self.bulk is not None:
            ending.push_async_callback(self.bulk.stop)
        if self.local is not None:
            ending.callback(self.local.close)

    def _lines(self) -> list[str]:
        http, amqp = ("https", "amqps") if self.tls else ("http", "amqp")
        urls = [f"{url(http, bound)} (dcb, futoin, cne)" for bound in self.http]
        if self.local is not None:
            urls.append(f"{self.local.url} (dcb, futoin, cne)")
        urls += [url(amqp, bound) for bound in self.amqp]
        urls += [f"{url(amqp, bound)} (receivers)" for bound in self.amqp_read]
        if self.bulk is not None:
            urls.append(self.bulk.url)
        return [f"headwater: listening on {each}" for each in urls]
