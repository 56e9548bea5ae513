"""The record of everything that was changed and synced below one directory: made by `recorder/recorder.c`, read here.

A record is a header and the path, a second path, and the bytes that were written. Marks of the driver, which say what
was asked for and what was acknowledged, stand among them in the same order.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.install import unavailable
from tests.interop.runtimes import Recorder, Unavailable

_HEADER = struct.Struct("@I4HQQQ")
SYNC_US_MAX = 1000
"""What a sync takes, at most: others get on meanwhile, as beside a disk. On memory it would take no time."""


class Operation(IntEnum):
    """What was done; in the order of the recorder's own list."""

    CREATE = 1
    MKDIR = 2
    REMOVE = 3
    RENAME = 4
    LINK = 5
    WRITE = 6
    TRUNCATE = 7
    ALLOCATE = 8
    ZERO = 9
    SYNC = 10
    DATASYNC = 11
    MARK = 12
    MAP = 13
    """A file was mapped so that it can be written in memory, which nobody sees."""
    UNKNOWN = 14
    """Something that the model of a disk does not know."""
    WRITESYNC = 15
    """A write was durable when its call returned, and nothing else of its file is by that."""


SYNCS = frozenset({Operation.SYNC, Operation.DATASYNC, Operation.WRITESYNC})


class Record(NamedTuple):
    """One of them. Its number is its place among all."""

    number: int
    operation: Operation
    file: int
    """The inode number, which a later file may have again."""
    at: int
    """An offset; of a sync, the number of the first record that it need not have heard of."""
    size: int
    path: str
    other: str
    """Where something was renamed or linked to."""
    data: bytes

    def __str__(self) -> str:
        details = {"to": self.other, "at": self.at, "size": self.size, "bytes": len(self.data)}
        shown = " ".join(f"{name}={value}" for name, value in details.items() if value)
        what = self.data.decode() if self.operation is Operation.MARK else f"{self.path} {shown}"
        return f"{self.number:7} {self.operation.name:9} {what}"


def read_records(file: Path) -> list[Record]:
    """All records of a file, in order. Sockets are left out: nothing is kept of them, and their making is not seen."""
    content, records, start = file.read_bytes(), [], 0
    while start < len(content):
        length, operation, path_length, other_length, _, inode, at, size = _HEADER.unpack_from(content, start)
        paths = start + _HEADER.size
        other = paths + path_length
        data = other + other_length
        path = content[paths:other].decode()
        if not path.endswith(".sock"):
            to, written = content[other:data].decode(), content[data : start + length]
            records.append(Record(len(records), Operation(operation), inode, at, size, path, to, written))
        start += length
    return records


def environment(root: Path, file: Path) -> dict[str, str]:
    """Variables for a process that is to be watched, and for its children; the recorder is compiled.

    OpenBLAS gets no threads of its own: one of them would take a signal while the recorder holds it back from another.
    """
    return {
        "LD_PRELOAD": str(Recorder().library),
        "RECORDER_ROOT": str(root),
        "RECORDER_FILE": str(file),
        "OPENBLAS_NUM_THREADS": "1",
    }


class Recording:
    """A record in the making. Processes that get its `environment` are watched; this one may put marks among it."""

    def __init__(self, root: Path, file: Path) -> None:
        """Skips the test, in CI fails it, if the recorder cannot be compiled."""
        self.root, self.file = root.resolve(), file
        built = Recorder()
        try:
            built.install()
        except Unavailable as error:
            unavailable(str(error))
        self._library = ctypes.CDLL(str(built.library))
        self._library.recorder_mark.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self._library.recorder_open(str(self.root).encode(), str(file).encode())

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process that is to be watched, and for its children."""
        return environment(self.root, self.file) | {"RECORDER_SYNC_US": str(SYNC_US_MAX)}

    def mark(self, **what: Any) -> None:
        """Put a mark into the record; whatever was done before this call stands before it."""
        text = json.dumps(what).encode()
        self._library.recorder_mark(text, len(text))

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """While held, nobody is between a change and its record: a process may be killed."""
        self._library.recorder_lock()
        try:
            yield
        finally:
            self._library.recorder_unlock()
