"""Files that are replaced as a whole, with a checksum over every byte: small JSON files, and binary files with a lead.

The last field of a JSON file is `"crc32c"`: the CRC32C, in eight hexadecimal digits, of the file with these digits as
zeros. So a bit flip is found anywhere: in a value, a field name, white space or the checksum.

A binary file begins with a lead of LEAD_BYTES: eight bytes that name its kind, the CRC32C of everything after the lead,
and four zero bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection
from mmap import mmap
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import google_crc32c
import msgspec
import numpy as np

from ...core.errors import StorageCorrupted
from ...formats.decoders import json_decoder
from ...formats.newer import WrittenByNewer
from .system import write_whole

CRC_FIELD = "crc32c"
_LEAD = struct.Struct("<8sII")
LEAD_BYTES = _LEAD.size
_NAME, _ZEROS = b'"crc32c"', b"00000000"
_LAST_FIELD = re.compile(rb'"crc32c": ?"([0-9a-f]{8})"\s*\}\s*')


class _Formatted(Protocol):
    @property
    def format(self) -> int: ...


T = TypeVar("T", bound=_Formatted)
S = TypeVar("S", bound=msgspec.Struct)


class _Lead(msgspec.Struct):
    """The number of bytes of a file that are read first."""

    format: int = 1


class CheckedFile(Generic[T]):
    """One kind of small file: its name, its type, and the handling of damaged or older files."""

    def __init__(
        self,
        name: str,
        type: type[T],
        *,
        newest: int,
        checked_from: int,
        remedy: str,
        earlier: Callable[[bytes], T] | None = None,
        indent: int | None = None,
    ) -> None:
        """Formats from `checked_from` to `newest` have a checksum.

        `earlier` decodes older ones, or raises ValueError; it is None if there are none. `remedy` says what to do about
        damage. `type` raises ValueError for impossible values.
        """
        self.name, self.newest, self._type, self._checked_from = name, newest, type, checked_from
        self._earlier, self._remedy, self._indent = earlier, remedy, indent

    def write(self, directory: Path, content: T) -> None:
        """Durably replace the file; `content` has the newest format. Raises OSError."""
        assert content.format == self.newest, content.format
        encoded = msgspec.json.encode(content)
        write_whole(directory / self.name, with_checksum(encoded, self._indent))

    def read(self, directory: Path) -> T:
        """The content. Raises FileNotFoundError, StorageCorrupted (with the remedy), WrittenByNewer."""
        path = directory / self.name
        return self.decoded(path.read_bytes(), path)

    def decoded(self, content: bytes, path: Path) -> T:
        """Decode the bytes of a file, read from that path. Raises the same errors as `read`."""
        fits = checksum_fits(content)
        if fits is False:
            raise self.damaged(path, "the checksum does not match")
        try:
            format = json_decoder(_Lead).decode(content).format
            if format > self.newest:
                raise WrittenByNewer(path, f"format {format}; this version supports up to {self.newest}")
            if fits:
                return json_decoder(self._type).decode(content)
            if self._earlier is None or format >= self._checked_from:
                raise self.damaged(path, "the checksum is missing")
            return self._earlier(content)
        except (ValueError, RecursionError) as error:
            raise self.damaged(path, f"unreadable: {error}") from None

    def damaged(self, path: Path, problem: str) -> StorageCorrupted:
        """The error for that problem, with the remedy."""
        return StorageCorrupted(str(path), problem, self._remedy)


def with_checksum(encoded: bytes, indent: int | None = None) -> bytes:
    """An encoded JSON object with its checksum as the last field, as in a file."""
    content = encoded[:-1] + b"," + _NAME + b':"' + _ZEROS + b'"}'
    if indent is not None:
        content = msgspec.json.format(content, indent=indent)
    content += b"\n"
    at = content.rindex(_ZEROS)
    return content[:at] + b"%08x" % google_crc32c.value(content) + content[at + len(_ZEROS) :]


def checksum_fits(content: bytes) -> bool | None:
    """Whether the checksum of a file matches its content; None if it has none at the end."""
    at = content.rfind(_NAME)
    found = _LAST_FIELD.fullmatch(content, at) if at >= 0 else None
    if found is None:
        return None
    zeroed = content[: found.start(1)] + _ZEROS + content[found.end(1) :]
    return bool(google_crc32c.value(zeroed) == int(found[1], 16))


def earlier_struct(content: bytes, type: type[S]) -> S:
    """Decode a struct from a file of an earlier version, without a checksum. Raises ValueError."""
    check_names(msgspec.json.decode(content, type=dict[str, object]), type.__struct_fields__)
    return json_decoder(type).decode(content)


def check_names(found: dict[str, object], expected: Collection[str]) -> None:
    """Raises ValueError if these are not the fields of a file without a checksum.

    It must have exactly these fields: otherwise a field with a damaged name would silently get its default.
    """
    for name in sorted(found.keys() ^ set(expected)):
        raise ValueError(f"field {name!r} is {'missing' if name in expected else 'unknown'}")


def lead_of(magic: bytes, *rest: bytes) -> bytes:
    """The lead of a binary file of that kind; `rest` are its other bytes, in parts."""
    crc = 0
    for part in rest:
        crc = google_crc32c.extend(crc, part)
    return _LEAD.pack(magic, crc, 0)


def check_lead(content: bytes | mmap | memoryview, magic: bytes, header_bytes: int, path: Path) -> None:
    """Raises ValueError if the file is shorter than its lead and a header, or of another kind."""
    if len(content) < LEAD_BYTES + header_bytes:
        raise ValueError(f"{path}: too short")
    if (found := _LEAD.unpack_from(content)[0]) != magic:
        raise ValueError(
            f"{path}: expected {magic!r} at the start, got {found!r}: written by another release, or damaged"
        )


def crc_in_lead(content: bytes | mmap | memoryview) -> int:
    """The checksum of the rest, from the lead."""
    return int(_LEAD.unpack_from(content)[1])


def check_rest(content: bytes | mmap, path: Path) -> None:
    """Raises ValueError if the checksum in the lead does not match the rest, which is read in place."""
    if google_crc32c.value(np.frombuffer(content, np.uint8)[LEAD_BYTES:]) != crc_in_lead(content):
        raise ValueError(f"{path}: the checksum does not match")
