"""The socket in a data directory through which commands reach the state while a server has it.

Only one process writes a data directory, so commands send it their calls. Only the directory's owner can use
DIR/state.sock, and a user who may write the directory may do everything anyway. Each call uses one connection: name and
arguments, then the answer, each as MessagePack after its length. Calls are answered one after the other.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import selectors
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...core import errors
from ...core.errors import EventLogError, NotPrimary, StorageUnavailable
from ...core.state import StateEntry, StateStore
from ...core.watch.threads import Threads
from ...formats.decoders import msgpack_decoder
from ..disk.system import FILE_MODE

logger = logging.getLogger("headwater.storage")

SOCKET = "state.sock"
PATIENCE_S = 5.0
"""The time limit for a peer to send its call, or to receive the answer."""
CALL_BYTES_MAX = 16 * 1024 * 1024
ANSWER_BYTES_MAX = 1024 * 1024 * 1024
_LENGTH = struct.Struct("<I")
_CALLS = frozenset({"get", "put", "delete", "delete_all", "flush", "items", "had_users", "keep_had_users"})
"""The callable methods of StateStore."""
_T = TypeVar("_T")


class _Call(msgspec.Struct, array_like=True):
    name: str
    positional: list[Any]
    named: dict[str, Any]


class _Answer(msgspec.Struct, array_like=True):
    """The answer to a call: a result, or the name and arguments of an error of the core."""

    result: Any = None
    error: str = ""
    arguments: list[Any] = []


class StateSocket:
    """Answers calls on a state, in its own thread, until `close`."""

    def __init__(self, state: StateStore, directory: Path, threads: Threads) -> None:
        """Listen. The directory is locked, so an existing socket is stale. Raises OSError."""
        self._state, self._path = state, directory / SOCKET
        self._path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _reachable(self._path) as name:
                self._listening.bind(name)
            self._path.chmod(FILE_MODE)
            self._listening.listen()
            self._inode = self._path.stat().st_ino
        except OSError:
            self._listening.close()
            raise
        self._listening.setblocking(False)
        self._waking, self._woken = socket.socketpair()
        self._peer: socket.socket | None = None
        self._is_closing = threading.Event()
        self._thread = threads.start("state-socket", self._run, self._is_closing)

    def close(self) -> None:
        """Remove the socket and wait for the call being answered."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:  # otherwise the process that now has the directory owns it
                self._path.unlink()
        self._is_closing.set()
        self._waking.send(b"\0")
        if (peer := self._peer) is not None:
            with contextlib.suppress(OSError):  # just answered
                peer.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in (self._listening, self._waking, self._woken):
            each.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._woken in ready:
                    return
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    peer, _ = self._listening.accept()
                    with peer:
                        self._peer = peer
                        self._serve(peer)
                        self._peer = None

    def _serve(self, peer: socket.socket) -> None:
        peer.settimeout(PATIENCE_S)
        try:
            call = msgpack_decoder(_Call).decode(_receive(peer, CALL_BYTES_MAX))
            _send(peer, msgspec.msgpack.encode(self._answer(call)))
        except Exception as error:  # a bad peer only loses its own call
            logger.warning("%s: a call was abandoned: %s", self._path, error)

    def _answer(self, call: _Call) -> _Answer:
        if call.name not in _CALLS:
            return _refused(
                StorageUnavailable(
                    f"the server does not support the call {call.name!r}; use the same version as the server"
                )
            )
        try:
            result = getattr(self._state, call.name)(*call.positional, **call.named)
        except EventLogError as error:
            return _refused(error)
        except Exception as error:  # whatever the call contains, the server continues
            return _refused(
                StorageUnavailable(f"the server cannot execute the call: {error}; use the same version as the server")
            )
        return _Answer(list(result) if call.name == "items" else result)


class RemoteState(StateStore):
    """A StateStore that a server of the same data directory has open."""

    def __init__(self, directory: Path) -> None:
        """Raises StorageUnavailable if there is no such server, or it does not answer."""
        self._path = directory / SOCKET
        self.had_users()

    def get(self, kind: str, key: str) -> StateEntry | None:
        """See StateStore. This and the methods below raise StorageUnavailable if the server is gone."""
        return self._call("get", StateEntry | None, kind, key)  # type: ignore[arg-type]

    def put(
        self, kind: str, key: str, value: bytes, expected_version: int | None = None, *, is_durable: bool = True
    ) -> int:
        return self._call("put", int, kind, key, value, expected_version, is_durable=is_durable)

    def delete(self, kind: str, key: str, expected_version: int | None = None) -> bool:
        return self._call("delete", bool, kind, key, expected_version)

    def delete_all(self, kind: str, keys: Iterable[str]) -> int:
        return self._call("delete_all", int, kind, list(keys))

    def flush(self) -> None:
        self._call("flush", type(None))

    def items(self, kind: str, prefix: str = "") -> Iterator[tuple[str, StateEntry]]:
        return iter(self._call("items", list[tuple[str, StateEntry]], kind, prefix))

    def had_users(self) -> bool:
        return self._call("had_users", bool)

    def keep_had_users(self, had_users: bool) -> None:
        self._call("keep_had_users", type(None), had_users)

    def close(self) -> None:
        """Do nothing: each call has its own connection."""

    def _call(self, name: str, kind: type[_T], *positional: Any, **named: Any) -> _T:
        call = msgspec.msgpack.encode(_Call(name, list(positional), named))
        if len(call) > CALL_BYTES_MAX:
            raise StorageUnavailable(f"the call has {len(call)} bytes, at most {CALL_BYTES_MAX} are allowed")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(PATIENCE_S * 2)
            try:
                with _reachable(self._path) as path:
                    peer.connect(path)
                _send(peer, call)
                answer = msgpack_decoder(_Answer).decode(_receive(peer, ANSWER_BYTES_MAX))
            except (OSError, ValueError) as error:  # bad MessagePack and bad UTF-8 are ValueErrors
                problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                raise StorageUnavailable(
                    f"{self._path.parent}: in use by another process, which does not answer on {SOCKET} ({problem}): "
                    "it is starting, stopping, or has another version; try again, or stop it first"
                ) from None
        if answer.error:
            raise _error(answer)
        return msgspec.convert(answer.result, kind)


def _refused(error: EventLogError) -> _Answer:
    """The error as its name and named arguments, from which the other side recreates it."""
    names = inspect.signature(type(error).__init__).parameters
    arguments = [getattr(error, name, None) for name in names if name != "self" and hasattr(error, name)]
    if isinstance(error, StorageUnavailable) and not isinstance(error, NotPrimary):
        arguments = [str(error)]
    return _Answer(error=type(error).__name__, arguments=arguments)


def _error(answer: _Answer) -> EventLogError:
    kind: Callable[..., EventLogError] = getattr(errors, answer.error, StorageUnavailable)
    try:
        return kind(*answer.arguments)
    except TypeError:
        return StorageUnavailable(f"the server refused the call: {answer.error}")


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """A name for a socket short enough for the system, however long its path. Raises OSError."""
    if not sys.platform.startswith("linux"):
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def _send(peer: socket.socket, content: bytes) -> None:
    peer.sendall(_LENGTH.pack(len(content)) + content)


def _receive(peer: socket.socket, bytes_max: int) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    if length > bytes_max:
        raise OSError(f"{length} bytes announced, at most {bytes_max} are allowed")
    return _exactly(peer, length)


def _exactly(peer: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = peer.recv(min(length, 1 << 20))
        if not part:
            raise ConnectionError("it was cut off")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
