"""META: the identity of one log directory and the few facts that outlive its frames. One small file, replaced whole."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from ..core.errors import StorageCorrupted, StorageUnavailable
from .disk import write_whole

FORMAT = 3
"""The highest version of the directory layout, and of META, that this code knows."""
FORMAT_PLAIN, FORMAT_MARKS, FORMAT_DISTRUSTED = 1, 2, 3
"""A log begins with the first, which older code opens too. With its first mark it gets the second: older code, which
would drop frames without keeping the table of writers, refuses it. With the first events that a wrong clock recorded it
gets the third (and the table): older code would look times up where they are not in order."""
META_NAME = "META.json"


@dataclass(frozen=True)
class CleanStop:
    """How the newest segment ended when the log was closed in order: nothing behind it needs a look."""

    head: int
    segment: str
    end: int
    crc: int


@dataclass(frozen=True)
class Meta:
    """The content of META. Ranges are inclusive pairs of sequence numbers."""

    name: str
    incarnation: str
    """32 hexadecimal digits; also in the header of each segment of this log."""
    segments_id: str
    """What the headers of the segments carry: the incarnation that wrote the first of them."""
    id_seed: int
    created_at: int
    partitions: int
    """How many the log has; more than one have postings."""
    format: int = FORMAT_PLAIN
    epoch: int = 0
    """Raised at every open."""
    first_retained: int = 1
    known_from: int = 1
    """Conditions know of everything from here on."""
    voids: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of other incarnations under this name: never events of this log."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of damaged events whose loss was accepted."""
    clean: CleanStop | None = None
    distrusted: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last number of events that a wrong clock recorded, ascending, and the time that they count as."""

    @property
    def crc_seed(self) -> int:
        """What the checksums of this log's frames begin with: not known to producers."""
        return self.id_seed & 0xFFFFFFFF

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Numbers that are no events of this log, though there may be events on both sides of them."""
        return [*self.voids, *self.lost]

    @property
    def floor(self) -> int:
        """The highest number that must not be given again, whatever the frames say; the log goes on above it."""
        return max((high for _, high in self.gaps), default=0)

    @property
    def has_marks(self) -> bool:
        """Whether the log has, or had, marks of exactly-once writers: then there is a file of their table."""
        return self.format >= FORMAT_MARKS

    def counts_as(self, number: int) -> int | None:
        """The time that an event counts as which a wrong clock recorded; None if its own time is right."""
        return next((taken_as for first, last, taken_as in self.distrusted if first <= number <= last), None)

    def changed(self, **changes: object) -> Meta:
        """A copy with these fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def write(self, directory: Path) -> None:
        """Replace META durably."""
        write_whole(directory / META_NAME, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def read_meta(directory: Path) -> Meta:
    """The META of a log directory. Raises StorageCorrupted, StorageUnavailable (a newer format)."""
    path = directory / META_NAME
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content)
        if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] > FORMAT:
            raise StorageUnavailable(
                f"{path}: format {found['format']} is newer than this headwater ({FORMAT}); use a newer headwater"
            )
        return msgspec.json.decode(content, type=Meta)
    except FileNotFoundError:
        raise StorageCorrupted(str(path), "the file is missing", "restore a backup (headwater restore)") from None
    except msgspec.MsgspecError as error:
        raise StorageCorrupted(str(path), f"unreadable: {error}", "restore a backup (headwater restore)") from None
