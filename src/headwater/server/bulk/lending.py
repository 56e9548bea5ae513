"""Lends segments to processes of this machine: descriptors over a Unix socket, for a code that Flight has given out.

A code is good once, for CODE_S, and for processes of the one user of the operating system that it was asked for. The
socket has a name that nobody can guess, and no path.
"""

from __future__ import annotations

import logging
import secrets
import socket
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

import msgspec

from ...core.access import User
from ...core.errors import EventLogError
from ...flight.wire import LendBody, Lender
from ...storage.lending import CAN_LEND, Lent

logger = logging.getLogger("headwater.server")

CODE_S = 10.0
CODES_MAX = 1024
"""Codes that nobody has shown yet; no more are given while there are so many."""
SILENT_S = 2.0
"""How long somebody who connects may take to show a code."""
THREADS = 4
BACKLOG = 64
_CODE_BYTES = 64
_CREDENTIALS = struct.Struct("3i")
"""pid, uid, gid"""


class Asked(NamedTuple):
    """Who may have which segments, until when."""

    user: User
    body: LendBody
    until: float


class Lending:
    """One socket, and the codes that are good there. Any thread may call it."""

    def __init__(self, lend: Callable[[User, LendBody, int], Lent | None]) -> None:
        """`lend` answers what a process (its pid is the last argument) gets; it may raise EventLogError."""
        self._lend = lend
        self._lock = threading.Lock()
        self._codes: OrderedDict[str, Asked] = OrderedDict()
        """By when they were given."""
        self._socket: socket.socket | None = None
        self._name = ""

    def lender(self, user: User, body: LendBody) -> Lender:
        """A code for these segments, which the user was found to have the right to read."""
        with self._lock:
            now = time.monotonic()
            while self._codes and next(iter(self._codes.values())).until < now:
                self._codes.popitem(last=False)
            if not CAN_LEND or len(self._codes) >= CODES_MAX:
                return Lender()
            if self._socket is None:
                self._open()
            code = secrets.token_hex(_CODE_BYTES // 2)
            self._codes[code] = Asked(user, body, now + CODE_S)
            return Lender(self._name, code)

    def close(self) -> None:
        """Lend no more."""
        with self._lock:
            self._codes.clear()
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)  # so that whoever waits for a connection hears of it
                self._socket.close()

    def _open(self) -> None:
        name = f"headwater-{secrets.token_hex(16)}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(b"\0" + name.encode())
        listening.listen(BACKLOG)
        self._socket, self._name = listening, name
        threading.Thread(target=self._accept, args=(listening,), name="lending", daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        with ThreadPoolExecutor(THREADS, "lending") as threads:
            while True:
                try:
                    sock, _ = listening.accept()
                except OSError:
                    if listening.fileno() < 0:
                        return
                    time.sleep(0.1)  # no descriptor is left, say
                    continue
                threads.submit(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        with closing(sock):
            try:
                sock.settimeout(SILENT_S)
                self._answer(sock)
            except (OSError, EventLogError) as error:  # whoever asked reads over Flight, and is told there
                logger.debug("nothing is lent: %s", error)
            except Exception:
                logger.exception("segments could not be lent")

    def _answer(self, sock: socket.socket) -> None:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(credentials)
        with self._lock:
            if all(asked.body.uid != uid for asked in self._codes.values()):
                return
        code = sock.recv(_CODE_BYTES).decode("ascii", "replace")
        with self._lock:
            asked = self._codes.get(code)
            if asked is None or asked.body.uid != uid or asked.until < time.monotonic():
                return
            del self._codes[code]
        lent = self._lend(asked.user, asked.body, pid)
        if lent is None:
            return
        with closing(lent):
            socket.send_fds(sock, [msgspec.json.encode(lent.loan)], list(lent.descriptors))
