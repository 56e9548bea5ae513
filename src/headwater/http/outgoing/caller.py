"""Makes HTTP/1.1 calls on connections kept per origin. Redirects are not followed.

A call is one request in one write, and one future that its answer completes. It needs no task and rarely a timer. TLS
always verifies the peer. Changed certificate files are read again for the next connection, so a renewal needs no
restart.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from .connection import OutgoingConnection, Reply, Unanswered
from .resolver import Names, Resolve, addresses_of
from .sockets import Sockets
from .target import Origin, Target

_logger = logging.getLogger("headwater.http")
_Stamp = tuple[int, int, int]


class NotSent(OSError):
    """Sending was not allowed at that moment: nothing was sent."""


class BadFile(ValueError):
    """A file is missing, or has no certificates or the wrong key; `name` is `ca` or `certificate`."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        super().__init__(problem)


class Tls:
    """TLS settings for calls, on one event loop. Peers are always verified."""

    def __init__(self, ca: Path | None = None, certificate: Path | None = None, key: Path | None = None) -> None:
        """`ca` has the authorities (PEM) to trust instead of the system's; certificate and key go together."""
        self._ca, self._certificate, self._key = ca, certificate, key
        self._files = [path for path in (ca, certificate, key) if path is not None]
        self._stamps: list[_Stamp | None] = []
        """Stamps of the files that were last tried."""
        self._context: ssl.SSLContext | None = None

    def check(self) -> None:
        """Raises BadFile if files are given and cannot be used now."""
        if self._files:
            self._read()

    async def context(self) -> ssl.SSLContext:
        """The SSL context for the next connection. Reading the system's trusted authorities takes some time.

        Raises OSError if the files cannot be used, and never could be used.
        """
        stamps = self._present()
        if self._context is None or stamps != self._stamps:
            try:
                context = await asyncio.to_thread(self._read)
            except BadFile as error:
                self._stamps = stamps
                if self._context is None:
                    raise OSError(f"cannot use the certificates for outgoing calls: {error}") from None
                _logger.warning(
                    "cannot reload the certificates for outgoing calls, keeping the previous ones: %s", error
                )
            else:
                if self._context is not None:
                    _logger.info("reloaded the certificates for outgoing calls: %s", ", ".join(map(str, self._files)))
                self._context, self._stamps = context, stamps
        return self._context

    def _present(self) -> list[_Stamp | None]:
        """Stamps that show whether the files have changed since they were read."""
        return [_stamp(path) for path in self._files]

    def _read(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._ca)
        except (ssl.SSLError, OSError) as error:
            raise BadFile("ca", f"{self._ca} contains no certificates in PEM format ({_reason(error)})") from None
        if self._certificate is not None:
            try:
                context.load_cert_chain(self._certificate, self._key, password=_no_password)
            except (ssl.SSLError, OSError, ValueError) as error:
                pair = f"{self._certificate} and {self._key}"
                problem = f"{pair} are not a certificate and its key in PEM format ({_reason(error)})"
                raise BadFile("certificate", problem) from None
        context.set_alpn_protocols(["http/1.1"])
        return context


