"""Sockets of this process that a library created: what Linux reports about them, through our own descriptors.

All calls keep the interpreter's lock. After releasing it, a thread may have to wait behind a hundred threads that serve
calls.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any

_SO_COOKIE, _F_SETOWN_EX, _F_OWNER_TID, _F_GETFL, _F_SETFL = 57, 15, 0, 3, 4
_INFO, _ESTABLISHED = struct.Struct("B127xQ"), 1
"""In `struct tcp_info`: the state, and the bytes received."""
_SO_ATTACH_FILTER, _SO_DETACH_FILTER, _BPF_RETURN, _HEAD_BYTES_MAX = 26, 27, 6, 60
_NAME_AT = 19
"""The offset in the 64-bit `struct dirent`."""
_ADDRESSES = {int(socket.AF_INET): slice(4, 8), int(socket.AF_INET6): slice(8, 24)}
"""The address in a `sockaddr`, by family."""
_system: Any = ctypes.PyDLL(None)
_system.opendir.restype = _system.readdir.restype = ctypes.c_void_p
_system.readdir.argtypes = _system.closedir.argtypes = [ctypes.c_void_p]

Place = tuple[str, int]
"""Address and port."""


def sockets() -> Iterator[tuple[int, int]]:
    """The cookie (unique among all sockets ever) and descriptor of each socket; empty if the system has no cookies."""
    if sys.platform != "linux" or not (folder := _system.opendir(b"/proc/self/fd")):
        return
    try:
        while entry := _system.readdir(folder):
            name = ctypes.string_at(entry + _NAME_AT)
            if name.isdigit() and (cookie := _option(int(name), socket.SOL_SOCKET, _SO_COOKIE, 8)) is not None:
                yield int.from_bytes(cookie, sys.byteorder), int(name)
    finally:
        _system.closedir(folder)


class OwnSocket:
    """Our own descriptor of a socket. It refers to that socket, regardless of what happens to the other descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd: int = _system.dup(fd)
        self.cookie = int.from_bytes(_option(self.fd, socket.SOL_SOCKET, _SO_COOKIE, 8) or b"", sys.byteorder)
        """0 if it was already closed."""

    @property
    def is_listening(self) -> bool:
        """Whether it accepts connections."""
        return any(_option(self.fd, socket.SOL_SOCKET, socket.SO_ACCEPTCONN, 4) or b"")

    @property
    def name(self) -> Place | None:
        """Our side; None if it is not an internet socket."""
        return _place(_system.getsockname, self.fd)

    @property
    def peer(self) -> Place | None:
        """The other side; None if there is none."""
        return _place(_system.getpeername, self.fd)

    @property
    def received(self) -> int | None:
        """The total number of bytes received; None if it is not a connection that can receive more, or the system is
        too old.
        """
        info = _option(self.fd, socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        state, received = _INFO.unpack(info) if info is not None else (0, 0)
        return int(received) if state == _ESTABLISHED else None

    def wake(self, thread: int) -> bool:
        """Send SIGIO to that thread whenever data arrives from now on. Returns whether this succeeded."""
        if _system.fcntl(self.fd, _F_SETOWN_EX, struct.pack("ii", _F_OWNER_TID, thread)):
            return False
        return not _system.fcntl(self.fd, _F_SETFL, _system.fcntl(self.fd, _F_GETFL) | os.O_ASYNC)

    def cut(self, size: int) -> None:
        """Limit TCP segments to this many bytes from now on; accepted connections inherit it.

        The peer resends the rest, so all of it arrives, but slowly.
        """
        cutting = ctypes.create_string_buffer(struct.pack("HBBI", _BPF_RETURN, 0, 0, _HEAD_BYTES_MAX + size), 8)
        program = struct.pack("HxxxxxxP", 1, ctypes.addressof(cutting))
        _system.setsockopt(self.fd, socket.SOL_SOCKET, _SO_ATTACH_FILTER, program, len(program))

    def uncut(self) -> None:
        """Stop limiting segments."""
        _system.setsockopt(self.fd, socket.SOL_SOCKET, _SO_DETACH_FILTER, bytes(4), 4)

    def share(self) -> None:
        """Allow other sockets of this user to listen on the same address."""
        _system.setsockopt(self.fd, socket.SOL_SOCKET, socket.SO_REUSEPORT, struct.pack("i", 1), 4)

    def end(self) -> None:
        """Close the connection, for both its owner and the peer."""
        _system.shutdown(self.fd, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the descriptor."""
        _system.close(self.fd)


def _option(fd: int, level: int, name: int, size: int) -> bytes | None:
    value, length = ctypes.create_string_buffer(size), ctypes.c_uint32(size)
    failed = _system.getsockopt(fd, level, name, value, ctypes.byref(length))
    return None if failed or length.value != size else value.raw


def _place(call: Any, fd: int) -> Place | None:
    value, length = ctypes.create_string_buffer(28), ctypes.c_uint32(28)
    if call(fd, value, ctypes.byref(length)):
        return None
    family, port = int.from_bytes(value.raw[:2], sys.byteorder), int.from_bytes(value.raw[2:4])
    if (where := _ADDRESSES.get(family)) is None:
        return None
    return socket.inet_ntop(family, value.raw[where]).removeprefix("::ffff:"), port
