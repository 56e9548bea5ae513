"""Tells systemd that the start of the server goes on, and that it is ready (sd_notify(3)).

So `systemctl start` returns when the server answers, and a long recovery is no failed start. Without NOTIFY_SOCKET in
the environment nothing is sent.
"""

from __future__ import annotations

import logging
import socket
import threading

logger = logging.getLogger("headwater.server")

ADDRESS_VARIABLE = "NOTIFY_SOCKET"
EXTENDED_S = 60
"""How much longer systemd waits for the start with each message."""
EXTEND_EVERY_S = 10.0


class ServiceManager:
    """Tells systemd, until `close`. Each method may be called repeatedly, by any thread."""

    def __init__(self, address: str | None, every_s: float = EXTEND_EVERY_S) -> None:
        """`address`: what NOTIFY_SOCKET says. Until `ready`, a thread asks for more time again and again: the event
        loop is busy with the logs.
        """
        self._address = address
        self._has_started = threading.Event()
        if address is not None:
            threading.Thread(target=self._extend, args=(every_s,), name="headwater-starting", daemon=True).start()

    def ready(self) -> None:
        """The server answers."""
        if not self._has_started.is_set():
            self._has_started.set()
            self._tell("READY=1")

    def close(self) -> None:
        """Ask for no more time."""
        self._has_started.set()

    def _extend(self, every_s: float) -> None:
        while not self._has_started.is_set():
            self._tell(f"EXTEND_TIMEOUT_USEC={EXTENDED_S * 1_000_000}")
            self._has_started.wait(every_s)

    def _tell(self, message: str) -> None:
        if self._address is None:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
                sending.sendto(message.encode(), address)
        except OSError as error:
            logger.warning("systemd is not told %s: %s: %s", message, self._address, error)