class Caller:
    """Makes calls on one event loop. `close` it at the end."""

    def __init__(
        self,
        sockets: Sockets,
        resolve: Resolve = addresses_of,
        may_send: Callable[[], bool] = lambda: True,
        tls: Tls | None = None,
    ) -> None:
        """`resolve` returns the addresses of a name to which connections may be made; otherwise it raises OSError.

        `may_send` is called right before a request is written. Without `tls`, the system's authorities are trusted.
        """
        self._may_send = may_send
        self._sockets = sockets
        self.names = Names(resolve)
        self._kept: dict[Origin, list[OutgoingConnection]] = {}
        self._all: set[OutgoingConnection] = set()
        self._tls = tls or Tls()

    async def call(
        self, target: Target, request: bytes, timeout_s: float, body_bytes_max: int, *, wants_body: bool = False
    ) -> Reply:
        """Send a whole request; returns its answer.

        Raises OSError (TimeoutError, Unanswered, NotSent), ValueError (NotHttp). A request may be sent twice: again on
        a new connection if a kept one ends before any byte of an answer. So a repeated call must be harmless to the
        called server. Waiting for a free socket does not count toward the timeout; a call on a kept connection has a
        socket. A body is read whether or not it is wanted, but at most `body_bytes_max` of it.
        """
        origin, left = target.origin, timeout_s
        connection = self._taken(origin)
        if connection is not None:  # it has its socket, and needs none of the sockets reserved for calls
            loop = asyncio.get_running_loop()
            began = loop.time()
            try:
                self._check_may_send()
                reply = await connection.ask(request, timeout_s, body_bytes_max, wants_body=wants_body)
            except Unanswered:
                connection.close()
                left -= loop.time() - began
            except BaseException:
                connection.close()
                raise
            else:
                self._keep(origin, connection)
                return reply
        async with self._sockets.calls:
            return await self._call_anew(origin, request, left, body_bytes_max, wants_body)

    async def close(self) -> None:
        """Close every connection."""
        await self.names.close()
        for connection in list(self._all):
            connection.close()
        await asyncio.sleep(0)  # lets the loop report to them that they are closed

    def _check_may_send(self) -> None:
        if not self._may_send():
            raise NotSent("sending is paused")

    def _taken(self, origin: Origin) -> OutgoingConnection | None:
        """The most recently kept connection, if one can be used."""
        kept = self._kept.get(origin)
        while kept:
            connection = kept.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return None

    async def _call_anew(
        self, origin: Origin, request: bytes, timeout_s: float, body_bytes_max: int, wants_body: bool
    ) -> Reply:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        async with asyncio.timeout_at(until):
            connection = await self._connect(origin, until)
        try:
            self._check_may_send()
            reply = await connection.ask(request, until - loop.time(), body_bytes_max, wants_body=wants_body)
        except BaseException:
            connection.close()
            raise
        self._keep(origin, connection)
        return reply

    def _keep(self, origin: Origin, connection: OutgoingConnection) -> None:
        if connection.is_open:
            self._kept.setdefault(origin, []).append(connection)

    async def _connect(self, origin: Origin, until: float) -> OutgoingConnection:
        """A connection to the first address that accepts one; each gets its share of the time. Raises OSError."""
        addresses = [origin.host] if origin.is_address else await self.names.addresses(origin.host)
        tls = await self._tls.context() if origin.is_tls else None
        problem: OSError = OSError("the host name has no address")
        for index, address in enumerate(addresses):
            try:
                return await self._connect_to(address, origin, tls, _share(addresses[index:], until))
            except OSError as error:
                problem = error
        raise problem

    async def _connect_to(
        self, address: str, origin: Origin, tls: ssl.SSLContext | None, timeout_s: float
    ) -> OutgoingConnection:
        loop = asyncio.get_running_loop()
        connection = OutgoingConnection(self._sockets, partial(self._forget, origin))
        name = None if tls is None else origin.host.rstrip(".").partition("%")[0]
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(lambda: connection, address, origin.port, ssl=tls, server_hostname=name)
        if connection.is_open:
            self._all.add(connection)
        return connection

    def _forget(self, origin: Origin, connection: OutgoingConnection) -> None:
        self._all.discard(connection)
        kept = self._kept.get(origin, [])
        if connection in kept:
            kept.remove(connection)
        if not kept:
            self._kept.pop(origin, None)


def _share(addresses: Sequence[str], until: float) -> float:
    """The time for the first of these addresses, so that an address that does not answer leaves time for the others."""
    return (until - asyncio.get_running_loop().time()) / len(addresses)


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ctime_ns, found.st_size, found.st_ino


def _no_password() -> str:
    """Without this, OpenSSL would ask for a password on the terminal."""
    raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
