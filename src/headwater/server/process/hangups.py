"""SIGHUP handling: the server reloads certificates, or stops, or does nothing.

SIGHUP asks a daemon to reload renewed certificates. If the process has a controlling terminal, SIGHUP means that the
terminal is gone: the server stops as on SIGTERM. A process that ignored SIGHUP at its start (`nohup`) ignores it.
"""

from __future__ import annotations

import logging
import os
import signal
from asyncio import AbstractEventLoop
from collections.abc import Iterator
from contextlib import contextmanager

from ...formats.settings.declaration import InvalidConfiguration
from .log_lines import fields
from .sockets import Certificates

logger = logging.getLogger("headwater.server")
TERMINAL = "/dev/tty"


class Hangups:
    """Handles SIGHUP for a process, from construction on. Create it in the main thread."""

    def __init__(self) -> None:
        self._loop: AbstractEventLoop | None = None
        self._certificates: Certificates | None = None
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._stop if _has_terminal() else self._heard)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # the command line blocked it until now

    @contextmanager
    def reaching(self, loop: AbstractEventLoop, certificates: Certificates | None) -> Iterator[None]:
        """A context in which a server runs on that loop. `certificates` is None if it has no TLS, so there is nothing
        to reload.
        """
        self._loop, self._certificates = loop, certificates
        try:
            yield
        finally:
            self._loop = self._certificates = None

    def _stop(self, *_: object) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a shell and the system may each send one
        os.kill(os.getpid(), signal.SIGTERM)

    def _heard(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._load)

    def _load(self) -> None:
        """Load the certificates; if that fails, the previous ones stay in use."""
        if self._certificates is None:
            logger.info("SIGHUP: nothing to reload, TLS is not configured")
            return
        try:
            self._certificates.load()
        except InvalidConfiguration as error:
            logger.error(
                "SIGHUP: cannot reload the certificates, keeping the previous ones", extra=fields(problem=error)
            )
        else:
            tls = self._certificates.settings
            given = {"certificate": tls.certificate, "key": tls.key, "client_ca": tls.client_ca, "hosts": tls.hosts}
            loaded = fields(**{name: value for name, value in given.items() if value})
            logger.info("SIGHUP: certificates reloaded; Arrow Flight loads them at its next start", extra=loaded)


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal."""
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
