"""Borrows file descriptors from a server on this machine, over a Unix socket, with a code that it sent over Flight."""

from __future__ import annotations

import os
import re
import socket

from ...core.limits import show
from ..wire import Lender

WITHIN_S = 5.0
"""How long to wait for a lender. After that, events are read in another way."""
MESSAGE_BYTES_MAX = 64 * 1024
DESCRIPTORS_MAX = 64
_NAME = re.compile(r"headwater-[0-9a-f]{32}")
_CODE = re.compile(r"[0-9a-f]{64}")


def take(lender: Lender) -> tuple[bytes, list[int]]:
    """The description of the descriptors, and the descriptors, which the caller must close. Both empty: nothing is
    lent.

    Raises OSError: there is no such socket (the server is on another machine, or in another network namespace); it does
    not answer; or the server names a socket or a code that is not a lender's: other programs on this machine have
    sockets too, and nothing is sent to them on its behalf.
    """
    if not (_NAME.fullmatch(lender.socket) and _CODE.fullmatch(lender.code)):
        raise OSError(f"the server names {show(lender.socket)}, which is not a lender's socket, or an invalid code")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(WITHIN_S)
        sock.connect(b"\0" + lender.socket.encode())
        sock.sendall(lender.code.encode())
        message, descriptors, flags, _ = socket.recv_fds(
            sock, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX, socket.MSG_CMSG_CLOEXEC
        )
    if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
        for descriptor in descriptors:
            os.close(descriptor)
        raise OSError("the shared segments arrived incomplete; too many files are open")
    return message, list(descriptors)
