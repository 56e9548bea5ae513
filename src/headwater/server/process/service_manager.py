"""Reports startup progress and readiness to systemd (sd_notify(3)).

`systemctl start` therefore returns when the server is ready, and a long recovery is not a failed start. Nothing is sent
without NOTIFY_SOCKET in the environment.
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
    """Reports to systemd, until `close`. Any thread may call each method, repeatedly."""

    def __init__(self, address: str | None, every_s: float = EXTEND_EVERY_S) -> None:
        """`address`: the value of NOTIFY_SOCKET. Until `ready`, a thread keeps asking for more time: the event loop is
        busy with the logs.
        """
        self._address = address
        self._has_started = threading.Event()
        if address is not None:
            threading.Thread(target=self._extend, args=(every_s,), name="headwater-starting", daemon=True).start()

    def ready(self) -> None:
        """Report that the server accepts requests."""
        if not self._has_started.is_set():
            self._has_started.set()
            self._tell("READY=1")

    def close(self) -> None:
        """Stop asking for more time."""
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
            logger.warning("cannot notify systemd of %s: %s: %s", message, self._address, error)
