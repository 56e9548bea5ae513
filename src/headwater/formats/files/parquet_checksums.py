"""Checksums of a whole Parquet file: of each column chunk, of the footer, and of the file.

Names of files that Headwater writes end in `.crc-FOOTER-FILE.parquet`, two CRC32C in hexadecimal. Those of the chunks
are in a block before the footer, where Parquet's readers do not look: they also cover the headers of pages, which
Parquet's own checksums do not. FOOTER covers block and footer: the Parquet library sees neither before they are
verified. See docs/data-file-format.md.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from google_crc32c import extend, value

_NAME = re.compile(r".+\.crc-([0-9a-f]{8})-([0-9a-f]{8})\.parquet")
_BLOCK_END = struct.Struct("<I8s")
"""The number of checksums before it, and the block's magic."""
_MAGIC = b"HWPQCRC1"
_FOOTER_END = struct.Struct("<I4s")
"""The number of bytes of metadata before it, and Parquet's magic."""
_PARQUET = b"PAR1"
_TAIL_BYTES, _BLOCK_BYTES = 64 * 1024, 4 * 1024 * 1024


class ChecksumMismatch(OSError):
    """A part of a Parquet file has changed since it was written."""

    def __init__(self, part: str) -> None:
        self.part = part
        super().__init__(f"{part} does not match its checksum")


class Checksums(NamedTuple):
    """The checksums in the name of a file."""

    footer: int
    file: int


def checksums_in(name: str) -> Checksums | None:
    """The checksums at the end of a file's name; None if there are none: older files, and those of other programs."""
    found = _NAME.fullmatch(os.path.basename(name))
    return None if found is None else Checksums(int(found[1], 16), int(found[2], 16))


def add_checksums(path: Path, written: int | None = None, metadata: pq.FileMetaData | None = None) -> Path:
    """Add checksums to a new file that no reader has open, and rename it; returns its new path.

    `written` is the CRC32C of all bytes written to it, `metadata` what its writer put into its footer. Raises
    ChecksumMismatch if the bytes read back have another one.
    """
    with open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        read_at = partial(os.pread, file.fileno()) if size > _BLOCK_BYTES else _slices(os.pread(file.fileno(), size, 0))
        tail = _tail(read_at, size)
        end = size - len(tail)
        crc, chunks = 0, []
        for begin, length, is_chunk in _parts(metadata or _metadata_of(tail), end):
            found = 0
            for at in range(begin, begin + length, _BLOCK_BYTES):
                block = read_at(min(_BLOCK_BYTES, begin + length - at), at)
                crc = extend(crc, block)
                found = extend(found, block) if is_chunk else 0
            if is_chunk:
                chunks.append(found)
        if written is not None and extend(crc, tail) != written:
            raise ChecksumMismatch("the file as read back")
        tail = struct.pack(f"<{len(chunks)}I", *chunks) + _BLOCK_END.pack(len(chunks), _MAGIC) + tail
        file.seek(end)
        file.write(tail)
    name = f"{path.name.removesuffix('.parquet')}.crc-{value(tail):08x}-{extend(crc, tail):08x}.parquet"
    return path.rename(path.with_name(name))


def check_whole(path: Path) -> None:
    """Read a whole file. Raises ChecksumMismatch if its name has another checksum; older names have none."""
    if (expected := checksums_in(path.name)) is None:
        return
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            crc = extend(crc, block)
    if crc != expected.file:
        raise ChecksumMismatch("the file")


def verified_whole(content: pa.NativeFile, expected: int) -> pa.Buffer:
    """All bytes of a small file. Raises ChecksumMismatch if its name has another checksum."""
    whole = content.read_buffer()
    if value(whole) != expected:
        raise ChecksumMismatch("the file")
    return whole


