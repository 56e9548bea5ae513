"""Segments lent to another process on this machine: file descriptors, and the offsets of frames.

The borrower maps only the durable part of each file, and verifies every frame before it returns any of it. Only frames
can be read this way: no index, no postings. The permission to borrow is decided elsewhere.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from ...core.errors import StorageCorrupted, StorageUnavailable
from ..disk.system import refusal_of
from ..frames.columns import Content, Ints
from ..frames.frame import BadFrame
from ..segments.segment import Ranges
from .mapped_segment import Followed
from .scan import Limits, Sized, all_batches, put_together

SEGMENTS_MAX = 32
"""The maximum number of segments to lend at once; more may be borrowed after them."""
FRAMES_MAX = 1_000_000
"""The maximum number of frames of a segment to lend. Each takes 16 bytes; the server reads small frames equally
fast."""
CAN_LEND = sys.platform == "linux"
"""Whether the system has memory files and abstract socket names."""
_INTS = np.dtype("<i8")


class LentSegment(msgspec.Struct, frozen=True):
    """The description of one segment."""

    path: str
    """For messages about damage; the borrower may not see this path."""
    first: int
    last: int
    """The number of the last readable event."""
    end: int
    """The end of the last readable frame."""
    frames: int
    crc_seed: int


class Loan(msgspec.Struct, frozen=True):
    """The events in (after, upto] of one log, or the first of them, in whole segments."""

    after: int
    upto: int
    segments: tuple[LentSegment, ...]


class Lent(NamedTuple):
    """A loan and its descriptors: one per segment, and one of a file with the offsets of frames."""

    loan: Loan
    descriptors: tuple[int, ...]

    def close(self) -> None:
        """Close this process's descriptors. The borrower keeps its own."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def lent(parts: Sequence[Followed], after: int, upto: int) -> Lent | None:
    """Lend events of (after, upto], which begins in the first of these parts; None if they cannot be lent.

    The caller closes it. Raises StorageUnavailable if a file is gone.
    """
    taken = parts[:SEGMENTS_MAX]
    if len(taken) < len(parts):
        upto = taken[-1].last
    cut = [_between(part, after + 1, upto) for part in taken]
    if not CAN_LEND or any(len(part.firsts) > FRAMES_MAX or part.has_distrusted() for part in cut):
        return None
    opened: list[int] = []
    try:
        for part in cut:
            opened.append(os.open(part.segment.path, os.O_RDONLY | os.O_CLOEXEC))
        opened.append(_places_file(cut))
    except OSError as error:
        for descriptor in opened:
            os.close(descriptor)
        raise refusal_of(error, Path(error.filename or "memory"), "the log's segments cannot be shared") from error
    told = [
        LentSegment(
            str(part.segment.path),
            part.segment.first,
            part.last,
            part.end,
            len(part.firsts),
            part.segment.crc_seed,
        )
        for part in cut
    ]
    return Lent(Loan(after, upto, tuple(told)), tuple(opened))


def borrowed(loan: Loan, descriptors: Sequence[int]) -> list[Followed]:
    """Map the parts of a loan. The descriptors are always closed.

    Raises StorageUnavailable if they do not match the loan or cannot be mapped.
    """
    try:
        if len(descriptors) != len(loan.segments) + 1:
            expected = len(loan.segments) + 1
            raise StorageUnavailable(f"expected {expected} descriptors of shared segments, got {len(descriptors)}")
        frames = sum(segment.frames for segment in loan.segments)
        places = np.frombuffer(_read_all(descriptors[-1], 2 * frames * _INTS.itemsize), _INTS)
        parts, at = [], 0
        for segment, descriptor in zip(loan.segments, descriptors, strict=False):
            middle, end = at + segment.frames, at + 2 * segment.frames
            mapped = BorrowedSegment(segment, descriptor)
            parts.append(Followed(mapped, places[at:middle], places[middle:end], segment.last, segment.end))
            at = end
        return parts
    except (OSError, ValueError) as error:
        raise StorageUnavailable(f"cannot map the shared segments: {error}") from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def batches(
    parts: Sequence[Followed], after: int, upto: int, columns: Sequence[str], *, events: int, bytes: int
) -> Iterator[pa.RecordBatch]:
    """The events in (after, upto], as from `MappedLog.scan`. Raises StorageCorrupted during the iteration."""
    limits = Limits(after + 1, upto, events, lambda: bytes)

    def sized() -> Iterator[Sized]:
        for part in parts:
            yield from all_batches(part, columns, limits)

    return put_together(sized(), limits)


class BorrowedSegment:
    """A segment whose frame offsets come from another process. See `mapped_segment.Mapped`."""

    def __init__(self, told: LentSegment, descriptor: int) -> None:
        """Raises OSError, ValueError."""
        self.path, self.first, self.crc_seed = Path(told.path), told.first, told.crc_seed
        self.content = Content(mmap.mmap(descriptor, told.end, prot=mmap.PROT_READ))
        self.verified = np.zeros(told.frames, np.bool_)
        self.distrusted: Ranges = ()

    def damaged(self, first: int, last: int, reason: BadFrame) -> StorageCorrupted:
        """See `mapped_segment.Mapped`."""
        problem = f"events {first} to {last} are damaged ({reason})"
        return StorageCorrupted(str(self.path), problem, "stop the server, then run headwater check")


def _between(part: Followed, low: int, high: int) -> Followed:
    """The part's frames with events from `low` to `high`."""
    start, stop = part.between(low, high)
    last, end = part.last, part.end
    if stop < len(part.firsts):
        last, end = int(part.firsts[stop]) - 1, int(part.offsets[stop])
    return Followed(part.segment, part.firsts[start:stop], part.offsets[start:stop], last, end)


def _places_file(parts: Sequence[Followed]) -> int:
    """A descriptor of a memory file: for each part, the first numbers of its frames, then their offsets."""
    descriptor = os.memfd_create("headwater-places", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            for part in parts:
                file.write(_bytes(part.firsts))
                file.write(_bytes(part.offsets))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _bytes(numbers: Ints) -> bytes:
    return numbers.astype(_INTS, copy=False).tobytes()


def _read_all(descriptor: int, size: int) -> bytes:
    """The whole file. Raises ValueError if its size differs."""
    if (there := os.fstat(descriptor).st_size) != size:
        raise ValueError(f"expected {size} bytes of positions, got {there}")
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)  # the writer left the offset at the end
        return file.read()
