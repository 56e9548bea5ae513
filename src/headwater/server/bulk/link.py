"""The link between the server and its bulk process: requests in one direction, answers in the other, over one socket.

A message is a head (length, number, kind) and MessagePack. Requests are answered in any order. Errors of the core are
passed on unchanged. A link never recovers: when it ends, the bulk process exits, and the server starts another.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from ...core import errors as core
from ...core.access import Forbidden, Right
from ...formats.decoders import msgpack_decoder

logger = logging.getLogger("headwater.server")

_HEAD = struct.Struct("<IQB")
"""Bytes of the body, number of the request, kind."""
REQUEST, ANSWER, ERROR = range(3)
REQUEST_BYTES_MAX = 8 * 1024 * 1024
"""The server reads requests on its event loop; large data (a batch to append) is in a file that they name."""
T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()
_error_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_request = msgspec.msgpack.Decoder(tuple[str, list[Any]])

Call = Callable[..., Awaitable[object]]


class Link:
    """The bulk process's end. Any thread can make requests; one thread receives the answers."""

    def __init__(
        self, sock: socket.socket, *, ended: Callable[[], None], asked: Callable[[str, list[Any]], None]
    ) -> None:
        """`ended` is called once, when the server has disconnected. `asked` is called with the name and arguments of
        its requests.
        """
        self._socket, self._ended, self._asked = sock, ended, asked
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[bytes]] = {}
        self._sending = threading.Lock()
        self._is_over = False
        self._thread = threading.Thread(target=self._receive_all, name="headwater-link", daemon=True)
        self._thread.start()

    def call(self, method: str, *arguments: object, type: type[T]) -> T:
        """Send a request, and wait for the answer. Raises the server's error, TooLarge, and Closed if it has
        disconnected.
        """
        return msgpack_decoder(type).decode(self._ask(method, arguments).result())

    def tell(self, method: str, *arguments: object) -> None:
        """Send a request without waiting for an answer. Raises nothing."""
        with suppress(core.Closed):
            self._ask(method, arguments)

    def _ask(self, method: str, arguments: tuple[object, ...]) -> Future[bytes]:
        body = _encoder.encode((method, arguments))
        if len(body) > REQUEST_BYTES_MAX:
            raise core.TooLarge(len(body), REQUEST_BYTES_MAX, "bytes", method)
        number = next(self._numbers)
        future: Future[bytes] = Future()
        self._waiting[number] = future
        try:
            with self._sending:
                self._socket.sendall(_HEAD.pack(len(body), number, REQUEST))
                self._socket.sendall(body)
        except OSError:
            self._waiting.pop(number, None)
            raise core.Closed("server") from None
        if self._is_over:
            raise core.Closed("server")
        return future

    def _receive_all(self) -> None:
        try:
            while True:
                length, number, kind = _HEAD.unpack(self._receive(_HEAD.size))
                body = self._receive(length)
                if kind == REQUEST:
                    self._asked(*_request.decode(body))
                    continue
                error = _decode_error(body) if kind == ERROR else None
                future = self._waiting.pop(number)
                if error is None:
                    future.set_result(body)
                else:
                    future.set_exception(error)
        except (OSError, EOFError):
            pass  # the server has disconnected
        except Exception:
            logger.exception("cannot parse the server's answer")
        finally:
            self._is_over = True
            for future in list(self._waiting.values()):
                future.set_exception(core.Closed("server"))
            self._ended()

    def _receive(self, size: int) -> bytes:
        received = bytearray(size)
        view, at = memoryview(received), 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise EOFError
            at += count
        return bytes(received)


class Answering:
    """The server's end, on its event loop. Each request is a task; `calls` contains coroutine functions by name."""

    def __init__(self, calls: Mapping[str, Call]) -> None:
        self._calls = calls
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None

    async def run(self, sock: socket.socket) -> None:
        """Answer until the other side ends, or sends invalid data."""
        reader, self._writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
        try:
            while True:
                length, number, _ = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                if length > REQUEST_BYTES_MAX:
                    logger.error(
                        "the bulk process sent a request of %d bytes, which is too large; disconnecting it", length
                    )
                    return
                body = await reader.readexactly(length)
                task = asyncio.create_task(self._answer(number, body))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            for task in self._tasks:
                task.cancel()
            self._writer.close()

    def ask(self, what: str, *arguments: object) -> None:
        """Send a message to the bulk process. Messages are not answered."""
        self._send(0, REQUEST, _encoder.encode((what, arguments)))

    async def _answer(self, number: int, body: bytes) -> None:
        try:
            method, arguments = _request.decode(body)
            answer = _encoder.encode(await self._calls[method](*arguments))
        except core.EventLogError as error:
            self._send(number, ERROR, _encode_error(error))
        except (
            Exception
        ) as error:  # answered, so that the caller does not wait forever; the server's log has the details
            logger.exception("a request of the bulk process failed")
            problem = core.StorageUnavailable(f"internal error ({type(error).__name__}); see the server's log")
            self._send(number, ERROR, _encode_error(problem))
        else:
            self._send(number, ANSWER, answer)

    def _send(self, number: int, kind: int, body: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(_HEAD.pack(len(body), number, kind) + body)


def _kinds(base: type[core.EventLogError]) -> dict[str, type[core.EventLogError]]:
    found = {base.__name__: base}
    for kind in base.__subclasses__():
        found.update(_kinds(kind))
    return found


def _encode_error(error: core.EventLogError) -> bytes:
    return _error_encoder.encode((type(error).__name__, str(error), vars(error)))


_ENUMS: tuple[tuple[type[core.EventLogError], str, type[StrEnum]], ...] = (
    (core.AppendConditionFailed, "reason", core.ConditionFailure),
    (Forbidden, "right", Right),
)
"""Error attributes that are not plain values, and need conversion."""


def _decode_error(body: bytes) -> core.EventLogError:
    """The error with all its attributes, regardless of the parameters of its constructor."""
    name, message, carried = msgspec.msgpack.decode(body, type=tuple[str, str, dict[str, Any]])
    kind = _kinds(core.EventLogError).get(name, core.StorageUnavailable)
    for of_kind, field, enum in _ENUMS:
        if issubclass(kind, of_kind) and field in carried:
            carried[field] = enum(carried[field])
    error = kind.__new__(kind, message)
    error.args = (message,)
    vars(error).update(carried)
    return error
