"""META: the identity of a log directory and the few facts that outlive its frames.

It is one small file, always replaced as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import msgspec

from ...core.limits import PARTITIONS_MAX
from ..disk.checked_file import CheckedFile, check_names

FORMAT = 3
"""The version of the directory layout and of META that this code writes; it opens all earlier ones."""
FORMAT_MARKS = 2
"""Before format 3, the format of a log with marks of exactly-once writers; format 1 has none."""
FORMAT_CHECKED = 3
"""From this format on, META has a checksum and the trim point has a second witness (`catalog.trim_point`)."""
INDEX, HISTORY, FRAMES = "idx", "history", "log"
"""Directories of a log: of index files, of postings of trimmed events, and of segments."""
META_NAME = "META.json"
_ID = re.compile("[0-9a-f]{32}")
_SEGMENT = re.compile(r"[0-9]{20}\.log")
_U32, _U63, _U64 = 2**32 - 1, 2**63 - 1, 2**64 - 1


@dataclass(frozen=True)
class CleanStop:
    """The end of the newest segment when the log was closed cleanly: nothing after it needs a check."""

    head: int
    segment: str
    end: int
    crc: int

    def __post_init__(self) -> None:
        """Raises ValueError for impossible values."""
        _check_between("clean.head", self.head, 0, _U63)
        _check_between("clean.end", self.end, 0, _U63)
        _check_between("clean.crc", self.crc, 0, _U32)
        _check_fits("clean.segment", self.segment, _SEGMENT)


@dataclass(frozen=True)
class Meta:
    """The content of META. Ranges are inclusive pairs of sequence numbers."""

    name: str
    incarnation: str
    """32 hexadecimal digits; also in the header of each segment of this log."""
    segments_id: str
    """The id in the headers of the segments: the incarnation that wrote the first one."""
    id_seed: int
    created_at: int
    partitions: int
    """The number of partitions; if there is more than one, they have postings."""
    format: int = FORMAT
    """If earlier, the format in which it was read; such a format is no longer written."""
    epoch: int = 0
    """Increased at every opening."""
    first_retained: int = 1
    known_from: int = 1
    """Conditions see every event from this number on."""
    voids: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of other incarnations with this name: never events of this log."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of damaged events whose loss was accepted."""
    clean: CleanStop | None = None
    has_marks: bool = False
    """Whether the log has, or had, marks of exactly-once writers: then their table has a file."""
    distrusted: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last numbers of events recorded by a wrong clock, ascending, and the time that is used for them."""

    def __post_init__(self) -> None:
        """Raises ValueError for impossible values."""
        if not self.name:
            raise ValueError("name: it is empty")
        _check_fits("incarnation", self.incarnation, _ID)
        _check_fits("segments_id", self.segments_id, _ID)
        _check_between("id_seed", self.id_seed, 0, _U64)
        _check_between("partitions", self.partitions, 1, PARTITIONS_MAX)
        _check_between("format", self.format, 1, FORMAT)
        _check_between("epoch", self.epoch, 0, _U63)
        _check_between("first_retained", self.first_retained, 1, _U63)
        _check_between("known_from", self.known_from, 1, self.first_retained)
        _check_ranges("voids", self.voids)
        _check_ranges("lost", self.lost)
        _check_ranges("distrusted", [(first, last) for first, last, _ in self.distrusted])

    @property
    def crc_seed(self) -> int:
        """The seed of the checksums of this log's frames: not known to producers."""
        return self.id_seed & 0xFFFFFFFF

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of numbers without events, though there may be events on both sides."""
        return [*self.voids, *self.lost]

    @property
    def floor(self) -> int:
        """The highest number that must not be issued again, whatever the frames say; the log continues above it."""
        return max((high for _, high in self.gaps), default=0)

    @property
    def origin(self) -> int:
        """The first number ever used for an event of this log: a new log is trimmed up to it."""
        origin = 1
        for low, high in sorted(self.voids):
            if low <= origin:
                origin = max(origin, high + 1)
        return origin

    def counts_as(self, number: int) -> int | None:
        """The time that is used for an event recorded by a wrong clock; None if its own time is right."""
        return next((taken_as for first, last, taken_as in self.distrusted if first <= number <= last), None)

    def changed(self, **changes: object) -> Meta:
        """A copy with these fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def write(self, directory: Path) -> None:
        """Durably replace META."""
        META_FILE.write(directory, self.changed(format=FORMAT))


def read_meta(directory: Path) -> Meta:
    """The META of a log directory. Raises StorageCorrupted, StorageUnavailable (a newer format)."""
    try:
        return META_FILE.read(directory)
    except FileNotFoundError:
        raise META_FILE.damaged(directory / META_NAME, "the file is missing") from None


def _earlier(content: bytes) -> Meta:
    """Decode the format of 0.1.0. Raises ValueError."""
    found = msgspec.json.decode(content, type=dict[str, object])
    check_names(found, {each.name for each in fields(Meta)} - {"has_marks", "distrusted"})
    return msgspec.convert(found | {"has_marks": found["format"] == FORMAT_MARKS}, Meta)


def _check_between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}: expected {low} to {high}, got {value}")


def _check_fits(name: str, value: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(value):
        raise ValueError(f"{name}: {value[:64]!r} does not match {pattern.pattern}")


def _check_ranges(name: str, ranges: Sequence[tuple[int, int]]) -> None:
    for low, high in ranges:
        _check_between(f"{name}: the end of a range", high, low, _U63)
        _check_between(f"{name}: the start of a range", low, 1, high)


META_FILE = CheckedFile(
    META_NAME,
    Meta,
    newest=FORMAT,
    checked_from=FORMAT_CHECKED,
    earlier=_earlier,
    remedy=(
        "restore a backup (headwater restore); without one, move the log's directory away, then give up the log "
        "(headwater check --accept-loss LOG), so that a new one can use its name"
    ),
    indent=2,
)
