"""Verifies one file of a data directory in small steps: the checksums and the chain of frames, as on disk.

It runs in the worker process. `scrub` handles damage, in the server.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ...core.errors import StorageCorrupted
from ...formats.newer import WrittenByNewer
from ..disk.disk_image import DiskImage
from ..frames.frame import Frame
from ..frames.layout import HEADER_BYTES
from ..segments.recovery import SegmentScan, is_covered
from ..segments.segment import SEGMENT_HEADER_BYTES, Segment
from .checksums import CHECKS, Unproved

NOT_NEXT = "it does not follow the segment before it"
"""The problem of a segment that is visible only by comparison with its neighbour."""
_OF_THE_DISK = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG})
STEP_S = 0.05
"""A step ends with the first piece or frame that ends after this time."""


class FileToProve(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file to verify; for a segment, with the facts known to its log."""

    path: str
    log_id: str = ""
    """The id in the segment's header, in hexadecimal digits."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Ranges of numbers that may be missing."""
    ends_at: int | None = None
    """The last number that must exist; None if the file is the newest of a log that is not open."""
    durable: int = 0
    """For such a file: the highest number certain to be durable. A bad frame above it is a torn tail."""
    before: tuple[int, int] = (0, 0)
    """The last number and checksum of the previous segment; zeros if unknown."""
    number: int = 0
    """The number of its first event, if the file's name does not have it yet."""

    @property
    def first(self) -> int:
        """The number of the first event of a segment."""
        return self.number or int(Path(self.path).stem)


class Damage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A damaged place; for a segment, with the events."""

    problem: str
    first: int = 0
    last: int = 0


class Proof(msgspec.Struct, omit_defaults=True):
    """The result of one step."""

    is_done: bool = False
    bytes: int = 0
    """The bytes read in this step."""
    cpu_s: float = 0.0
    is_direct: bool = True
    """Whether the page cache was bypassed."""
    damages: list[Damage] = []
    """All damage found in the file, set by the last step."""
    after: tuple[int, int] = (0, 0)
    """For a segment, set by the last step: its last number and checksum."""
    is_known: bool = True
    """Whether `damages` is complete, set by the last step; False: nothing new is known about the file."""


class FileProver:
    """Verifies one file at a time."""

    def __init__(self) -> None:
        self._running: _Running | None = None

    def step(self, file: FileToProve) -> Proof:
        """Continue with that file, or begin it if the last file was a different one.

        Raises OSError except FileNotFoundError. A vanished file counts as proved: it was trimmed, merged or replaced.
        An unreadable one is damaged.
        """
        cpu, ends_at = time.process_time(), time.monotonic() + STEP_S
        if self._running is None or self._running.file != file:
            self._end()
            try:
                self._running = _Running(file)
            except FileNotFoundError:
                return Proof(is_done=True)
            except OSError as error:
                if error.errno not in _OF_THE_DISK:
                    raise
                return Proof(is_done=True, damages=[_whole_damage(file, error.strerror or str(error))])
        running, read = self._running, self._running.image.bytes_read
        is_done = all(time.monotonic() < ends_at for _ in running.steps)
        proof = Proof(is_done, running.image.bytes_read - read, time.process_time() - cpu, running.image.is_direct)
        if is_done:
            proof.damages, proof.after, proof.is_known = running.damages, running.after, running.is_known
            self._end()
        return proof

    def _end(self) -> None:
        if self._running is not None:
            self._running.image.close()
            self._running = None


class _Running:
    """A file being verified."""

    def __init__(self, file: FileToProve) -> None:
        """Raises OSError."""
        self.file = file
        self.image = DiskImage(Path(file.path))
        self.damages: list[Damage] = []
        self.after = (0, 0)
        self.is_known = True
        self.steps = self._segment() if file.log_id else self._whole()

    def _whole(self) -> Iterator[None]:
        """Verify a file with a single checksum. It is read again before it is reported as damaged."""
        for _ in range(2):
            try:
                yield from CHECKS[self.image.path.suffix](self.image)
                return
            except Unproved:
                self.is_known = False
                return
            except ValueError as error:
                problem = self.image.unreadable or str(error)
                self.image.read_again(0)
        self.damages.append(Damage(problem))

    def _segment(self) -> Iterator[None]:
        image, file = self.image, self.file
        for is_last_try in (False, True):
            yield from image.fill(SEGMENT_HEADER_BYTES)
            try:
                segment = Segment(image.path, bytes.fromhex(file.log_id), file.first, image=image)
            except WrittenByNewer:
                self.is_known = False
                return
            except StorageCorrupted as error:
                image.read_again(0)
                if is_last_try:
                    self.damages.append(_whole_damage(file, image.unreadable or error.problem))
            else:
                yield from self._frames(segment)
                return

    def _frames(self, segment: Segment) -> Iterator[None]:
        """Verify every frame with the code of `check`; after damage, continue with the next intact frame."""
        image, file, gaps = self.image, self.file, list(self.file.gaps)
        scan, retried = SegmentScan(segment, gaps, ends_at=file.ends_at), -1
        while True:
            if scan.is_lost(scan.bad_number, scan.bad_number):  # the next intact frame may be anywhere
                yield from image.fill(image.size)
            yield from self._read_frame(segment.end)
            try:
                has_more = scan.step()
            except WrittenByNewer:
                self.is_known = False
                return
            if has_more:
                if len(segment.offsets) == 1:
                    self._check_begin(segment)
                image.drop(segment.end)
                yield
            elif scan.bad is None:
                break
            elif retried != segment.end:
                retried, scan.bad = segment.end, None
                image.read_again(segment.end)
            else:
                yield from image.fill(image.size)
                if file.ends_at is None and scan.known_durable(file.durable) < scan.bad_number:
                    break  # a torn tail: the next start truncates it
                low, high = scan.lost_range(file.ends_at or scan.known_durable(file.durable))
                self.damages.append(Damage(image.unreadable or str(scan.bad), low, high))
                gaps.append((low, high))
                scan.bad = None
        if file.ends_at is not None and not is_covered(segment.last + 1, file.ends_at, gaps):
            self.damages.append(Damage("no frame has them", segment.last + 1, file.ends_at))
        self.after = segment.last, segment.last_crc

    def _read_frame(self, offset: int) -> Iterator[None]:
        """Read the frame at that offset, to the end given by its header."""
        image = self.image
        yield from image.fill(offset + HEADER_BYTES)
        length = int.from_bytes(image.content[offset + 8 : offset + 16], "little")
        yield from image.fill(offset + length)

    def _check_begin(self, segment: Segment) -> None:
        last, crc = self.file.before
        frame = Frame(segment.buffer, segment.offsets[0], segment.crc_seed)
        if crc and frame.first == last + 1 and frame.previous_crc != crc:
            self.damages.append(Damage(NOT_NEXT))


def _whole_damage(file: FileToProve, problem: str) -> Damage:
    if not file.log_id:
        return Damage(problem)
    return Damage(problem, file.first, max(file.ends_at or file.durable, file.first))
