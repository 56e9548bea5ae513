"""A socket in the file system to listen on, for neighbours on this machine: no TCP, no port, and its owner alone.

The file outlives a server that was killed. So whoever finds one asks whether somebody listens: a file that nobody
listens on is replaced, any other stays, and the server says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path
from urllib.parse import quote

from .listening import BACKLOG, CannotListen

OWNER_ONLY = 0o177
"""What is taken away of the rights to the file: mode 0600."""
SCHEME = "http+unix"


class UnixSocket:
    """A bound socket and its file, until `close`."""

    def __init__(self, path: Path, flag: str) -> None:
        """Binds it; nobody is accepted before its server starts. `flag` is what sets that path. Raises CannotListen."""
        self.path = Path(os.path.abspath(path))
        _make_way(self.path, flag)
        self.bound = _bound(self.path, flag)
        self._file: Path | None = self.path

    @property
    def url(self) -> str:
        """Where it is: `http+unix:///run/headwater.sock`."""
        return f"{SCHEME}://{quote(str(self.path))}"

    def remove_file(self) -> None:
        """Nobody finds it any more; who is connected stays. To be done while it listens: then the file is its own."""
        path, self._file = self._file, None
        if path is not None:
            with contextlib.suppress(FileNotFoundError):  # somebody cleaned up
                path.unlink()

    def close(self) -> None:
        """Give it back. May be called again."""
        self.remove_file()
        self.bound.close()


def _make_way(path: Path, flag: str) -> None:
    """Take away what a server left that is not there any more."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _cannot(path, error.strerror or str(error), flag) from None
    if not stat.S_ISSOCK(found.st_mode):
        raise _cannot(path, "it is there, and is no socket", flag)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)  # a living server whose queue is full makes nobody wait
        answer = asking.connect_ex(str(path))
    if answer == errno.ECONNREFUSED:
        path.unlink(missing_ok=True)
    elif answer != errno.ENOENT:
        problem = os.strerror(answer) if answer not in (0, errno.EAGAIN) else "another server listens on it"
        raise _cannot(path, problem, flag)


def _bound(path: Path, flag: str) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    rights = os.umask(OWNER_ONLY)  # from its first moment on
    try:
        bound.bind(str(path))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:  # the length of the path is told without a number
        bound.close()
        raise _cannot(path, error.strerror or str(error), flag) from None
    finally:
        os.umask(rights)
    return bound


def _cannot(path: Path, problem: str, flag: str) -> CannotListen:
    return CannotListen(f"cannot listen on {path}: {problem}; choose another path with {flag}")
