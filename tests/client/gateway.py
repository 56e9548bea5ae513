"""A proxy of HTTP between client and server, as nginx is by default: it asks its server with HTTP/1.0. It can be
another one, and cut what it passes on."""

from __future__ import annotations

import gzip
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any, NamedTuple, Self

PIECE_BYTES = 64 * 1024


class Failure(NamedTuple):
    """What the gateway answers by itself."""

    status: int = 502
    """0: the connection ends without an answer."""
    is_after: bool = False
    """Whether the server was asked, and its answer is lost."""
    body: bytes = b"<html>\r\n<head><title>Bad day</title></head>\r\n</html>\r\n"
    content_type: str = "text/html"


class Framing(Enum):
    """How the end of an answer is said that came without a length."""

    CHUNKED = "chunked"
    LENGTH = "length"
    """It is collected, and has the length of what came."""
    CONNECTION = "connection"
    """It ends with the connection: HTTP/1.0."""


class Gateway:
    """A context manager. What its server breaks off is passed on as it came, and ends as if it were whole, where
    nothing said how long it is. Where the server is away, the answer is 502, unless `away` says otherwise.
    """

    def __init__(self, upstream_port: int, *, http: str = "1.0", framing: Framing = Framing.CHUNKED) -> None:
        """`http` is the version with which it asks."""
        self.upstream_port = upstream_port
        self.upstream = {"1.0": _Upstream, "1.1": HTTPConnection}[http]
        self.framing = framing
        self.cuts: deque[int] = deque()
        """Of the next bodies so many bytes are passed on, and that looks whole, where nothing said how long it is."""
        self.demands_end = True
        """Whether the server is asked for an end of the form; otherwise it answers as one of 0.1.x."""
        self.passes_lengths = True
        """Whether the length of a read that has one is passed on."""
        self.content_type: Callable[[str], str | None] = str
        """What becomes of the media type of a read; None: it has none."""
        self.failures: deque[Failure | None] = deque()
        """What is answered to the next requests; None: what the server answers."""
        self.to_streams: Failure | None = None
        """What is answered to each subscription; None: what the server answers."""
        self.to_streams_for_ever = b""
        """What is passed on again and again of each subscription, instead of its messages."""
        self.holds = "nothing"
        """What is in the paths of requests that are not passed on, and end without an answer at `go`."""
        self.passes_heartbeats = True
        """Whether the server is told how often a subscription wants a heartbeat."""
        self.meanwhile: Callable[[], object] = object
        """What is done before an answer that is lost, after what was asked for."""
        self.away: Iterator[Failure] = cycle([Failure()])
        """What is answered where the server is away."""
        self.compresses = "never"
        """What is in the paths of answers that it compresses, though nobody asked for that."""
        self.pauses = False
        """Whether it waits for `go` behind the first piece of a body."""
        self.is_paused, self.go = threading.Event(), threading.Event()
        handler = type("Handler", (_Handler,), {"gateway": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Upstream(HTTPConnection):
    """It speaks HTTP/1.0, and takes little before it is read."""

    _http_vsn, _http_vsn_str = 10, "HTTP/1.0"

    def connect(self) -> None:
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
        self.sock.connect((self.host, self.port))


class _Handler(BaseHTTPRequestHandler):
    gateway: Gateway
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        gateway = self.gateway
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        failure = gateway.failures.popleft() if gateway.failures else None
        if "/subscribe" in self.path:
            failure = gateway.to_streams or failure
        if failure is not None and not failure.is_after:
            self._fail(failure)
            return
        if gateway.holds in self.path:
            gateway.is_paused.set()
            gateway.go.wait()
            self.close_connection = True
            return
        path = self.path if gateway.passes_heartbeats else re.sub("&heartbeat=[^&]+", "", self.path)
        fields = {name: value for name, value in self.headers.items() if name.lower() not in ("connection", "host")}
        if not gateway.demands_end and "accept" in fields:
            fields["accept"] = fields["accept"].partition(";")[0]
        upstream = gateway.upstream("127.0.0.1", gateway.upstream_port)
        try:
            upstream.request(self.command, path, body, fields)
            answer = upstream.getresponse()
        except (OSError, HTTPException):
            upstream.close()
            self._fail(next(gateway.away))
            return
        with answer:
            if failure is not None:
                answer.read()
                gateway.meanwhile()
                self._fail(failure)
            else:
                self._pass_on(answer)
        upstream.close()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _pass_on(self, answer: HTTPResponse) -> None:
        length = answer.getheader("content-length")
        if not self.gateway.passes_lengths and self.path.endswith("/read"):
            length = None
            del answer.headers["content-length"]
        if self.path.endswith("/read"):
            self._change_type(answer)
        framing = self.gateway.framing if length is None and answer.status != 204 else None
        pieces = self._pieces(answer)
        if self.gateway.compresses in self.path:
            pieces, framing = map(gzip.compress, pieces), Framing.CHUNKED
            del answer.headers["content-length"]
            answer.headers["content-encoding"] = "gzip"
        if framing is Framing.CONNECTION:
            self.protocol_version, self.close_connection = "HTTP/1.0", True
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "server", "date", "transfer-encoding"):
                self.send_header(name, value)
        if framing is Framing.CHUNKED:
            self.send_header("transfer-encoding", "chunked")
        elif framing is Framing.LENGTH:
            body = b"".join(pieces)
            self.send_header("content-length", str(len(body)))
            pieces = iter([body])
        self.end_headers()
        sent = 0
        for piece in pieces:
            sent += len(piece)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if framing is Framing.CHUNKED else piece)
        if framing is Framing.CHUNKED:
            self.wfile.write(b"0\r\n\r\n")
        elif length is not None and sent < int(length):
            self.close_connection = True

    def _change_type(self, answer: HTTPResponse) -> None:
        changed = self.gateway.content_type(answer.headers["content-type"])
        del answer.headers["content-type"]
        if changed is not None:
            answer.headers["content-type"] = changed

    def _pieces(self, answer: HTTPResponse) -> Iterator[bytes]:
        """What is passed on of a body."""
        endless = self.gateway.to_streams_for_ever if "/subscribe" in self.path else b""
        while endless:
            yield endless
            time.sleep(0.02)
        left = self.gateway.cuts.popleft() if self.gateway.cuts and answer.status == 200 else None
        while left != 0 and (piece := answer.read1(PIECE_BYTES if left is None else min(left, PIECE_BYTES))):
            left = None if left is None else left - len(piece)
            yield piece
            if self.gateway.pauses and answer.status == 200:
                self.gateway.is_paused.set()
                self.gateway.go.wait()

    def _fail(self, failure: Failure) -> None:
        if not failure.status:
            self.close_connection = True
            return
        self.send_response(failure.status)
        if failure.status != 204:
            self.send_header("content-type", failure.content_type)
        self.send_header("content-length", str(len(failure.body)))
        self.end_headers()
        self.wfile.write(failure.body)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client disconnected
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""
