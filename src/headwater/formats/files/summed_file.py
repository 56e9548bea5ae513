"""A new file that computes the CRC32C of all bytes written. Arrow and Parquet write to it like any file."""

from __future__ import annotations

from pathlib import Path

import google_crc32c

from ..arrow.lazy import pa


class SummedFile:
    """A file being written from its first byte to its last. Methods raise OSError."""

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        """Create it. Raises FileExistsError if it exists, unless it `replaces` that."""
        self._file = path.open("wb" if replaces else "xb")
        self.crc = 0
        """The checksum of all bytes so far."""

    def write(self, content: pa.Buffer | bytes) -> int:
        """Add bytes; returns how many."""
        self.crc = google_crc32c.extend(self.crc, content)
        return self._file.write(content)

    def flush(self) -> None:
        """Hand buffered bytes to the system."""
        self._file.flush()

    def tell(self) -> int:
        """How many bytes have been written."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._file.closed

    def readable(self) -> bool:
        """False: it is write-only."""
        return False

    def writable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """False: the checksum is computed sequentially."""
        return False
