"""The receiving end of `frame_push`: a replica gets frames from its primary, and reads the home if that fails."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from urllib.parse import urlsplit

from ...core.errors import EventLogError
from ...core.watch.threads import Threads
from ...homes.commit_feed import LENGTHS
from ...homes.home_secret import SECRET_HEADER, HomeSecret
from ...storage.home.replicated_log import CopyOutlived
from ...storage.maintenance.follower import Follower
from .frame_push import ALIVE_S, PATH

logger = logging.getLogger("headwater.server")

SILENCE_S = 3 * ALIVE_S
CONNECT_S = 2.0
"""The connection timeout: the longest that a dead host delays a takeover."""
AGAIN_S = 1.0
"""The delay before a failed connection to the primary is retried."""
KEY_BYTES_MAX, FRAME_BYTES_MAX = 64, 128 * 1024 * 1024


class Listening:
    """A thread that receives the frames pushed by the primary, until `stop`."""

    def __init__(
        self,
        follower: Follower,
        secret: HomeSecret,
        primary: Callable[[], str | None],
        unready: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`primary`: the URL of the current primary; None if unknown.

        `unready`: why this server could not take over. While there is a reason, it does not listen: a primary that may
        step down relies on its listeners.
        """
        self._unready = unready
        self._follower, self._secret, self._primary = follower, secret, primary
        self._stopping = threading.Event()
        self._changing = threading.Lock()
        self._socket: socket.socket | None = None
        self._told = ""
        self._problem = ""
        self._thread: threading.Thread | None = None
        self.is_live = False
        """Whether the primary is pushing at present."""

    def troubles(self) -> list[str]:
        """Problems for the operator: most likely the address that the primary advertises."""
        return [f"{self._problem}; polling the home once a second"] if self._problem else []

    def start(self, threads: Threads) -> None:
        """Start the thread."""
        self._thread = threads.start("listening", self._run, self._stopping)

    def stop(self) -> None:
        """Stop receiving. Nothing is received after this returns."""
        self._stopping.set()
        with self._changing:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            secret, url = self._secret.value, self._primary()
            self._problem = ""
            if secret is not None and url is not None and self._unready() is None:
                try:
                    self._listen(url, secret)
                except (EventLogError, OSError, http.client.HTTPException, ValueError, CopyOutlived) as error:
                    if str(error) != self._told and not self._stopping.is_set():
                        logger.info("cannot reach the primary at %s (%s); polling the home", url, error)
                    self._told = str(error)
                    self._problem = f"cannot reach the primary at {url} ({error}); check its advertised address"
                finally:
                    self.is_live = False
            self._stopping.wait(AGAIN_S)

    def _listen(self, url: str, secret: bytes) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        connection = (
            http.client.HTTPSConnection(host, port, timeout=CONNECT_S, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        )
        with closing(connection):
            connection.connect()
            assert connection.sock is not None
            connection.sock.settimeout(SILENCE_S)
            with self._changing:
                self._socket = connection.sock
            try:
                if not self._stopping.is_set():
                    connection.request("GET", PATH, headers={SECRET_HEADER.decode(): secret.decode()})
                    self._take_all(connection.getresponse())
            finally:
                with self._changing:
                    self._socket = None

    def _take_all(self, answer: http.client.HTTPResponse) -> None:
        if answer.status != 200:
            raise http.client.HTTPException(f"status {answer.status}")
        self._told, self.is_live = "", True
        while len(lengths := answer.read(LENGTHS.size)) == LENGTHS.size:
            key_bytes, frame_bytes = LENGTHS.unpack(lengths)
            if key_bytes > KEY_BYTES_MAX or frame_bytes > FRAME_BYTES_MAX:
                raise ValueError(
                    f"a frame of {frame_bytes} bytes was announced, but at most {FRAME_BYTES_MAX} are allowed"
                )
            key, content = answer.read(key_bytes).decode(), answer.read(frame_bytes)
            if len(content) != frame_bytes:
                return
            if key and not self._follower.take(key, content):
                self._follower.follow()
                self._follower.take(key, content)
            if self._unready() is not None:
                return
