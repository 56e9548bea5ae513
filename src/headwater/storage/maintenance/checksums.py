"""Verifies the checksums of files other than segments, piece by piece, against the disk.

Every function reads the image, one piece per step, and raises ValueError if the file has changed since it was written,
or Unproved if that is unknown. Files of 0.1.0 without a checksum do not count as damaged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

from ...core.errors import EventLogError, StorageCorrupted
from ...formats.newer import WrittenByNewer
from ..append.writer_table import WRITERS_FILE
from ..disk.checked_file import LEAD_BYTES, CheckedFile, check_lead, checksum_fits, crc_in_lead
from ..disk.disk_image import DiskImage, drop_cached
from ..frames.crc import extended_crc
from ..index import id_files, postings
from ..segments import places
from ..segments.meta import META_FILE
from ..staging.batches import MANIFEST_FILE
from ..staging.part import PART_MAGIC, PART_SUFFIX
from ..staging.segments import TABLE_SUFFIX, read_table
from ..state import rows
from ..state.files import files_of
from ..state.last_confirmed import slots_in


class Unproved(Exception):
    """The file cannot be judged: a newer headwater wrote it, or it is being replaced or locked."""


_MAGICS = {".postings": postings.MAGIC, ".ids": id_files.MAGIC, ".places": places.MAGIC}
_SMALL: Mapping[str, CheckedFile[Any]] = {each.name: each for each in (META_FILE, WRITERS_FILE, MANIFEST_FILE)}
_UNREAD_BYTES = 4096
_PLAIN_END = b"ARROW1"
"""The last bytes of an Arrow file, after which 0.1.0 wrote nothing."""


def _json(image: DiskImage) -> Iterator[None]:
    yield from image.fill(image.size)
    try:
        if (kind := _SMALL.get(image.path.name)) is not None:
            kind.decoded(bytes(image.content), image.path)
    except StorageCorrupted as error:
        raise ValueError(error.problem) from None
    except WrittenByNewer as error:
        raise Unproved from error


def _lead(image: DiskImage) -> Iterator[None]:
    yield from image.fill(LEAD_BYTES)
    check_lead(image.content, _MAGICS[image.path.suffix], 0, image.path)
    expected = crc_in_lead(image.content)
    if (yield from _crc(image, LEAD_BYTES, image.size)) != expected:
        raise ValueError("the checksum does not match")


def _part(image: DiskImage) -> Iterator[None]:
    end = image.size - 4
    crc = yield from _crc(image, 0, end)
    yield from image.fill(image.size)
    if image.content[-len(_PLAIN_END) :] == _PLAIN_END:
        return
    is_closed = image.content[end - len(PART_MAGIC) : end] == PART_MAGIC
    if not is_closed or crc != int.from_bytes(image.content[end:], "little"):
        raise ValueError("the checksum does not match")


def _table(image: DiskImage) -> Iterator[None]:
    """A table of staged frames, and its segment files."""
    yield from image.fill(image.size)
    if not checksum_fits(bytes(image.content)):
        raise ValueError("the checksum does not match")
    try:
        table = read_table(image.path.parent, image.path.stem)
    except (EventLogError, FileNotFoundError) as error:
        raise Unproved from error  # staged again, or committed, meanwhile
    for segment in table.segments:
        try:
            staged = DiskImage(image.path.with_name(segment.name))
        except FileNotFoundError as error:
            raise Unproved from error
        with closing(staged):
            for frame in segment.frames:
                start, end = frame.offset + table.room, frame.offset + frame.length
                yield from staged.fill(start)
                if (yield from _crc(staged, start, end, 0)) != frame.crc:
                    raise ValueError(f"{segment.name}: the checksum of the frame at {frame.offset} does not match")
        image.bytes_read += staged.bytes_read


def _state(image: DiskImage) -> Iterator[None]:
    """The state, read by SQLite, which maps nothing, so that cached pages can be dropped first."""
    for path in files_of(image.path)[:2]:
        if path.exists():
            drop_cached(path)
            image.bytes_read += path.stat().st_size
    yield
    try:
        with closing(rows.read_only(image.path)) as connection:
            is_guarded = rows.schema_version(connection) >= rows.GUARDED_VERSION
            problems = rows.examine(connection).problems if is_guarded else []
    except sqlite3.OperationalError as error:
        raise Unproved from error  # locked, or cannot be opened: the server reports that
    except sqlite3.DatabaseError as error:
        raise ValueError(str(error)) from None
    if problems:
        raise ValueError("; ".join(problems))


def _witness(image: DiskImage) -> Iterator[None]:
    yield from image.fill(image.size)
    if not any(slots_in(bytes(image.content))):
        raise ValueError("neither of its two slots is readable")


def _crc(image: DiskImage, start: int, end: int, crc: int = 0) -> Generator[None, None, int]:
    """The checksum of these bytes; earlier bytes are dropped."""
    while start < end:
        yield from image.fill(start + 1)
        stop = min(image.filled, end)
        crc = extended_crc(crc, image.content[start:stop])
        start = stop
        image.drop(start - _UNREAD_BYTES)
    return crc


CHECKS: dict[str, Callable[[DiskImage], Iterator[None]]] = {
    ".json": _json,
    ".postings": _lead,
    ".ids": _lead,
    ".places": _lead,
    PART_SUFFIX: _part,
    TABLE_SUFFIX: _table,
    ".sqlite": _state,
    ".witness": _witness,
}
"""The verifier of each kind of file, by suffix."""