class VerifiedFile:
    """A file for the Parquet library to read, which gets only verified bytes of column chunks.

    Until `know` is called, it gets only the verified footer, and zeros for everything before it.
    """

    def __init__(self, content: pa.NativeFile, footer: int) -> None:
        """Raises ChecksumMismatch if the file's name has another checksum of block and footer."""
        self.closed = False
        self._content, self._at, self._size = content, 0, content.size()
        self._footer, self._chunks = _verified_tail(content, self._size, footer)
        self._begins: list[int] = []
        self._ranges: list[tuple[int, int, int]] | None = None

    def know(self, metadata: pq.FileMetaData) -> None:
        """Pass what the library has found in the footer. Raises ChecksumMismatch if the block has other chunks."""
        ranges = [(begin, begin + length) for begin, length in _chunks(metadata)]
        if len(ranges) != len(self._chunks):
            raise ChecksumMismatch("the footer")
        self._ranges = [(begin, end, crc) for (begin, end), crc in zip(ranges, self._chunks, strict=True)]
        self._begins = [begin for begin, _ in ranges]

    def read(self, count: int = -1) -> bytes:
        """The next bytes. Raises ChecksumMismatch if a column chunk among them has changed."""
        begin = self._at
        self._at = end = self._size if count < 0 else min(begin + count, self._size)
        if self._ranges is None:
            footer = self._size - len(self._footer)
            return bytes(max(0, min(end, footer) - begin)) + self._footer[max(0, begin - footer) : max(0, end - footer)]
        content: bytes = self._content.read_at(end - begin, begin)
        for chunk_begin, chunk_end, crc in self._ranges[max(0, bisect_right(self._begins, begin) - 1) :]:
            if chunk_begin >= end:
                break
            if chunk_end <= begin:
                continue
            if chunk_begin >= begin and chunk_end <= end:  # the library reads whole chunks, one or several
                chunk = content[chunk_begin - begin : chunk_end - begin]
            else:
                chunk = self._content.read_at(chunk_end - chunk_begin, chunk_begin)
            if value(chunk) != crc:
                raise ChecksumMismatch("a column")
        return content

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def writable(self) -> bool:
        """See `io.RawIOBase`."""
        return False

    def close(self) -> None:
        """Close the underlying file."""
        self.closed = True
        self._content.close()


def _slices(content: bytes) -> Callable[[int, int], bytes]:
    """`os.pread` for a file that has been read into memory."""
    return lambda count, offset: content[offset : offset + count]


def _tail(read_at: Callable[[int, int], bytes], size: int) -> bytes:
    """The footer: metadata, their length, magic. Raises pa.ArrowInvalid if there is none."""
    end = read_at(_FOOTER_END.size, max(0, size - _FOOTER_END.size))
    length, magic = _FOOTER_END.unpack(end) if len(end) == _FOOTER_END.size else (0, b"")
    begin = size - _FOOTER_END.size - length
    if magic != _PARQUET or begin < len(_PARQUET):
        raise pa.ArrowInvalid("there is no Parquet footer")
    return read_at(size - begin, begin)


def _verified_tail(content: pa.NativeFile, size: int, expected: int) -> tuple[bytes, tuple[int, ...]]:
    """The footer, and the checksums of all column chunks; usually in one read."""
    end = content.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    if len(end) < _FOOTER_END.size:
        raise ChecksumMismatch("the footer")
    footer_bytes = _FOOTER_END.size + _FOOTER_END.unpack_from(end, len(end) - _FOOTER_END.size)[0]
    end = _longer(content, size, end, footer_bytes + _BLOCK_END.size)
    count, _ = _BLOCK_END.unpack_from(end, len(end) - footer_bytes - _BLOCK_END.size)
    bytes_in_all = footer_bytes + _BLOCK_END.size + 4 * count
    end = _longer(content, size, end, bytes_in_all)[-bytes_in_all:]
    if value(end) != expected:
        raise ChecksumMismatch("the footer")
    return end[-footer_bytes:], struct.unpack_from(f"<{count}I", end)


def _longer(content: pa.NativeFile, size: int, end: bytes, wanted: int) -> bytes:
    """The last `wanted` bytes of the file. Raises ChecksumMismatch if it is shorter."""
    if wanted > size:
        raise ChecksumMismatch("the footer")
    return end if wanted <= len(end) else content.read_at(wanted, size - wanted)


def _metadata_of(tail: bytes) -> pq.FileMetaData:
    """The metadata in a footer."""
    metadata: Any = pq.read_metadata(pa.BufferReader(_PARQUET + tail))
    return metadata


def _chunks(metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    """The start and length of each column chunk, in the order of the file."""
    found = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            found.append((column.dictionary_page_offset or column.data_page_offset, column.total_compressed_size))
    return sorted(found)


def _parts(metadata: pq.FileMetaData, end: int) -> Iterator[tuple[int, int, bool]]:
    """Column chunks and the gaps between them: start, length, and whether it is a chunk."""
    at = 0
    for begin, length in _chunks(metadata):
        if begin > at:
            yield at, begin - at, False
        yield begin, length, True
        at = begin + length
    if end > at:
        yield at, end - at, False
