"""Lends segments to processes on this machine: descriptors over a Unix socket, in exchange for a code that Flight
issued.

A code is valid once, for CODE_S, and only for processes of the operating system user for which it was requested. The
socket has an unguessable name and no path."""

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
from ...storage.read.segment_sharing import CAN_LEND, Lent

logger = logging.getLogger("headwater.server")

CODE_S = 10.0
CODES_MAX = 1024
"""The maximum number of unused codes. No more are issued while there are this many."""
CODES_OF_ONE_MAX = 256
"""The maximum number of unused codes for one user."""
SILENT_S = 2.0
"""How long a client may take to send a code."""
THREADS = 4
UNDER_WAY_MAX = 64
"""The maximum number of connections served or waiting. More are closed at once, so that they use no descriptors."""
BACKLOG = 64
_CODE_BYTES = 64
_CREDENTIALS = struct.Struct("3i")
"""pid, uid, gid"""


class Asked(NamedTuple):
    """Which user may get which segments, and until when."""

    user: User
    body: LendBody
    until: float


class Lending:
    """One socket, and its valid codes. Any thread may call it."""

    def __init__(self, lend: Callable[[User, LendBody, int], Lent | None]) -> None:
        """`lend` returns what a process (its pid is the last argument) gets; it may raise EventLogError."""
        self._lend = lend
        self._lock = threading.Lock()
        self._codes: OrderedDict[str, Asked] = OrderedDict()
        """In the order in which they were issued."""
        self._places = threading.BoundedSemaphore(UNDER_WAY_MAX)
        self._socket: socket.socket | None = None
        self._name = ""

    def lender(self, user: User, body: LendBody) -> Lender:
        """A code for these segments, which the user must have the right to read."""
        with self._lock:
            now = time.monotonic()
            while self._codes and next(iter(self._codes.values())).until < now:
                self._codes.popitem(last=False)
            if not CAN_LEND or len(self._codes) >= CODES_MAX:
                return Lender()
            if sum(asked.user == user for asked in self._codes.values()) >= CODES_OF_ONE_MAX:
                return Lender()
            if self._socket is None and not self._opens():
                return Lender()
            code = secrets.token_hex(_CODE_BYTES // 2)
            self._codes[code] = Asked(user, body, now + CODE_S)
            return Lender(self._name, code)

    def close(self) -> None:
        """Stop lending."""
        with self._lock:
            self._codes.clear()
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)  # so that a thread that waits for a connection wakes up
                self._socket.close()

    def _opens(self) -> bool:
        """Whether the socket was opened. A service may not be allowed to open a socket of this kind."""
        name = f"headwater-{secrets.token_hex(16)}"
        try:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            logger.debug("segments are not shared: %s", error)
            return False
        listening.bind(b"\0" + name.encode())
        listening.listen(BACKLOG)
        self._socket, self._name = listening, name
        threading.Thread(target=self._accept, args=(listening,), name="lending", daemon=True).start()
        return True

    def _accept(self, listening: socket.socket) -> None:
        with ThreadPoolExecutor(THREADS, "lending") as threads:
            while True:
                try:
                    sock, _ = listening.accept()
                except OSError:
                    if listening.fileno() < 0:
                        return
                    time.sleep(0.1)  # for example, because no descriptor is left
                    continue
                if not self._is_expected(_peer(sock)[1]) or not self._places.acquire(blocking=False):
                    sock.close()
                    continue
                threads.submit(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        with closing(sock):
            try:
                sock.settimeout(SILENT_S)
                self._answer(sock)
            except (
                OSError,
                EventLogError,
            ) as error:  # the client reads over Flight instead, and gets the error that way
                logger.debug("segments are not shared: %s", error)
            except Exception:
                logger.exception("sharing segments failed")
            finally:
                self._places.release()

    def _is_expected(self, uid: int) -> bool:
        """Whether processes of that operating system user have an unused code."""
        with self._lock:
            return any(asked.body.uid == uid for asked in self._codes.values())

    def _answer(self, sock: socket.socket) -> None:
        pid, uid = _peer(sock)
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


def _peer(sock: socket.socket) -> tuple[int, int]:
    """The process that connected, and its user."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid, uid
