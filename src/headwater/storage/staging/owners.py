"""Ownership of exactly-once writer names: the first user owns the name. No other user may end or undo its batches.

    LOG/writers/WRITER    {"writer": ..., "user": ...} with a checksum (`checked_file`)

WRITER is the hash under which the writer's batches are staged (`batches`). A name may have no owner, because no users
were configured or an older version wrote the log. It is assigned to the next user who stages or commits under it.
`server.bulk` decides when to check owners; any process may claim a name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ...core.errors import StorageCorrupted
from ...formats.decoders import json_decoder
from ..append.writer_table import WRITERS_MAX
from ..disk.checked_file import checksum_fits, with_checksum
from ..disk.system import refusing, write_whole
from .batches import exclusively, writer_directory

OWNERS = "writers"


class _Owner(msgspec.Struct):
    writer: str
    user: str


def owner_of(log_directory: Path, writer: str) -> str | None:
    """The owner of the name; None if it has none. Raises StorageCorrupted."""
    found = _read(_path(log_directory, writer))
    return None if found is None else found.user


def claim(log_directory: Path, writer: str, user: str) -> str | None:
    """Durably claim a name without an owner for that user; returns the owner. An empty user name claims nothing.

    Raises StorageCorrupted, DiskFull, StorageUnavailable (for example, the log was deleted).
    """
    path = _path(log_directory, writer)
    if (found := _read(path)) is not None or not user:
        return None if found is None else found.user
    with refusing(log_directory, "cannot store the writer's name"), exclusively(log_directory):
        if (found := _read(path)) is not None:  # another process was faster
            return found.user
        path.parent.mkdir(exist_ok=True)
        write_whole(path, with_checksum(msgspec.json.encode(_Owner(writer, user))))
    return user


def release(log_directory: Path, writer: str) -> None:
    """Free the name after nothing is staged under it any more."""
    with exclusively(log_directory):
        if not writer_directory(log_directory, writer).exists():
            _path(log_directory, writer).unlink(missing_ok=True)


def release_unknown(log_directory: Path, is_known: Callable[[str], bool]) -> None:
    """If there are more names than the number of writers that a log may have, free the names of unknown writers."""
    directory = log_directory / OWNERS
    if not directory.exists() or len(names := os.listdir(directory)) <= WRITERS_MAX:
        return
    for name in names:
        try:
            owner = _read(directory / name)
        except StorageCorrupted:  # reported when the name is used
            continue
        if owner is not None and not is_known(owner.writer):
            release(log_directory, owner.writer)


def damaged_owners(log_directory: Path) -> Iterator[str]:
    """The problem of each name whose owner cannot be read. Raises OSError."""
    for path in sorted((log_directory / OWNERS).glob("*")):
        if path.suffix == ".tmp":
            continue  # a power cut came before it was written and acknowledged
        try:
            _read(path)
        except StorageCorrupted as error:
            yield str(error)


def _path(log_directory: Path, writer: str) -> Path:
    return log_directory / OWNERS / writer_directory(log_directory, writer).name


def _read(path: Path) -> _Owner | None:
    try:
        content = path.read_bytes()
        if not checksum_fits(content):
            raise ValueError("the checksum does not match")
        return json_decoder(_Owner).decode(content)
    except FileNotFoundError:
        return None
    except ValueError as error:
        remedy = "remove the file: the name then belongs to the next user who writes with it"
        raise StorageCorrupted(str(path), f"unreadable: {error}", remedy) from None
